"""Recorded event-level and summary reports against what was claimed of them.

Sources with the same registration form a group. Where the true output of a source is known, whether
it was flipped is a coin of known probability, and the place of a false output among the other
k − 1 is uniform, whatever the truth was. The noise of summary reports is discrete Laplace. All
tests but ``false-outputs-even`` and ``false-outputs-ordered``, whose limit laws are close from 20
values on, are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.findings import Finding
from dpaudit.stats import (
    anderson_darling_p,
    binomial_two_sided,
    clopper_pearson,
    epsilon_lower_bound,
)
from dpaudit.types import Evidence, Interval
from dpaudit_deployments.attribution.records import Batch, Source
from dpaudit_deployments.attribution.registration import (
    CAPACITY,
    EVENT_EPSILON,
    L1,
    MOST_STATES,
    Registration,
    channel_capacity,
    epsilon_of_flip,
    epsilon_of_pick,
    flip_probability,
    pick_rate,
)
from dpaudit_deployments.attribution.result import EventClaim, NoiseClaim

__all__ = ["EventGroups", "claim_of", "noise_claim", "noise_evidence"]

Places = npt.NDArray[np.int64]
_LEAST = 20  # false outputs, for the tests with a limit law
_MOST_LAGS = 2_000
_RATE_OFF = 0.02  # a stated rate is rounded to two digits in EVENT.md
_RATE_DIGITS = 6e-8  # and to seven places in reports
_CONFIDENCE = 0.95


def claim_of(registration: Registration) -> EventClaim:
    """What the specification makes of a registration, without any reports."""
    states, epsilon = registration.states, registration.epsilon
    capacity = channel_capacity(states, epsilon)
    limit = CAPACITY[registration.source_type]
    return EventClaim(
        source_type=registration.source_type,
        states=states,
        epsilon=epsilon,
        pick_rate=pick_rate(states, epsilon),
        flip_probability=flip_probability(states, epsilon),
        capacity=capacity,
        capacity_limit=limit,
        allowed=capacity <= limit and epsilon <= EVENT_EPSILON and states <= MOST_STATES,
    )


@dataclass
class _Group:
    registration: Registration
    reported: list[int] = field(default_factory=list)
    true: list[int] = field(default_factory=list)
    sources: int = 0
    rates: set[float] = field(default_factory=set)


class EventGroups:
    """Collects sources by registration; only places of states are kept."""

    def __init__(self) -> None:
        self._groups: dict[Registration, _Group] = {}

    def add(self, source: Source) -> None:
        """Add one source."""
        key = source.registration
        group = self._groups.setdefault(key, _Group(key))
        group.sources += 1
        if source.true is not None:
            group.reported.append(source.reported)
            group.true.append(source.true)
        rate = source.record.randomized_trigger_rate
        if rate is not None and len(group.rates) < 100:
            group.rates.add(rate)

    def claims(self, *, alpha: float) -> tuple[EventClaim, ...]:
        """The groups; all ``shown`` hold together with probability 1 − ``alpha``."""
        share = alpha / max(1, len(self._groups))
        return tuple(_tested_claim(group, confidence=1 - share) for group in self._groups.values())

    def evidence(self, spread: np.random.Generator) -> Iterator[tuple[str, Evidence]]:
        """The tests of every group, with names; ``spread`` supplies uniforms inside atoms."""
        several = len(self._groups) > 1
        for group in self._groups.values():
            if group.true:
                where = f" ({claim_of(group.registration).name})" if several else ""
                for name, evidence in _tests(group, spread):
                    yield f"{name}{where}", evidence

    def findings(self) -> Iterator[Finding]:
        """Registrations that no browser accepts, and stated rates that belong to another ε."""
        for registration, group in self._groups.items():
            claim = claim_of(registration)
            if not claim.allowed:
                message = (
                    f"the specification refuses this registration: {claim.capacity:.4g} of "
                    f"{claim.capacity_limit:g} bits, ε = {claim.epsilon:g} of {EVENT_EPSILON:g}"
                )
                yield Finding(claim.name, message, serious=True)
            for rate in sorted(group.rates):
                off = abs(rate - claim.pick_rate)
                if off > max(_RATE_OFF * claim.pick_rate, _RATE_DIGITS):
                    implied = epsilon_of_pick(claim.states, rate)
                    message = (
                        f"reports state randomized_trigger_rate = {rate:.6g}, which is "
                        f"ε = {implied:.4g}; the claim needs {claim.pick_rate:.6g}"
                    )
                    yield Finding(claim.name, message, serious=rate < claim.pick_rate)


def _tested_claim(group: _Group, *, confidence: float) -> EventClaim:
    claim = claim_of(group.registration)
    true, reported = np.array(group.true), np.array(group.reported)
    known, flips = len(true), int((true != reported).sum())
    fields = {name: getattr(claim, name) for name in EventClaim.__slots__}
    fields |= {"sources": group.sources, "known": known, "flips": flips}
    if known and claim.states > 1:
        fields["by_flips"] = _by_flips(claim.states, flips, known)
        fields["shown"] = _least_epsilon(true, reported, confidence=confidence)
    return EventClaim(**fields)


def _by_flips(states: int, flips: int, known: int) -> Interval:
    rate = clopper_pearson(flips, known, confidence=_CONFIDENCE)
    low, high = (epsilon_of_flip(states, flip) for flip in (rate.high, rate.low))
    return Interval(low=low, high=high, confidence=_CONFIDENCE, method="Clopper-Pearson")


def _least_epsilon(true: Places, reported: Places, *, confidence: float) -> float | None:
    """A lower bound on ε from disjoint pairs of neighbours with different truths.

    In a pair (i, j), i reports its own truth with probability at most e^ε times that of j reporting
    i's truth: by ε-DP for each pair of truths, so for any mixture of pairs.
    """
    n = len(true) // 2 * 2
    first, second = true[0:n:2], true[1:n:2]
    differ = first != second
    pairs = int(differ.sum())
    if not pairs:
        return None
    own = int((reported[0:n:2][differ] == first[differ]).sum())
    other = int((reported[1:n:2][differ] == first[differ]).sum())
    return epsilon_lower_bound(own, pairs, other, pairs, delta=0.0, confidence=confidence)


def _tests(group: _Group, spread: np.random.Generator) -> Iterator[tuple[str, Evidence]]:
    true, reported = np.array(group.true), np.array(group.reported)
    states, n = group.registration.states, len(true)
    flipped = true != reported
    flips = int(flipped.sum())
    rate = flip_probability(states, group.registration.epsilon)
    p = binomial_two_sided(flips, n, rate)
    effect = f"{flips:,} false outputs; {n * rate:,.1f} of {n:,} false outputs expected"
    yield "flip-rate", Evidence(p=p, statistic=flips / n, effect=effect)
    if not 0 < flips < n or states == 1:
        return
    yield "flips-by-truth", _by_truth(true != 0, flipped)
    yield "flips-in-order", _in_order(flipped)
    others = states - 1
    place = reported[flipped] - (reported[flipped] > true[flipped])
    if others > 1:
        yield "false-outputs-extreme", _extremes(place, others)
        yield "false-outputs-repeated", _repeats(place, others)
    if others > 1 and flips >= _LEAST:
        yield "false-outputs-even", _even(place, others, spread, "low and high outputs")
        steps = (place[1:] - place[:-1]) % others
        yield "false-outputs-ordered", _even(steps, others, spread, "steps between false outputs")


def _by_truth(some: npt.NDArray[np.bool_], flipped: npt.NDArray[np.bool_]) -> Evidence:
    """Whether sources with true reports are flipped as often as those without (Fisher's test)."""
    flips, with_some, n = int(flipped.sum()), int(some.sum()), len(some)
    both = int((some & flipped).sum())
    law = scipy.stats.hypergeom(n, with_some, flips)
    p = min(1.0, 2 * min(law.cdf(both), law.sf(both - 1)))
    effect = f"{both:,} of {flips:,} flips are of the {with_some:,} of {n:,} sources with reports"
    return Evidence(p=float(p), statistic=both / flips, effect=effect)


def _in_order(flipped: npt.NDArray[np.bool_]) -> Evidence:
    """Whether flips stand next to each other as often as by chance: Wald and Wolfowitz's runs.

    Given x flips among n, the number of runs of flips is hypergeometric.
    """
    n, flips = len(flipped), int(flipped.sum())
    runs = int(flipped[0]) + int((flipped[1:] & ~flipped[:-1]).sum())
    law = scipy.stats.hypergeom(n, n - flips + 1, flips)
    p = min(1.0, 2 * min(law.cdf(runs), law.sf(runs - 1)))
    effect = f"{flips:,} flips in {runs:,} runs, {law.mean():,.1f} expected"
    return Evidence(p=float(p), statistic=runs, effect=effect)


def _extremes(place: Places, others: int) -> Evidence:
    """Whether some false output is too rare or too common, by exact binomial tails."""
    counts = np.bincount(place, minlength=others)
    n, least, most = len(place), int(counts.min()), int(counts.max())
    low = binomial_two_sided(least, n, 1 / others) if least < n / others else 1.0
    high = binomial_two_sided(most, n, 1 / others) if most > n / others else 1.0
    p = min(1.0, others * min(low, high))
    effect = f"each false output {least:,} to {most:,} times, {n / others:,.2f} expected"
    return Evidence(p=p, statistic=most, effect=effect)


def _repeats(place: Places, others: int) -> Evidence:
    """Whether false outputs come again at some distance: a seed that is used again.

    At each distance, whether two independent uniform outputs are equal is an independent coin of
    probability 1/(k − 1), so their number is binomial.
    """
    n = len(place)
    lags = range(1, min(n // 2, _MOST_LAGS) + 1)
    equal = np.array([(place[lag:] == place[:-lag]).sum() for lag in lags])
    if not len(equal):
        return Evidence(p=1.0, statistic=0.0, effect="fewer than two false outputs")
    of = n - np.arange(1, len(equal) + 1)
    tails = scipy.special.betainc(np.maximum(equal, 1), of - equal + 1, 1 / others)
    tails[equal == 0] = 1.0
    best = int(tails.argmin())
    effect = (
        f"{equal[best]:,} of {of[best]:,} false outputs equal the one {best + 1:,} before, "
        f"{of[best] / others:,.1f} expected"
    )
    return Evidence(
        p=min(1.0, len(equal) * float(tails[best])), statistic=float(equal[best]), effect=effect
    )


def _even(place: Places, others: int, spread: np.random.Generator, subject: str) -> Evidence:
    """Anderson and Darling's test of uniform places, spread within their cells."""
    z = np.sort((place + spread.random(len(place))) / others).clip(1e-15, 1 - 1e-15)
    n = len(z)
    odd = 2 * np.arange(1, n + 1) - 1
    a2 = -n - float((odd * (np.log(z) + np.log1p(-z[::-1]))).mean())
    effect = f"{subject}: median {float(np.median(z)):.3f} of the range, 0.5 expected"
    return Evidence(p=anderson_darling_p(max(0.0, a2)), statistic=a2, effect=effect)


Noise = npt.NDArray[np.int64]
_MOST_BATCHES = 100


def noise_claim(
    batches: Sequence[Batch], *, epsilon: float, alpha: float = 1 - _CONFIDENCE
) -> NoiseClaim:
    """What the noise in all ``batches`` shows; ``bound`` holds with probability 1 − ``alpha``."""
    noise = np.concatenate([batch.noise for batch in batches])
    n = len(noise)
    bound, by_scale = None, None
    if n:
        above, far = int((noise >= 0).sum()), int((noise >= L1).sum())
        bound = epsilon_lower_bound(above, n, far, n, delta=0.0, confidence=1 - alpha)
        by_scale = _by_scale(noise)
    return NoiseClaim(
        epsilon=epsilon,
        scale=L1 / epsilon,
        batches=len(batches),
        rows=sum(batch.rows for batch in batches),
        values=n,
        shown=bound,
        by_scale=by_scale,
    )


def _by_scale(noise: Noise) -> Interval | None:
    """ε by the scale: given N values other than 0, Σ(|x| − 1) is negative binomial in N."""
    size = np.abs(noise[noise != 0])
    if not len(size):
        return None
    n, rest = len(size), int(size.sum()) - len(size)
    a = (1 - _CONFIDENCE) / 2
    low = float(scipy.special.betaincinv(n, rest + 1, a))
    high = float(scipy.special.betainccinv(n, rest, a)) if rest else 1.0
    ends = [-L1 * math.log1p(-p) if p < 1 else math.inf for p in (low, high)]
    return Interval(low=ends[0], high=ends[1], confidence=_CONFIDENCE, method="negative binomial")


def noise_evidence(batches: Sequence[Batch], *, epsilon: float) -> Iterator[tuple[str, Evidence]]:
    """Tests of the noise of all batches together, with names."""
    noise = np.concatenate([batch.noise for batch in batches])
    some = noise[noise != 0]
    if not len(noise):
        return
    ratio = math.exp(-epsilon / L1)
    yield "noise-zeros", _zeros(noise, ratio)
    if len(some):
        yield "noise-scale", _scale(some, epsilon)
        yield "noise-sign", _sign(some)
    if len(some) > 1:
        yield "noise-grid", _grid(some)
    if len(batches) > 1:
        yield "noise-batches", _repeated(batches[:_MOST_BATCHES], ratio)


def _zeros(noise: Noise, ratio: float) -> Evidence:
    zeros, n, rate = int((noise == 0).sum()), len(noise), (1 - ratio) / (1 + ratio)
    effect = f"{zeros:,} of {n:,} values have no noise, {n * rate:,.2g} expected"
    return Evidence(p=binomial_two_sided(zeros, n, rate), statistic=zeros / n, effect=effect)


def _scale(some: Noise, epsilon: float) -> Evidence:
    """|x| − 1 of values other than 0 is geometric: the sum's tails are incomplete betas."""
    n, rest = len(some), int(np.abs(some).sum()) - len(some)
    stop = -math.expm1(-epsilon / L1)
    upto = float(scipy.special.betainc(n, rest + 1, stop))
    from_ = float(scipy.special.betaincc(n, rest, stop)) if rest else 1.0
    mean = (rest + n) / n
    effect = f"mean size {mean:,.6g}; scale {L1 / epsilon:,.6g} claimed"
    return Evidence(p=min(1.0, 2 * min(upto, from_)), statistic=mean, effect=effect)


def _sign(some: Noise) -> Evidence:
    above, n = int((some > 0).sum()), len(some)
    effect = f"{above:,} of {n:,} values other than 0 are positive"
    return Evidence(p=binomial_two_sided(above, n, 0.5), statistic=above / n, effect=effect)


def _grid(some: Noise) -> Evidence:
    """Whether all values are multiples of one number g > 1.

    A value other than 0 is a multiple of h with probability (1 − r)·r^(h − 1)/(1 − r^h) ≤ 1/h, so a
    common divisor of at least g has probability at most Σ h^−N over h ≥ g.
    """
    divisor = int(np.gcd.reduce(np.abs(some)))
    p = min(1.0, float(scipy.special.zeta(len(some), divisor))) if divisor > 1 else 1.0
    return Evidence(
        p=p, statistic=divisor, effect=f"the greatest common divisor of all values is {divisor:,}"
    )


def _repeated(batches: Sequence[Batch], ratio: float) -> Evidence:
    """Whether two batches have the same noise in the same bucket, or in the same row.

    Two independent values are equal with probability (1 − r)(1 + r²)/(1 + r)³.
    """
    chance = (1 - ratio) * (1 + ratio**2) / (1 + ratio) ** 3
    best, effect, looked = 1.0, "no two batches have noise in common places", 0
    for first, second in combinations(batches, 2):
        by_bucket = dict(zip(second.buckets, second.noise.tolist(), strict=True))
        same = [
            (x, by_bucket[b])
            for b, x in zip(first.buckets, first.noise.tolist(), strict=True)
            if b in by_bucket
        ]
        rows = list(zip(first.noise.tolist(), second.noise.tolist(), strict=False))
        for kind, pairs in (("buckets", same), ("rows", rows)):
            looked += 1
            equal = sum(x == y for x, y in pairs)
            if not equal:
                continue
            p = float(scipy.special.betainc(equal, len(pairs) - equal + 1, chance))
            if p < best:
                names = f"{first.name} and {second.name}"
                best = p
                effect = f"{names}: the same noise in {equal:,} of {len(pairs):,} common {kind}"
    return Evidence(p=min(1.0, looked * best), statistic=0.0, effect=effect)
