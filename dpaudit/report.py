"""The one shape of every result: what was judged, the verdict, the checks, and what it means.

A result describes itself once, next to the code that makes it: ``describe(result)`` in its owner's
module, registered under the result's ``kind`` in the entry-point group ``dpaudit.results``. Pages,
terminals, JSON, JUnit, SARIF and notebooks render a :class:`Report` and know no kind;
they are registered in ``dpaudit.formats``. Ours come through the same doors as a stranger's. Texts
may hold anything: the renderers make them safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from dpaudit import registry, wording
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.results.files import write_file
from dpaudit.types import BlindSpot, Interval, TestResult, Verdict

__all__ = [
    "SCHEMA",
    "Axis",
    "BlindSpots",
    "Block",
    "Chart",
    "Check",
    "Column",
    "Command",
    "Described",
    "Facts",
    "Findings",
    "Hazard",
    "Items",
    "Line",
    "Mark",
    "Meaning",
    "Outcome",
    "Panel",
    "Report",
    "Section",
    "Series",
    "Table",
    "Text",
    "check_of",
    "describe",
    "open_spots",
    "replace",
    "sorted_tests",
    "tests_table",
    "with_verdict",
    "write_report",
]

Schema = Literal["dpaudit-report/2"]
SCHEMA: Schema = "dpaudit-report/2"
"""Name and major version of the schema of reports on disk."""

Outcome = Literal["pass", "finding", "advice", "undecided", "error"]


def _need_finite(*places: float | None) -> None:
    for place in places:
        if place is not None and not math.isfinite(place):
            raise ValueError(f"{place}: a chart's places are finite numbers")


class Column(Struct, frozen=True):
    """A column of text: its header and its cells, one per row.

    ``numeric`` columns are set in figures of equal width; ``terminal`` says whether a terminal
    shows the column without ``--verbose``.
    """

    header: str
    cells: tuple[str, ...]
    numeric: bool = False
    terminal: bool = True


class Facts(Struct, frozen=True, tag="facts"):
    """Names with their values; ``file`` sets them as the identity of one file.

    ``terminal`` are the names of those that a terminal shows, on one line.
    """

    rows: tuple[tuple[str, str], ...]
    file: bool = False
    terminal: tuple[str, ...] = ()


class Table(Struct, frozen=True, kw_only=True, tag="table"):
    """Columns of equal length under a caption.

    ``marked`` are rows to point out. ``left_out`` is the number of rows that the data has and the
    table has not. ``ordered`` keeps a reader from sorting it, ``quiet`` sets it small, ``summary``
    hides it behind that line. ``terminal`` is its title on a terminal; empty: it is not shown
    there. ``terminal_rows`` of it are shown there without ``--verbose``. ``checks``: the rows are
    checks, and marked ones findings, so that a terminal shows only these unless asked for all.
    """

    columns: tuple[Column, ...]
    caption: str
    marked: tuple[bool, ...] = ()
    left_out: int = 0
    ordered: bool = False
    quiet: bool = False
    summary: str = ""
    terminal: str = ""
    terminal_rows: int = 40
    checks: bool = False

    def __post_init__(self) -> None:
        if any(len(column.cells) != self.rows for column in self.columns):
            raise ValueError("a table needs columns of one length")

    @property
    def rows(self) -> int:
        return len(self.columns[0].cells) if self.columns else 0


class Text(Struct, frozen=True, tag="text"):
    """A paragraph: the text itself, a remark (``note``), or a heading within a section."""

    text: str
    look: Literal["plain", "note", "heading"] = "plain"
    terminal: bool = False


class Items(Struct, frozen=True, tag="items"):
    """A list of sentences."""

    items: tuple[str, ...]
    terminal: bool = False


class Command(Struct, frozen=True, tag="command"):
    """A command to type, with a line above it."""

    command: str
    label: str = ""


class Findings(Struct, frozen=True, tag="findings"):
    """Here the report's checks that are findings are shown, one by one."""


class BlindSpots(Struct, frozen=True, tag="blind-spots"):
    """Here the report's blind spots are shown: those of any size, and the others by size."""


