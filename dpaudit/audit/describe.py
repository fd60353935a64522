"""What an audit of a sampler reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from dpaudit import wording
from dpaudit.audit.result import AuditResult, without_secrets
from dpaudit.codec import to_dict
from dpaudit.harms import (
    ALGORITHMS,
    HARMS,
    PARAMETERS,
    SIDE_CHANNELS,
    TRUST,
    UNIT,
    Pyramid,
    meaning_of_findings,
    no_verdict,
)
from dpaudit.provenance import file_facts
from dpaudit.report import (
    Axis,
    BlindSpots,
    Block,
    Chart,
    Check,
    Facts,
    Findings,
    Hazard,
    Line,
    Mark,
    Meaning,
    Panel,
    Report,
    Section,
    Series,
    Text,
    check_of,
    replace,
    sorted_tests,
    tests_table,
    with_verdict,
)
from dpaudit.types import BlindSpot, PowerPoint, Verdict

__all__ = [
    "blind_spots_section",
    "describe",
    "power_chart",
    "pyramid_of",
]

_MOST_TESTS = 40
_FEW_AT_ONE = 3  # tests with an adjusted p of 1 that are drawn one by one; more share one row
_LEAST_P = 1e-20
_HARDER_ABOVE = ("truncated tails", "tail weight", "coarse noise", "Gaussian pancake, small γ")


def describe(result: AuditResult) -> Report:
    """The report of an audit of a closed sampler."""
    headline = _headline(result)
    checks = [check_of(t, result.alpha, result.verdict) for t in sorted_tests(result.tests)]
    return Report(
        kind="audit",
        label="black-box audit",
        subject=result.sampler,
        title=f"Audit of {result.sampler}",
        claim=result.claim,
        verdict=result.verdict,
        headline=headline,
        remarks=result.remarks,
        meaning=_meaning(result, checks),
        checks=with_verdict(checks, result.verdict, headline),
        sections=tuple(_sections(result)),
        blind_spots=result.cannot_rule_out,
        hazards=pyramid_of(result.cannot_rule_out, checks, result.verdict),
        facts={
            "samples": result.samples,
            "samples_requested": result.samples_requested,
            "alpha": result.alpha,
            "sandbox": result.sandbox,
            "dims": list(result.dims),
            "sequential": result.sequential,
        },
        data=to_dict(without_secrets(result)),
        provenance=to_dict(result.provenance),
        seconds=result.seconds,
        command=result.provenance.command,
    )


def _headline(result: AuditResult) -> str:
    values = wording.count(result.samples)
    if result.verdict == "no-finding":
        unknown = "" if result.cannot_rule_out else "; no test stated what it would miss"
        return f"No finding: nothing contradicts {result.claim} in {values} values{unknown}."
    if result.verdict == "finding":
        findings = [t for t in sorted_tests(result.tests) if t.finding]
        names = wording.listed([t.name for t in findings], word="and") or "the audit"
        verb = "contradict" if len(findings) > 1 else "contradicts"
        smallest = min((t.p_adjusted for t in findings), default=None)
        cause = f"{result.cause}; " if result.cause else ""
        p = f"smallest adjusted p {wording.p_value(smallest)}, " if findings else ""
        return (
            f"Finding: {cause}{names} {verb} {result.claim} ({p}α "
            f"{wording.quantity(result.alpha)}, {values} values)."
        )
    reason = (result.reason or "no reason given").rstrip(".")
    return f"Inconclusive: {reason}; this says nothing about {result.claim} either way."


def _meaning(result: AuditResult, checks: Sequence[Check]) -> tuple[Meaning, ...]:
    if result.verdict == "finding":
        meanings = list(meaning_of_findings(checks, honest="honest noise"))
        if len(meanings) > 1:
            note = "What follows may be a consequence of the first."
            meanings[1] = replace(meanings[1], note=note)
        return tuple(meanings)
    if result.verdict == "inconclusive":
        return (no_verdict(),)
    text = f"Nothing in {wording.count(result.samples)} values contradicts the claim"
    if any(spot.size is not None for spot in result.cannot_rule_out):
        text += (
            "; a flaw larger than the sizes under “What a pass cannot exclude” would have been "
            "found nine times in ten"
        )
    text += (
        ". This is not proof of honesty: a backdoor that needs a key may show in no number of "
        "values, so decide whether you trust whoever supplies the sampler."
    )
    return (Meaning(heading="No contradiction was found", says=text),)


def _sections(result: AuditResult) -> Iterable[Section]:
    used, requested = wording.count(result.samples), wording.count(result.samples_requested)
    rows = (
        ("Claim", result.claim),
        ("Values", used if used == requested else f"{used} ({requested} requested)"),
        ("Dimensions", ", ".join(map(wording.count, result.dims)) or wording.NOTHING),
        ("Dimensions refused", ", ".join(map(wording.count, result.dims_refused))),
        ("Mode", "sequential: valid at any stopping time" if result.sequential else ""),
        ("Sandbox", result.sandbox),
        ("α for all tests together", wording.quantity(result.alpha)),
        ("Time", wording.seconds(result.seconds)),
    )
    facts = Facts(tuple((name, value) for name, value in rows if value))
    yield Section(title="What was tested", blocks=(*file_facts(result.provenance), facts))
    ladder = _ladder(result)
    basis = _basis(result)
    findings: list[Block] = [Text(basis)] if basis else []
    findings += [Findings(), *([ladder] if ladder else [])]
    yield Section(title="What was found", blocks=tuple(findings))
    if result.cannot_rule_out or result.power or result.verdict == "no-finding":
        yield blind_spots_section(result.cannot_rule_out, result.power, "honesty")
    if result.tests:
        table = tests_table(result.tests)
        yield Section(title="All tests", blocks=(table,))


def blind_spots_section(
    spots: Sequence[BlindSpot], power: Sequence[PowerPoint], of: str
) -> Section:
    """What a pass cannot exclude, with the map of sizes that are found; ``of`` is not proved."""
    text = f"A pass is not proof of {of}. It cannot exclude these flaws."
    if not spots:
        text = "No test stated what it would miss, so this pass excludes no flaw of a stated size."
    chart = power_chart(power)
    blocks: list[Block] = [Text(text), *([chart] if chart else []), BlindSpots()]
    return Section(title="What a pass cannot exclude", blocks=tuple(blocks))


def _basis(result: AuditResult) -> str:
    """The basis of a pass: how many tests, at what level."""
    judged = sum(not t.advisory for t in result.tests)
    if result.verdict != "no-finding":
        return ""
    if not judged:
        return result.reason
    tests = "The one test does not contradict"
    if judged > 1:
        tests = f"None of {judged} tests contradicts"
    basis = f"{tests} the claim, at α = {wording.quantity(result.alpha)} for all of them together."
    if advisory := len(result.tests) - judged:
        basis += f" {advisory} further {'check is' if advisory == 1 else 'checks are'} advisory."
    return basis


def pyramid_of(
    spots: Sequence[BlindSpot], checks: Sequence[Check], verdict: Verdict
) -> tuple[Hazard, ...]:
    """The NIST components of an audit's findings, and of what it does not exclude."""
    pyramid = Pyramid()
    for check in checks:
        if check.outcome == "finding":
            pyramid.add(HARMS.get(check.harm, HARMS["other"]).component, check.name)
    for spot in spots:
        pyramid.leave_open(spot.component or ALGORITHMS, spot.flaw)
    pyramid.leave_open(PARAMETERS, "whether the claimed ε is small enough")
    pyramid.leave_open(UNIT, "whether neighbours differ in all data of one person")
    pyramid.leave_open(TRUST, "whether the supplier of the noise can be trusted")
    if verdict != "no-finding":
        pyramid.leave_open(ALGORITHMS, "other flaws")
        pyramid.leave_open(SIDE_CHANNELS, "other side channels")
    return pyramid.hazards()


