"""The exact law against its definition in logarithms, its ε over all neighbours, and a floating-point one that leaks."""

from __future__ import annotations

import decimal
import itertools
import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.stats import binomial_two_sided
from dpaudit.vectors.exponential import ExponentialMechanism, _below


def test_probabilities_are_the_exponential_mechanisms():
    """P ∝ exp(η·u) with η = ln(1/base)/step, in 50 digits of logarithms rather than in integers."""
    mechanism = ExponentialMechanism(
        Fraction(937, 1024), sensitivity=Fraction(3, 2), step=Fraction(1, 4)
    )
    utilities = [Fraction(7, 4), 0, -3, Fraction(1, 2), 12]
    with mpmath.workdps(50):
        eta = -mpmath.log(mpmath.mpf(937) / 1024) * 4
        weights = [
            mpmath.exp(eta * mpmath.mpf(Fraction(u).numerator) / Fraction(u).denominator)
            for u in utilities
        ]
        for exact, weight in zip(mechanism.probabilities(utilities), weights, strict=True):
            mine = mpmath.mpf(exact.numerator) / exact.denominator
            assert abs(mine - weight / mpmath.fsum(weights)) < mpmath.mpf(10) ** -45
        assert mechanism.epsilon == pytest.approx(float(2 * eta * 1.5), rel=1e-15)
    shifted = mechanism.probabilities([u + 1000 for u in utilities])
    assert shifted == mechanism.probabilities(utilities)
    assert sum(shifted) == 1


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("sensitivity", [1, 2])
def test_no_neighbours_are_further_apart_than_epsilon(monotone, sensitivity):
    mechanism = ExponentialMechanism(Fraction(3, 5), sensitivity=sensitivity, monotone=monotone)
    assert mechanism.ratio == Fraction(5, 3) ** ((1 if monotone else 2) * sensitivity)
    changes = range(sensitivity + 1) if monotone else range(-sensitivity, sensitivity + 1)
    worst = Fraction(1)
    for utilities in itertools.product(range(4), repeat=3):
        law = mechanism.probabilities(utilities)
        for change in itertools.product(changes, repeat=3):
            other = mechanism.probabilities([u + c for u, c in zip(utilities, change, strict=True)])
            worst = max(worst, *(max(p / q, q / p) for p, q in zip(law, other, strict=True)))
    assert worst <= mechanism.ratio
    rare = mechanism.probabilities([0, 40, 40, 40])
    down = mechanism.probabilities([0, *[40 + (sensitivity if monotone else -sensitivity)] * 3])
    gain = mechanism.probabilities([sensitivity, *[40 - sensitivity] * 3]) if not monotone else rare
    attained = gain[0] / rare[0] if not monotone else rare[0] / down[0]
    assert mechanism.ratio * Fraction(999, 1000) < attained < mechanism.ratio


def test_draws_have_the_exact_law():
    mechanism = ExponentialMechanism(Fraction(2, 3))
    utilities = [0, 3, 1, 2, 3]
    stream = KeyedStream.from_seed("draws")
    counts = Counter(mechanism.choose(utilities, stream=stream) for _ in range(20_000))
    for index, p in enumerate(mechanism.probabilities(utilities)):
        assert binomial_two_sided(counts[index], 20_000, float(p)) > 1e-4


class _Bytes:
    """A stream of given bytes."""

    def __init__(self, *parts):
        self._parts = list(parts)

    def bytes(self, n):
        part = self._parts.pop(0)
        assert len(part) == n
        return part


@pytest.mark.parametrize("bound", [1, 2, 5, 128, 255, 256, 257, 1000])
def test_numbers_below_a_bound_are_equally_likely(bound):
    """Every value of the bytes, one by one: each number comes up equally often, all others are drawn again."""
    bits = (bound - 1).bit_length()
    size = -(-bits // 8)
    zero = bytes(size)
    seen = Counter()
    refused = 0
    for value in range(256**size):
        source = _Bytes(value.to_bytes(size, "big"), zero)
        number = _below(bound, source)
        if len(source._parts) == 1:
            seen[number] += 1
        else:
            refused += 1
    assert set(seen) == set(range(bound))
    assert set(seen.values()) == {256**size >> bits}
    assert refused == 256**size - bound * (256**size >> bits)


@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 0.1, 0.3, 1.0, 2.0, 3.0, 20.0])
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize(("bits", "precision"), [(30, 28), (30, 4), (90, 28), (110, 28), (128, 28)])
def test_the_base_for_an_epsilon_never_costs_more(epsilon, monotone, bits, precision):
    # the caller's own
    with decimal.localcontext(decimal.Context(prec=precision, rounding=decimal.ROUND_DOWN)):
        mechanism = ExponentialMechanism.for_epsilon(
            epsilon, sensitivity=2, step=Fraction(1, 2), monotone=monotone, bits=bits
        )
    with mpmath.workdps(60):
        ratio = mpmath.mpf(mechanism.ratio.numerator) / mechanism.ratio.denominator
        assert ratio <= mpmath.exp(mpmath.mpf(epsilon))
        assert mpmath.mpf(mechanism.epsilon) >= mpmath.log(ratio)
    assert mechanism.epsilon == pytest.approx(epsilon, rel=2e-3)
    finer = ExponentialMechanism(
        mechanism.base - Fraction(1, 1 << bits),
        sensitivity=2,
        step=Fraction(1, 2),
        monotone=monotone,
    )
    with mpmath.workdps(60):
        ratio = mpmath.mpf(finer.ratio.numerator) / finer.ratio.denominator
        assert ratio > mpmath.exp(mpmath.mpf(epsilon))


