"""A summary for a pull request, in GitHub's Markdown: verdict, table, reproducers, blind spots.

Text from a sampler stays text: its punctuation becomes entities, so that it is no markup, HTML,
table or link, and names and numbers after ``@`` and ``#`` are no mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dpaudit.deployments.attribution.document import AttributionDocument
from dpaudit.deployments.census.document import CensusDocument
from dpaudit.documents import (
    AuditDocument,
    DeterminismDocument,
    ExperimentDocument,
    MeasurementsDocument,
    MechanismDocument,
    ProofDocument,
)
from dpaudit.report import format as fmt
from dpaudit.report.badge import badge
from dpaudit.report.deployment import deployment_findings_table
from dpaudit.report.formats.checks import Checked, checked
from dpaudit.report.measurements import read_measurements
from dpaudit.report.mechanism import bounds_table
from dpaudit.report.proofs import WORDS, coins_facts, law_table, profile_table
from dpaudit.report.reading import Document
from dpaudit.report.tables import Column, measured_table, sorted_tests, summary_table, tests_table
from dpaudit.results.text import one_line, printable
from dpaudit.types import TestResult

__all__ = ["MOST_CHARACTERS", "MOST_ROWS", "code_block", "markdown_summary", "prose"]

MOST_CHARACTERS = 60_000
"""GitHub accepts comments of up to 65,536 characters."""

MOST_ROWS = 20

_WORD_JOINER = "\u2060"
_TABLE, _COMMANDS, _BLIND = 24_000, 14_000, 8_000
"""The most characters of each part; together with the rest, less than MOST_CHARACTERS."""

_MARKUP = re.compile(r"[\\`*_\[\]<>#|~$@&]|:(?=//|[\w+-]+:)|^[-+=]")


def markdown_summary(document: Document) -> str:
    """The document as Markdown of at most ``MOST_CHARACTERS``; deterministic.

    Raises:
        UsageError: measurements with a figure of an unknown key.
    """
    told = checked(document)
    parts = [
        f"### dpaudit: {prose(told.title, limit=300)}",
        _verdict(told),
        _table(document),
        _commands(told),
        _blind_spots(told),
        _provenance(told),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def prose(text: object, *, limit: int = 400) -> str:
    """Text as a line of Markdown that renders as exactly that text.

    >>> prose("a|b <i>*c*</i>")
    'a&#124;b &#60;i&#62;&#42;c&#42;&#60;/i&#62;'
    """
    line = one_line(text, limit=limit)
    line = re.sub(r"(?<=[@#])(?=\w)|(?<=://)|(?<=\bwww\.)", _WORD_JOINER, line, flags=re.I)
    line = _MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", line)
    return re.sub(r"^(\d{1,9})([.)])(?=\s|$)", lambda start: f"{start[1]}&#{ord(start[2])};", line)


def code_block(text: str, *, limit: int = _COMMANDS) -> str:
    """Text as a fenced block; the fence is longer than any run of backticks in it."""
    shown = printable(text, limit=limit)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    return f"{fence}sh\n{shown}\n{fence}"


def _verdict(told: Checked) -> str:
    """An audit's verdict in bold and the rest of its sentence, or an experiment's sentence."""
    if told.kind in ("experiment", "measurements"):
        return prose(told.sentence, limit=1200)
    word = next((w for w in WORDS.values() if told.sentence.startswith(f"{w}: ")), "")
    said = badge(told.verdict, told.sentence, word=word if told.kind == "proof" else "")
    return f"**{prose(said.word)}:** {prose(said.rest, limit=1200)}"


def _table(document: Document) -> str:
    """The most important rows, at most MOST_ROWS, findings first."""
    columns = [
        column for column in _columns(document) if any(cell != fmt.NOTHING for cell in column.cells)
    ]
    if not columns:
        return ""
    lines = zip(*(column.cells[:MOST_ROWS] for column in columns), strict=True)
    rows = ("| " + " | ".join(prose(cell, limit=240) for cell in cells) + " |" for cells in lines)
    head = [
        "| " + " | ".join(prose(column.header, limit=60) for column in columns) + " |",
        "|" + "|".join(" ---: " if column.numeric else " --- " for column in columns) + "|",
    ]
    kept, left = _fitting(rows, room=_TABLE - sum(map(len, head))), len(columns[0].cells)
    more = f"\n\n…and {left - len(kept):,} more in the report." if len(kept) < left else ""
    return "\n".join([*head, *kept]) + more


def _columns(document: Document) -> Sequence[Column]:
    match document:
        case AuditDocument():
            return _tests(document.result.tests)
        case AttributionDocument() | CensusDocument():
            return _tests(document.tests)
        case MechanismDocument():
            tests = sorted(sorted_tests(document.result.tests), key=lambda test: not test.finding)
            kept = {"Test", "Shown", "Adjusted p", "Counted", "Finding"}
            return [
                c
                for c in bounds_table(replace(document.result, tests=tuple(tests)))
                if c.header in kept
            ]
        case ProofDocument():
            return profile_table(document.result)[: 3 * bool(document.result.profile)] or law_table(
                document.result
            )
        case DeterminismDocument():
            return coins_facts(document.result)[1]
        case ExperimentDocument():
            return summary_table(document.rows)
        case MeasurementsDocument():
            read = read_measurements(document)
            shown = read.misses or read.rows
            return measured_table(read.columns, shown, of=read.rows) if shown else ()
        case _:
            return deployment_findings_table(document)


def _tests(tests: Sequence[TestResult]) -> Sequence[Column]:
    kept = {"Test", "Adjusted p", "Effect", "Finding"}
    return [c for c in tests_table(tests) if c.header in kept]


def _commands(told: Checked) -> str:
    commands = [
        check.reproduce for check in told.checks if check.outcome == "finding" and check.reproduce
    ]
    commands = list(dict.fromkeys([*commands, *filter(None, [told.command])]))
    kept = _fitting((printable(c, limit=2000) for c in commands[:MOST_ROWS]), room=_COMMANDS)
    return f"To see it again:\n\n{code_block(chr(10).join(kept))}" if kept else ""


def _blind_spots(told: Checked) -> str:
    if not told.blind_spots or told.verdict == "inconclusive":
        return ""
    lines = [f"- {prose(spot, limit=600)}" for spot in told.blind_spots]
    kept = _fitting(lines, room=_BLIND)
    left = len(lines) - len(kept)
    more = [f"- …and {left:,} more in the report."] if left else []
    summary = "<details><summary>What a pass cannot exclude</summary>"
    return "\n".join([summary, "", *kept, *more, "", "</details>"])


def _provenance(told: Checked) -> str:
    seconds, seed = fmt.seconds(told.seconds), told.provenance.get("seed")
    words = [
        f"dpaudit {prose(told.version, limit=40)}" if told.version else "dpaudit",
        f"seed {prose(seed, limit=100)}" if seed else "",
        seconds if seconds != fmt.NOTHING else "",
        prose(told.provenance.get("started") or "", limit=40),
        f"sandbox {prose(told.facts['sandbox'], limit=500)}" if told.facts.get("sandbox") else "",
        prose(told.provenance.get("hardware") or "", limit=200),
    ]
    return f"<sub>{' · '.join(filter(None, words))}</sub>"


def _fitting(lines: Iterable[str], *, room: int) -> list[str]:
    """The first lines that together take at most ``room`` characters."""
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 2
        if room < 0:
            break
        kept.append(line)
    return kept
