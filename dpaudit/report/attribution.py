"""An audit of ad measurement in words and tables."""

from __future__ import annotations

from dpaudit.deployments.attribution.document import AttributionDocument
from dpaudit.report import format as fmt
from dpaudit.report.tables import Column, sorted_tests
from dpaudit.results.text import one_line, printable
from dpaudit.types import Interval

__all__ = [
    "MOST_LINES",
    "PAIR_WORDS",
    "attribution_facts",
    "attribution_findings_table",
    "attribution_sentence",
    "attribution_title",
    "budget_table",
    "claims_table",
    "not_excluded",
    "parties_table",
    "shown_table",
]

MOST_LINES = 400
PAIR_WORDS = (
    "At least: a lower bound without assumptions on the mechanism; with n pairs it cannot exceed "
    "about ln n. By the noise: the ε of a mechanism of the claimed form with as much noise as was "
    "seen, with a 95 % interval."
)
"""What the columns of :func:`shown_table` mean."""
_ALWAYS = (
    "noise that only the holder of a key can tell from honest noise, or noise that carries its own "
    "seed"
)


def attribution_title(document: AttributionDocument) -> str:
    """What was audited."""
    parts = ["event-level reports"] if any(c.sources for c in document.claims) else []
    parts += ["summary reports"] if document.noise else []
    parts += ["contribution budgets"] if document.budget else []
    return f"Attribution Reporting: {', '.join(parts) or 'what registrations permit'}"


def attribution_sentence(document: AttributionDocument) -> str:
    """The verdict in a sentence."""
    tests = [test for test in sorted_tests(document.tests) if test.finding]
    serious = [finding for finding in document.findings if finding.serious]
    if document.verdict == "inconclusive":
        return "Inconclusive: no true output or value is recorded, so nothing could be tested."
    if tests:
        first = f"{printable(tests[0].name, limit=100)} ({printable(tests[0].effect, limit=200)})"
    elif serious:
        where = one_line(serious[0].where, limit=100)
        first = f"{where}: {printable(serious[0].message, limit=300)}"
    else:
        return f"No finding: {_passed(document)}."
    more = len(tests) + len(serious) - 1
    return f"Finding: {first}{f', and {more:,} more' if more else ''}."


def _passed(document: AttributionDocument) -> str:
    known = sum(claim.known for claim in document.claims)
    parts = [f"the outputs of {fmt.count(known)} sources"] if known else []
    if document.noise is not None and document.noise.values:
        parts.append(f"{fmt.count(document.noise.values)} values of noise")
    if parts:
        return f"{' and '.join(parts)} do not contradict the claimed laws"
    if document.budget is not None:
        return f"{fmt.count(document.budget.reports)} aggregatable reports keep their limits"
    return "the laws that registrations have, without any reports"


def attribution_facts(document: AttributionDocument) -> list[tuple[str, str]]:
    """Names and values for the top of the page."""
    noise, budget = document.noise, document.budget
    facts = [("Sources", fmt.count(sum(c.sources for c in document.claims) or None))]
    if noise is not None:
        facts += [
            ("Summary reports", fmt.count(noise.batches)),
            ("Buckets", fmt.count(noise.rows)),
            ("Buckets whose noise is known", fmt.count(noise.values)),
            ("Noise claimed", f"discrete Laplace of scale {fmt.quantity(noise.scale)}"),
        ]
    if budget is not None:
        facts += [
            ("Aggregatable reports", fmt.count(budget.reports)),
            ("Sources with a budget", fmt.count(budget.sources)),
            ("Shared IDs", fmt.count(budget.shared_ids)),
            ("Batches", fmt.count(budget.batches)),
            ("Largest loss of a source", f"ε = {fmt.quantity(budget.largest.epsilon)}")
            if budget.largest else ("", fmt.NOTHING),
        ]  # fmt: skip
    facts += [
        ("Tests", fmt.count(len(document.tests) or None)),
        ("α for all tests together", fmt.quantity(document.alpha) if document.tests else ""),
        ("Time", fmt.seconds(document.seconds)),
    ]
    return [(name, value) for name, value in facts if value not in ("", fmt.NOTHING)]


