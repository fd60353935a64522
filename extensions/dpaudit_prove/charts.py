"""The charts of a proof: the exact law and the claimed one, δ(ε), and how many coins."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from dpaudit.report import Axis, Chart, Line, Mark, Panel, Series, replace
from dpaudit.wording import at_least, at_most, between, quantity
from dpaudit_prove.results import ProofResult, ProvedBounds

__all__ = ["Output", "delta_text", "law_charts", "law_scope", "log_ratio", "outputs_of"]

_MOST_BARS = 41  # outputs that the chart shows; the table has more
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?(e-?[0-9]{1,2})?")
_SHARE = re.compile(r"[0-9]{1,300}(/[0-9]{1,300})?")
_LEAST_RATIO = 0.1  # so that a proved law looks like the claimed one
_LARGEST_EPSILON = 1000
_FLAT = 1e-3  # a δ(ε) that falls further than this needs a logarithmic axis
_ROUNDING = 1e-14  # more than the error of a logarithm of a ratio of two floats


class Output(NamedTuple):
    """An output with bounds of its probability, and of the claimed one if a law is claimed."""

    name: str
    low: float
    high: float
    claimed: ProvedBounds | None


def outputs_of(result: ProofResult) -> list[Output]:
    """The outputs of the law, the likeliest first."""
    claimed = result.claimed if len(result.claimed) == len(result.law) else ()
    return [
        Output(
            output,
            low,
            min(1.0, math.nextafter(low + result.residual, 2.0)) if result.residual else low,
            claimed[i] if claimed else None,
        )
        for i, (output, low) in enumerate(result.law)
    ]


def log_ratio(low: float, high: float, claimed: ProvedBounds) -> tuple[float, float]:
    """Bounds of ln(P/Q).

    >>> log_ratio(0.5, 0.5, ProvedBounds(low=0.25, high=0.25))[0] < math.log(2)
    True
    """
    least = -math.inf if not low else math.inf if not claimed.high else math.log(low / claimed.high)
    most = -math.inf if not high else math.inf if not claimed.low else math.log(high / claimed.low)
    return least - _ROUNDING, most + _ROUNDING


def law_scope(result: ProofResult) -> str:
    """The scope of the law in a result: the program's whole output, or a part."""
    if result.profile:
        return " at the first input"
    whole = not result.law or result.law[0][0].startswith(("(", "["))
    return "" if whole or result.disjoint != "shown" else ": its first value"


def claimed_delta(result: ProofResult) -> float | None:
    """The claimed δ as a number; None if it is not one."""
    if not _SHARE.fullmatch(result.claim_delta):
        return None
    try:
        return float(Fraction(result.claim_delta))
    except (ZeroDivisionError, OverflowError):
        return None


def delta_text(result: ProofResult) -> str:
    """The claimed δ as people write it."""
    near = claimed_delta(result)
    return result.claim_delta if near is None else quantity(near)


def law_charts(result: ProofResult) -> list[Chart]:
    """The privacy profile, the exact law and the number of coins, as far as the proof has them."""
    charts = (_profile_chart(result), _law_chart(result), _coins_chart(result))
    return [chart for chart in charts if chart is not None]


def _law_chart(result: ProofResult) -> Chart | None:
    """Each output's probability with its proved bounds, the claimed one, and ln of their ratio."""
    rows = _in_order(outputs_of(result)[:_MOST_BARS])
    if not rows or not all(math.isfinite(p) for one in rows for p in (one.low, one.high)):
        return None
    claimed = all(one.claimed is not None for one in rows)
    refutation = result.counterexample
    bars = [
        Mark(
            x=float(x),
            y=(one.low + one.high) / 2,
            low=one.low,
            high=one.high,
            width=0.7,
            name=one.name,
            says=f"P {between(one.low, one.high)}",
            alarm=refutation is not None and one.name == refutation.output,
        )
        for x, one in enumerate(rows)
    ]
    series = [Series(marks=tuple(bars), look="bars", group=0 if claimed else None)]
    if claimed:
        series = [replace(series[0], legend="program"), _claimed_series(rows)]
    panels = [Panel(series=tuple(series), y=Axis(label="probability", zero=True))]
    if claimed:
        panels.append(_ratio_panel(rows))
    caption = f"The probability of each output of the program{law_scope(result)}, proved from both "
    caption += "sides."
    if claimed:
        caption += (
            " Circles: the claimed law. Below: the logarithm of their ratio, with proved bounds; "
            "0 is equality."
        )
    if result.outputs > len(rows):
        caption += f" The {len(rows)} likeliest of {result.outputs:,} outputs are drawn."
    values = "; ".join(
        f"{name}: {between(low, high)}" + (f", claimed {between(q.low, q.high)}" if q else "")
        for name, low, high, q in rows[:8]
    )
    return Chart(
        kind="plot",
        title="The exact law" + (" compared with the claimed one" if claimed else ""),
        caption=caption,
        alt=f"Exact probabilities of {len(rows)} outputs: {values}.",
        panels=tuple(panels),
        x=Axis(label="output", categories=tuple(one.name for one in rows)),
        y=Axis(shared=False),
    )


def _in_order(outputs: Sequence[Output]) -> list[Output]:
    """Numbers by size; other outputs stay in the order of their probabilities."""
    if all(_NUMBER.fullmatch(one.name) for one in outputs):
        return sorted(outputs, key=lambda one: float(one.name))
    return list(outputs)


