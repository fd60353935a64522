"""Audits of noisy measurement files with known noise."""

from __future__ import annotations

from collections.abc import Iterator

from result_tables.reading import interval, line, rows

__all__ = ["census_files"]


def census_files() -> Iterator[str]:
    """One row per flaw: sets of files, findings, and the tests behind them, for both countries."""
    by = {(row["flaw"], row["country"]): row for row in rows("census-files")}
    countries = list(dict.fromkeys(country for _, country in by))
    for flaw in dict.fromkeys(flaw for flaw, _ in by):
        cells: list[object] = ["**none**" if flaw == "none" else flaw]
        for country in countries:
            row = by[flaw, country]
            cells += [row["files"], interval(row["finding"]), row["first"] or "–"]
        yield line(cells)
