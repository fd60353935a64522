"""What an audit of a whole mechanism reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from dpaudit import wording
from dpaudit.audit.describe import blind_spots_section, pyramid_of
from dpaudit.audit.result import MechanismResult, without_secrets
from dpaudit.codec import convert_value, to_dict
from dpaudit.harms import meaning_of_findings, no_verdict
from dpaudit.provenance import file_facts
from dpaudit.report import (
    Axis,
    Block,
    Chart,
    Check,
    Column,
    Facts,
    Findings,
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
    sorted_tests,
    with_verdict,
)
from dpaudit.results.foreign import RefusedError
from dpaudit.types import Interval, Number, TestResult

__all__ = ["describe"]

_MOST_INTERVALS = 12
_CUT = 2.5  # a bound this many times above claim and curve is drawn at the upper edge
_FACTS = (
    "claim_epsilon", "claim_delta", "claim_mu", "stated", "epsilon", "delta", "mu", "method",
    "attack", "samples", "samples_requested", "alpha", "sandbox",
)  # fmt: skip
_Pair = tuple[Number, Number]
T = TypeVar("T")


def describe(result: MechanismResult) -> Report:
    """The report of an audit of a whole mechanism."""
    headline = _headline(result)
    checks = [check_of(t, result.alpha, result.verdict) for t in sorted_tests(result.tests)]
    values = {name: to_dict(getattr(result, name)) for name in _FACTS}
    return Report(
        kind="mechanism",
        label="ε audit of a mechanism",
        subject=result.mechanism,
        title=f"Audit of {result.mechanism}",
        claim=_claim(result) if _is_implied(result) else _claimed_pair(result),
        verdict=result.verdict,
        headline=headline,
        meaning=_meaning(result, checks),
        checks=with_verdict(checks, result.verdict, headline) + _advice(result),
        sections=tuple(_sections(result)),
        blind_spots=result.cannot_rule_out,
        advice=result.advice,
        hazards=pyramid_of(result.cannot_rule_out, checks, result.verdict),
        facts={name: value for name, value in values.items() if value is not None},
        data=to_dict(without_secrets(result)),
        provenance=to_dict(result.provenance),
        seconds=result.seconds,
        command=result.provenance.command,
    )


def _advice(result: MechanismResult) -> tuple[Check, ...]:
    return tuple(
        Check(group="advice", name="advice", outcome="advice", effect=advice)
        for advice in result.advice
    )


def _headline(result: MechanismResult) -> str:
    """The claim, and what was shown, in one sentence."""
    name, claim = result.mechanism, _claim(result)
    parts = [f"{_bound_text(result.epsilon, 'ε')} at δ = {wording.quantity(result.claim_delta)}"]
    if result.stated is not None and result.stated.says:
        parts.insert(0, result.stated.says)
    if result.claim_mu is not None:
        parts.insert(0 if _only_mu(result) else 1, _bound_text(result.mu, "μ"))
    bounds = " and ".join(parts)
    confidence = _confidence(result)
    by = f", by the attack {result.attack}{_guessing_text(result)}" if result.attack else ""
    if result.verdict == "finding":
        findings = [t for t in result.tests if t.finding]
        low_bits = findings and all(t.topic == "low-bits" for t in findings)
        only = ", by the low bits of its releases" if low_bits else ""
        return f"Finding: {name} is not {claim}{only}: we can show {bounds}{confidence}{by}."
    if result.verdict == "no-finding":
        excluded = " (last bits excluded)" if _last_bits_excluded(result) else ""
        return (
            f"No finding{excluded}: we can show {bounds}{confidence}{by}; that is consistent with "
            f"the claim of {name}, {claim}."
        )
    reason = (result.reason or "no reason given").rstrip(".")
    return f"Inconclusive: {reason}; this says nothing about {name} either way."


def _last_bits_excluded(result: MechanismResult) -> bool:
    """Whether the audit was told (``--real-numbers``) to leave the last bits out of its verdict."""
    advisory = any(t.advisory and t.topic == "low-bits" for t in result.tests)
    return advisory or result.details.get("last_bits_excluded") is True


def _meaning(result: MechanismResult, checks: Sequence[Check]) -> tuple[Meaning, ...]:
    if result.verdict == "finding":
        honest = "a mechanism that keeps its claim"
        return meaning_of_findings(checks, honest=honest, claimed=result.claim_epsilon)
    if result.verdict == "inconclusive":
        return (no_verdict(),)
    low = result.epsilon.low
    bound = f"an ε of at least {wording.bounds(low)[2:]}" if low > 0 else "no privacy loss"
    inputs = "these canaries" if not result.neighbours else "these two inputs"
    claimed = f"ε = {wording.quantity(result.claim_epsilon)}"
    if _only_mu(result):
        claimed = f"μ = {wording.quantity(result.claim_mu)}"
    if result.stated is not None:
        claimed = _claim(result)
    text = (
        f"On {inputs} the releases show {bound}, and {claimed} "
        "is claimed: the claim may be true, but other inputs and other ways to look at a release "
        "were not tried. "
    )
    if _last_bits_excluded(result):
        text += (
            "The last bits of releases were left out of this verdict: round releases before you "
            "publish them, or repeat the audit without --real-numbers."
        )
    else:
        text += "Ask for the proof of the claim too; an audit can refute a claim, not prove it."
    return (Meaning(heading="The claim was not refuted", says=text),)


def _sections(result: MechanismResult) -> Iterable[Section]:
    blocks = (*file_facts(result.provenance), Facts(tuple(_facts(result))))
    yield Section(title="What was tested", blocks=blocks)
    chart = (_wealth(result) or _profile(result)) if result.tests else None
    outcome: list[Block] = [*map(Text, result.advice), *([chart] if chart else []), Findings()]
    if chart is None and not result.advice and not any(t.finding for t in result.tests):
        passed = result.verdict == "no-finding"
        outcome.append(Text("Nothing contradicts the claim." if passed else "No results."))
    yield Section(title="What was found", blocks=tuple(outcome))
    if result.cannot_rule_out or result.power:
        yield blind_spots_section(result.cannot_rule_out, result.power, "privacy")
    if result.tests:
        yield Section(title="What was counted", blocks=(_bounds_table(result),))
    events = _events_table(result)
    if events.rows:
        yield Section(title="The events, for counting again", blocks=(events,), folded=True)


def _facts(result: MechanismResult) -> Iterable[tuple[str, str]]:
    """Names and values for the top of the page, the claimed and the shown ε first."""
    delta = wording.quantity(result.claim_delta)
    used, requested = wording.count(result.samples), wording.count(result.samples_requested)
    stated, none = result.stated, wording.NOTHING
    claimed = "ε that the claimed μ implies" if _only_mu(result) else "ε claimed"
    excluded = _last_bits_excluded(result)
    at = "this" if _is_implied(result) else "the claimed"
    rows = (
        ("Claimed", stated.claim if stated else none),
        ("Shown", (stated.says if stated else "") or none),
        (
            "ε that the claim implies" if stated else claimed,
            f"{wording.quantity(result.claim_epsilon)} at δ = {delta}",
        ),
        (f"ε shown{_confidence(result)}", _bound_text(result.epsilon, "")),
        (f"δ shown at {at} ε{_by(result.delta)}", _bound_text(result.delta, "")),
        ("μ claimed", wording.quantity(result.claim_mu)),
        (f"μ shown{_by(result.mu)}", _bound_text(result.mu, "")),
        ("Method", result.method),
        ("Last bits", "excluded (--real-numbers)" if excluded else none),
        ("Attack", result.attack or none),
        ("Neighbours identified", _guessing_rate(result)),
        ("Releases possible at their true value", _feasible_counts(result)),
        ("Neighbours", _datasets(result) or _neighbours(result.neighbours)),
        (
            "Releases" if result.neighbours else "Canaries",
            used if used == requested else f"{used} of {requested} requested",
        ),
        ("Sandbox", result.sandbox or none),
        ("α for everything together", wording.quantity(result.alpha)),
        ("Time", wording.seconds(result.seconds)),
    )
    return ((name, value) for name, value in rows if value != none)


def _datasets(result: MechanismResult) -> str:
    pair = result.details.get("datasets", ())
    return " and ".join(map(str, pair)) if isinstance(pair, (list, tuple)) else ""


def _neighbours(vectors: Sequence[Sequence[Number]]) -> str:
    if vectors and not any(vectors):
        return "the two recordings"
    return " and ".join(wording.setting(v)[:80] for v in vectors) or wording.NOTHING


def _bounds_table(result: MechanismResult) -> Table:
    """One row per counted event and for the curve; with an attack, also each event's frequency."""
    tests = sorted_tests(result.tests)
    outcome = ["yes" if t.finding else "advice" if t.advisory else "no" for t in tests]
    adjusted = [wording.NOTHING if t.advisory else wording.p_value(t.p_adjusted) for t in tests]
    return Table(
        columns=(
            Column("Test", tuple(t.name for t in tests)),
            *(_probabilities(tests) if result.attack else ()),
            Column("Shown", tuple(map(_bound_of_test, tests)), True),
            Column("p", tuple(wording.p_value(t.p) for t in tests), True, False),
            Column("Adjusted p", tuple(adjusted), True),
            Column("Counted", tuple(t.effect or wording.NOTHING for t in tests)),
            Column("Finding", tuple(outcome), terminal=False),
        ),
        caption="Each event is chosen before the releases it is counted in are seen",
        marked=tuple(t.finding for t in tests),
        terminal="What was counted",
        checks=True,
    )