def _claimed_series(outputs: Sequence[Output]) -> Series:
    marks = [
        Mark(
            x=float(x),
            y=(one.claimed.low + one.claimed.high) / 2,
            name=one.name,
            says=f"claimed {between(one.claimed.low, one.claimed.high)}",
            filled=False,
        )
        for x, one in enumerate(outputs)
        if one.claimed is not None
    ]
    return Series(marks=tuple(marks), group=1, marker="o", legend="claimed")


def _ratio_panel(outputs: Sequence[Output]) -> Panel:
    pairs = [(one.name, *log_ratio(*one[1:3], one.claimed)) for one in outputs if one.claimed]
    ends = [abs(end) for _, *pair in pairs for end in pair if math.isfinite(end)]
    top = 1.25 * max([_LEAST_RATIO, *ends])
    marks = [
        Mark(
            x=float(x),
            y=(max(low, -top) + min(high, top)) / 2,
            low=low,
            high=high,
            name=name,
            says=f"ln(P/Q) {at_least(low, digits=3)} … {at_most(high, digits=3)}",
            alarm=low > 0 or high < 0,
        )
        for x, (name, low, high) in enumerate(pairs)
    ]
    return Panel(
        series=(Series(marks=tuple(marks), group=0, marker="_"),),
        lines=(Line(),),
        y=Axis(label="ln(P/Q)", low=-top, high=top),
    )


def _profile_chart(result: ProofResult) -> Chart | None:
    """Proved bounds of δ(ε), and the claim."""
    known = [p for p in result.profile if p.near is not None and p.near <= _LARGEST_EPSILON]
    claimed = claimed_delta(result)
    if len(known) < 2 or claimed is None or known[0] is not result.profile[0]:
        return None
    here, at = known[0], known[0].delta
    each = {p.near or 0.0: p for p in reversed(known)}  # the claim's may be there twice
    points = [(x, p.delta.low, p.delta.high, p.epsilon) for x, p in sorted(each.items())]
    highs = [high for _, _, high, _ in points if 0 < high < math.inf]
    most = max([*highs, claimed, 1e-300])
    least = min([*highs, *([claimed] if claimed else [])], default=0.0)
    log = bool(highs) and least < _FLAT * most
    floor = least / 10 if log else 0.0
    refuted = result.verdict == "refuted"
    band = [Mark(x=x, y=floor, low=max(a, floor), high=max(b, floor)) for x, a, b, _ in points]
    lower = [Mark(x=x, y=max(low, floor)) for x, low, _, _ in points]
    upper = [
        Mark(x=x, y=max(b, floor), name=f"ε = {epsilon}", says=f"δ {between(a, b)}")
        for x, a, b, epsilon in points
    ]
    claim = Mark(
        x=here.near or 0.0,
        y=max(claimed, floor),
        name=f"ε = {here.epsilon}",
        says=f"claimed δ {delta_text(result)}",
        filled=refuted,
        alarm=refuted,
    )
    caption = (
        "For each marked ε the least δ lies between the two triangles, whichever of the two inputs "
        "comes first; the lines between marks only guide the eye. The circle is the claim; it is "
        "filled if it is refuted."
    )
    if log and any(low < floor for _, low, _, _ in points):
        caption += " A lower bound of 0 is drawn at the lower edge."
    summary = f"at ε = {here.epsilon} δ is {between(at.low, at.high)}; claimed {delta_text(result)}"
    return Chart(
        kind="plot",
        title="Privacy profile, proved from both sides",
        caption=caption,
        alt=f"Proved bounds of δ against ε: {summary}.",
        panels=(
            Panel(
                series=(
                    Series(marks=tuple(band), look="band", group=0, quiet=True),
                    Series(marks=tuple(lower), look="line", group=0, marker="^"),
                    Series(marks=tuple(upper), look="line", group=0, marker="v", legend="proved"),
                    Series(marks=(claim,), group=1, marker="o", legend="claimed"),
                )
            ),
        ),
        x=Axis(label="ε", low=0.0, high=points[-1][0]),
        y=Axis(label="δ", log=log, low=floor, high=2 * most if log else 1.1 * most),
    )


def _coins_chart(result: ProofResult) -> Chart | None:
    """How probable each number of coin bits is, where it varies and was computed."""
    count = result.coin_count
    if count is None or count.constant is not None or len(count.law) < 2:
        return None
    rows = count.law
    marks = [
        Mark(x=n, y=p, width=0.8, name=f"{n:,} bits", says=f"probability ≥ {at_least(p)}")
        for n, p in rows
    ]
    likeliest = max(rows, key=lambda row: row[1])
    return Chart(
        kind="plot",
        title="Coins read by a call",
        caption="How many coin bits a call reads. Anyone who can measure the time of a call may "
        "learn this number.",
        alt=f"Probabilities of {len(rows)} numbers of coin bits, from {rows[0][0]:,} to "
        f"{rows[-1][0]:,}; the likeliest is {likeliest[0]:,} with {quantity(likeliest[1])}.",
        panels=(Panel(series=(Series(marks=tuple(marks), look="bars"),)),),
        x=Axis(label="coin bits read by a call"),
        y=Axis(label="probability", zero=True),
    )
