"""DP-FTRL: the audit of whitened noise."""

from __future__ import annotations

from collections.abc import Iterator

from result_tables.reading import line, rows

FLAWS = ("none", "identity", "other band", "two steps", "two restarts", "missing node", "float32")


def audit() -> Iterator[str]:
    """One row per factorisation, a column per flaw."""
    found = rows("dp-ftrl-audit")
    for name in dict.fromkeys(row["correlated"] for row in found):
        by = {row["flaw"]: row for row in found if row["correlated"] == name}
        cells = [
            f"{by[flaw]['findings']} of {by[flaw]['audits']}" if flaw in by else "–"
            for flaw in FLAWS
        ]
        yield line([f"`{name.partition(':')[0]}`", *cells])