def _probabilities(tests: Sequence[TestResult]) -> tuple[Column, ...]:
    """How often the event happened at each neighbour: v0 is the first one."""
    shares = [_shares(t.details) for t in tests]
    return tuple(
        Column(f"P(E | v{side})", tuple(pair[side] for pair in shares), True) for side in (0, 1)
    )


def _detail(values: Mapping[str, Any], name: str, cls: type[T]) -> T | None:
    """A detail as ``cls``; None if it is missing or not one."""
    try:
        return convert_value(to_dict(values[name]), cls) if name in values else None
    except RefusedError:
        return None


def _shares(details: Mapping[str, Any]) -> tuple[str, str]:
    counts, at = _detail(details, "counts", dict[str, _Pair]), details.get("likelier_at")
    if counts is None or at not in (0, 1):
        return wording.NOTHING, wording.NOTHING
    likelier, other = (_share(counts.get(key)) for key in ("likelier", "other"))
    return (likelier, other) if at == 0 else (other, likelier)


def _share(counted: _Pair | None) -> str:
    """A pair (count, total) as a share."""
    if not counted or not 0 < counted[1] < math.inf:
        return wording.NOTHING
    return wording.percent(counted[0] / counted[1])


def _guessing_rate(result: MechanismResult) -> str:
    """An attack's share of correct guesses, with its interval."""
    success = _detail(result.details, "success", dict[str, Any]) or {}
    right, of = _detail(success, "right", float), _detail(success, "of", float)
    interval = _detail(success, "interval", Interval)
    if right is None or not of or not of < math.inf:
        return wording.NOTHING
    low, high = (interval.low, interval.high) if interval else (None, None)
    return wording.proportion(right / of, low, high)


