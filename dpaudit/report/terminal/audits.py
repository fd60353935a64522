"""Audits for a terminal: what was looked at, how to see a finding again, and the verdict last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpaudit.explanations import topic_of
from dpaudit.report.format import count, p_value
from dpaudit.report.mechanism import bounds_table, mechanism_sentence
from dpaudit.report.sentences import audit_sentence, sandbox_level
from dpaudit.report.tables import Column, blind_spots_table, sorted_tests, tests_table
from dpaudit.report.terminal.table import FLAGGED, make_table
from dpaudit.results.text import one_line, printable
from dpaudit.types import AuditResult, BlindSpot, MechanismResult, TestResult

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
    from rich.text import Text

__all__ = ["PASS_LINES", "audit_table", "mechanism_table"]

PASS_LINES = 25
"""Lines that a pass takes at most, the path of its report included."""

_STYLES = {"finding": FLAGGED, "no-finding": "bold", "inconclusive": "bold dim"}
_LONGEST = 20_000  # characters of a command
_REMARKABLE = 1e-6  # p of an advisory test from which on a pass mentions it
_REPORT_LINES = 2  # the path of the report, after a blank line
_LEAST_ROWS = 3
_MOST_ROWS = 8
_BRIEF = {"Test", "P(E | v0)", "P(E | v1)", "Shown", "Adjusted p", "Effect", "Counted"}


def audit_table(result: AuditResult, *, verbose: bool = False) -> Group:
    """An audit in parts, of which the last is the verdict.

    A finding shows the tests that found something, and the command that shows it again, on one
    line however long. A pass shows, in at most :data:`PASS_LINES` lines, the beginning of what it
    cannot exclude. Neither table has more than eight rows. With ``verbose`` all tests and all that
    a pass cannot exclude.
    """
    sentence = audit_sentence(result, rest="above")
    if verbose:
        columns = [c for c in tests_table(result.tests) if c.header != "Looks at"]
        return _everything(result, columns, "Tests", {"Flaw", "Missed up to", "Test"}, sentence)
    return _briefly(result, tests_table(_found(result)), sentence)


def mechanism_table(result: MechanismResult, *, verbose: bool = False) -> Group:
    """An ε audit in parts, of which the last is the verdict; otherwise as :func:`audit_table`."""
    sentence = mechanism_sentence(result, rest="above")
    if verbose:
        headers = {"Flaw", "Missed up to", "In words"}
        return _everything(result, bounds_table(result), "What was counted", headers, sentence)
    found = replace(result, tests=tuple(_found(result)))
    return _briefly(result, bounds_table(found), sentence)


def _everything(
    result: AuditResult | MechanismResult,
    columns: Sequence[Column],
    title: str,
    headers: set[str],
    sentence: str,
) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if result.tests:
        marked = [cell == "yes" for cell in columns[-1].cells]
        parts += [make_table(columns, title=title, marked=marked), Text()]
    parts += _advice(result)
    if result.cannot_rule_out and result.verdict != "finding":
        spots = [c for c in blind_spots_table(result.cannot_rule_out) if c.header in headers]
        parts += [make_table(spots, title="What a pass cannot exclude"), Text()]
    parts += _again(result, most=len(result.tests))
    return Group(*parts, *_sandbox(result), _verdict(result, sentence))


def _briefly(
    result: AuditResult | MechanismResult, found: Sequence[Column], sentence: str
) -> Group:
    from rich.console import Group
    from rich.text import Text

    verdict = _verdict(result, sentence)
    below: list[RenderableType] = [Text(_looked(result.tests))] if result.tests else []
    if result.verdict == "finding":
        below = [*_advice(result), *_again(result, most=1), *below, *_sandbox(result), verdict]
        if not found[0].cells:
            return Group(*below)
        rows = min(len(found[0].cells), _MOST_ROWS)
        shown = [c._replace(cells=c.cells[:rows]) for c in found if c.header in _BRIEF]
        table: list[RenderableType] = [make_table(shown, title="Findings", marked=[True] * rows)]
        return Group(*table, *_more(len(found[0].cells) - rows), Text(), *below)
    below = [*_advice(result), *below, *_remarks(result), *_sandbox(result), verdict]
    spots = [_Spots(result.cannot_rule_out, below)] if result.cannot_rule_out else []
    return Group(*spots, *below)


class _Spots:
    """What a pass cannot exclude: all of it in words, or as many rows as its lines leave room for.

    ``others`` is what the pass prints apart from that.
    """

    def __init__(self, spots: Sequence[BlindSpot], others: Sequence[RenderableType]) -> None:
        self._spots, self._others = spots, others

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        def height(parts: Iterable[RenderableType]) -> int:
            return sum(len(console.render_lines(part, options, pad=False)) for part in parts)

        room = PASS_LINES - _REPORT_LINES - height(self._others)
        kept = min(len(self._spots), _MOST_ROWS)
        least = min(kept, _LEAST_ROWS)
        shown = self._shown(kept, {"Flaw", "In words"})
        while height(shown) > room and kept >= least:
            shown = self._shown(kept, {"Flaw", "Missed up to"})
            kept -= 1
        yield from shown

    def _shown(self, kept: int, headers: set[str]) -> list[RenderableType]:
        from rich.text import Text

        columns = [c for c in blind_spots_table(self._spots[:kept]) if c.header in headers]
        parts: list[RenderableType] = [make_table(columns, title="What a pass cannot exclude")]
        return [*parts, *_more(len(self._spots) - kept), Text()]


def _more(rows: int) -> Iterator[Text]:
    from rich.text import Text

    if rows:
        says = "1 more row" if rows == 1 else f"{count(rows)} more rows"
        yield Text(f"{says}: --verbose shows all, and so does the report of --out DIR.")


def _found(result: AuditResult | MechanismResult) -> list[TestResult]:
    return [t for t in sorted_tests(result.tests) if t.finding]


def _looked(tests: Sequence[TestResult]) -> str:
    """All tests in one line."""
    counted = [t for t in sorted_tests(tests) if not t.advisory]
    found, advisory = sum(t.finding for t in counted), len(tests) - len(counted)
    said = f"{count(len(counted))} test{'' if len(counted) == 1 else 's'}"
    if found:
        said += f", {count(found)} with a finding"
    elif counted:
        said += f", smallest adjusted p {p_value(counted[0].p_adjusted)}"
    if advisory:
        said += f"; {count(advisory)} more {'is' if advisory == 1 else 'are'} advisory"
    return f"{said}. --verbose shows each."


def _remarks(result: AuditResult | MechanismResult) -> Iterator[Text]:
    from rich.text import Text

    for test in result.tests:
        if test.advisory and test.p <= _REMARKABLE:
            effect = printable(test.effect, limit=400)
            yield Text(f"Advice, no finding: {printable(test.name, limit=100)}: {effect}")


def _advice(result: AuditResult | MechanismResult) -> Iterator[Text]:
    from rich.text import Text

    for advice in result.advice if isinstance(result, MechanismResult) else ():
        yield from (Text(printable(advice)), Text())


def _again(result: AuditResult | MechanismResult, *, most: int) -> Iterator[Text]:
    """The commands that show the first findings again, and the one that explains the first."""
    from rich.text import Text

    found = _found(result)
    commands = list(dict.fromkeys(t.reproduce for t in found if t.reproduce))
    if commands:
        more = len(commands) - most
        others = f" ({count(more)} more with --verbose)" if more > 0 else ""
        yield Text(f"To see it again{others}:")
        yield from (_command(command) for command in commands[:most])
        yield Text()
    if found:
        yield Text("What it means, and what to do:")
        yield _command(f"dpaudit explain {topic_of(found[0].name)}")
        yield Text()


def _command(line: str) -> Text:
    """One line, however long, so that it can be copied."""
    from rich.text import Text

    return Text(one_line(line, limit=_LONGEST), style="bold", no_wrap=True, overflow="ignore")


def _sandbox(result: AuditResult | MechanismResult) -> Iterable[Text]:
    from rich.text import Text

    level = sandbox_level(result)
    return [Text(f"Sandbox: {level}", style="dim")] if level else []


def _verdict(result: AuditResult | MechanismResult, sentence: str) -> Text:
    from rich.text import Text

    return Text(f"\n{sentence}", style=_STYLES[result.verdict])
