"""What an audit of ad measurement found (``dpaudit deployment attribution``), and its report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dpaudit import wording
from dpaudit.codec import to_dict
from dpaudit.findings import (
    MOST_ROWS,
    Finding,
    finding_checks,
    findings_table,
    known_facts,
    last_sections,
)
from dpaudit.harms import ALGORITHMS, PARAMETERS, SIDE_CHANNELS, TRUST, UNIT, Pyramid, no_verdict
from dpaudit.report import (
    Axis,
    Block,
    Chart,
    Column,
    Described,
    Findings,
    Hazard,
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
from dpaudit.types import Amount, Count, Interval, Level, Provenance, Share, TestResult, Verdict
from dpaudit.wording import NOTHING, count, quantity
from dpaudit_deployments.attribution.ledger import AggregateLedger, EventLine

__all__ = ["AttributionResult", "EventClaim", "NoiseClaim", "describe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventClaim:
    """One registration: what the specification makes of it, and what recorded reports show.

    ``flips`` of ``known`` sources, whose true output is recorded, reported another one. ``shown``
    is a lower bound on ε without assumptions on the mechanism; ``by_flips`` an interval of ε if it
    is a randomised response. Both are None without sources to compute them from.
    """

    source_type: str
    states: Count
    epsilon: Amount
    pick_rate: Share
    flip_probability: Share
    capacity: Amount
    capacity_limit: Amount
    allowed: bool
    """Whether a browser with Chromium's limits accepts it."""
    sources: Count = 0
    known: Count = 0
    flips: Count = 0
    shown: Amount | None = None
    by_flips: Interval | None = None

    @property
    def name(self) -> str:
        """The group in a few words."""
        return f"{self.source_type}, {self.states:,} states, ε = {self.epsilon:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseClaim:
    """Summary reports: the noise claimed, and what the recorded one shows.

    ``shown`` is a lower bound on ε without assumptions on the noise, from how often it is at least
    0 and at least L1. ``by_scale`` is an interval of ε if the noise is discrete Laplace.
    """

    epsilon: Amount
    scale: Amount
    batches: Count
    rows: Count
    values: Count
    """Rows whose noise is known."""
    shown: Amount | None = None
    by_scale: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionResult(Described):
    """What registrations permit, and what recorded reports show, spent and exceeded.

    ``tests`` are of event-level reports and of the noise in summary reports; ``findings`` are lower
    bounds on ε above the claim, and facts about budgets, limits and registrations.

    Formal guarantee: if the reports come from the claimed laws, independently for each source and
    value, a test is a finding, or a lower bound on ε exceeds the claim, with probability at most
    ``alpha``. Findings about budgets and limits are facts about files, without chance.
    """

    kind: ClassVar[str] = "attribution"

    verdict: Verdict
    alpha: Level
    claims: tuple[EventClaim, ...]
    noise: NoiseClaim | None
    parties: tuple[EventLine, ...]
    budget: AggregateLedger | None
    tests: tuple[TestResult, ...]
    findings: tuple[Finding, ...]
    cannot_rule_out: tuple[str, ...]
    seconds: Amount
    provenance: Provenance


_MOST_BARS = 24
_LARGEST = 1_000.0
_TERMINAL_ROWS = 20
_KEYED = (
    "noise that only the holder of a key can tell from honest noise, or noise that carries its own "
    "seed"
)


def describe(result: AttributionResult) -> Report:
    """The report of an audit of ad measurement."""
    headline = _headline(result)
    checks = [check_of(t, result.alpha, result.verdict) for t in sorted_tests(result.tests)]
    checks += finding_checks(result.findings)
    return Report(
        kind="attribution",
        label="ad measurement",
        subject="attribution",
        title=_title(result),
        claim="the laws of the Attribution Reporting API",
        verdict=result.verdict,
        headline=headline,
        meaning=tuple(_meaning(result)),
        checks=with_verdict(checks, result.verdict, headline),
        sections=tuple(_sections(result)),
        blind_spots=open_spots(_not_excluded(result)),
        hazards=_hazards(result),
        facts={"alpha": result.alpha},
        data=to_dict(result),
        provenance=to_dict(result.provenance),
        seconds=result.seconds,
    )


