"""Bounds from single signs hold for any objects, and a coin that flips too seldom is caught."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpaudit.deployments.apple.bits.signs import HistogramSigns, histogram_flip, predictable_flip
from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream

Q1 = 1 / (1 + math.e)
STREAM = KeyedStream.from_seed("test signs")


def signs_of(rng, truth, q):
    return np.where(rng.random(len(truth)) < q, -truth, truth).astype(np.int8)


def same(rng, n):
    return np.ones(n, dtype=np.int8)


def mixed(rng, n):
    return rng.choice(np.array([-1, 1], dtype=np.int8), n)


def in_turns(rng, n):
    return np.where(np.arange(n) % 2, 1, -1).astype(np.int8)


@pytest.mark.parametrize("objects", [same, mixed, in_turns])
@pytest.mark.parametrize(("n", "places"), [(40, 6), (300, 1)])
def test_the_bound_holds_whatever_the_objects(objects, n, places):
    rng = np.random.default_rng([5, n])
    missed = 0
    for t in range(200):
        place = rng.integers(places, size=n)
        sign = signs_of(rng, objects(rng, n), Q1)
        bound, predictions = predictable_flip(
            place, place, sign, confidence=0.9, stream=STREAM.child(t)
        )
        assert predictions == n - len(set(place.tolist()))
        missed += bound.high < Q1
    assert missed <= 36  # 20 at the most expected, P(more) < 2e-4


def test_the_order_of_the_file_does_not_matter():
    """Sorted by sign, an even majority is seldom wrong: in that order fair coins look biased."""
    rng = np.random.default_rng(10)
    missed = 0
    for t in range(100):
        place = np.repeat(np.arange(80), 6)
        sign = np.sort(signs_of(rng, mixed(rng, 480), 0.45).reshape(80, 6), axis=1).ravel()
        bound, _ = predictable_flip(place, place, sign, confidence=0.9, stream=STREAM.child(t))
        missed += bound.high < 0.45
    assert missed <= 22  # 10 at the most expected, P(more) < 2e-4


def test_a_coin_that_flips_too_seldom_is_caught():
    rng = np.random.default_rng(6)
    caught = honest = 0
    for t in range(40):
        place = rng.integers(8, size=200)
        for q in (0.05, Q1):
            sign = signs_of(rng, np.where(place % 2, 1, -1), q)
            bound, _ = predictable_flip(
                place, place * 0, sign, confidence=0.99, stream=STREAM.child(t)
            )
            caught += q == 0.05 and bound.high < Q1
            honest += q == Q1 and bound.high < Q1
    assert caught == 40
    assert honest <= 3


def test_places_that_occur_once_identify_nothing():
    place = np.arange(20)
    assert (
        predictable_flip(place, place, np.ones(20, dtype=np.int8), confidence=0.95, stream=STREAM)
        is None
    )


def test_functions_and_coordinates_both_make_a_place():
    function, coordinate = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    assert (
        predictable_flip(
            function, coordinate, np.ones(4, dtype=np.int8), confidence=0.95, stream=STREAM
        )
        is None
    )


def test_signs_that_are_none():
    with pytest.raises(UsageError, match="−1 or"):
        predictable_flip(np.zeros(2), np.zeros(2), np.array([1, 0]), confidence=0.95, stream=STREAM)


@pytest.mark.parametrize("records", [30, 1000])
@pytest.mark.parametrize("favourite", [False, True])
def test_histogram_coverage(records, favourite):
    rng = np.random.default_rng([7, records, favourite])
    p, missed, missed_above = 6, 0, 0
    for _ in range(200):
        objects = np.full(records, 3) if favourite else rng.integers(p, size=records)
        positions = rng.integers(p, size=records)
        sign = signs_of(rng, np.where(positions == objects, 1, -1), Q1)
        ones = int((sign > 0).sum())
        both = histogram_flip(ones, records, positions=p, confidence=0.9)
        missed += not both.low <= Q1 <= both.high
        # positions chosen against us: each the object's own
        at_object = signs_of(rng, np.ones(records), Q1)
        missed_above += (
            histogram_flip(int((at_object > 0).sum()), records, positions=None, confidence=0.9).high
            < Q1
        )
    assert missed <= 36
    assert missed_above <= 36


def histogram(rng, n, q, p=5000):
    collected = HistogramSigns()
    collected.add(rng.integers(p, size=n).astype(np.uint32), signs_of(rng, -np.ones(n), q))
    return collected


def test_a_histogram_that_flips_too_seldom_is_caught():
    flip, _ = histogram(np.random.default_rng(8), 200, 0.1).estimate(positions=5000, alpha=0.01)
    assert flip.high < Q1
    flip, _ = histogram(np.random.default_rng(8), 200, Q1).estimate(positions=5000, alpha=0.01)
    assert flip.low < Q1 < flip.high


@pytest.mark.parametrize("case", ["beyond", "crowded", "unknown", "half"])
def test_no_lower_end_without_its_assumptions(case):
    rng = np.random.default_rng(9)
    collected = histogram(
        rng, 100, 0.5 if case == "half" else 0.2, p=100 if case == "crowded" else 5000
    )
    if case == "beyond":
        collected.add(np.array([49477827], dtype=np.uint32), np.array([1], dtype=np.int8))
    flip, reason = collected.estimate(positions=None if case == "unknown" else 5000, alpha=0.05)
    assert flip.low == 0
    assert "lower bound for ε only" in reason