class Mark(Struct, frozen=True, kw_only=True):
    """One point of a chart, with the interval around it and what a reader is told about it.

    ``x`` and ``y`` are numbers, or places of categories from 0. ``low`` and ``high`` are an
    interval along the axis of values: across in a chart of ``rows``, up in a ``plot``; an infinite
    end is an arrow. ``base`` and ``width`` are those of a bar. Hollow marks are not ``filled``;
    ``alarm`` is what contradicts. ``name`` and ``says`` are read out, ``label`` is written beside
    the mark; ``link`` is the number of a row of the report's table of checks. ``value`` is that of
    a cell of a map.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    base: float = 0.0
    width: float = 0.0
    value: float | None = None
    name: str = ""
    says: str = ""
    label: str = ""
    filled: bool = True
    alarm: bool = False
    link: str = ""

    def __post_init__(self) -> None:
        _need_finite(self.base, self.width)


class Series(Struct, frozen=True, kw_only=True):
    """Marks that belong together.

    ``look``: ``points``; ``stems`` (points with a line to the end of the axis); ``line``;
    ``steps`` (an outline over bars of given width); ``bars``; ``band`` (from ``low`` to ``high``);
    ``cells`` of a map. ``shade`` fills the area on that side of a line. Series of one ``group``
    share a colour and a marker, and are shown and hidden together; without one, the figure's calm
    colour is used, or that of a warning where a mark is an ``alarm``. ``legend`` names the series.
    """

    marks: tuple[Mark, ...]
    look: Literal["points", "stems", "line", "steps", "bars", "band", "cells"] = "points"
    group: int | None = None
    legend: str = ""
    marker: str = ""
    shade: Literal["", "above", "below"] = ""
    quiet: bool = False


class Axis(Struct, frozen=True, kw_only=True):
    """An axis: its label, its scale, and the names of its categories, if it has any.

    ``form`` is how its numbers are written, as the formats of an experiment's columns. ``low`` and
    ``high`` are its ends where the marks do not decide them; ``zero``: it begins at 0; ``shared``:
    all panels have the same range; ``ticks``: places and their labels.
    """

    label: str = ""
    log: bool = False
    form: str = "number"
    categories: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    zero: bool = False
    shared: bool = True
    ticks: tuple[tuple[float, str], ...] = ()

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        _need_finite(low, high, *(at for at, _ in self.ticks))
        if low is not None and high is not None and low >= high:
            raise ValueError(f"low={low}, high={high}: an axis goes up")
        if self.log and not all(x is None or x > 0 for x in (low, high)):
            raise ValueError("the ends of a logarithmic axis are positive")


class Line(Struct, frozen=True, kw_only=True):
    """A dashed line across a panel, e.g. α, chance or a claimed ε, with its label.

    ``sloped``: where x equals y.
    """

    at: float = 0.0
    label: str = ""
    vertical: bool = False
    sloped: bool = False

    def __post_init__(self) -> None:
        _need_finite(self.at)


class Panel(Struct, frozen=True, kw_only=True):
    """One panel of a chart; ``y`` is an axis of its own, where it shows another quantity."""

    series: tuple[Series, ...]
    title: str = ""
    lines: tuple[Line, ...] = ()
    y: Axis | None = None


class Chart(Struct, frozen=True, kw_only=True, tag="chart"):
    """A chart as data: drawn once for the page, in print and on the screen.

    ``kind`` is ``rows`` (categories down, values across), ``plot`` (x and y), or ``map`` (cells
    with a ``value``). ``alt`` says in words what it shows. ``columns`` is how many panels stand
    side by side; ``names`` puts the names of the marks in the right margin, joined by lines.
    ``numbers`` are the values behind it.
    """

    kind: Literal["rows", "plot", "map"]
    title: str
    caption: str
    alt: str
    panels: tuple[Panel, ...]
    x: Axis
    y: Axis
    value: Axis = Axis()
    columns: int = 1
    names: bool = False
    numbers: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.columns <= 12:
            raise ValueError(f"columns={self.columns}: from 1 to 12 panels stand side by side")
        if len({len(column.cells) for column in self.numbers}) > 1:
            raise ValueError("numbers need columns of one length")


Block = Facts | Table | Text | Items | Command | Findings | BlindSpots | Chart


class Section(Struct, frozen=True, kw_only=True):
    """A part of a report under its own heading; ``folded`` ones are opened by the reader."""

    title: str
    blocks: tuple[Block, ...]
    folded: bool = False
    note: str = ""


class Meaning(Struct, frozen=True, kw_only=True):
    """What a result means for a reader without statistics: a harm, how sure it is, what to do.

    ``found`` names the checks that found it, empty where it is about the whole result; ``topics``
    are pages of ``dpaudit explain``; ``note`` stands above.
    """

    heading: str
    says: str
    found: str = ""
    topics: tuple[str, ...] = ()
    note: str = ""


class Check(Struct, frozen=True, kw_only=True):
    """One check: a test, an experiment's cell, a comparison with a published number, or a file.

    ``group`` says which of these. ``undecided`` means that no verdict was reached, so that no
    finding means nothing. ``harm`` is the key of :data:`dpaudit.harms.HARMS`, ``topic`` the page of
    ``dpaudit explain``, ``cause`` the likeliest cause in a few words; ``facts`` are JSON-ready.
    """

    name: str
    outcome: Outcome
    group: str = "tests"
    looks_at: str = ""
    effect: str = ""
    p: float | None = None
    p_adjusted: float | None = None
    statistic: float | None = None
    interval: Interval | None = None
    unit: str = ""
    harm: str = ""
    topic: str = ""
    cause: str = ""
    reproduce: str = ""
    seconds: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class Hazard(Struct, frozen=True, kw_only=True):
    """A component of NIST SP 800-226's pyramid: what was found in it, and what is not excluded."""

    component: str
    found: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


