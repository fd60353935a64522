"""The evidence of each mechanism against sums of likelihoods over the whole universe."""

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch, CountMedianSketch
from dpaudit_local.mechanisms.hadamard_sketch import HadamardSketch
from dpaudit_local.mechanisms.hashing import RandomHashes
from dpaudit_local.mechanisms.one_bit_histogram import OneBitHistogram
from dpaudit_local.mechanisms.randomized_response import Identity, RandomizedResponse
from dpaudit_local.mechanisms.rappor import Rappor
from dpaudit_local.mechanisms.reports import CategoryReports, HadamardReports
from dpaudit_local.pool_inference import sketch_evidence as tables
from dpaudit_local.pool_inference.evidence import EVIDENCE, UniverseEvidence, evidence_for
from dpaudit_local.pool_inference.settings import Pools

STREAM = KeyedStream.from_seed("evidence")
UNIVERSE = 70
EVERY = np.arange(UNIVERSE)
POOLS = Pools(UNIVERSE, (np.array([3, 0, 69]), np.arange(10, 25), np.array([40])))
POPULARITY = STREAM.child("popularity").numpy().random(UNIVERSE)
OBJECTS = STREAM.child("objects").numpy().integers(0, UNIVERSE, 300)


def bits_law(bits, one_hots, one, zero):
    """∏ over bits of the probability of each, (n, universe)."""
    law = np.empty((len(bits), UNIVERSE))
    for t, (true, vector) in enumerate(zip(one_hots, bits, strict=True)):
        share = np.where(true, one, zero)
        law[t] = np.where(vector, share, 1 - share).prod(axis=1)
    return law


def sketch_law(mechanism, reports):
    """Each bit by itself: probability 1 − ξ to be as in the one-hot vector."""
    bits = np.unpackbits(reports.bits, axis=1, bitorder="little", count=mechanism.m)
    places = (mechanism.hashes.positions(EVERY, int(f)) for f in reports.function)
    one_hots = (np.eye(mechanism.m, dtype=bool)[place] for place in places)
    return bits_law(bits, one_hots, 1 - mechanism.flip, mechanism.flip)


def hadamard_law(mechanism, reports):
    matrix = np.ones((1, 1))
    while len(matrix) < mechanism.m:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    law = np.empty((len(reports), UNIVERSE))
    for t, (function, row, sign) in enumerate(
        zip(reports.function, reports.coordinate, reports.sign, strict=True)
    ):
        true = matrix[row, mechanism.hashes.positions(np.arange(UNIVERSE), int(function))]
        law[t] = np.where(true == sign, 1 - mechanism.flip, mechanism.flip)
    return law


def response_law(mechanism, reports):
    return np.where(reports.category[:, None] == EVERY, mechanism.truth, mechanism.lie)


def rappor_law(mechanism, reports):
    bits = np.unpackbits(reports.bits, axis=1, bitorder="little")
    places = (mechanism.positions(EVERY, int(c)).astype(np.int64) for c in reports.cohort)
    sets = (np.eye(mechanism.bits, dtype=bool)[place].any(axis=1) for place in places)
    return bits_law(bits, sets, mechanism.q_star, mechanism.p_star)


def identity_law(mechanism, reports):
    return np.eye(UNIVERSE)[reports.category]


def hashes(size, count=9):
    return RandomHashes(count, size, stream=STREAM.child("hashes", size))


WAYS = {
    "sketch": (CountMeanSketch(3.0, hashes=hashes(64)), sketch_law),
    "sketch, 24 positions": (CountMeanSketch(1.0, hashes=hashes(24)), sketch_law),
    "sketch, a function a report": (CountMeanSketch(8.0, hashes=hashes(128, 70_000)), sketch_law),
    "sketch, 136 positions": (CountMeanSketch(2.0, hashes=hashes(136)), sketch_law),
    "count median": (CountMedianSketch(1.5, hashes=hashes(64)), sketch_law),
    "hadamard": (HadamardSketch(2.0, hashes=hashes(64)), hadamard_law),
    "response": (RandomizedResponse(3.0, categories=UNIVERSE), response_law),
    "rappor": (Rappor(0.5, universe=UNIVERSE, cohorts=3, bits=16, per_object=3), rappor_law),
    "identity": (Identity(), identity_law),
}


