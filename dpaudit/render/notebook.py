"""Results in a notebook: a card with the verdict and the main table; and what ``print`` shows.

The card works on light and dark pages, is scoped by its class and variable names, has no script,
and is escaped like the page.
"""

from __future__ import annotations

from dpaudit.render.html import get_template
from dpaudit.render.parts import badge, cut_rows, finding_text, headline, main_table, safe
from dpaudit.report import Report
from dpaudit.results.text import one_line

__all__ = ["notebook_card", "plain_text"]

_MOST_ROWS = 12
_MOST_LINES = 8
_LONGEST = 20_000  # characters of a command


def plain_text(report: Report) -> str:
    """The verdict; then the findings and how to see them again, or what a pass cannot exclude."""
    report = safe(report)
    lines = [headline(report, where="below")]
    checks = report.findings
    lines += [f"  {finding_text(check)}" for check in checks[:_MOST_LINES]]
    if len(checks) > _MOST_LINES:
        lines.append(f"  and {len(checks) - _MOST_LINES} more: see tests")
    if again := next(iter(report.reproducers), ""):
        lines.append(f"To see it again: {one_line(again, limit=_LONGEST)}")
    if report.verdict == "no-finding" and report.blind_spots:
        flaws = [one_line(spot.flaw, limit=200) for spot in report.blind_spots]
        more = f"; and {len(flaws) - 3} more: see cannot_rule_out" if len(flaws) > 3 else ""
        lines.append(f"  Not excluded: {'; '.join(flaws[:3])}{more}")
    return "\n".join(lines)


def notebook_card(report: Report) -> str:
    """A report as an HTML fragment of a few kB, the same for the same report."""
    report = safe(report)
    table = main_table(report)
    spots = len(report.blind_spots) if report.verdict != "finding" else 0
    sandbox = report.facts.get("sandbox")
    notes = [
        f"A pass cannot exclude {spots} kinds of flaw: see cannot_rule_out." if spots else "",
        f"Sandbox: {sandbox}" if sandbox else "",
        *report.advice,
    ]
    return get_template("card.html.j2").render(
        title=report.title,
        badge=badge(report, where="in cannot_rule_out"),
        columns=cut_rows(table.columns, range(min(table.rows, _MOST_ROWS))),
        marked=table.marked,
        left_out=max(0, table.rows - _MOST_ROWS),
        notes=[note for note in notes if note],
    )