def _title(result: AttributionResult) -> str:
    parts = ["event-level reports"] if any(c.sources for c in result.claims) else []
    parts += ["summary reports"] if result.noise else []
    parts += ["contribution budgets"] if result.budget else []
    return f"Attribution Reporting: {', '.join(parts) or 'what registrations permit'}"


def _headline(result: AttributionResult) -> str:
    tests = [test for test in sorted_tests(result.tests) if test.finding]
    serious = [finding for finding in result.findings if finding.serious]
    if result.verdict == "inconclusive":
        return "Inconclusive: no true output or value is recorded, so nothing could be tested."
    if tests:
        first = f"{tests[0].name} ({tests[0].effect})"
    elif serious:
        first = f"{serious[0].where}: {serious[0].message}"
    else:
        return f"No finding: {_passed(result)}."
    more = len(tests) + len(serious) - 1
    return f"Finding: {first}{f', and {more:,} more' if more else ''}."


def _passed(result: AttributionResult) -> str:
    known = sum(claim.known for claim in result.claims)
    parts = [f"the outputs of {count(known)} sources"] if known else []
    if result.noise is not None and result.noise.values:
        parts.append(f"{count(result.noise.values)} values of noise")
    if parts:
        return f"{' and '.join(parts)} do not contradict the claimed laws"
    if result.budget is not None:
        return f"{count(result.budget.reports)} aggregatable reports keep their limits"
    return "the laws that registrations have, without any reports"


def _meaning(result: AttributionResult) -> Iterator[Meaning]:
    """What it means for the people measured."""
    if result.verdict == "inconclusive":
        yield no_verdict()
        return
    if result.verdict == "no-finding" and result.tests:
        text = (
            "The recorded reports do not contradict the randomised response and the noise that "
            "the specification requires. That is about these reports, made as they were recorded."
        )
        yield Meaning(heading="The noise seen is as specified", says=text)
    if any(t.finding for t in result.tests):
        text = (
            "The ε of a source, or of a summary report, is computed from the specified law; where "
            "outputs are drawn otherwise, or noise is smaller or related, people are less "
            "protected than stated. Check first that the true outputs were recorded correctly, "
            "then how the random numbers are made."
        )
        yield Meaning(heading="The noise is not as specified", says=text)
    if any(f.serious for f in result.findings):
        text = (
            "Bounds, budgets or limits are exceeded, as listed below: sources lose more than the "
            "specification allows. Each is a fact about the files, or a bound that holds at the "
            "stated level."
        )
        yield Meaning(heading="More is spent than allowed", says=text)


def _not_excluded(result: AttributionResult) -> tuple[str, ...]:
    """What a pass does not exclude."""
    if result.verdict != "no-finding" or not result.tests:
        return ()
    return (*result.cannot_rule_out, _KEYED)


def _hazards(result: AttributionResult) -> tuple[Hazard, ...]:
    pyramid = Pyramid()
    if result.claims:
        largest = max(claim.epsilon for claim in result.claims)
        pyramid.add(PARAMETERS, f"ε up to {largest:.4g} per event-level source")
    if result.noise is not None:
        pyramid.add(PARAMETERS, f"ε = {result.noise.epsilon:.4g} per summary report")
    pyramid.add(UNIT, "one source: a person’s loss is the sum over all sources")
    number = sum(t.finding for t in result.tests) + sum(f.serious for f in result.findings)
    if number:
        pyramid.add(ALGORITHMS, f"{number:,} under What was found")
    pyramid.leave_open(ALGORITHMS, "reports whose true output is not recorded")
    pyramid.leave_open(TRUST, "noise that a key holder can tell from honest noise")
    pyramid.leave_open(SIDE_CHANNELS, "when reports are sent, and how many there are")
    return pyramid.hazards()


