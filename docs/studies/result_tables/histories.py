"""First and last bad releases of libraries, from `dpaudit history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evidence.plan import RESULTS

from result_tables.reading import line, results

__all__ = ["bad"]


def _libraries() -> list[str]:
    folder = RESULTS / "history"
    return sorted(path.parent.name for path in folder.glob("*/results.json"))


def _rows(library: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = results("history", f"{library}/results.json")["rows"]
    return found


def bad() -> Iterator[str]:
    """Each check that found something: in which releases, and the first without."""
    for library in _libraries():
        rows = _rows(library)
        for check in dict.fromkeys(row["check"] for row in rows if row["verdict"] == "finding"):
            found = [r for r in rows if r["check"] == check and r["verdict"] == "finding"]
            audited = [r for r in rows if r["check"] == check and r["verdict"] != "cannot run"]
            last = found[-1]
            bound = max((row.get("epsilon") or 0.0 for row in found), default=0.0)
            yield line(
                [
                    last["library"],
                    f"`{last['mechanism']}`",
                    last["method"],
                    last["finding"].partition(",")[0],
                    last["claim"],
                    f"{bound:.3g}" if bound else "",
                    f"{len(found)} of {len(audited)}: {last['versions']}",
                    last["after"] or "–",
                    f"{p:.2g}" if (p := max(row["p"] for row in found)) else "< 1e-300",
                ]
            )