def like(found, law, popularity, pools=POOLS):
    """Whether found is Σ_z w_z·P(report | z) up to a factor of each report."""
    weights = np.ones(UNIVERSE) if popularity is None else popularity
    groups = (pools.neutral, *pools.members)
    wanted = np.stack([law[:, g] @ weights[g] / weights[g].sum() for g in groups], axis=1)
    assert found / found.max(axis=1, keepdims=True) == pytest.approx(
        wanted / wanted.max(axis=1, keepdims=True), rel=1e-11, abs=1e-13
    )


@pytest.mark.parametrize("popularity", [None, POPULARITY], ids=["weak", "strong"])
@pytest.mark.parametrize("way", WAYS)
def test_evidence_is_the_sum_over_the_universe(way, popularity):
    mechanism, law = WAYS[way]
    reports = mechanism.privatize(OBJECTS, stream=STREAM.child("reports", way))
    found = evidence_for(mechanism, POOLS, popularity)(reports)
    assert found.shape == (len(OBJECTS), 4)
    # each pool's factor is the same for all, whatever the object's popularity
    if way == "identity":
        assert np.array_equal(found, np.eye(4)[POOLS.labels[OBJECTS]])
    else:
        like(found, law(mechanism, reports), popularity)


@pytest.mark.parametrize("way", WAYS)
def test_every_mechanism_has_its_own_and_shares_what_it_can(way):
    mechanism, _ = WAYS[way]
    reports = mechanism.privatize(OBJECTS, stream=STREAM.child("reports", way))
    evidence = evidence_for(mechanism, POOLS)
    assert type(evidence) is EVIDENCE[type(mechanism)]
    first = evidence(reports)
    other = evidence.against(POPULARITY)(reports)
    assert np.array_equal(other, evidence_for(mechanism, POOLS, POPULARITY)(reports))
    assert np.array_equal(evidence(reports), first)
    assert np.array_equal(evidence(reports, threads=1), first)
    assert np.array_equal(evidence(reports[5:9]), first[5:9])
    assert evidence(reports[:0]).shape == (0, 4)


@pytest.mark.parametrize("way", ["sketch", "hadamard"])
@pytest.mark.parametrize("popularity", [None, POPULARITY], ids=["weak", "strong"])
def test_rows_that_are_too_many_to_keep(way, popularity, monkeypatch):
    mechanism, _ = WAYS[way]
    reports = mechanism.privatize(OBJECTS, stream=STREAM.child("reports"))
    kept = evidence_for(mechanism, POOLS, popularity)(reports)
    monkeypatch.setattr(tables, "_MOST_KEPT_BYTES", 0)
    anew = evidence_for(mechanism, POOLS, popularity)(reports)
    assert anew == pytest.approx(kept, rel=1e-6)  # 32-bit sums of the neutral pool
    assert np.array_equal(anew[:, 1:], kept[:, 1:])


@pytest.mark.parametrize("way", ["sketch", "hadamard"])
def test_more_pools_than_a_register_holds(way):
    mechanism, law = WAYS[way]
    pools = Pools(UNIVERSE, tuple(np.array([i, i + 30]) for i in range(19)))
    reports = mechanism.privatize(OBJECTS, stream=STREAM.child("reports"))
    found = evidence_for(mechanism, pools, POPULARITY)(reports)
    like(found, law(mechanism, reports), POPULARITY, pools)


def test_hundreds_of_neutral_objects_at_a_position():
    mechanism = CountMeanSketch(3.0, m=8, functions=4)
    pools = Pools(3000, (np.array([1]), np.array([2, 5])))
    reports = mechanism.privatize(np.arange(40), stream=STREAM)
    found, slow = (
        evidence_for(mechanism, pools)(reports),
        UniverseEvidence(mechanism, pools)(reports),
    )
    assert found[:, 1:] / found[:, :1] == pytest.approx(slow[:, 1:] / slow[:, :1], rel=1e-9)


