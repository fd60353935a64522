"""Two halves: the first half's releases choose what to count, the second half's are judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.bounds import Band, band, epsilon_bounds, hockey_stick_p, least_level
from dpaudit.audit.mechanism.events import (
    Event,
    NestedEvents,
    Statistic,
    apart,
    choose,
    coarse_statistics,
    low_bit_statistics,
)
from dpaudit.audit.mechanism.learned_scores import learned_scores
from dpaudit.audit.result import StatedClaim, at_least
from dpaudit.harms import attack_topic
from dpaudit.stats import rounded_down
from dpaudit.types import Reference, TestResult

__all__ = [
    "CURVE_SHARE",
    "EVENT_SHARE",
    "LOW_BITS_SHARE",
    "Aim",
    "CountedEvent",
    "Judgement",
    "LearnedEvents",
    "judge",
    "kind_of",
    "learn",
]

CURVE_SHARE = 1 / 4
LOW_BITS_SHARE = 1 / 4
EVENT_SHARE = 1 / 2
"""Shares of α. That of events and of low bits is one pool, divided on the learning half."""
FEW_VALUES = 1024
_DELTAS = 10.0 ** np.linspace(-8, 0, 41)[:-1]

Array = npt.NDArray[np.float64]


class CountedEvent(NamedTuple):
    """An event to count: its share of α, and its kind or the attack that brought it."""

    event: Event
    share: float
    kind: str
    advisory: bool = False


@dataclass(frozen=True)
class LearnedEvents:
    """The events to count, and the nested events.

    ``shares`` are the least and the largest that one of the events could have got, unless advisory.
    """

    events: tuple[CountedEvent, ...]
    nested: NestedEvents | None
    shares: tuple[float, float]


@dataclass(frozen=True)
class Judgement:
    """The tests, and simultaneous lower bounds; ``curve`` holds pairs (δ, ε)."""

    tests: tuple[TestResult, ...]
    epsilon: float
    delta: float
    mu: float
    curve: tuple[tuple[float, float], ...]
    stated: StatedClaim | None = None


@dataclass(frozen=True, slots=True)
class Aim:
    """What events are chosen for: to show much at ``delta``, in what ``alpha`` allows.

    With the claimed ``epsilon``, half of the curve's share may go to the event that shows δ there.
    ``real_numbers``: findings in the last bits of a release are advisory.
    """

    delta: float
    alpha: float
    epsilon: float | None = None
    real_numbers: bool = False

    @classmethod
    def of(cls, claim: PrivacyClaim, alpha: float, *, real_numbers: bool) -> Aim:
        """The aim of judging ``claim``."""
        epsilon = claim.epsilon if claim.stated is None else None
        return cls(claim.delta, alpha, epsilon, real_numbers)


def learn(
    x0: Array,
    x1: Array,
    *,
    neighbours: tuple[Array, Array],
    aim: Aim,
    rng: np.random.Generator,
    more: Sequence[Statistic] = (),
    seconds: float = 0.0,
    deadline: float = math.inf,
) -> LearnedEvents:
    """Choose events from releases (n, k) at the two neighbours; these must not be counted again.

    Their shares of α are chosen as well, by :func:`divide_alpha`. Last
    bits and ``more`` statistics are not used where releases have few values, each of which already
    is an event of its own. Classifiers learn scores of releases with several numbers, for up to
    ``seconds`` of work and until ``deadline``.
    """
    delta, alpha, epsilon, real_numbers = aim.delta, aim.alpha, aim.epsilon, aim.real_numbers
    half = len(x0) // 2, len(x1) // 2
    few = all(_few_values(x[:, j]) for x in (x0, x1) for j in range(x.shape[1]))
    share = (EVENT_SHARE + (LOW_BITS_SHARE if real_numbers or few else 0)) / 2
    coarse, nested = choose(
        coarse_statistics(x0[: half[0]], x1[: half[1]], rng),
        x0,
        x1,
        delta=delta,
        alpha=share * alpha,
        epsilon=epsilon,
    )
    fitted = x0[: half[0]], x1[: half[1]]
    unseen = x0[half[0] :], x1[half[1] :]
    scores = learned_scores(*fitted, rng=rng, seconds=seconds, deadline=deadline)
    share = share / 2 if scores else share
    scored, along = choose(scores, *unseen, delta=delta, alpha=share * alpha, epsilon=epsilon)
    tried = [x[len(x) // 2 :] for x in unseen]  # neither order of cells was fitted to these
    if nested is None or (
        along is not None and _separates_better(along, nested, tried[0], tried[1], epsilon)
    ):
        nested = along
    statistics = [] if few else [*low_bit_statistics(*fitted, *neighbours), *more]
    bits, _ = choose(statistics, x0, x1, delta=delta, alpha=LOW_BITS_SHARE / 2 * alpha)
    candidates = [(event, "event") for event in coarse]
    candidates += [(event, "learned score") for event in scored]
    candidates += [] if real_numbers else [(event, "low bits") for event in bits]
    pool = EVENT_SHARE + LOW_BITS_SHARE
    shares = divide_alpha(
        [event for event, _ in candidates],
        unseen,
        sizes=(len(x0), len(x1)),
        pool=pool,
        delta=delta,
        alpha=alpha,
        rng=rng,
    )
    events = [
        CountedEvent(event, s, kind) for (event, kind), s in zip(candidates, shares, strict=True)
    ]
    events += [CountedEvent(event, 1 / 2, "low bits", True) for event in bits if real_numbers]
    return LearnedEvents(tuple(events), nested, possible_shares(len(candidates), pool=pool))


def _separates_better(
    new: NestedEvents, old: NestedEvents, x0: Array, x1: Array, epsilon: float | None
) -> bool:
    """Whether new nested events tell the neighbours apart better than the old, beyond chance."""
    gaps = []
    for nested in (new, old):
        p0, p1 = (k / len(x) for k, x in zip(nested.counts(x0, x1), (x0, x1), strict=True))
        gaps.append(apart(p0, p1, epsilon))
    return gaps[0] > gaps[1] + 2 / math.sqrt(min(len(x0), len(x1)))


def _few_values(x: Array) -> bool:
    """Whether each value is an event of its own; −0.0 is not, as no interval tells it from 0.0."""
    if len(np.unique(x[: 2 * FEW_VALUES])) > FEW_VALUES:  # the usual case, without sorting all
        return False
    return len(np.unique(x)) <= FEW_VALUES and not np.signbit(x[x == 0]).any()


_RESERVE = 1 / 6
"""The part that events other than the leading ones keep: what they show is never lost."""
_TIMES = 100


def divide_alpha(
    events: Sequence[Event],
    unseen: tuple[Array, Array],
    *,
    sizes: tuple[int, int],
    pool: float,
    delta: float,
    alpha: float,
    rng: np.random.Generator,
) -> list[float]:
    """Shares of ``alpha``, ``pool`` in all: equal, or 5/6 of it for the most promising events.

    Chosen is the division whose largest bound for ε at ``delta`` is greatest on average over 100
    samples of ``sizes`` releases at the two neighbours, drawn from ``unseen``: releases (n, k) of
    the learning half from which no score was learned. An event that the other neighbour never
    showed so gets nearly all; two that show about the same share equally.

    The guarantee is that of fixed shares, as these depend on the learning half alone: given it
    they are constants that add up to ``pool``, and the union bound holds for the counted half.
    """
    m = len(events)
    even = [pool / m] * m if m else []
    if m < 2 or not min(map(len, unseen)):
        return even
    members = [np.array([event.holds(x) for event in events]) for x in unseen]  # (events, n) each
    resampled = [_resample(rows, n, rng) for rows, n in zip(members, sizes, strict=True)]
    inside = np.array([resampled[e.likelier][i] for i, e in enumerate(events)])
    outside = np.array([resampled[1 - e.likelier][i] for i, e in enumerate(events)])

    def bounds_at(shares: Sequence[float]) -> Array:
        bounds = [
            epsilon_bounds(k1, k0, draws=sum(sizes), delta=delta, alpha=share * alpha)
            for k1, k0, share in zip(inside, outside, shares, strict=True)
        ]
        return np.maximum(0.0, bounds)

    alone = bounds_at(even)
    best, most = even, float(alone.max(axis=0).mean())
    order = np.argsort(-alone.mean(axis=1), kind="stable")
    for leading in range(1, m):
        shares = np.full(m, _RESERVE * pool / (m - leading))
        shares[order[:leading]] = (1 - _RESERVE) * pool / leading
        promise = float(bounds_at(shares.tolist()).max(axis=0).mean())
        if promise > most:
            best, most = shares.tolist(), promise
    return best


def possible_shares(events: int, *, pool: float) -> tuple[float, float]:
    """The least and the largest share that :func:`divide_alpha` can give to one of ``events``."""
    if events < 2:
        return pool, pool
    return _RESERVE * pool / (events - 1), (1 - _RESERVE) * pool


def _resample(
    inside: npt.NDArray[np.bool_], size: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Counts (events, 100) in samples of ``size``, at rates as uncertain as what was seen leaves.

    The rates of each sample are a Bayesian bootstrap's (Rubin 1981); events overlap as they do.
    """
    patterns, times = np.unique(inside, axis=1, return_counts=True)
    return patterns @ rng.multinomial(size, rng.dirichlet(times, _TIMES)).T