class Report(Struct, frozen=True, kw_only=True):
    """A result, described.

    Attributes:
        kind: what was done, in one word: ``audit``, ``mechanism``, ``proof``, ….
        label: the same for people, e.g. ``black-box audit``.
        subject: what was judged; ``title`` is the page's.
        claim: what it claims; empty if nothing is claimed.
        verdict: ``no-finding``, ``finding`` or ``inconclusive``.
        headline: the verdict in one sentence; ``remarks`` are sentences that follow it.
        badge: the word before the headline, if it is not the verdict's own.
        meaning, checks, sections, hazards: as their classes say.
        blind_spots: what a pass does not exclude.
        advice: sentences that a reader should have seen, whatever the verdict.
        facts: JSON-ready numbers about the whole, e.g. ``alpha`` and ``samples``.
        data: the result itself, JSON-ready; what ``--format json`` prints.
        provenance: what is needed to repeat it.
        command: the command that repeats it; empty if there is none.
    """

    kind: str
    label: str
    subject: str
    title: str
    verdict: Verdict
    headline: str
    remarks: tuple[str, ...] = ()
    claim: str = ""
    badge: str = ""
    sign: str = ""
    meaning: tuple[Meaning, ...] = ()
    checks: tuple[Check, ...] = ()
    sections: tuple[Section, ...] = ()
    blind_spots: tuple[BlindSpot, ...] = ()
    advice: tuple[str, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    command: str = ""
    schema: Schema = SCHEMA

    @property
    def findings(self) -> tuple[Check, ...]:
        """The checks that are findings."""
        return tuple(check for check in self.checks if check.outcome == "finding")

    @property
    def reproducers(self) -> tuple[str, ...]:
        """The commands that show the findings again, each once."""
        return tuple(dict.fromkeys(c.reproduce for c in self.findings if c.reproduce))

    @property
    def version(self) -> str:
        """The version of dpaudit that made the result; empty if not stated."""
        versions = self.provenance.get("versions")
        named = versions.get("dpaudit") if isinstance(versions, Mapping) else None
        return str(named or "")


def with_verdict(checks: Sequence[Check], verdict: Verdict, headline: str) -> tuple[Check, ...]:
    """The checks, preceded by the verdict as a check of its own if they do not show it.

    So a finding is never lost: with one, at least one check fails, and in an inconclusive audit
    none passes.
    """
    outcomes = {check.outcome for check in checks}
    shown: Outcome
    match verdict:
        case "inconclusive":
            shown = "error"
        case "finding" if "finding" not in outcomes:
            shown = "finding"
        case "no-finding" if not outcomes:
            shown = "pass"
        case _:
            return tuple(checks)
    return (Check(group="verdict", name="verdict", outcome=shown, effect=headline), *checks)


def open_spots(flaws: Iterable[str]) -> tuple[BlindSpot, ...]:
    """Flaws that a result says nothing about, at any size."""
    return tuple(BlindSpot(test="", flaw=f, size=None, unit="", says="") for f in flaws)


def describe(result: Any) -> Report:
    """The report of a result; a report is its own.

    Raises:
        UnknownNameError: no description is registered for the result's ``kind``.
    """
    if isinstance(result, Report):
        return result
    report: Report = registry.load("results", str(getattr(result, "kind", type(result).__name__)))(
        result
    )
    return report


class Described:
    """A result that notebooks show as a card, and that prints as its verdict and findings."""

    __slots__ = ()
    kind: ClassVar[str]

    def _repr_html_(self) -> str:
        return str(registry.load("formats", "notebook")(describe(self)))

    def __str__(self) -> str:
        return str(registry.load("formats", "plain")(describe(self)))


def write_report(result: Any, path: str | Path, *, format: str = "html") -> Path:  # noqa: A002
    """Write a result as one file: a self-contained page, or json, junit or sarif.

    ``result`` is what an audit or a proof returned, a :class:`dpaudit.report.Report`, or a
    third-party result whose kind is registered under ``dpaudit.results``. The file is written
    atomically; returns its path.

    >>> import dpaudit, tempfile
    >>> from pathlib import Path
    >>> found = dpaudit.audit_sampler(
    ...     "numpy:laplace", claim="gaussian:sigma=1", samples=20_000, seed=1
    ... )
    >>> page = dpaudit.write_report(found, Path(tempfile.mkdtemp()) / "report.html")
    >>> "numpy:laplace" in page.read_text()
    True

    Raises:
        UsageError: nothing describes the result, there is no such format, or the file cannot be
            written.
    """
    try:
        report = describe(result)
    except UnknownNameError as error:
        raise UsageError(
            f"result={type(result).__name__}: pass what audit_sampler or audit_mechanism returned"
        ) from error
    text = registry.load("formats", format)(report)
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return write_file(Path(path), text)
    except OSError as error:
        raise UsageError(
            f"path={path}: cannot be written ({error.strerror}); choose another"
        ) from error


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
