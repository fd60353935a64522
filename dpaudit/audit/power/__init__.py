"""The detectability map: what an audit of so many values finds nine times in ten, measured by simulation."""

from dpaudit.audit.power.frontier import COLUMNS, blind_spots, frontier, measured_curves, parse, read_table

__all__ = ["COLUMNS", "blind_spots", "frontier", "measured_curves", "parse", "read_table"]