def judge(
    learned: LearnedEvents, y0: Array, y1: Array, *, claim: PrivacyClaim, alpha: float
) -> Judgement:
    """Count the chosen events in new releases (n₀, k) and (n₁, k), assigned by fair coins.

    Formal guarantee: with probability ≥ 1 − ``alpha`` all bounds are below the truth, and no test
    that is not advisory is a finding unless the claim is false (α is divided over events and the
    curve, by shares that do not depend on these releases; ``p_adjusted`` is p over its share). An
    advisory event's own bound has confidence 1 − ``alpha``/2.
    """
    tests, bounds = [], [0.0]
    bands: list[Band] = []
    for counted in learned.events:
        test, bound, event_band = _event_test(counted, y0, y1, claim=claim, alpha=alpha)
        tests.append(test)
        if not counted.advisory:
            bounds.append(bound)
            bands.append(event_band)
    nested = learned.nested
    if nested is None:
        stated = claim.statement(bands, alpha)
        return Judgement(tuple(tests), max(bounds), 0.0, 0.0, (), stated)
    counts = nested.counts(y0, y1)

    def at(level: float) -> Band:
        return nested.band(counts[0], len(y0), counts[1], len(y1), alpha=level)

    curve_band = at(CURVE_SHARE * alpha)
    p = least_level(lambda level: claim.contradicted(at(level)))
    tests.append(_curve_test(nested, curve_band, claim, alpha, p))
    deltas = sorted({*_DELTAS.tolist(), claim.delta})
    curve = tuple(zip(deltas, curve_band.epsilons(deltas).tolist(), strict=True))
    bounds.append(curve_band.epsilon(claim.delta))
    ordered = sorted(tests, key=lambda t: (t.advisory, t.p_adjusted, t.name))
    delta, stated = curve_band.delta(claim.epsilon), claim.statement([curve_band, *bands], alpha)
    return Judgement(tuple(ordered), max(bounds), delta, curve_band.mu(), curve, stated)