def _ladder(result: AuditResult) -> Chart | None:
    """Tests by adjusted p on a log axis, with α; many with p = 1 share one row."""
    tests = [
        (i, t)
        for i, t in enumerate(sorted_tests(result.tests), 1)
        if 0 <= t.p_adjusted <= 1 and not t.advisory
    ]
    top = [t for _, t in tests if t.p_adjusted == 1 and not t.finding]
    below = [(i, t) for i, t in tests if t.p_adjusted < 1 or t.finding]
    if len(top) <= _FEW_AT_ONE:
        below, top = tests, []
    marks = [
        Mark(
            x=max(t.p_adjusted, _LEAST_P),
            y=float(y),
            name=t.name,
            says=f"adjusted p {wording.p_value(t.p_adjusted)}{'; a finding' * t.finding}",
            filled=t.finding,
            alarm=t.finding,
            link=str(i),
        )
        for y, (i, t) in enumerate(below[:_MOST_TESTS])
    ]
    names = [t.name for _, t in below[:_MOST_TESTS]]
    if top and len(below) < _MOST_TESTS:
        names.append(f"{'the other ' if below else 'all '}{len(top)} tests")
        row = Mark(x=1.0, y=float(len(marks)), name=names[-1], says="adjusted p 1", filled=False)
        marks.append(row)
    if not marks:
        return None
    caption = "Adjusted p-value per test; filled marks left of the dashed line (α) are findings."
    if rest := len(below) - _MOST_TESTS:
        caption += f" The {rest} largest are in the table only." if rest > 0 else ""
    if any(t.p_adjusted < _LEAST_P for _, t in below):
        least = wording.p_value(_LEAST_P)
        caption += f" Values below {least} are drawn at {least}."
    p_values = "; ".join(f"{t.name} {wording.p_value(t.p_adjusted)}" for _, t in tests[:12])
    return Chart(
        kind="rows",
        title="Adjusted p-values",
        caption=caption,
        alt=f"Adjusted p-values of {len(tests)} tests on a logarithmic axis, smallest first: "
        f"{p_values}.",
        panels=(
            Panel(
                series=(Series(marks=tuple(marks), look="stems"),),
                lines=(Line(at=result.alpha, label=f"α = {result.alpha:g}", vertical=True),),
            ),
        ),
        x=Axis(label="adjusted p-value", log=True, high=1.0),
        y=Axis(categories=tuple(names)),
    )