def _sections(result: AttributionResult) -> Iterator[Section]:
    yield Section(title="At a glance", blocks=(known_facts(_facts(result)),))
    finding_blocks: list[Block] = [Findings()] if any(test.finding for test in result.tests) else []
    if result.findings:
        caption = "Bounds above the claim, budgets and limits"
        finding_blocks.append(findings_table(result.findings, serious="Serious", caption=caption))
    if finding_blocks:
        yield Section(title="What was found", blocks=tuple(finding_blocks))
    if result.noise is not None or any(claim.sources for claim in result.claims):
        text = (
            "At least: a lower bound without assumptions on the mechanism; with n pairs it cannot "
            "exceed about ln n. By the noise: the ε of a mechanism of the claimed form with as "
            "much noise as was seen, with a 95 % interval."
        )
        blocks: list[Block] = [Text(text), *filter(None, [_chart(result)])]
        blocks.append(_bounds_table(result))
        yield Section(title="ε claimed and shown", blocks=tuple(blocks))
    if result.claims:
        text = (
            "A source’s event-level reports are one of a number of output states. With the "
            "probability in the column “drawn at random” the browser draws one of them, which may "
            "be the true one. One source loses at most ε; a person loses at most the sum over all "
            "sources."
        )
        yield Section(title="What registrations permit", blocks=(Text(text), _claims_table(result)))
    if tables := tuple(_spending_tables(result)):
        yield Section(title="What was spent", blocks=tables)
    yield from last_sections(result.tests, _not_excluded(result))


def _facts(result: AttributionResult) -> list[tuple[str, str]]:
    noise, budget = result.noise, result.budget
    facts = [("Sources", count(sum(c.sources for c in result.claims) or None))]
    if noise is not None:
        facts += [
            ("Summary reports", count(noise.batches)),
            ("Buckets", count(noise.rows)),
            ("Buckets whose noise is known", count(noise.values)),
            ("Noise claimed", f"discrete Laplace of scale {quantity(noise.scale)}"),
        ]
    if budget is not None:
        facts += [
            ("Aggregatable reports", count(budget.reports)),
            ("Sources with a budget", count(budget.sources)),
            ("Shared IDs", count(budget.shared_ids)),
            ("Batches", count(budget.batches)),
        ]
        if budget.largest:
            facts.append(("Largest loss of a source", f"ε = {quantity(budget.largest.epsilon)}"))
    if result.tests:
        facts.append(("Tests", count(len(result.tests))))
        facts.append(("α for all tests together", quantity(result.alpha)))
    return [*facts, ("Time", wording.seconds(result.seconds))]


def _claims_table(result: AttributionResult) -> Table:
    """One row per registration: the law that the specification gives it."""
    rows = result.claims[:MOST_ROWS]
    return Table(
        columns=(
            Column("Source", tuple(c.source_type for c in rows)),
            Column("Output\nstates", tuple(count(c.states) for c in rows), True),
            Column("ε", tuple(quantity(c.epsilon) for c in rows), True),
            Column("Drawn at\nrandom", tuple(quantity(c.pick_rate) for c in rows), True),
            Column("False\noutput", tuple(quantity(c.flip_probability) for c in rows), True),
            Column("Bits", tuple(quantity(c.capacity) for c in rows), True),
            Column("of at\nmost", tuple(quantity(c.capacity_limit) for c in rows), True),
            Column("Accepted", tuple("yes" if c.allowed else "no" for c in rows)),
        ),
        caption="One row per registration",
        left_out=len(result.claims) - len(rows),
        terminal="What registrations permit",
        terminal_rows=_TERMINAL_ROWS,
    )


def _bounds_table(result: AttributionResult) -> Table:
    """One row per mechanism with reports: the ε claimed and shown."""
    every = [c for c in result.claims if c.sources]
    claims = every[:MOST_ROWS]
    rows = [
        (c.name, f"{count(c.flips)} of {count(c.known)} false", c.epsilon, c.shown, c.by_flips)
        for c in claims
    ]
    if (noise := result.noise) is not None:
        sample = f"{count(noise.values)} values of noise"
        rows.append(("summary reports", sample, noise.epsilon, noise.shown, noise.by_scale))
    least = tuple(NOTHING if e is None else wording.bounds(e) for *_, e, _ in rows)
    return Table(
        columns=(
            Column("Mechanism", tuple(name for name, *_ in rows)),
            Column("Seen", tuple(sample for _, sample, *_ in rows)),
            Column("ε claimed", tuple(quantity(e) for _, _, e, *_ in rows), True),
            Column("at least", least, True),
            Column("by the noise", tuple(_ends(i) for *_, i in rows), True),
        ),
        caption="One row per mechanism with recorded reports",
        left_out=len(every) - len(claims),
        terminal="ε claimed, and shown by reports",
        terminal_rows=_TERMINAL_ROWS,
    )


def _ends(interval: Interval | None) -> str:
    return NOTHING if interval is None else wording.bounds(interval.low, interval.high)


