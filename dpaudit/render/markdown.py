"""A summary for a pull request, in GitHub's Markdown: verdict, table, reproducers, blind spots.

Text from a sampler stays text: its punctuation becomes entities, so that it is no markup, HTML,
table or link, and names and numbers after ``@`` and ``#`` are no mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dpaudit import wording
from dpaudit.render.parts import badge, main_table, safe, spot_text
from dpaudit.report import Report
from dpaudit.results.text import one_line, printable

__all__ = ["MOST_CHARACTERS", "MOST_ROWS", "code_block", "markdown_summary", "prose"]

MOST_CHARACTERS = 60_000
"""GitHub accepts comments of up to 65,536 characters."""

MOST_ROWS = 20

_WORD_JOINER = "\u2060"
_TABLE, _COMMANDS, _BLIND = 24_000, 14_000, 8_000
"""The most characters of each part; together with the rest, less than MOST_CHARACTERS."""

_MARKUP = re.compile(r"[\\`*_\[\]<>#|~$@&]|:(?=//|[\w+-]+:)|^[-+=]")


def markdown_summary(report: Report) -> str:
    """The report as Markdown of at most ``MOST_CHARACTERS``; deterministic."""
    report = safe(report)
    said = badge(report, where="below")
    parts = [
        f"### dpaudit: {prose(report.title, limit=300)}",
        f"**{prose(said.word)}:** {prose(said.rest, limit=1200)}",
        _table(report),
        _commands(report),
        _blind_spots(report),
        _provenance(report),
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


def _table(report: Report) -> str:
    """The most important rows, at most MOST_ROWS, findings first and in bold."""
    table = main_table(report)
    columns = [c for c in table.columns if any(cell != wording.NOTHING for cell in c.cells)]
    if not columns:
        return ""
    lines = zip(*(column.cells[:MOST_ROWS] for column in columns), strict=True)
    rows = (_row(cells, bold=mark) for cells, mark in zip(lines, table.marked, strict=False))
    head = [
        "| " + " | ".join(prose(column.header, limit=60) for column in columns) + " |",
        "|" + "|".join(" ---: " if column.numeric else " --- " for column in columns) + "|",
    ]
    kept, left = _fitting(rows, room=_TABLE - sum(map(len, head))), table.rows
    more = f"\n\n…and {left - len(kept):,} more in the report." if len(kept) < left else ""
    return "\n".join([*head, *kept]) + more


def _row(cells: Iterable[str], *, bold: bool) -> str:
    first, *others = (prose(cell, limit=240) for cell in cells)
    return "| " + " | ".join([f"**{first}**" if bold and first else first, *others]) + " |"


def _commands(report: Report) -> str:
    commands = list(dict.fromkeys([*report.reproducers, *filter(None, [report.command])]))
    kept = _fitting((printable(c, limit=2000) for c in commands[:MOST_ROWS]), room=_COMMANDS)
    return f"To see it again:\n\n{code_block(chr(10).join(kept))}" if kept else ""


def _blind_spots(report: Report) -> str:
    if not report.blind_spots or report.verdict == "inconclusive":
        return ""
    lines = [f"- {prose(spot_text(spot), limit=600)}" for spot in report.blind_spots]
    kept = _fitting(lines, room=_BLIND)
    left = len(lines) - len(kept)
    more = [f"- …and {left:,} more in the report."] if left else []
    summary = "<details><summary>What a pass cannot exclude</summary>"
    return "\n".join([summary, "", *kept, *more, "", "</details>"])


def _provenance(report: Report) -> str:
    seconds, seed = wording.seconds(report.seconds), report.provenance.get("seed")
    words = [
        f"dpaudit {prose(report.version, limit=40)}" if report.version else "dpaudit",
        f"seed {prose(seed, limit=100)}" if seed else "",
        seconds if seconds != wording.NOTHING else "",
        prose(report.provenance.get("started") or "", limit=40),
        f"sandbox {prose(report.facts['sandbox'], limit=500)}"
        if report.facts.get("sandbox")
        else "",
        prose(report.provenance.get("hardware") or "", limit=200),
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
