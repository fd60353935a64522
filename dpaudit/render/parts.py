"""What every format has: safe text, the badge, who made it, and the tables of every report.

Text from outside is made safe here, once, before any format sees it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, structs

from dpaudit import wording
from dpaudit.harms import COMPONENTS
from dpaudit.report import Check, Column, Hazard, Report, Table
from dpaudit.results.text import one_line, printable
from dpaudit.types import BlindSpot
from dpaudit.wording import date_text

__all__ = [
    "badge",
    "blind_spots_table",
    "cut_rows",
    "finding_text",
    "hazards_table",
    "headline",
    "made_facts",
    "main_table",
    "provenance_table",
    "safe",
    "spot_text",
    "width_of",
]

_LONGEST = 20_000
T = TypeVar("T")


def safe(value: T) -> T:
    """A report, or a part of one, whose texts are printable and of at most 20,000 characters.

    Numbers and everything else stay. ``data`` of a report is left alone: no format shows it, and
    JSON escapes it.
    """
    copy: Any = value
    if isinstance(value, str):
        copy = (
            value if value.isascii() and value.isprintable() else printable(value, limit=_LONGEST)
        )
        copy = copy if len(copy) <= _LONGEST else printable(copy, limit=_LONGEST)
    elif isinstance(value, Struct):
        fields = {n: getattr(value, n) for n in value.__struct_fields__ if n != "data"}
        copy = structs.replace(value, **{name: safe(one) for name, one in fields.items()})
    elif isinstance(value, tuple):
        copy = tuple(safe(one) for one in value)
    elif isinstance(value, list):
        copy = [safe(one) for one in value]
    elif isinstance(value, Mapping):
        copy = {safe(name): safe(one) for name, one in value.items()}
    elif hasattr(value, "__dataclass_fields__"):
        import dataclasses

        fields = {f.name: safe(getattr(value, f.name)) for f in dataclasses.fields(copy)}
        copy = dataclasses.replace(copy, **fields)
    return copy  # type: ignore[no-any-return]


_SIGNS = {"finding": "▲", "no-finding": "✓", "inconclusive": "?"}
_WORDS = {"finding": "Finding", "no-finding": "No finding", "inconclusive": "Inconclusive"}


class Badge(NamedTuple):
    """``verdict`` is a CSS class, ``sign`` decoration, ``word`` the text, ``rest`` the sentence."""

    verdict: str
    sign: str
    word: str
    rest: str
    joined: str


def headline(report: Report, *, where: str) -> str:
    """The verdict in one sentence; of a pass also ``where`` its blind spots are; remarks."""
    sentence = report.headline
    if report.verdict == "no-finding" and report.blind_spots:
        sentence = f"{sentence.rstrip('.')}; what this cannot exclude is {where}."
    return " ".join([sentence, *report.remarks])


def badge(report: Report, *, where: str) -> Badge:
    """Split a verdict's sentence: its first word becomes the badge if the sentence begins with it.

    A remark in brackets after the word belongs to the badge.
    """
    sentence = headline(report, where=where)
    text = report.badge or _WORDS[report.verdict]
    if remark := re.match(rf"{re.escape(text)} \([\w ]+\)(?=: )", sentence):
        text = remark[0]
    starts = sentence.startswith(f"{text}: ")
    rest = sentence[len(text) + 2 :] if starts else sentence
    sign = report.sign or _SIGNS[report.verdict]
    return Badge(report.verdict, sign, text, rest, ": " if starts else ". ")


_FIRST = {"dpaudit": "dpaudit", "python": "Python"}


def made_facts(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Date, person and versions, as names and values; what is not known is left out.

    The date is when the result was made, to the second, in UTC. A missing person is said to be.
    """
    versions = provenance.get("versions")
    versions = versions if isinstance(versions, Mapping) else {}
    others = [
        f"{name} {version}"
        for name, version in versions.items()
        if name not in _FIRST and version != "not installed"
    ]
    date = date_text(provenance.get("started"))
    nobody = "not stated" if date else ""
    facts = [
        ("Date", date),
        ("Run by", str(provenance.get("by") or nobody)),
        ("Made with", ", ".join(f"{_FIRST[n]} {versions[n]}" for n in _FIRST if versions.get(n))),
        ("Libraries", ", ".join(others)),
    ]
    return [(name, value) for name, value in facts if value]


def finding_text(check: Check) -> str:
    """A check on one line: its name, effect and adjusted p-value."""
    p = "" if check.p is None else f"(adjusted p {wording.p_value(check.p_adjusted)})"
    parts = f"{one_line(check.name, limit=100)}:", one_line(check.effect), p
    return " ".join(filter(None, parts))


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
    size, statement = _size(spot), f": {spot.says}" if spot.says else ""
    return f"{spot.flaw}{f' ({size})' if size else ''}{statement}"


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
    by_component = {hazard.component: hazard for hazard in hazards}
    rows = (
        [(name, section, by_component.get(name)) for name, section in COMPONENTS]
        if by_component
        else []
    )
    return Table(
        columns=(
            Column("Component", tuple(name for name, _, _ in rows)),
            Column("Section", tuple(f"{section}" for _, section, _ in rows), True),
            Column("Found", tuple("; ".join(h.found if h else ()) or wording.NOTHING
                                  for _, _, h in rows)),
            Column("Not excluded", tuple(_open(h) for _, _, h in rows)),
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