def _guessing_text(result: MechanismResult) -> str:
    guessed = _guessing_rate(result)
    if guessed == wording.NOTHING:
        return ""
    return f", which identifies the neighbour in {guessed} of releases"


def _feasible_counts(result: MechanismResult) -> str:
    """How many releases a support attack considers possible at the values they were made from."""
    truth = _detail(result.details, "feasible_at_truth", dict[str, _Pair]) or {}
    pairs = [truth[which] for which in ("first", "second") if which in truth]
    texts = [f"{wording.count(some)} of {wording.count(of)}" for some, of in pairs]
    return " and ".join(texts) or wording.NOTHING


def _events_table(result: MechanismResult) -> Table:
    """The learned events, in full precision, so that they can be counted again."""
    events = [
        (t, pieces)
        for t in sorted_tests(result.tests)
        if (pieces := _detail(t.details, "intervals", list[_Pair])) is not None
    ]
    return Table(
        columns=(
            Column("Test", tuple(t.name for t, _ in events)),
            Column(
                "Statistic of a release",
                tuple(str(t.details.get("statistic", "")) for t, _ in events),
            ),
            Column("Event: it lies in", tuple(_intervals(pieces) for _, pieces in events)),
        ),
        caption="Half-open intervals; an atom is [value, next float)",
        quiet=True,
    )