def _spending_tables(result: AttributionResult) -> Iterator[Block]:
    """Event-level sources by party, and the sources with the largest losses through summaries."""
    named = [p for p in result.parties if p.source_site or p.destination or p.reporting_origin]
    parties = named[:MOST_ROWS]
    if parties:
        yield Table(
            columns=(
                Column("Source site", tuple(p.source_site for p in parties)),
                Column("Destination", tuple(p.destination for p in parties)),
                Column("Reporting origin", tuple(p.reporting_origin for p in parties)),
                Column("Sources", tuple(count(p.sources) for p in parties), True),
                Column("Σ ε", tuple(quantity(p.epsilon) for p in parties), True),
                Column("Attributions", tuple(count(p.attributions) for p in parties), True),
                Column("most in\n30 days", tuple(count(p.busiest) for p in parties), True),
            ),
            caption="Event-level sources; Σ ε bounds the loss of one person with all of them",
            left_out=len(named) - len(parties),
            terminal="Event-level sources by party",
            terminal_rows=_TERMINAL_ROWS,
        )
    lines = result.budget.lines if result.budget else ()
    if lines:
        rows = lines[:MOST_ROWS]
        yield Text(
            "A source may contribute 65,536 in all. Its loss is ε times the share of that which "
            "was aggregated, added up over batches."
        )
        yield Table(
            columns=(
                Column("Source", tuple(s.source for s in rows)),
                Column("Reports", tuple(count(s.reports) for s in rows), True),
                Column("Contributions", tuple(count(s.value) for s in rows), True),
                Column("ε lost", tuple(quantity(s.epsilon) for s in rows), True),
            ),
            caption="Contribution budgets, the largest losses first",
            left_out=len(lines) - len(rows),
            terminal="Contribution budgets, the largest losses first",
            terminal_rows=_TERMINAL_ROWS,
        )


def _chart(result: AttributionResult) -> Chart | None:
    """One row per mechanism with reports: the claim, the interval by the noise, the bound."""
    rows = [(c.name, c.epsilon, c.shown, c.by_flips) for c in result.claims if c.known]
    if (noise := result.noise) is not None and noise.values:
        rows.append(("summary reports", noise.epsilon, noise.shown, noise.by_scale))
    bars = [row for row in rows if 0 <= row[1] < _LARGEST][:_MOST_BARS]
    if not bars:
        return None
    most = max(row[1] for row in bars)
    highs = [i.high for *_, i in bars if i is not None]
    right = 1.1 * min(max([most, *highs]), 3 * most) + 1
    intervals, least, claims = [], [], []
    for y, (name, claimed, bound, interval) in enumerate(bars):
        outside = interval is not None and not interval.low <= claimed <= interval.high
        wrong = outside or (bound is not None and bound > claimed)
        if interval is not None and interval.low < right:
            low, high = interval.low, min(interval.high, right)
            tooltip = f"by the noise {_ends(interval)}"
            mark = Mark(x=low, y=y, low=low, high=high, name=name, says=tooltip, alarm=wrong)
            intervals.append(mark)
        if bound is not None and bound < right:
            tooltip = f"shown {wording.bounds(bound)}"
            least.append(Mark(x=bound, y=y, name=name, says=tooltip, alarm=wrong))
        tooltip = f"claimed {quantity(claimed)}"
        claims.append(Mark(x=claimed, y=y, name=name, says=tooltip, filled=False))
    listed = "; ".join(
        f"{name}: claimed {quantity(claimed)}, by the noise {_ends(i) if i else 'nothing'}"
        for name, claimed, _, i in bars[:8]
    )
    return Chart(
        kind="rows",
        title="ε claimed and shown",
        caption="Circles: the claim. Lines: the ε of as much noise as was seen, with 95 % "
        "confidence. Triangles: lower bounds without assumptions, which few reports keep low. "
        "Warning colour: the claim is outside the line or below the bound.",
        alt=f"ε claimed and shown. {listed}.",
        panels=(
            Panel(
                series=(
                    Series(marks=tuple(intervals), marker="|", legend="by the noise"),
                    Series(marks=tuple(least), marker=">", legend="at least"),
                    Series(marks=tuple(claims), marker="o", legend="claimed", quiet=True),
                )
            ),
        ),
        x=Axis(label="ε", low=0.0, high=right),
        y=Axis(categories=tuple(name for name, *_ in bars)),
    )