def _event_test(
    counted: CountedEvent, y0: Array, y1: Array, *, claim: PrivacyClaim, alpha: float
) -> tuple[TestResult, float, Band]:
    event, share, kind, advisory = counted
    draws = len(y0) + len(y1)
    inside, outside = event.counts(y0, y1)
    bounds = epsilon_bounds(inside, outside, draws=draws, delta=claim.delta, alpha=share * alpha)
    bound = max(0.0, float(bounds))
    sizes = (len(y0), len(y1))
    here, there = event.likelier, 1 - event.likelier

    def at(level: float) -> Band:
        counts = np.array([outside]), np.array([inside])
        return band(counts[0], sizes[there], counts[1], sizes[here], alpha=level)

    event_band = at(share * alpha)
    if claim.stated is None:
        p = hockey_stick_p(inside, outside, draws=draws, epsilon=claim.epsilon, delta=claim.delta)
    else:
        p = least_level(lambda level: claim.contradicted(at(level)))
    adjusted = min(1.0, p / share)
    statement = "" if claim.stated is None else f"; {claim.stated.bound([event_band])[1]}"
    harm, topic = kind_of(kind)
    test = TestResult(
        name=f"{kind}, {_ORDINAL[here]} neighbour over {_ORDINAL[there]}",
        p=p,
        p_adjusted=adjusted,
        statistic=bound,
        looks_at=_LOOKS_AT.get(kind, f"what the attack {kind} makes of a release"),
        effect=f"{event}: {inside:,} of {sizes[here]:,} against {outside:,} of {sizes[there]:,}"
        f"{statement}",
        finding=not advisory and adjusted <= alpha,
        parts={},
        advisory=advisory,
        interval=at_least(bound, share * alpha, "Clopper-Pearson"),
        unit="ε",
        details={
            "statistic": event.statistic.name,
            **event.statistic.details,
            "intervals": event.intervals(),
            "likelier_at": here,
            "counts": {"likelier": [inside, sizes[here]], "other": [outside, sizes[there]]},
            "share_of_alpha": share,
        },
        harm=harm,
        topic=topic,
    )
    return test, bound, event_band


