"""The tables of a report as columns of text, for the page and the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dpaudit.documents import Arm, ArmAudit
from dpaudit.report import format as fmt
from dpaudit.report.measurements import Measure, Row, reading
from dpaudit.report.rows import arm_labels, attacks_of, keys_in, rate_of, shown_on
from dpaudit.results.text import printable
from dpaudit.types import BlindSpot, CellResult, Provenance, TestResult, to_dict

__all__ = [
    "Column",
    "blind_spots_table",
    "cells_table",
    "facts_table",
    "measured",
    "measured_table",
    "sorted_tests",
    "summary_table",
    "tests_table",
]

_CERTAIN = 1e-100

VERDICTS = {"no-finding": "no finding", "finding": "finding", "inconclusive": "inconclusive"}


class Column(NamedTuple):
    """A header and its cells; ``numeric`` columns are set in figures of equal width."""

    header: str
    cells: list[str]
    numeric: bool = False

    @property
    def kind(self) -> str:
        """How the page sets it: numbers, numbers with words that wrap, short text, or prose."""
        longest = max((len(line) for cell in self.cells for line in cell.split("\n")), default=0)
        if self.numeric:
            return "number wraps" if longest > 40 else "number"
        return "prose" if longest > 20 else "word"


def summary_table(rows: Sequence[Arm], *, narrow: bool = False) -> list[Column]:
    """An experiment's arms: the black-box audit, the attacker's success, and the error.

    Several attacks on one arm take a line each, with their names; two if ``narrow``. Empty columns
    are left out.
    """
    names = {a.attack for row in rows for a in attacks_of(row)}
    confidences = {a.interval.confidence for row in rows for a in attacks_of(row)}
    only = fmt.number(confidences.pop()) if len(confidences) == 1 else None
    interval = f"[{100 * only:g} % interval]" if only else "[interval]"
    keyed = keys_in(rows)
    columns = [
        Column("Arm", arm_labels(rows)),
        Column("Black-box audit", [_black_box(row.audit) for row in rows]),
        Column(
            f"{'Key holder’s' if keyed else 'Attacker’s'} success\n{interval}",
            [_successes(row, named=len(names) > 1, narrow=narrow) for row in rows],
            True,
        ),
        Column("ε claimed", [fmt.epsilon(row.epsilon_claimed) for row in rows], True),
        Column("ε to key holder" if keyed else "ε by theory", [_known(row) for row in rows], True),
        Column("ε shown by attack", [_shown(row) for row in rows], True),
        Column("L2 error", [_error(row) for row in rows], True),
    ]
    return [
        c for i, c in enumerate(columns) if i < 3 or any(cell != fmt.NOTHING for cell in c.cells)
    ]


def sorted_tests(tests: Sequence[TestResult]) -> list[TestResult]:
    """Tests, smallest adjusted p first, advice last; equal ones in the audit's order.

    That order has the likelier cause first, and all p-values below 1e-100 are equal to it.
    """

    def rank(test: TestResult) -> tuple[bool, float, float]:
        adjusted, p = (fmt.number(x) for x in (test.p_adjusted, test.p))
        return (
            test.advisory,
            math.inf if adjusted is None else max(adjusted, _CERTAIN),
            math.inf if p is None else max(p, _CERTAIN),
        )

    return sorted(tests, key=rank)


def tests_table(tests: Sequence[TestResult]) -> list[Column]:
    """An audit's tests, smallest adjusted p first."""
    tests = sorted_tests(tests)
    return [
        Column("Test", [printable(t.name, limit=200) for t in tests]),
        Column("Looks at", [printable(t.looks_at, limit=400) for t in tests]),
        Column("Statistic", [fmt.quantity(t.statistic) for t in tests], True),
        Column("p", [fmt.p_value(t.p) for t in tests], True),
        Column("Adjusted p", [fmt.p_value(t.p_adjusted) for t in tests], True),
        Column("Effect", [printable(t.effect, limit=400) or fmt.NOTHING for t in tests]),
        Column(
            "Finding", ["yes" if t.finding else "advice" if t.advisory else "no" for t in tests]
        ),
    ]


def blind_spots_table(spots: Sequence[BlindSpot]) -> list[Column]:
    """What a pass cannot exclude; a flaw undetectable at any sample size has no size."""
    return [
        Column("Flaw", [printable(s.flaw, limit=400) for s in spots]),
        Column("Missed up to", [_size(s) for s in spots], True),
        Column("In words", [printable(s.says, limit=600) for s in spots]),
        Column("Test", [printable(s.test, limit=200) for s in spots]),
    ]


def measured_table(
    columns: Sequence[Measure], rows: Sequence[Row], *, of: Sequence[Row] = ()
) -> list[Column]:
    """Measurements in the order given; columns that are empty in ``of`` (or ``rows``) go."""
    texts = [[measured(row.get(c.key), c.format) for row in rows] for c in columns]
    filled = [any(row.get(c.key) is not None for row in of or rows) for c in columns]
    found = [
        Column(c.label, cells, _is_numeric(c, rows))
        for c, cells, any_filled in zip(columns, texts, filled, strict=True)
        if any_filled
    ]
    return found or [Column(c.label, cells) for c, cells in zip(columns[:1], texts, strict=False)]