def claims_table(document: AttributionDocument) -> list[Column]:
    """One row per registration: the law that the specification gives it."""
    rows = document.claims[:MOST_LINES]
    return [
        Column("Source", [printable(c.source_type, limit=40) for c in rows]),
        Column("Output\nstates", [fmt.count(c.states) for c in rows], True),
        Column("ε", [fmt.quantity(c.epsilon) for c in rows], True),
        Column("Drawn at\nrandom", [fmt.quantity(c.pick_rate) for c in rows], True),
        Column("False\noutput", [fmt.quantity(c.flip_probability) for c in rows], True),
        Column("Bits", [fmt.quantity(c.capacity) for c in rows], True),
        Column("of at\nmost", [fmt.quantity(c.capacity_limit) for c in rows], True),
        Column("Accepted", ["yes" if c.allowed else "no" for c in rows]),
    ]


def shown_table(document: AttributionDocument) -> list[Column]:
    """One row per mechanism with reports: the ε claimed and shown."""
    claims = [c for c in document.claims if c.sources][:MOST_LINES]
    names = [printable(c.name, limit=100) for c in claims]
    claimed, shown = [c.epsilon for c in claims], [c.shown for c in claims]
    noise = [c.by_flips for c in claims]
    seen = [f"{fmt.count(c.flips)} of {fmt.count(c.known)} false" for c in claims]
    if document.noise is not None:
        names.append("summary reports")
        claimed.append(document.noise.epsilon)
        shown.append(document.noise.shown)
        noise.append(document.noise.by_scale)
        seen.append(f"{fmt.count(document.noise.values)} values of noise")
    return [
        Column("Mechanism", names),
        Column("Seen", seen),
        Column("ε claimed", [fmt.quantity(e) for e in claimed], True),
        Column("at least", [fmt.bounds(e) if e is not None else fmt.NOTHING for e in shown], True),
        Column("by the noise", [_ends(i) for i in noise], True),
    ]


def parties_table(document: AttributionDocument) -> list[Column]:
    """One row per source site, destination and reporting origin that records name."""
    rows = [p for p in document.parties if p.source_site or p.destination or p.reporting_origin]
    rows = rows[:MOST_LINES]
    return [
        Column("Source site", [one_line(p.source_site, limit=100) for p in rows]),
        Column("Destination", [one_line(p.destination, limit=100) for p in rows]),
        Column("Reporting origin", [one_line(p.reporting_origin, limit=100) for p in rows]),
        Column("Sources", [fmt.count(p.sources) for p in rows], True),
        Column("Σ ε", [fmt.quantity(p.epsilon) for p in rows], True),
        Column("Attributions", [fmt.count(p.attributions) for p in rows], True),
        Column("most in\n30 days", [fmt.count(p.busiest) for p in rows], True),
    ]


def budget_table(document: AttributionDocument) -> list[Column]:
    """The sources with the largest losses through summary reports."""
    rows = document.budget.lines[:MOST_LINES] if document.budget else ()
    return [
        Column("Source", [one_line(s.source, limit=100) for s in rows]),
        Column("Reports", [fmt.count(s.reports) for s in rows], True),
        Column("Contributions", [fmt.count(s.value) for s in rows], True),
        Column("ε lost", [fmt.quantity(s.epsilon) for s in rows], True),
    ]


def attribution_findings_table(document: AttributionDocument) -> list[Column]:
    """Facts and bounds, serious ones first; findings of tests are apart."""
    rows = sorted(document.findings, key=lambda f: not f.serious)[:MOST_LINES]
    return [
        Column("Finding", [printable(f.message, limit=600) for f in rows]),
        Column("Where", [one_line(f.where, limit=200) for f in rows]),
        Column("Serious", ["yes" if f.serious else "no" for f in rows]),
    ]


def not_excluded(document: AttributionDocument) -> list[str]:
    """What a pass does not exclude."""
    if document.verdict != "no-finding" or not document.tests:
        return []
    return [*(printable(says, limit=600) for says in document.cannot_rule_out), _ALWAYS]


def _ends(interval: Interval | None) -> str:
    return fmt.NOTHING if interval is None else fmt.bounds(interval.low, interval.high)