def kind_of(kind: str) -> tuple[str, str]:
    """The harm and the page of what is counted: an event, or an attack as it was written."""
    if kind in _KINDS:
        return _KINDS[kind]
    name = Reference.parse(kind).name
    plugin = registry.plugins("attacks").get(name)
    harm = registry.declared_attribute(plugin, "harm", "other") if plugin else "other"
    return harm, attack_topic(name)


_KINDS = {
    "event": ("epsilon", "event"),
    "low bits": ("last-bits", "low-bits"),
    "learned score": ("other", "learned-score"),
}

_ORDINAL = ("first", "second")
_LOOKS_AT = {
    "event": "values of a release, as real numbers",
    "low bits": "which bits of a float a release uses",
    "learned score": "what a classifier learned to tell the neighbours apart by",
}


def _curve_test(
    nested: NestedEvents, curve_band: Band, claim: PrivacyClaim, alpha: float, p: float
) -> TestResult:
    bound, mu, delta = (
        curve_band.epsilon(claim.delta),
        curve_band.mu(),
        curve_band.delta(claim.epsilon),
    )
    source = "the implied" if claim.only_mu or claim.stated else "the claimed"
    statement = "" if claim.stated is None else f"{claim.stated.bound([curve_band])[1]}; "
    return TestResult(
        name="trade-off curve",
        p=p,
        p_adjusted=min(1.0, p / CURVE_SHARE),
        statistic=bound,
        looks_at="both errors of telling the neighbours apart, over the whole curve",
        effect=f"{statement}μ ≥ {rounded_down(mu)}; ε ≥ {rounded_down(bound)} at {source} δ; "
        f"δ ≥ {rounded_down(delta)} at {source} ε",
        finding=p <= CURVE_SHARE * alpha,
        parts={},
        interval=at_least(bound, CURVE_SHARE * alpha, "Clopper-Pearson, simultaneous"),
        unit="ε",
        details={
            "statistic": nested.statistic.name,
            "events": len(nested.ends),
            "share_of_alpha": CURVE_SHARE,
        },
        harm="epsilon",
        topic="trade-off-curve",
    )