def _intervals(pairs: Sequence[_Pair]) -> str:
    lines = [f"[{_exact(a)}, {_exact(b)})" for a, b in pairs[:_MOST_INTERVALS]]
    if more := len(pairs) - len(lines):
        lines.append(f"… and {more:,} more, in result.json")
    return "\n".join(lines) or wording.NOTHING


def _exact(value: object) -> str:
    x = wording.number(value)
    return wording.NOTHING if x is None else wording.quantity(x, digits=17)


def _claim(result: MechanismResult) -> str:
    """What is claimed, as it was stated: ``(1, 1e-05)-DP``, ``1-GDP``, ``0.5-zCDP``."""
    if result.stated is not None:
        return result.stated.claim
    gdp = f"{wording.quantity(result.claim_mu)}-GDP"
    if _only_mu(result):
        return gdp
    pair = _claimed_pair(result)
    return pair if result.claim_mu is None else f"both {pair} and {gdp}"


def _claimed_pair(result: MechanismResult) -> str:
    """``(1, 1e-05)-DP``: what is claimed of ε and δ, or what a claimed μ implies."""
    pair = wording.quantity(result.claim_epsilon), wording.quantity(result.claim_delta)
    return f"({', '.join(pair)})-DP"


def _only_mu(result: MechanismResult) -> bool:
    """Whether μ-GDP alone was claimed, so that (ε, δ) is what it implies."""
    return result.claim_mu is not None and result.details.get("claimed") == "mu"


def _is_implied(result: MechanismResult) -> bool:
    """Whether (ε, δ) is not what was claimed but what the claim implies."""
    return _only_mu(result) or result.stated is not None


def _bound_text(interval: Interval | None, letter: str) -> str:
    """A lower bound, rounded down; a bound of zero shows nothing."""
    return wording.NOTHING if interval is None else f"{letter} {_at_least(interval.low)}".strip()


def _by(interval: Interval | None) -> str:
    """That the trade-off curve alone shows it: other events, such as low bits, bound only ε."""
    alone = interval is not None and interval.method.startswith("trade-off curve")
    return ", by the trade-off curve" if alone else ""


def _at_least(low: float) -> str:
    return wording.bounds(low) if low > 0 else "≥ 0 (nothing)"


def _bound_of_test(test: TestResult) -> str:
    low = test.statistic if test.interval is None else test.interval.low
    return f"{test.unit} {wording.bounds(low) if low > 0 else '≥ 0'}".strip()


def _confidence(result: MechanismResult) -> str:
    return f" ({100 * (1 - result.alpha):.10g} % confidence)"


