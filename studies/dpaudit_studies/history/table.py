"""The table of a history: one row per release and check; first and last bad release of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packaging.version import Version

__all__ = ["rows_of", "summary"]

Row = Mapping[str, Any]
_DONE = ("finding", "no-finding", "inconclusive")
_LEVELS = {"finding": 1.0, "no-finding": 0.0}


def rows_of(cells: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per release and check, oldest release first; releases that have none have one row.

    A row with a finding has the ``first`` and ``last`` release in which this check found
    something, and the first audited release ``after`` that without a finding, if there is one.
    """
    rows: list[dict[str, Any]] = []
    for cell in sorted(cells, key=lambda cell: Version(cell["version"])):
        told = {key: cell.get(key) for key in ("library", "version", "built", "installed")}
        if not cell["audits"]:
            lacking = {"verdict": "not installed", "failed": cell["failed"]}
            rows.append({**told, **lacking, "check": None, "found": None})
        for audit in cell["audits"]:
            row = {"failed": None, **told, **audit}
            level = _LEVELS.get(audit["verdict"])
            rows.append({**row, "check": _check(row), "found": level, "versions": None})
    for key in dict.fromkeys(row["check"] for row in rows):
        _mark([row for row in rows if key is not None and row["check"] == key])
    return rows


def _check(row: Row) -> str:
    return f"{row['mechanism']} by {row['method']}"


def _mark(rows: Sequence[dict[str, Any]]) -> None:
    """Write into the rows of one check which releases are bad."""
    bad = [i for i, row in enumerate(rows) if row["verdict"] == "finding"]
    if not bad:
        return
    first, last = rows[bad[0]]["version"], rows[bad[-1]]["version"]
    clean = [row["version"] for row in rows[bad[-1] + 1 :] if row["verdict"] == "no-finding"]
    between = sum(row["verdict"] == "no-finding" for row in rows[bad[0] : bad[-1]])
    span = first if first == last else f"{first} to {last}"
    span += f" ({between} of them without)" if between else ""
    for i in bad:
        rows[i] |= {
            "first": first,
            "last": last,
            "after": clean[0] if clean else None,
            "versions": span,
        }


def summary(rows: Sequence[Row]) -> str:
    """First and last bad release of each finding, and what could not be audited."""
    found = {row["check"]: row for row in rows if row["verdict"] == "finding"}
    releases = dict.fromkeys(row["version"] for row in rows)
    lacking = [row["version"] for row in rows if row["verdict"] == "not installed"]
    audited = len(releases) - len(lacking)
    library = rows[0]["library"]
    text = f"{audited} of {len(releases)} releases of {library} audited. "
    if found:
        text += "; ".join(_told(check, row) for check, row in found.items()) + "."
    elif audited:
        text += "No finding in any of them."
    text += f" Not installed: {', '.join(lacking)}." if lacking else ""
    failed = sum(row["verdict"] == "cannot run" for row in rows)
    return text + (f" {failed} checks cannot run." if failed else "")


def _told(check: str, row: Row) -> str:
    then = f"no finding from {row['after']}" if row["after"] else "to the newest that was audited"
    return f"{check}: {row['finding']} in {row['versions']}, {then}"
