"""Charts as inline SVG: rows of intervals, plots and maps, each from a report's data."""

from __future__ import annotations

from dpaudit.render.charts.draw import draw_chart

__all__ = ["draw_chart"]