def power_chart(points: Sequence[PowerPoint]) -> Chart | None:
    """One panel per flaw; what may be missed is shaded, and this audit is marked.

    Points with ``found_low`` were measured; the others are this audit's. None without points.
    """
    flaws = list(dict.fromkeys(p.flaw for p in points))
    if not flaws:
        return None
    here = sorted({p.samples for p in points if p.found_low is None})
    panels = []
    for flaw in flaws:
        of_flaw = sorted((p for p in points if p.flaw == flaw), key=lambda p: p.samples)
        measured = [p for p in of_flaw if p.found_low is not None]
        own = [p for p in of_flaw if p.found_low is None]
        series = (
            Series(marks=tuple(map(_size_mark, measured)), look="line", shade=_shade(flaw)),
            Series(marks=tuple(map(_size_mark, own))),
        )
        lines = tuple(Line(at=n, vertical=True) for n in here)
        panels.append(Panel(title=f"{flaw}\n{of_flaw[0].unit}", series=series, lines=lines))
    sizes = "; ".join(
        f"{p.flaw} {wording.quantity(p.size, digits=3)} {p.unit}"
        for p in points
        if p.found_low is None
    )
    values = f" with {wording.count(here[0])} values" if here else ""
    return Chart(
        kind="plot",
        title="Smallest flaws found",
        caption="The smallest flaws found with probability 0.9 or more at α = 0.01, by number of "
        "values, measured by simulation; shaded flaws may pass. The hollow mark is this audit, "
        "interpolated on logarithmic scales.",
        alt=f"Smallest flaws found nine times in ten{values}, by kind: {sizes}.",
        panels=tuple(panels),
        x=Axis(label="values", log=True),
        y=Axis(log=True, shared=False),
        columns=3,
    )


def _shade(flaw: str) -> Literal["above", "below"]:
    return "above" if flaw in _HARDER_ABOVE else "below"


def _size_mark(point: PowerPoint) -> Mark:
    measured = point.found_low is not None
    by = "measured" if measured else "this audit"
    return Mark(
        x=float(point.samples),
        y=point.size,
        name=f"{point.flaw}, {wording.count(point.samples)} values",
        says=f"{wording.quantity(point.size, digits=3)} {point.unit} ({by})",
        filled=measured,
    )
