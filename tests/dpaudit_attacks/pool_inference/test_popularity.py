"""The strong adversary's estimate: near the truth where many submit, in the simplex always."""

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.local.count_median_sketch import CountMedianSketch
from dpaudit.local.hadamard_sketch import HadamardSketch
from dpaudit.local.identity import Identity
from dpaudit.local.one_bit_histogram import OneBitHistogram
from dpaudit.local.randomized_response import RandomizedResponse
from dpaudit.local.rappor import Rappor
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.pool_inference import popularity
from dpaudit_attacks.pool_inference.popularity import average_projections, estimate_popularity

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
def test_near_the_truth(way):
    """100,000 reports at ε = 4: errors below 0.005, and projection does not increase them."""
    found = estimate_popularity(WAYS[way], 3 * TRUTH, stream=STREAM.child(way), submissions=100_000)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)
    assert np.abs(found - TRUTH).max() < 0.025


def test_same_stream_same_estimate_and_the_paper_s_projection():
    sketch = WAYS["sketch"]
    first = estimate_popularity(sketch, TRUTH, stream=STREAM, submissions=70_000)
    assert np.array_equal(
        first, estimate_popularity(sketch, TRUTH, stream=STREAM, submissions=70_000)
    )
    theirs = estimate_popularity(
        sketch, TRUTH, stream=STREAM, submissions=70_000, projection=average_projections
    )
    assert theirs == pytest.approx(first, abs=0.01)


def test_blocks_are_different_people(monkeypatch):
    monkeypatch.setattr(popularity, "_BLOCK", 50)
    found = estimate_popularity(Identity(), TRUTH, stream=STREAM, submissions=100)
    counts = found * 100
    assert counts == pytest.approx(counts.round(), abs=1e-9)
    assert (counts.round() % 2 == 1).any()


def test_few_submissions_stay_in_the_simplex():
    found = estimate_popularity(WAYS["sketch"], TRUTH, stream=STREAM, submissions=3)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)


def test_objects_that_nobody_chooses_are_never_drawn():
    found = estimate_popularity(Identity(), TRUTH, stream=STREAM, submissions=100_000)
    assert (found[6:] < 1e-12).all()


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
