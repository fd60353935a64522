"""Checks of the bits: an honest generator passes whatever was sketched, broken ones do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from dpaudit.deployments.apple.bits.sketch_checks import check_spread
from dpaudit.deployments.apple.bits.sketches import SketchVectors
from dpaudit.types import Interval

Q = 1 / (1 + math.e**2)


def honest(rng, vectors, m, place=None, q=Q):
    bits = rng.random((vectors, m)) < q
    bits[np.arange(vectors), rng.integers(m, size=vectors) if place is None else place] ^= True
    return bits


def estimated(bits, check_alpha=0.01):
    collected = SketchVectors(bits.shape[1])
    collected.add(np.packbits(bits, axis=1, bitorder="little"))
    return collected.estimate(interval_alpha=0.05, check_alpha=check_alpha)


def p_values(bits):
    return {c.name: c.p for c in estimated(bits).checks}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vectors", "m", "place"),
    [
        (60, 256, 7),
        (20, 64, 63),
        pytest.param(12, 256, None, marks=pytest.mark.slow),
        pytest.param(3, 4096, 0, marks=pytest.mark.slow),
    ],
)
def test_level_whatever_was_sketched(vectors, m, place):
    rng = np.random.default_rng([2, vectors, m])
    found: dict[str, int] = {}
    for _ in range(60):  # positions without their Bonferroni correction: a quarter at (60, 256, 7)
        for name, p in p_values(honest(rng, vectors, m, place)).items():
            found[name] = found.get(name, 0) + (p <= 0.05)
    assert max(found.values()) <= 10  # 3 at the most expected, P(more) < 3e-4 each


def stuck(rng):
    bits = honest(rng, 50, 256)
    bits[:, 3::8] = False
    return bits


def favoured(rng):
    bits = honest(rng, 50, 256)
    bits[:, 3::8] |= rng.random((50, 32)) < 0.1
    return bits


def uneven(rng):
    return np.vstack([honest(rng, 1, 256, q=q) for q in rng.uniform(0.05, 0.19, 50)])


def bytes_twice(rng):
    in_bytes = honest(rng, 50, 256).reshape(50, 32, 8)
    in_bytes[:, 1::2] = in_bytes[:, ::2]
    return in_bytes.reshape(50, 256)


def sticky(rng):
    bits = honest(rng, 10, 256)
    for i in range(255):
        bits[:, i + 1] = np.where(rng.random(10) < 0.3, bits[:, i], bits[:, i + 1])
    return bits


def repeated(rng):
    bits = honest(rng, 10, 256)
    bits[4] = bits[9]
    return bits


@pytest.mark.parametrize(
    ("broken", "by"),
    [
        (stuck, "positions"),
        (favoured, "positions"),
        (uneven, "spread"),
        (bytes_twice, "neighbours"),
        (sticky, "neighbours"),
        (repeated, "copies"),
    ],
)
def test_broken_generators_are_found(broken, by):
    bits = broken(np.random.default_rng(3))
    assert p_values(bits)[by] < 0.002
    assert p_values(honest(np.random.default_rng(3), *bits.shape))[by] > 0.002


def test_segments_add_up():
    rng = np.random.default_rng(4)
    bits = honest(rng, 30, 256)
    packed = np.packbits(bits, axis=1, bitorder="little")
    collected = SketchVectors(256)
    for part in np.array_split(packed, 7):
        collected.add(part)
    assert collected.estimate(interval_alpha=0.05, check_alpha=0.01) == estimated(bits)


def test_nothing_shows_nothing():
    assert SketchVectors(256).estimate(interval_alpha=0.05, check_alpha=0.01) is None


def test_the_p_value_of_the_spread_is_two_sided():
    ones = np.array([70, 75, 77, 80, 81, 83, 85, 90])
    check = check_spread(ones, 256, Interval(low=0.3, high=0.3, confidence=1.0, method=""))
    ratio = ((ones - ones.mean()) ** 2).sum() / (256 * 0.3 * 0.7)
    assert check is not None
    assert check.p == pytest.approx(
        2 * min(scipy.special.chdtr(7, ratio), scipy.special.chdtrc(7, ratio))
    )