def _wealth(result: MechanismResult) -> Chart | None:
    """Capital against the claim, and the bound, over the releases of a sequential audit."""
    how = _detail(result.details, "sequential", dict[str, Any]) or {}
    looks = _detail(how, "looks", list[tuple[float, float, float]])
    needed = wording.number(how.get("needed"))
    if not looks or needed is None:
        return None
    finding, drawn = result.verdict == "finding", wording.count(int(looks[-1][0]))
    capital = tuple(
        Mark(
            x=n,
            y=c,
            name=f"{n:,.0f} releases",
            says=f"capital 10^{c:.1f}, shown ε {wording.bounds(bound)}",
            alarm=finding and c >= needed,
        )
        for n, c, bound in looks
    )
    values = [c for _, c, _ in looks]
    return Chart(
        kind="plot",
        title="Capital against the claim, as releases came",
        caption="A capital of 1 was bet against the claim, on each release before it came. If the "
        f"claim is true it reaches the dashed line with probability {result.alpha:g} at most, at "
        "any time; where it does, the claim is refuted and the audit stops.",
        alt=f"Capital against the claim over {drawn} releases: it ends at 10^{values[-1]:.1f}, "
        f"and 10^{needed:.1f} refutes the claim; shown ε {wording.bounds(result.epsilon.low)}.",
        panels=(Panel(series=(Series(marks=capital, look="line"),), lines=(Line(at=needed),)),),
        x=Axis(label="releases", log=True, low=max(1.0, looks[0][0]), high=max(looks[-1][0], 2.0)),
        y=Axis(
            label="log₁₀ of the capital",
            low=min(-1.0, *values),
            high=1.1 * max(needed, *values),
        ),
    )


def _profile(result: MechanismResult) -> Chart | None:
    """The lower bound for ε over δ, the learned event's bound at the claimed δ, and the claim."""
    curve = sorted((d, e) for d, e in result.curve if 0 < d < 1 and 0 <= e < math.inf)
    claimed, at, bound = result.claim_epsilon, result.claim_delta, result.epsilon.low
    if len(curve) < 2 or not all(map(math.isfinite, (claimed, at, bound))):
        return None
    finding = result.verdict == "finding"
    word = "implied" if _is_implied(result) else "claimed"
    leftmost = min(curve[0][0], at) if at > 0 else curve[0][0]
    place = max(at, leftmost)
    highest = max(claimed, *(e for _, e in curve), 0.1)
    above = bound > _CUT * highest
    top = 1.4 * highest if above else 1.15 * max(highest, bound)
    here = f"δ = {wording.quantity(at)}"
    bound_text = f"shown ε {wording.bounds(bound)}{', above the scale' if above else ''}"
    by_curve = tuple(
        Mark(
            x=d,
            y=e,
            name=f"δ = {wording.quantity(d, digits=3)}",
            says=f"shown ε {wording.bounds(e)} by the curve",
        )
        for d, e in curve
    )
    learned = Mark(
        x=place, y=0.94 * top if above else bound, name=here, says=bound_text, label=bound_text
    )
    of_claim = f"{word} ε {wording.quantity(claimed, digits=3)}"
    claim = Mark(
        x=place,
        y=claimed,
        name=here,
        says=f"{word} ε {wording.quantity(claimed)}",
        label=of_claim,
        filled=finding,
        alarm=finding,
    )
    note = "; the claim is for δ = 0, drawn at the left end" if at == 0 else ""
    claim_text = f"{word} ε {wording.quantity(claimed)} at δ {wording.quantity(at)}"
    return Chart(
        kind="plot",
        title="Privacy profile: claimed and shown",
        caption="The trade-off curve contradicts every (ε, δ) in the shaded region, all at once. "
        "The triangle is the highest bound at the claimed δ. The circle is the claim; it is filled "
        "if something contradicts it."
        + (" The bound is far above the scale; its label gives its value." if above else ""),
        alt=f"Lower bound for ε against δ: {claim_text}; shown there {wording.bounds(bound)}.",
        panels=(
            Panel(
                series=(
                    Series(marks=by_curve, look="line", shade="below", quiet=True),
                    Series(marks=(learned,), marker="^", quiet=True),
                    Series(marks=(claim,)),
                ),
                lines=(Line(at=claimed),),
            ),
        ),
        x=Axis(label=f"δ{note}", log=True, low=leftmost, high=1.0),
        y=Axis(label="ε", low=0.0, high=top),
    )
