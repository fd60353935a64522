"""The strong adversary's estimate and its projection: near the truth, in the simplex always."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch, CountMedianSketch
from dpaudit_local.mechanisms.hadamard_sketch import HadamardSketch
from dpaudit_local.mechanisms.one_bit_histogram import OneBitHistogram
from dpaudit_local.mechanisms.randomized_response import Identity, RandomizedResponse
from dpaudit_local.mechanisms.rappor import Rappor
from dpaudit_local.pool_inference import popularity
from dpaudit_local.pool_inference.popularity import (
    estimate_popularity,
    project,
)

STREAM = KeyedStream.from_seed("popularity")
TRUTH = np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05, 0.0, 0.0])
WAYS = {
    "sketch": CountMeanSketch(4.0, m=256, functions=64),
    "count median": CountMedianSketch(2.0, m=256, functions=64),
    "hadamard": HadamardSketch(4.0, m=256, functions=64),
    "response": RandomizedResponse(4.0, categories=8),
    "rappor": Rappor(0.2, p=0.1, q=0.9, bits=64, cohorts=8, universe=8),
    "identity": Identity(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("submissions", "apart"), [(100_000, 0.025), (3, 1.0)])
def test_near_the_truth(way, submissions, apart):
    """100,000 reports at ε = 4: errors below 0.005, and projection does not increase them."""
    stream = STREAM.child(way)
    found = estimate_popularity(WAYS[way], 3 * TRUTH, stream=stream, submissions=submissions)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)
    assert np.abs(found - TRUTH).max() < apart
    assert way != "identity" or (found[6:] < 1e-12).all()  # what nobody chooses is never drawn


def test_same_stream_same_estimate():
    options = {"stream": STREAM, "submissions": 70_000}
    first, again = (estimate_popularity(WAYS["sketch"], TRUTH, **options) for _ in range(2))
    assert np.array_equal(first, again)


def test_blocks_are_different_people(monkeypatch):
    monkeypatch.setattr(popularity, "_BLOCK", 50)
    found = estimate_popularity(Identity(), TRUTH, stream=STREAM, submissions=100)
    counts = found * 100
    assert counts == pytest.approx(counts.round(), abs=1e-9)
    assert (counts.round() % 2 == 1).any()


@pytest.mark.parametrize(
    ("mechanism", "shares", "submissions", "match"),
    [
        (OneBitHistogram(1.0, positions=8), TRUTH, 10, "OneBitHistogram"),
        (Identity(), TRUTH, 0, "submissions=0"),
        (Identity(), -TRUTH, 10, "popularity"),
        (Identity(), 0 * TRUTH, 10, "popularity"),
        (Identity(), TRUTH[None], 10, "popularity"),
    ],
)
def test_what_is_refused(mechanism, shares, submissions, match):
    with pytest.raises(UsageError, match=match):
        estimate_popularity(mechanism, shares, stream=STREAM, submissions=submissions)


vectors = hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-50, 50))


@given(vectors)
def test_optimality_conditions(values):
    """Karush, Kuhn and Tucker: p ≥ 0, Σp = 1; some θ has p = v − θ where p > 0, else v ≤ θ."""
    p = project(values)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1, abs=1e-12)
    theta = (values - p)[p > 0]
    assert np.ptp(theta) < 1e-9
    assert (values[p == 0] <= theta.mean() + 1e-9).all()


def test_a_point_of_the_simplex_stays():
    p = np.random.default_rng(1).dirichlet(np.ones(30))
    assert project(p) == pytest.approx(p, abs=1e-15)


def test_values_beside_which_1_is_lost():
    assert project(np.array([1e17, 0.0, 1.0])).tolist() == [1, 0, 0]
    assert project(np.array([1e17, 1e17])).tolist() == [0.5, 0.5]


def test_the_nearest_point_may_be_a_corner():
    assert project(np.array([-1.5, -1.5, -0.5])) == pytest.approx([0, 0, 1])


@pytest.mark.parametrize("values", [[], [np.nan], [np.inf, 0.0], [[1.0]]])
def test_no_numbers_are_not_projected(values):
    with pytest.raises(UsageError, match="finite numbers"):
        project(np.array(values))
