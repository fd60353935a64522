"""Tests as the checks and the table of a report; every kind of result that has tests uses them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpaudit import wording
from dpaudit.report import Check, Column, Outcome, Table
from dpaudit.types import TestResult, Verdict

__all__ = ["check_of", "sorted_tests", "tests_table"]

_CERTAIN = 1e-100


def check_of(test: TestResult, alpha: float, verdict: Verdict) -> Check:
    """A test's result as a check of a report."""
    p = wording.number(test.p)
    outcome: Outcome
    if test.finding:
        outcome = "finding"
    elif test.advisory and (p is None or p <= alpha):
        outcome = "advice"
    else:
        outcome = "undecided" if verdict == "inconclusive" else "pass"
    return Check(
        name=test.name or "test",
        outcome=outcome,
        looks_at=test.looks_at,
        effect=test.effect,
        p=p,
        p_adjusted=test.p_adjusted,
        statistic=test.statistic,
        interval=test.interval,
        unit=test.unit,
        harm=test.harm,
        topic=test.topic,
        cause=test.cause,
        reproduce=test.reproduce,
        facts={
            "advisory": test.advisory,
            **({} if test.seen_after is None else {"seen_after": test.seen_after}),
        },
    )


def sorted_tests(tests: Sequence[TestResult]) -> list[TestResult]:
    """Tests, smallest adjusted p first, advice last; equal ones in the audit's order.

    That order has the likelier cause first, and all p-values below 1e-100 are equal to it.
    """

    def rank(test: TestResult) -> tuple[bool, float, float]:
        adjusted, p = (wording.number(x) for x in (test.p_adjusted, test.p))
        return (
            test.advisory,
            math.inf if adjusted is None else max(adjusted, _CERTAIN),
            math.inf if p is None else max(p, _CERTAIN),
        )

    return sorted(tests, key=rank)


def tests_table(tests: Sequence[TestResult]) -> Table:
    """An audit's tests, smallest adjusted p first."""
    tests = sorted_tests(tests)
    outcome = ["yes" if t.finding else "advice" if t.advisory else "no" for t in tests]
    return Table(
        columns=(
            Column("Test", tuple(t.name for t in tests)),
            Column("Looks at", tuple(t.looks_at for t in tests), terminal=False),
            Column("Statistic", tuple(wording.quantity(t.statistic) for t in tests), True, False),
            Column("p", tuple(wording.p_value(t.p) for t in tests), True, False),
            Column("Adjusted p", tuple(wording.p_value(t.p_adjusted) for t in tests), True),
            Column("Effect", tuple(t.effect or wording.NOTHING for t in tests)),
            Column("Finding", tuple(outcome), terminal=False),
        ),
        caption="Smallest adjusted p first",
        marked=tuple(t.finding for t in tests),
        terminal="Tests",
        checks=True,
    )