def measured(cell: object, form: str) -> str:
    """A cell in the words of its column's format; words in a column of numbers stay words."""
    value, low, high = reading(cell)
    if isinstance(value, str) and fmt.number(value) is None:
        return fmt.NOTHING if value == "nan" else printable(value, limit=400)
    match form:
        case "proportion":
            return fmt.proportion(value, low, high)
        case "epsilon":
            if value is None and isinstance(cell, Mapping):
                return fmt.bounds(low, high)
            return fmt.ranged(fmt.epsilon(value), low, high)
        case "number":
            return fmt.ranged(fmt.quantity(value), low, high)
        case "ratio":
            text = fmt.quantity(value)
            return fmt.ranged(text if text == fmt.NOTHING else f"{text}×", low, high)
        case "seconds":
            ends = "" if None in (low, high) else f" [{fmt.seconds(low)}, {fmt.seconds(high)}]"
            return fmt.seconds(value) + ends
        case "flag" if isinstance(value, bool):
            return "yes" if value else "no"
        case _:
            return fmt.quantity(value) if value in ("inf", "-inf") else fmt.setting(value)


def _is_numeric(column: Measure, rows: Sequence[Row]) -> bool:
    if column.format in {"flag", "text"}:
        return False
    values = [reading(row.get(column.key)).value for row in rows]
    return all(v is None or fmt.number(v) is not None or v == "nan" for v in values)


def cells_table(cells: Sequence[CellResult]) -> list[Column]:
    """The finished cells of an experiment: settings and scalar results."""
    return [
        Column("Cell", [printable(c.cell, limit=200) for c in cells]),
        Column("Kind", [printable(c.kind, limit=60) for c in cells]),
        Column("Settings", [_plain(c.settings) for c in cells]),
        Column("Outcome", [_plain(c.outcome) for c in cells]),
        Column("Time", [fmt.seconds(c.seconds) for c in cells], True),
    ]


def facts_table(provenance: Provenance | Row) -> list[Column]:
    """Provenance as names and values; versions take a line each, plug-ins one per package."""
    facts = to_dict(provenance)
    if isinstance(plugins := facts.get("plugins"), list):
        facts |= {"plugins": _by_package(plugins)}
    return [
        Column("What", [printable(name, limit=100) for name in facts]),
        Column("Value", [_fact(value) or fmt.NOTHING for value in facts.values()]),
    ]


def _by_package(plugins: Sequence[object]) -> list[object]:
    """Plug-ins of one kind, distribution, version and hash as one, with all their names."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for plugin in plugins:
        if not isinstance(plugin, Mapping):
            return list(plugins)
        about = tuple(fmt.setting(v) for k, v in plugin.items() if k != "name")
        groups.setdefault(about, []).append(fmt.setting(plugin.get("name")))
    return [
        dict(enumerate([*about[:1], *(f"{name}," for name in names[:-1]), names[-1], *about[1:]]))
        for about, names in groups.items()
    ]


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{printable(k, limit=100)} {fmt.setting(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, Mapping) for v in value):
        return "\n".join(" ".join(fmt.setting(x) for x in v.values()) for v in value)
    return fmt.setting(value)


def _plain(values: Row) -> str:
    scalars = [
        f"{printable(k, limit=60)} {fmt.setting(v)}"
        for k, v in values.items()
        if not isinstance(v, (Mapping, list, tuple))
    ]
    return ", ".join(scalars[:12]) + (", …" if len(scalars) > 12 else "") or fmt.NOTHING


def _black_box(audit: ArmAudit | None) -> str:
    if audit is None:
        return "not run"
    smallest = fmt.p_value(audit.smallest_p)
    text = VERDICTS[audit.verdict]
    return text if smallest == fmt.NOTHING else f"{text}\nsmallest p {smallest}"


def _successes(row: Arm, *, named: bool, narrow: bool) -> str:
    end = "\n" if narrow else " "
    lines = [
        (printable(a.attack, limit=100) + end if named else "") + rate_of(a)
        for a in attacks_of(row)
    ]
    return "\n".join(lines) or "not attacked"


def _known(row: Arm) -> str:
    return fmt.bounds(row.epsilon_key_holder.low, row.epsilon_key_holder.high)


def _shown(row: Arm) -> str:
    shown = shown_on(row)
    return fmt.bounds(shown) if shown > 0 else fmt.NOTHING


def _error(row: Arm) -> str:
    measured, expected = fmt.quantity(row.l2_error), fmt.quantity(row.l2_expected)
    return measured if fmt.NOTHING in {measured, expected} else f"{measured}\n(expected {expected})"


def _size(spot: BlindSpot) -> str:
    if fmt.number(spot.size) is None:
        return "any size"
    return f"{fmt.quantity(spot.size, digits=3)} {printable(spot.unit, limit=60)}".strip()
