"""An audit's findings, one card each: the effect with its interval, and the reproducer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dpaudit.report import format as fmt
from dpaudit.report.tables import sorted_tests
from dpaudit.results.text import printable
from dpaudit.types import TestResult

__all__ = ["Found", "found"]


class Found(NamedTuple):
    """A finding: the test's name and what it looks at, the effect, facts, and the command."""

    name: str
    looks_at: str
    effect: str
    facts: list[tuple[str, str]]
    command: str


def found(tests: Sequence[TestResult]) -> list[Found]:
    """The findings of an audit or of a mechanism's audit, smallest adjusted p first."""
    return [_found(test) for test in sorted_tests(tests) if test.finding]


def _found(test: TestResult) -> Found:
    facts = [("Adjusted p", fmt.p_value(test.p_adjusted))]
    unit, interval = printable(test.unit, limit=60), test.interval
    if interval is not None:
        low, high, sure = (
            fmt.number(x) for x in (interval.low, interval.high, interval.confidence)
        )
        level = f"{100 * sure:.4g} % interval" if sure is not None and 0 < sure < 1 else "Interval"
        if high is None or high == float("inf"):
            facts.append(("At least", f"{unit} {fmt.bounds(low)}".strip()))
        else:
            ends = ", ".join(fmt.quantity(end, digits=6) for end in (low, high))
            facts.append((level, f"[{ends}] {unit}".strip()))
    if test.seen_after is not None:
        facts.append(("Found after", f"{fmt.count(test.seen_after)} values"))
    return Found(
        printable(test.name, limit=200),
        printable(test.looks_at, limit=400),
        printable(test.effect, limit=400) or fmt.NOTHING,
        [(name, value) for name, value in facts if value != fmt.NOTHING],
        printable(test.reproduce, limit=1000),
    )