@pytest.mark.parametrize("way", ["sketch", "hadamard", "response", "rappor"])
def test_nobody_neutral(way):
    mechanism, _ = WAYS[way]
    pools = Pools(UNIVERSE, (np.arange(30), np.arange(30, UNIVERSE)))
    reports = mechanism.privatize(OBJECTS, stream=STREAM.child("reports"))
    found = evidence_for(mechanism, pools)(reports)
    slow = UniverseEvidence(mechanism, pools)(reports)
    assert found[:, 2] / found[:, 1] == pytest.approx(slow[:, 2] / slow[:, 1], rel=1e-6)
    assert np.array_equal(slow[:, 0], np.zeros(len(OBJECTS)))


def test_a_popularity_that_gives_a_pool_nothing_leaves_it_uniform():
    popularity = POPULARITY.copy()
    popularity[POOLS.members[1]] = 0
    weights = POOLS.weights(popularity)
    assert weights[POOLS.members[1]] == pytest.approx(1 / 15)
    assert np.bincount(POOLS.labels, weights) == pytest.approx(1)


def test_any_other_mechanism_goes_through_the_universe():
    mechanism = OneBitHistogram(1.5, positions=UNIVERSE)
    reports = mechanism.privatize(OBJECTS, stream=STREAM.child("reports"))
    evidence = evidence_for(mechanism, POOLS, POPULARITY)
    assert type(evidence) is UniverseEvidence
    like(evidence(reports), np.exp(mechanism.log_likelihood(reports, EVERY)), POPULARITY)


def test_reports_that_hardly_ever_come_keep_their_ratios():
    mechanism = HadamardSketch(32.0, hashes=hashes(64))
    pools = Pools(4, (np.array([0]), np.array([1]), np.array([2])))
    came = mechanism.privatize(OBJECTS % 4, stream=STREAM)
    reports = HadamardReports(came.function, came.coordinate, -came.sign)
    found = evidence_for(mechanism, pools)(reports)
    slow = UniverseEvidence(mechanism, pools)(reports)
    alike = (slow == slow[:, :1]).all(axis=1)
    assert alike.any()
    assert found[alike] == pytest.approx(np.full((alike.sum(), 4), 2 * mechanism.flip), rel=1e-9)


SKETCH = WAYS["sketch"][0]
MINUS = CategoryReports(np.array([-1]))
ABOVE = CategoryReports(np.array([70]))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda r: evidence_for(object(), POOLS), "not a local mechanism"),
        (lambda r: evidence_for(SKETCH, POOLS, POPULARITY[:5]), "popularity of shape"),
        (lambda r: evidence_for(SKETCH, POOLS, -POPULARITY), "popularity"),
        (lambda r: evidence_for(CountMeanSketch(3.0, m=64, functions=2), POOLS)(r), "function"),
        (lambda r: evidence_for(CountMeanSketch(3.0, m=128), POOLS)(r), "bits"),
        (lambda r: evidence_for(Identity(), POOLS)(ABOVE), "category"),
        (lambda r: evidence_for(WAYS["response"][0], POOLS)(MINUS), "category"),
        (lambda r: UniverseEvidence(Identity(), POOLS)(ABOVE), "is impossible for"),
    ],
)
def test_what_is_refused(call, match):
    reports = SKETCH.privatize(OBJECTS, stream=STREAM)
    with pytest.raises(UsageError, match=match):
        call(reports)


BAD_POOLS = [([1, 2],), ([1], []), ([1], [70]), ([-1], [7]), ([1, 2], [2]), ([1.5], [2.0])]


@pytest.mark.parametrize("members", BAD_POOLS, ids=str)
def test_pools_that_are_none(members):
    with pytest.raises(UsageError):
        Pools(UNIVERSE, tuple(np.array(m) for m in members))
