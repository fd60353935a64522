"""What an audit found, one card a finding: the effect with its interval, and the command that shows it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dpaudit.report import format as fmt
from dpaudit.report.tables import sorted_tests
from dpaudit.results.text import printable

__all__ = ["Found", "found"]


class Found(NamedTuple):
    """A finding in words: the test's name and what it looks at, the effect, facts by name, and the command."""

    name: str
    looks_at: str
    effect: str
    facts: list[tuple[str, str]]
    command: str


def found(result: Mapping[str, Any]) -> list[Found]:
    """The findings of an audit or of a mechanism's audit, smallest adjusted p first."""
    return [_found(test) for test in sorted_tests(result) if test.get("finding")]


def _found(test: Mapping[str, Any]) -> Found:
    facts = [("Adjusted p", fmt.p_value(test.get("p_adjusted")))]
    interval = test.get("interval")
    unit = printable(test.get("unit") or "", limit=60)
    if isinstance(interval, Mapping):
        low, high, sure = (fmt.number(interval.get(k)) for k in ("low", "high", "confidence"))
        level = f"{100 * sure:.4g} % interval" if sure is not None and 0 < sure < 1 else "Interval"
        if high is None or high == float("inf"):
            facts.append(("At least", f"{unit} {fmt.epsilon({'low': low or 0.0, 'high': 'inf'})}".strip()))
        else:
            ends = ", ".join(fmt.quantity(end, digits=6) for end in (low, high))
            facts.append((level, f"[{ends}] {unit}".strip()))
    if test.get("seen_after") is not None:
        facts.append(("Seen after", f"{fmt.count(test['seen_after'])} values"))
    return Found(
        printable(test.get("name", ""), limit=200),
        printable(test.get("looks_at") or "", limit=400),
        printable(test.get("effect") or "", limit=400) or fmt.NOTHING,
        [(name, value) for name, value in facts if value != fmt.NOTHING],
        printable(test.get("reproduce") or "", limit=1000),
    )
