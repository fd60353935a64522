"""What an audit of noisy measurement files showed, by ``dpaudit deployment census``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

from dpaudit import wording
from dpaudit.codec import to_dict
from dpaudit.findings import MOST_ROWS, known_facts, last_sections
from dpaudit.harms import ALGORITHMS, PARAMETERS, TRUST, UNIT, Pyramid, no_verdict
from dpaudit.report import (
    Axis,
    Block,
    Chart,
    Column,
    Described,
    Findings,
    Hazard,
    Line,
    Mark,
    Meaning,
    Panel,
    Report,
    Section,
    Series,
    Table,
    Text,
    check_of,
    open_spots,
    sorted_tests,
    with_verdict,
)
from dpaudit.types import Amount, Count, Interval, Level, Number, Provenance, TestResult, Verdict
from dpaudit.wording import count, quantity

__all__ = ["KINDS", "Bin", "CensusLevel", "CensusResult", "Kind", "NoiseGroup", "describe"]

Kind = Literal["zeros", "totals", "sums"]
"""Cells that are zero; a query's sum minus the exact total; a parent minus its children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """How many values lie in [low, high), in units of the stated σ, and how many are expected."""

    low: Number
    high: Number
    observed: Count
    expected: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseGroup:
    """The noise seen of one query at one level.

    ``sigma`` is the parameter of the stated law, None where each value has a law of its own.
    ``ratio`` is the observed standard deviation over the stated one. A group that is not ``tested``
    has fewer than 100 values.
    """

    product: str
    level: str
    query: str
    kind: Kind
    geographies: Count
    values: Count
    sigma: Amount | None
    ratio: Amount
    interval: Interval
    farthest: Amount
    tested: bool
    bins: tuple[Bin, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusLevel:
    """A level of a product: its size, and Σ 1/σ² of its queries.

    That is the ρ of zero-concentrated DP for bounded neighbours, if each record is in one cell of
    each query, and the files hold all queries.
    """

    product: str
    level: str
    files: Count
    geographies: Count
    queries: Count
    measurements: Count
    rho: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusResult(Described):
    """What the noise in cells of known count shows about the law that the files state.

    Guarantee: if all noise is independent and discrete Gaussian with the stated variances, and the
    structural zeros are zeros, the verdict is ``finding`` with probability at most ``alpha``.
    Not claimed: anything about cells whose count is not known; that ``no-finding`` means honest.
    """

    kind: ClassVar[str] = "census"

    verdict: Verdict
    reason: str
    alpha: Level
    files: tuple[str, ...]
    levels: tuple[CensusLevel, ...]
    groups: tuple[NoiseGroup, ...]
    tests: tuple[TestResult, ...]
    notes: tuple[str, ...]
    seconds: Amount
    provenance: Provenance


KINDS: Mapping[Kind, str] = MappingProxyType(
    {"zeros": "structural zeros", "totals": "exact totals", "sums": "parents minus children"}
)
_NOT_EXCLUDED = (
    "noise that only the holder of a key can tell from honest noise (a pancake, noise that carries "
    "its own seed)",
    "any flaw in cells whose true count is not known",
)
_MOST_BARS = 40
_MOST_LEVELS = 12
_LARGEST = 1e9
# facts that a terminal shows
_FACTS_TOO = ("Files", "Noisy measurements", "Noise values seen", "ρ of the stated variances")


def describe(result: CensusResult) -> Report:
    """The report of an audit of noisy measurement files."""
    headline = _headline(result)
    checks = [check_of(t, result.alpha, result.verdict) for t in sorted_tests(result.tests)]
    return Report(
        kind="census",
        label="noisy measurement files",
        subject=result.files[0] if result.files else "census",
        title=_title(result),
        claim="discrete Gaussian noise of the stated variances",
        verdict=result.verdict,
        headline=headline,
        meaning=(_meaning(result),),
        checks=with_verdict(checks, result.verdict, headline),
        sections=tuple(_sections(result)),
        blind_spots=open_spots(_not_excluded(result)),
        hazards=_hazards(result),
        facts={"alpha": result.alpha, "levels": to_dict(result.levels)},
        data=to_dict(result),
        provenance=to_dict(result.provenance),
        seconds=result.seconds,
    )


def _not_excluded(result: CensusResult) -> tuple[str, ...]:
    return _NOT_EXCLUDED if result.verdict == "no-finding" else ()


def _title(result: CensusResult) -> str:
    """What was audited, by the first path given."""
    if not result.files:
        return "Noisy measurement files"
    more = f" and {len(result.files) - 1} more" if len(result.files) > 1 else ""
    return f"Noisy measurement files, {result.files[0]}{more}"


def _headline(result: CensusResult) -> str:
    findings = [test for test in sorted_tests(result.tests) if test.finding]
    values = count(sum(group.values for group in result.groups if group.tested))
    tests = f"{len(result.tests)} test{'' if len(result.tests) == 1 else 's'}"
    if result.verdict == "inconclusive":
        return f"Inconclusive: {result.reason or 'nothing was tested'}."
    if not findings:
        return f"No finding: {tests} of {values} noise values do not contradict the stated law."
    more = f", and {len(findings) - 1} more of {tests}" if len(findings) > 1 else ""
    return f"Finding: {findings[0].name} ({findings[0].effect}){more}."


def _meaning(result: CensusResult) -> Meaning:
    """What it means for the people counted."""
    if result.verdict == "inconclusive":
        return no_verdict()
    if result.verdict == "no-finding":
        text = (
            "In the cells whose true count is known, the noise is as the files state. Those cells "
            "were drawn by the same program as all others, but nobody outside can look at others."
        )
        return Meaning(heading="The noise seen is as stated", says=text)
    text = (
        "The privacy guarantee is computed from the stated variances and from independent "
        "discrete Gaussian noise; where the noise is smaller, related or of another law, the "
        "people counted are less protected than stated. Check first that the structural zeros "
        "are zeros in these data, then ask the publisher how this noise was drawn."
    )
    return Meaning(heading="The noise is not what the files state", says=text)


def _hazards(result: CensusResult) -> tuple[Hazard, ...]:
    pyramid = Pyramid()
    if findings := sum(test.finding for test in result.tests):
        pyramid.add(ALGORITHMS, f"{findings:,} under All tests")
    pyramid.leave_open(ALGORITHMS, "noise in cells whose true count is not known")
    pyramid.leave_open(PARAMETERS, "whether the stated variances are large enough")
    pyramid.leave_open(UNIT, "whether neighbours differ in all data of one person")
    pyramid.leave_open(TRUST, "whether someone holds a key to the noise")
    return pyramid.hazards()


def _sections(result: CensusResult) -> Iterator[Section]:
    facts = known_facts(_facts(result), terminal=_FACTS_TOO)
    notes = (Text(note, terminal=True) for note in result.notes)
    yield Section(title="At a glance", blocks=(facts, *notes, _levels_table(result)))
    finding_blocks: list[Block] = [Findings()] if any(t.finding for t in result.tests) else []
    scales = _scales_chart(result)
    finding_blocks += [*([scales] if scales else []), *_level_charts(result)]
    if finding_blocks:
        yield Section(title="What was found", blocks=tuple(finding_blocks))
    if result.groups:
        text = (
            "In a cell whose true count is known, the measurement shows the noise itself: "
            "structural zeros, exact totals minus what was measured, and parents minus their "
            "children."
        )
        yield Section(title="The noise", blocks=(Text(text), _groups_table(result)))
    yield from last_sections(result.tests, _not_excluded(result))


def _facts(result: CensusResult) -> list[tuple[str, str]]:
    return [
        ("Files", count(sum(level.files for level in result.levels))),
        ("Noisy measurements", count(sum(level.measurements for level in result.levels))),
        ("Noise values seen", count(sum(group.values for group in result.groups))),
        ("Tests", count(len(result.tests))),
        ("α for all tests together", quantity(result.alpha)),
        ("ρ of the stated variances", quantity(sum(level.rho for level in result.levels))),
        ("Time", wording.seconds(result.seconds)),
    ]


def _levels_table(result: CensusResult) -> Table:
    """One row per level of a product."""
    rows = result.levels[:MOST_ROWS]
    return Table(
        columns=(
            Column("Level", tuple(r.level for r in rows)),
            Column("Product", tuple(r.product for r in rows)),
            Column("Files", tuple(count(r.files) for r in rows), True),
            Column("Geographies", tuple(count(r.geographies) for r in rows), True),
            Column("Queries", tuple(count(r.queries) for r in rows), True),
            Column("Measurements", tuple(count(r.measurements) for r in rows), True),
            Column("ρ", tuple(quantity(r.rho) for r in rows), True),
        ),
        caption="What the files hold; ρ is Σ 1/σ² of the stated variances, for bounded neighbours",
        left_out=len(result.levels) - len(rows),
    )


def _groups_table(result: CensusResult) -> Table:
    """One row per query of a level: the noise seen, and its scale against the stated one."""
    rows = result.groups[:MOST_ROWS]
    farthest = tuple(quantity(r.farthest, digits=3) for r in rows)
    return Table(
        columns=(
            Column("Level", tuple(r.level for r in rows)),
            Column("Query", tuple(r.query for r in rows)),
            Column("Noise from", tuple(KINDS[r.kind] for r in rows)),
            Column("Geographies", tuple(count(r.geographies) for r in rows), True),
            Column("Values", tuple(count(r.values) for r in rows), True),
            Column("σ stated", tuple(quantity(r.sigma) for r in rows), True),
            Column("Observed / stated [95 %]", tuple(map(_ratio, rows)), True),
            Column("Farthest, in σ", farthest, True),
            Column("Tested", tuple("yes" if r.tested else "too few" for r in rows)),
        ),
        caption="One row per query and level",
        left_out=len(result.groups) - len(rows),
        terminal="Noise seen",
    )


def _ratio(group: NoiseGroup) -> str:
    low, high = wording.number(group.interval.low), wording.number(group.interval.high)
    return wording.ranged(quantity(group.ratio), low, high)


def _scales_chart(result: CensusResult) -> Chart | None:
    """The observed scale over the stated one, with its interval: one row per tested query."""
    rows = [(g, ends) for g in result.groups if g.tested and (ends := _interval(g)) is not None]
    bars = rows[:_MOST_BARS]
    if not bars:
        return None
    names = tuple(" ".join(f"{g.level}, {g.query}".split()) for g, _ in bars)
    marks = [
        Mark(
            x=ratio,
            y=float(y),
            low=low,
            high=high,
            name=names[y],
            says=f"{quantity(ratio)} [{quantity(low)}, {quantity(high)}], {KINDS[group.kind]}",
            alarm=not low <= 1 <= high,
        )
        for y, (group, (low, ratio, high)) in enumerate(bars)
    ]
    remark = (
        f" {len(rows) - len(bars)} more are in the table only." if len(rows) > len(bars) else ""
    )
    return Chart(
        kind="rows",
        title="Scale, level by level",
        caption="Observed over stated standard deviation per query and level, with 95 % intervals "
        "of each alone: of many honest ones, one in twenty does not reach the dashed "
        f"line.{remark}",
        alt=f"Observed over stated standard deviation of {len(bars)} queries, with 95 % intervals.",
        panels=(Panel(series=(Series(marks=tuple(marks)),), lines=(Line(at=1.0, vertical=True),)),),
        x=Axis(label="observed / stated standard deviation"),
        y=Axis(categories=names),
    )


def _interval(group: NoiseGroup) -> tuple[float, float, float] | None:
    low, ratio, high = group.interval.low, group.ratio, group.interval.high
    fine = all(math.isfinite(x) and 0 <= x < _LARGEST for x in (low, ratio, high))
    return (low, ratio, high) if fine and low <= high else None


def _level_charts(result: CensusResult) -> Iterator[Chart]:
    """One chart per level: the histogram of the query with the most noise, and its law."""
    for level in result.levels[:_MOST_LEVELS]:
        place = level.product, level.level
        own = [g for g in result.groups if (g.product, g.level) == place and _drawable(g.bins)]
        if own:
            yield _histogram(max(own, key=lambda g: g.values))


def _drawable(bins: Sequence[Bin]) -> bool:
    numbers = [x for b in bins for x in (b.low, b.high, b.observed, b.expected)]
    fine = all(math.isfinite(x) and abs(x) < _LARGEST for x in numbers)
    return 2 < len(bins) <= 200 and fine and all(b.low < b.high for b in bins)


def _histogram(group: NoiseGroup) -> Chart:
    places = [((b.low + b.high) / 2, b.high - b.low, b) for b in group.bins]
    bars = [
        Mark(
            x=x,
            y=b.observed,
            width=0.9 * width,
            name=f"{b.low:+.2f} to {b.high:+.2f} σ",
            says=f"{count(b.observed)} seen, {quantity(b.expected)} expected",
        )
        for x, width, b in places
    ]
    expected = [Mark(x=x, y=b.expected, width=width) for x, width, b in places]
    subject, ratio = f"{group.level}, {group.query}", quantity(group.ratio)
    geographies = f" in {count(group.geographies)} geographies" if group.geographies > 1 else ""
    return Chart(
        kind="plot",
        title=f"{group.level}: the noise itself",
        caption=f"Noise of {subject}, from {KINDS[group.kind]}: {count(group.values)} "
        f"values{geographies}. Bars: seen. Line: expected under the stated discrete Gaussian. The "
        f"observed standard deviation is {ratio} of what is stated.",
        alt=f"Histogram of {count(group.values)} noise values of {subject}; standard deviation "
        f"{ratio} of what is stated.",
        panels=(
            Panel(
                series=(
                    Series(marks=tuple(bars), look="bars"),
                    Series(marks=tuple(expected), look="steps", quiet=True),
                )
            ),
        ),
        x=Axis(label="noise, in units of the stated σ"),
        y=Axis(label="values", zero=True),
    )
