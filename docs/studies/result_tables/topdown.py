"""The host `topdown`: errors of its tables, and what is read in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from result_tables.reading import interval, line, rows


def _mean(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "–"
    value, low, high = (
        f"{found[key]:,.0f}" if abs(found[key]) >= 100 else f"{found[key]:.3g}"
        for key in ("value", "low", "high")
    )
    return f"{value} [{low}, {high}]" if found["high"] > 0 else value


def errors() -> Iterator[str]:
    """Mean absolute errors by level and query."""
    for row in rows("topdown"):
        scale = "–" if row["scale"] is None else f"{row['scale']:.3g}"
        ways = (_mean(row.get(way)) for way in ("measured", "summed", "tables"))
        yield line([f"{row['epsilon']:g}", row["level"], row["query"], scale, *ways])


def attack() -> Iterator[str]:
    """Questions about one county, from measurements and from tables."""
    for row in rows("topdown-attack"):
        shares = (interval(row[key], digits=0) for key in ("which", "count", "named"))
        read = interval(row["read"], digits=0) if "read" in row else "–"
        settings = row["noise"], row["view"], f"{row['epsilon']:g}", row["trials"]
        yield line([*settings, *shares, read])
