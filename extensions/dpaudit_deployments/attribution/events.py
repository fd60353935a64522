"""Recorded event-level reports against the randomised response that was claimed.

Sources with the same registration form a group. Where the true output of a source is known, whether
it was flipped is a coin of known probability, and the place of a false output among the other
k − 1 is uniform, whatever the truth was. All tests but ``false-outputs-even`` and
``false-outputs-ordered``, whose limit laws are close from 20 values on, are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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
from dpaudit_deployments.attribution.laws import (
    channel_capacity,
    epsilon_of_flip,
    epsilon_of_pick,
    flip_probability,
    pick_rate,
)
from dpaudit_deployments.attribution.parameters import CAPACITY, EVENT_EPSILON, MOST_STATES
from dpaudit_deployments.attribution.records import Source
from dpaudit_deployments.attribution.registration import Registration
from dpaudit_deployments.attribution.result import EventClaim

__all__ = ["EventGroups", "claim_of"]

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
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(key)
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
        return tuple(_claimed(group, confidence=1 - share) for group in self._groups.values())

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
                says = (
                    f"the specification refuses this registration: {claim.capacity:.4g} of "
                    f"{claim.capacity_limit:g} bits, ε = {claim.epsilon:g} of {EVENT_EPSILON:g}"
                )
                yield Finding(claim.name, says, serious=True)
            for rate in sorted(group.rates):
                off = abs(rate - claim.pick_rate)
                if off > max(_RATE_OFF * claim.pick_rate, _RATE_DIGITS):
                    implied = epsilon_of_pick(claim.states, rate)
                    says = (
                        f"reports state randomized_trigger_rate = {rate:.6g}, which is "
                        f"ε = {implied:.4g}; the claim needs {claim.pick_rate:.6g}"
                    )
                    yield Finding(claim.name, says, serious=rate < claim.pick_rate)


def _claimed(group: _Group, *, confidence: float) -> EventClaim:
    claim = claim_of(group.registration)
    true, reported = np.array(group.true), np.array(group.reported)
    known, flips = len(true), int((true != reported).sum())
    told = {name: getattr(claim, name) for name in EventClaim.__slots__}
    told |= {"sources": group.sources, "known": known, "flips": flips}
    if known and claim.states > 1:
        told["by_flips"] = _by_flips(claim.states, flips, known)
        told["shown"] = _shown(true, reported, confidence=confidence)
    return EventClaim(**told)


def _by_flips(states: int, flips: int, known: int) -> Interval:
    rate = clopper_pearson(flips, known, confidence=_CONFIDENCE)
    return Interval(
        low=epsilon_of_flip(states, rate.high),
        high=epsilon_of_flip(states, rate.low),
        confidence=_CONFIDENCE,
        method="Clopper-Pearson",
    )


def _shown(true: Places, reported: Places, *, confidence: float) -> float | None:
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
    expected = f"{n * rate:,.1f} of {n:,} false outputs expected"
    yield (
        "flip-rate",
        Evidence(p=p, statistic=flips / n, effect=f"{flips:,} false outputs; {expected}"),
    )
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
    says = f"{both:,} of {flips:,} flips are of the {with_some:,} of {n:,} sources with reports"
    return Evidence(p=float(p), statistic=both / flips, effect=says)


def _in_order(flipped: npt.NDArray[np.bool_]) -> Evidence:
    """Whether flips stand next to each other as often as by chance: Wald and Wolfowitz's runs.

    Given x flips among n, the number of runs of flips is hypergeometric.
    """
    n, flips = len(flipped), int(flipped.sum())
    runs = int(flipped[0]) + int((flipped[1:] & ~flipped[:-1]).sum())
    law = scipy.stats.hypergeom(n, n - flips + 1, flips)
    p = min(1.0, 2 * min(law.cdf(runs), law.sf(runs - 1)))
    says = f"{flips:,} flips in {runs:,} runs, {law.mean():,.1f} expected"
    return Evidence(p=float(p), statistic=runs, effect=says)


def _extremes(place: Places, others: int) -> Evidence:
    """Whether some false output is too rare or too common, by exact binomial tails."""
    counts = np.bincount(place, minlength=others)
    n, least, most = len(place), int(counts.min()), int(counts.max())
    low = binomial_two_sided(least, n, 1 / others) if least < n / others else 1.0
    high = binomial_two_sided(most, n, 1 / others) if most > n / others else 1.0
    p = min(1.0, others * min(low, high))
    says = f"each false output {least:,} to {most:,} times, {n / others:,.2f} expected"
    return Evidence(p=p, statistic=most, effect=says)


def _repeats(place: Places, others: int) -> Evidence:
    """Whether false outputs come again at some distance: a seed that is used again.

    At each distance, whether two independent uniform outputs are equal is an independent coin of
    probability 1/(k − 1), so their number is binomial.
    """
    n = len(place)
    lags = range(1, min(n // 2, _MOST_LAGS) + 1)
    equal = np.array([(place[lag:] == place[:-lag]).sum() for lag in lags])
    of = n - np.arange(1, len(equal) + 1)
    if not len(equal):
        return Evidence(p=1.0, statistic=0.0, effect="fewer than two false outputs")
    tails = np.where(
        equal > 0, scipy.special.betainc(np.maximum(equal, 1), of - equal + 1, 1 / others), 1.0
    )
    best = int(tails.argmin())
    says = (
        f"{equal[best]:,} of {of[best]:,} false outputs equal the one {best + 1:,} before, "
        f"{of[best] / others:,.1f} expected"
    )
    return Evidence(
        p=min(1.0, len(equal) * float(tails[best])), statistic=float(equal[best]), effect=says
    )


def _even(place: Places, others: int, spread: np.random.Generator, what: str) -> Evidence:
    """Anderson and Darling's test of uniform places, spread within their cells."""
    z = np.sort((place + spread.random(len(place))) / others).clip(1e-15, 1 - 1e-15)
    n = len(z)
    odd = 2 * np.arange(1, n + 1) - 1
    a2 = -n - float((odd * (np.log(z) + np.log1p(-z[::-1]))).mean())
    says = f"{what}: median {float(np.median(z)):.3f} of the range, 0.5 expected"
    return Evidence(p=anderson_darling_p(max(0.0, a2)), statistic=a2, effect=says)