def test_numpys_whole_numbers_do_not_overflow():
    small = [np.int64(x) for x in (937, 1024, 30, 0)]
    mechanism = ExponentialMechanism(Fraction(small[0], small[1]))
    assert mechanism.probabilities(small[2:]) == ExponentialMechanism(
        Fraction(937, 1024)
    ).probabilities([30, 0])
    assert mechanism.probabilities(np.array([30, 0])) == mechanism.probabilities([30, 0])
    quarters = ExponentialMechanism(Fraction(1, 2), step=Fraction(1, 4))
    with pytest.raises(UsageError, match="narrower"):  # 2^62·4 is 0 modulo 2^64
        quarters.probabilities(np.array([1 << 62, 0]))


def _naive_counts(utilities, epsilon):
    """How many of 2^53 equally likely uniform doubles lead the usual floating-point code to each outcome, exactly.

    ``weights = exp(ε·u/2); r = random()·weights.sum()`` and the first cumulative sum above r.
    """
    weights = np.exp(epsilon / 2 * np.asarray(utilities, dtype=np.float64))
    cumulative, total = np.cumsum(weights), weights.sum()
    edges = []
    for edge in cumulative:
        # the least k with fl(k·2^-53·total) ≥ edge; the product grows with k
        low, high = 0, 1 << 53
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if (middle * 2.0**-53) * total >= edge else (middle + 1, high)
        edges.append(low)
    return np.diff([0, *edges])


def test_a_floating_point_one_gives_neighbours_away():
    """Known bad: at ε = 1 it chooses an outcome whose neighbour it never chooses, and is off by more than e before that."""
    exact = ExponentialMechanism.for_epsilon(1.0)
    never, beyond = 0, 0
    for gap in range(40, 80):
        here, there = [gap, gap, 0], [gap + 1, gap + 1, -1]
        one, other = (_naive_counts(u, 1.0) for u in (here, there))
        assert one.sum() == other.sum() == 1 << 53
        never += one[2] > 0 and other[2] == 0
        beyond += other[2] > 0 and one[2] / other[2] > math.e * 1.05
        assert (
            1
            < exact.probabilities(here)[2] / exact.probabilities(there)[2]
            <= exact.ratio
            < Fraction(math.e)
        )
    assert never == 1
    assert beyond >= 1
    assert abs(_naive_counts([3, 1, 0], 1.0) / 2**53 - np.array(_law([3, 1, 0]))).max() < 1e-15


def _law(utilities):
    weights = [math.exp(u / 2) for u in utilities]
    return [w / math.fsum(weights) for w in weights]


def test_values_out_of_range_are_refused():
    mechanism = ExponentialMechanism(Fraction(1, 2), step=Fraction(1, 2))
    stream = KeyedStream.from_seed(0)
    for call in (
        lambda: ExponentialMechanism(Fraction(1)),
        lambda: ExponentialMechanism(Fraction(-1, 2)),
        lambda: ExponentialMechanism(0.5),
        lambda: ExponentialMechanism(Fraction(1, 2), sensitivity=0),
        lambda: ExponentialMechanism(Fraction(1, 2), sensitivity=1, step=Fraction(2, 3)),
        lambda: ExponentialMechanism.for_epsilon(0.0),
        lambda: ExponentialMechanism.for_epsilon(math.nan),
        lambda: ExponentialMechanism.for_epsilon(1e-9, bits=10),
        lambda: ExponentialMechanism.for_epsilon(1.0, bits=0),
        lambda: mechanism.choose([], stream=stream),
        lambda: mechanism.choose([0.5], stream=stream),
        lambda: mechanism.choose([Fraction(1, 3)], stream=stream),
        lambda: mechanism.choose([0, 1 << 30], stream=stream),
    ):
        with pytest.raises(UsageError):
            call()
