"""A report on a terminal: what was looked at, how to see a finding again, and the verdict last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from msgspec.structs import replace
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text as RichText

from dpaudit import wording
from dpaudit.render.parts import blind_spots_table, cut_rows, headline, safe
from dpaudit.report import Check, Column, Facts, Items, Report, Table, Text
from dpaudit.results.text import one_line
from dpaudit.types import BlindSpot

__all__ = ["FLAGGED", "PASS_LINES", "make_table", "render_terminal"]

FLAGGED = "bold dark_orange"
"""The style of a finding."""
PASS_LINES = 25
"""Lines that a pass of one audit takes at most, the path of its report included."""

_STYLES = {"finding": FLAGGED, "no-finding": "bold", "inconclusive": "bold dim"}
_LONGEST = 20_000  # characters of a command
_REMARKABLE = 1e-6  # p of an advisory check from which on a pass mentions it
_REPORT_LINES = 2  # the path of the report, after a blank line
_LEAST_ROWS = 3
_MOST_ROWS = 8
_LEAST_WIDTH = 12  # of a column of words, in letters


def render_terminal(report: Report, *, verbose: bool = False, width: int = 140) -> Group:
    """A report in parts, of which the last is the verdict.

    Blocks with a title for the terminal are shown in the report's order. A table of checks shows
    the findings, at most eight, and with ``verbose`` all of them. A pass shows the beginning of
    what it cannot exclude in what :data:`PASS_LINES` leave. Columns that do not fit ``width`` are
    stacked, then left out and named.
    """
    report = safe(report)
    blocks = list(_blocks(report, verbose=verbose, width=width))
    below: list[RenderableType] = [
        text for advice in report.advice for text in (RichText(advice), RichText())
    ]
    below += _again(report, most=len(report.checks) if verbose else 1)
    if not verbose and (counted := _counted(report.checks)):
        below.append(RichText(counted))
    if report.verdict != "finding":
        below += _remarks(report.checks)
    if level := str(report.facts.get("sandbox") or ""):
        below.append(RichText(f"Sandbox: {level}", style="dim"))
    line, lead = headline(report, where="above"), "\n" if below else ""
    below.append(RichText(lead + line, style=_STYLES[report.verdict]))
    spots: list[RenderableType] = []
    if report.blind_spots and report.verdict != "finding":
        spots = [_Spots(report.blind_spots, [*blocks, *below], verbose=verbose)]
    return Group(*blocks, *spots, *below)


def _blocks(report: Report, *, verbose: bool, width: int) -> Iterator[RenderableType]:
    for section in report.sections:
        for block in section.blocks:
            if isinstance(block, Table) and block.terminal and block.rows:
                yield from _table(block, verbose=verbose, width=width)
            elif isinstance(block, Text) and block.terminal:
                yield from (RichText(block.text), RichText())
            elif isinstance(block, Items) and block.terminal:
                yield from (RichText("\n".join(block.items)), RichText())
            elif isinstance(block, Facts) and block.terminal:
                facts = (f"{name}: {fact}" for name, fact in block.rows if name in block.terminal)
                yield from (RichText(f"{'; '.join(facts)}."), RichText())


def _table(table: Table, *, verbose: bool, width: int) -> Iterator[RenderableType]:
    rows, title = list(range(table.rows)), table.terminal
    if table.checks and not verbose:
        rows = [i for i in rows if i < len(table.marked) and table.marked[i]]
        title = "Findings"
    if not rows:
        return
    most = len(rows) if verbose else _MOST_ROWS if table.checks else table.terminal_rows
    columns = [c for c in table.columns if c.terminal or (verbose and table.checks)]
    fitted, narrow = _fitting(cut_rows(columns, rows[:most]), width=width)
    marked = [i < len(table.marked) and table.marked[i] for i in rows[:most]]
    yield make_table(fitted, title=title, marked=marked)
    more = [(len(rows) - most + table.left_out, "row"), (len(narrow), "column")]
    notes = [f"{wording.count(n)} more {kind}{'s' if n > 1 else ''}" for n, kind in more if n > 0]
    if notes:
        names = f" ({', '.join(narrow)})" if narrow else ""
        where = "--verbose shows all, and so does the report of --out DIR"
        yield RichText(f"{' and '.join(notes)}{names}: {where}.", style="dim")
    yield RichText()


class _Spots:
    """What a pass cannot exclude: all of it in words, or as many rows as its lines leave room for.

    ``others`` is what the pass prints apart from that.
    """

    def __init__(
        self, spots: Sequence[BlindSpot], others: Sequence[RenderableType], *, verbose: bool
    ) -> None:
        self._spots, self._others, self._verbose = spots, others, verbose

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        def height(parts: Iterable[RenderableType]) -> int:
            return sum(len(console.render_lines(part, options, pad=False)) for part in parts)

        everything = {"Flaw", "Missed up to", "In words", "Test"}
        if self._verbose:
            yield from self._shown(len(self._spots), everything)
            return
        room = PASS_LINES - _REPORT_LINES - height(self._others)
        rows = min(len(self._spots), _MOST_ROWS)
        least = min(rows, _LEAST_ROWS)
        tables = self._shown(rows, {"Flaw", "In words"})
        while height(tables) > room and rows >= least:
            tables = self._shown(rows, {"Flaw", "Missed up to"})
            rows -= 1
        yield from tables

    def _shown(self, rows: int, headers: set[str]) -> list[RenderableType]:

        table = blind_spots_table(self._spots[:rows])
        columns = [c for c in table if c.header in headers and any(c.cells)]
        parts: list[RenderableType] = [make_table(columns, title="What a pass cannot exclude")]
        if more := len(self._spots) - rows:
            note = "1 more row" if more == 1 else f"{wording.count(more)} more rows"
            parts.append(
                RichText(f"{note}: --verbose shows all, and so does the report of --out DIR.")
            )
        return [*parts, RichText()]


def _counted(checks: Sequence[Check]) -> str:
    """All tests in one line; '' if the report has none."""
    tests = [c for c in checks if c.group == "tests"]
    if not tests:
        return ""
    judged = [c for c in tests if not c.facts.get("advisory")]
    findings = sum(c.outcome == "finding" for c in judged)
    advisory = len(tests) - len(judged)
    line = f"{wording.count(len(judged))} test{'' if len(judged) == 1 else 's'}"
    if findings:
        line += f", {wording.count(findings)} with a finding"
    elif judged:
        smallest = min((c.p_adjusted for c in judged if c.p_adjusted is not None), default=None)
        line += f", smallest adjusted p {wording.p_value(smallest)}"
    if advisory:
        line += f"; {wording.count(advisory)} more {'is' if advisory == 1 else 'are'} advisory"
    return f"{line}. --verbose shows each."


def _remarks(checks: Iterable[Check]) -> Iterator[RichText]:
    for check in checks:
        if check.facts.get("advisory") and check.p is not None and check.p <= _REMARKABLE:
            yield RichText(f"Advice, no finding: {check.name}: {check.effect}")


def _again(report: Report, *, most: int) -> Iterator[RichText]:
    """The commands that show the first findings again, and the one that explains the first."""
    commands = report.reproducers
    if commands:
        more = len(commands) - most
        others = f" ({wording.count(more)} more with --verbose)" if more > 0 else ""
        yield RichText(f"To see it again{others}:")
        yield from (_command(command) for command in commands[:most])
        yield RichText()
    if topic := next((c.topic for c in report.findings if c.topic), ""):
        yield RichText("What it means, and what to do:")
        yield _command(f"dpaudit explain {topic}")
        yield RichText()


def _command(line: str) -> RichText:
    """One line, however long, so that it can be copied."""
    line = one_line(line, limit=_LONGEST)
    return RichText(line, style="bold", no_wrap=True, overflow="ignore")


def make_table(columns: Sequence[Column], *, title: str, marked: Sequence[bool] = ()) -> RichTable:
    """A table; ``marked`` rows stand out."""
    table = RichTable(
        title=RichText(title, style="bold"),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.title_justify = "left"
    for column in columns:
        lines = [line for cell in column.cells for line in cell.splitlines()]
        widest = max(map(len, lines), default=1) if column.numeric else 1
        table.add_column(
            RichText(column.header),
            justify="right" if column.numeric else "left",
            overflow="fold",
            min_width=min(24, widest),  # words are folded before numbers
        )
    for i, cells in enumerate(zip(*(c.cells for c in columns), strict=True)):
        style = FLAGGED if i < len(marked) and marked[i] else None
        table.add_row(*(RichText(cell) for cell in cells), style=style)
    return table


def _fitting(columns: Sequence[Column], *, width: int) -> tuple[list[Column], list[str]]:
    """The columns that fit, with intervals stacked and words wrapped, and the names of the rest."""
    if _room(columns) <= width or not any(c.numeric for c in columns):
        return list(columns), []
    for narrow in (list(columns), [_stacked(c) for c in columns]):
        least = [c if c.numeric else _wrapped(c, _LEAST_WIDTH) for c in narrow]
        if _room(least) <= width:
            break
    count = len(least)
    while count > 1 and _room(least[:count]) > width:
        count -= 1
    textual = sum(not c.numeric for c in least[:count])
    spare = max(0, width - _room(least[:count])) // max(1, textual)
    fitted = [c if c.numeric else _wrapped(c, _LEAST_WIDTH + spare) for c in narrow[:count]]
    return fitted, [c.header for c in columns[count:]]


def _room(columns: Sequence[Column]) -> int:
    """The width of a table of these columns without folding."""
    return 2 + sum(
        2 + max(len(line) for text in (c.header, *c.cells) for line in text.split("\n"))
        for c in columns
    )


def _wrapped(column: Column, width: int) -> Column:
    return replace(column, cells=tuple(_in_lines(cell, width) for cell in column.cells))


def _in_lines(text: str, width: int) -> str:
    return "\n".join(part for line in text.split("\n") for part in wrap(line, width) or [""])


def _stacked(column: Column) -> Column:
    """The column with intervals below their numbers, and a header no wider than the cells."""
    cells = column.cells
    if column.numeric:
        cells = tuple(c.replace(" [", "\n[").replace(" … ", " …\n") for c in cells)
    lines = [line for cell in cells for line in cell.split("\n")] + column.header.split()
    widest = max(map(len, lines)) if column.numeric else _LEAST_WIDTH
    return replace(column, cells=cells, header=_in_lines(column.header, widest))
