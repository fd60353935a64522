"""The detectability map: what an audit of so many values finds nine times in ten, measured by simulation."""

from dpaudit.audit.power.frontier import COLUMNS, blind_spots, frontier, measured_curves, parse, read_table
from dpaudit.audit.power.proposal import Cover, Proposal, propose_tau

__all__ = [
    "COLUMNS",
    "Cover",
    "Proposal",
    "blind_spots",
    "frontier",
    "measured_curves",
    "parse",
    "propose_tau",
    "read_table",
]
