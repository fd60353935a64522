"""The noise of summary reports against the claimed discrete Laplace law; every test is exact."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.stats import binomial_two_sided, epsilon_lower_bound
from dpaudit.types import Evidence, Interval
from dpaudit_deployments.attribution.parameters import L1
from dpaudit_deployments.attribution.records import Batch
from dpaudit_deployments.attribution.result import NoiseClaim

__all__ = ["noise_claim", "noise_evidence"]

Noise = npt.NDArray[np.int64]
_CONFIDENCE = 0.95
_MOST_BATCHES = 100


def noise_claim(
    batches: Sequence[Batch], *, epsilon: float, alpha: float = 1 - _CONFIDENCE
) -> NoiseClaim:
    """What the noise in all ``batches`` shows; ``shown`` holds with probability 1 − ``alpha``."""
    noise = np.concatenate([batch.noise for batch in batches])
    n = len(noise)
    shown, by_scale = None, None
    if n:
        above, far = int((noise >= 0).sum()), int((noise >= L1).sum())
        shown = epsilon_lower_bound(above, n, far, n, delta=0.0, confidence=1 - alpha)
        by_scale = _by_scale(noise)
    return NoiseClaim(
        epsilon=epsilon,
        scale=L1 / epsilon,
        batches=len(batches),
        rows=sum(batch.rows for batch in batches),
        values=n,
        shown=shown,
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
    says = f"{zeros:,} of {n:,} values have no noise, {n * rate:,.2g} expected"
    return Evidence(p=binomial_two_sided(zeros, n, rate), statistic=zeros / n, effect=says)


def _scale(some: Noise, epsilon: float) -> Evidence:
    """|x| − 1 of values other than 0 is geometric: the sum's tails are incomplete betas."""
    n, rest = len(some), int(np.abs(some).sum()) - len(some)
    stop = -math.expm1(-epsilon / L1)
    upto = float(scipy.special.betainc(n, rest + 1, stop))
    from_ = float(scipy.special.betaincc(n, rest, stop)) if rest else 1.0
    mean = (rest + n) / n
    says = f"mean size {mean:,.6g}; scale {L1 / epsilon:,.6g} claimed"
    return Evidence(p=min(1.0, 2 * min(upto, from_)), statistic=mean, effect=says)


def _sign(some: Noise) -> Evidence:
    above, n = int((some > 0).sum()), len(some)
    says = f"{above:,} of {n:,} values other than 0 are positive"
    return Evidence(p=binomial_two_sided(above, n, 0.5), statistic=above / n, effect=says)


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
    best, says, looked = 1.0, "no two batches have noise in common places", 0
    for first, second in combinations(batches, 2):
        by_bucket = dict(zip(second.buckets, second.noise.tolist(), strict=True))
        same = [
            (x, by_bucket[b])
            for b, x in zip(first.buckets, first.noise.tolist(), strict=True)
            if b in by_bucket
        ]
        rows = list(zip(first.noise.tolist(), second.noise.tolist(), strict=False))
        for what, pairs in (("buckets", same), ("rows", rows)):
            looked += 1
            equal = sum(x == y for x, y in pairs)
            if not equal:
                continue
            p = float(scipy.special.betainc(equal, len(pairs) - equal + 1, chance))
            if p < best:
                names = f"{first.name} and {second.name}"
                best = p
                says = f"{names}: the same noise in {equal:,} of {len(pairs):,} common {what}"
    return Evidence(p=min(1.0, looked * best), statistic=0.0, effect=says)
