"""Sketch vectors: coverage for any objects, ε by exact likelihood ratios, Apple's own vectors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpaudit.deployments.apple.bits.sketches import coin_interval, epsilon_of_flip
from dpaudit.errors import UsageError
from dpaudit.types import Interval

Q2 = 1 / (1 + math.e**2)  # 0.1192: Figure 20's coin

FIGURE_12 = (
    "0000C0800000228206A04008110000000C080021211000046080040801040820",
    "0020014080000400000900800D224020402A080040221100400000A300910101",
    "800284858880000000200104000200001400800110424840004010000100800C",
    "0020040010400001020000107000080820000400050402400008008010008062",
    "0200802028002000002000020000000200040100002000A301A1064280210800",
)
"""The emoji vectors with 64 digits; of the other five the text that we have lost a digit each."""


def test_apples_own_vectors_show_twice_the_claim():
    ones = sum(int(v, 16).bit_count() for v in FIGURE_12)
    assert all(len(v) == 64 for v in FIGURE_12)
    flip = coin_interval(ones, len(FIGURE_12), 256, confidence=0.999)
    shown = epsilon_of_flip(flip, differing=2)
    assert flip.low < Q2 < flip.high
    assert shown.low < 4 < shown.high
    assert shown.low > 3 > 2  # the report says "epsilon": 2


@pytest.mark.parametrize(
    ("q", "vectors", "m", "place"),
    [
        (Q2, 6, 64, None),
        (0.9, 5, 64, 0),
        pytest.param(Q2, 40, 32, 5, marks=pytest.mark.slow),
        pytest.param(0.45, 3, 64, None, marks=pytest.mark.slow),
    ],
)
def test_coverage_whatever_was_sketched(q, vectors, m, place):
    rng = np.random.default_rng([1, vectors, m])
    missed = 0
    for _ in range(120):
        bits = rng.random((vectors, m)) < q
        bits[np.arange(vectors), rng.integers(m, size=vectors) if place is None else place] ^= True
        interval = coin_interval(int(bits.sum()), vectors, m, confidence=0.9)
        missed += not interval.low <= q <= interval.high
    assert missed <= 25  # 12 at the most expected, P(more) < 2e-4


@pytest.mark.parametrize(
    ("ones", "vectors", "m"),
    [(9, 2, 16), (2, 2, 16), (0, 1, 16), (16, 1, 16), (30, 2, 16), (20, 4, 8)],
)
def test_no_bias_outside_the_interval_is_compatible(ones, vectors, m):
    """The tails of a fine grid of biases, by plain convolution."""
    interval = coin_interval(ones, vectors, m, confidence=0.9)
    compatible = [
        q for q in np.linspace(0, 1, 801) if min(tails(ones, vectors, m, float(q))) > 0.05
    ]
    assert interval.low <= min(compatible, default=1)
    assert max(compatible, default=0) <= interval.high
    if interval.low > 1 / m and interval.high < 1 - 1 / m:
        assert min(compatible) - interval.low < 0.002
        assert interval.high - max(compatible) < 0.002


def test_vectors_that_no_coin_makes():
    assert coin_interval(0, 10, 256, confidence=0.99) is None
    assert coin_interval(2560, 10, 256, confidence=0.99) is None
    # a one each: the object itself, without any noise
    assert coin_interval(10, 10, 256, confidence=0.99).low == 0
    assert epsilon_of_flip(coin_interval(10, 10, 256, confidence=0.99), differing=2).low > 10


def tails(ones, vectors, m, q):
    def law(n, p):
        return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])

    both = np.convolve(law(vectors * (m - 1), q), law(vectors, 1 - q))
    return both[: ones + 1].sum(), both[ones:].sum()


@pytest.mark.parametrize("q", [0.1, Q2, 0.4])
def test_epsilon_of_a_sketch_is_its_largest_likelihood_ratio(q):
    m = 5

    def log_likelihood(bits, place):
        return sum(
            math.log((1 - q if b else q) if i == place else (q if b else 1 - q))
            for i, b in enumerate(bits)
        )

    worst = max(
        log_likelihood(bits, i) - log_likelihood(bits, j)
        for bits in itertools.product((0, 1), repeat=m)
        for i in range(m)
        for j in range(m)
    )
    exact = epsilon_of_flip(Interval(low=q, high=q, confidence=0.95, method=""), differing=2)
    assert exact.low == exact.high == pytest.approx(worst)


def test_intervals_shrink_with_data():
    widths = [
        (e := epsilon_of_flip(coin_interval(31 * r, r, 256, confidence=0.95), differing=2)).high
        - e.low
        for r in (1, 10, 100, 1000)
    ]
    assert all(b < 0.45 * a for a, b in itertools.pairwise(widths))


def test_an_interval_around_one_half_shows_nothing_from_below():
    e = epsilon_of_flip(Interval(low=0.4, high=0.7, confidence=0.95, method=""), differing=2)
    assert e.low == 0
    assert e.high == pytest.approx(2 * math.log(7 / 3))


@pytest.mark.parametrize("bad", [(1, 0, 16), (1, 1, 2), (-1, 1, 16), (17, 1, 16)])
def test_counts_that_do_not_fit(bad):
    with pytest.raises(UsageError, match="ones="):
        coin_interval(*bad, confidence=0.95)
