"""The tables that every report has: blind spots, the NIST pyramid, provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit import wording
from dpaudit.harms import COMPONENTS
from dpaudit.report import Column, Hazard, Report, Table
from dpaudit.types import BlindSpot

__all__ = [
    "blind_spots_table",
    "cut_rows",
    "hazards_table",
    "main_table",
    "provenance_table",
    "spot_text",
    "width_of",
]


def width_of(column: Column) -> str:
    """How a page sets a column: numbers, numbers with words that wrap, short text, or prose."""
    longest = max((len(line) for cell in column.cells for line in cell.split("\n")), default=0)
    if column.numeric:
        return "number wraps" if longest > 40 else "number"
    return "prose" if longest > 20 else "word"


def cut_rows(columns: Sequence[Column], rows: Sequence[int]) -> tuple[Column, ...]:
    """The columns with the rows of these numbers only."""
    return tuple(
        Column(c.header, tuple(c.cells[i] for i in rows), c.numeric, c.terminal) for c in columns
    )


def blind_spots_table(spots: Sequence[BlindSpot]) -> tuple[Column, ...]:
    """What a pass cannot exclude; a flaw undetectable at any sample size has no size."""
    return (
        Column("Flaw", tuple(s.flaw for s in spots)),
        Column("Missed up to", tuple(map(_size, spots)), True),
        Column("In words", tuple(s.says for s in spots)),
        Column("Test", tuple(s.test for s in spots)),
    )


def spot_text(spot: BlindSpot) -> str:
    """A blind spot on one line: the flaw, the size up to which it is missed, and a sentence."""
    size, says = _size(spot), f": {spot.says}" if spot.says else ""
    return f"{spot.flaw}{f' ({size})' if size else ''}{says}"


def main_table(report: Report) -> Table:
    """The table of checks, marked rows first; without one, the first table.

    Of tables that a terminal shows; without columns if there is none.
    """
    blocks = [block for section in report.sections for block in section.blocks]
    tables = [b for b in blocks if isinstance(b, Table) and b.terminal and b.rows]
    if not tables:
        return Table(columns=(), caption="")
    table = next((t for t in tables if t.checks), tables[0])
    marked = {i for i, mark in enumerate(table.marked) if mark}
    order = sorted(range(table.rows), key=lambda i: i not in marked)
    columns = [c for c in table.columns if c.terminal or not table.checks]
    marks = tuple(i in marked for i in order)
    return Table(columns=cut_rows(columns, order), caption="", marked=marks)


def _size(spot: BlindSpot) -> str:
    if spot.size is None:
        return "any size" if spot.says else ""
    return f"{wording.quantity(spot.size, digits=3)} {spot.unit}".strip()


def hazards_table(hazards: Sequence[Hazard]) -> Table:
    """One row per component of the pyramid, if a report names any."""
    known = {hazard.component: hazard for hazard in hazards}
    shown = [(name, section, known.get(name)) for name, section in COMPONENTS] if known else []
    return Table(
        columns=(
            Column("Component", tuple(name for name, _, _ in shown)),
            Column("Section", tuple(f"{section}" for _, section, _ in shown), True),
            Column("Found", tuple("; ".join(h.found if h else ()) or wording.NOTHING
                                  for _, _, h in shown)),
            Column("Not excluded", tuple(_open(h) for _, _, h in shown)),
        ),
        caption="Components of the pyramid, from the top down, with the section of SP 800-226",
        ordered=True,
    )  # fmt: skip


def _open(hazard: Hazard | None) -> str:
    if hazard is None:
        return "not looked at"
    return "; ".join(hazard.open) or (wording.NOTHING if hazard.found else "not looked at")


def provenance_table(provenance: Mapping[str, Any]) -> Table:
    """Provenance as names and values; versions take a line each, plug-ins one per package."""
    facts = dict(provenance)
    if isinstance(plugins := facts.get("plugins"), list):
        facts |= {"plugins": _by_package(plugins)}
    columns = (
        Column("What", tuple(facts)),
        Column("Value", tuple(_fact(value) or wording.NOTHING for value in facts.values())),
    )
    return Table(columns=columns, caption="What is needed to repeat this", quiet=True)


def _by_package(plugins: Sequence[object]) -> list[object]:
    """Plug-ins of one kind, distribution, version and hash as one, with all their names."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for plugin in plugins:
        if not isinstance(plugin, Mapping):
            return list(plugins)
        about = tuple(wording.setting(v) for k, v in plugin.items() if k != "name")
        groups.setdefault(about, []).append(wording.setting(plugin.get("name")))
    return [
        dict(enumerate([*about[:1], *(f"{name}," for name in names[:-1]), names[-1], *about[1:]]))
        for about, names in groups.items()
    ]


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{k} {wording.setting(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, Mapping) for v in value):
        return "\n".join(" ".join(wording.setting(x) for x in v.values()) for v in value)
    return wording.setting(value)
