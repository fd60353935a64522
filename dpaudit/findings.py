"""Findings about a deployment's files, as checks and as a table of a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dpaudit.report import Check, Column, Facts, Items, Section, Table, tests_table
from dpaudit.types import TestResult
from dpaudit.wording import NOTHING

__all__ = [
    "MOST_ROWS",
    "Finding",
    "finding_checks",
    "findings_table",
    "known_facts",
    "last_sections",
]

MOST_ROWS = 400
"""Rows of a long table that a report has; the rest is in its data."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact for the auditor: what is wrong, where, and if it is against the user (``serious``)."""

    where: str
    message: str
    serious: bool = False


def finding_checks(findings: Sequence[Finding]) -> list[Check]:
    """One check per finding; those that are not serious are advice."""
    return [
        Check(
            group="findings",
            name=finding.where or "finding",
            outcome="finding" if finding.serious else "advice",
            looks_at="the deployment's own files",
            effect=finding.message,
        )
        for finding in findings
    ]


def findings_table(findings: Sequence[Finding], *, serious: str, caption: str) -> Table:
    """The findings, serious ones first; ``serious`` heads the column that says which these are."""
    rows = sorted(findings, key=lambda f: not f.serious)[:MOST_ROWS]
    return Table(
        columns=(
            Column("Finding", tuple(f.message for f in rows)),
            Column("Where", tuple(f.where for f in rows)),
            Column(serious, tuple("yes" if f.serious else "no" for f in rows)),
        ),
        caption=caption,
        marked=tuple(f.serious for f in rows),
        left_out=len(findings) - len(rows),
        terminal=caption,
    )


def known_facts(facts: Iterable[tuple[str, str]], *, terminal: tuple[str, ...] = ()) -> Facts:
    """The facts that have a value; ``terminal`` names those that a terminal shows."""
    return Facts(tuple((name, text) for name, text in facts if text != NOTHING), terminal=terminal)


def last_sections(tests: Sequence[TestResult], spots: tuple[str, ...]) -> Iterator[Section]:
    """All tests, and the ``spots`` that a pass cannot exclude; each section only if it has rows."""
    if tests:
        yield Section(title="All tests", blocks=(tests_table(tests),))
    if spots:
        yield Section(title="What a pass cannot exclude", blocks=(Items(spots),))
