"""The exact ε from all reports of a tiny sketch, Apple's bits, and the medians' estimates."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from support.laws import largest_ratio

from dpaudit.errors import UsageError
from dpaudit.local.count_mean_server import CountMeanServer
from dpaudit.local.count_median_sketch import CountMedianServer, CountMedianSketch
from dpaudit.local.hashing import Sha256Hashes
from dpaudit.local.reports import SketchReports
from dpaudit.randomness import KeyedStream


def _law(position, parameter, m):
    """P(vector) of Figure 16 taken literally: m coins of bias 1/(e^p + 1), one bit flipped."""
    bias, law = 1 / (math.exp(parameter) + 1), {}
    for coins in itertools.product((0, 1), repeat=m):
        vector = tuple(coin ^ (i == position) for i, coin in enumerate(coins))
        law[vector] = math.prod(bias if coin else 1 - bias for coin in coins)
    return law


@pytest.mark.parametrize("parameter", [0.5, 1.0, 2.0])
def test_one_vector_has_twice_the_privacy_parameter(parameter):
    m = 8
    laws = [_law(position, parameter, m) for position in range(m)]
    assert math.log(largest_ratio(laws)) == pytest.approx(2 * parameter, rel=1e-12)
    sketch = CountMedianSketch(parameter, m=m, functions=3)
    assert sketch.epsilon == pytest.approx(2 * parameter, rel=1e-12)
    assert sketch.flip == pytest.approx(1 / (1 + math.exp(parameter)), rel=1e-12)
    assert sketch.privacy_parameter == parameter
    # and log_likelihood is that law's, for every report
    vectors = np.array(list(itertools.product((0, 1), repeat=m)), np.uint8)
    packed = np.packbits(vectors, axis=1, bitorder="little")
    objects = np.arange(6)
    for function in range(3):
        reports = SketchReports(np.full(len(packed), function, np.uint32), packed)
        places = sketch.hashes.positions(objects, function)
        listed = np.log([[laws[place][tuple(v)] for place in places] for v in vectors.tolist()])
        ours = sketch.log_likelihood(reports, objects)
        assert np.allclose(ours - ours[:, :1], listed - listed[:, :1], atol=1e-12)


def test_apples_bias_is_the_one_that_was_observed():
    """Figure 20: 0.1192029220221175 at PrivacyParameter 2; that is ε = 4 per vector."""
    sketch = CountMedianSketch(2.0, m=8, functions=1)
    assert sketch.flip == pytest.approx(0.1192029220221175, rel=1e-15)
    assert sketch.epsilon == pytest.approx(4.0, rel=1e-15)


def test_sha256_positions_are_turned_over():
    """At a parameter where coins hardly ever come up, the one bit set is the hashed one."""
    hashes = Sha256Hashes(5, 256, names=["a", "ü", "puzzle"])
    sketch = CountMedianSketch(30.0, hashes=hashes)
    objects = np.arange(600) % 3
    reports = sketch.privatize(objects, stream=KeyedStream.from_seed("sha"))
    bits = np.unpackbits(reports.bits, axis=1, bitorder="little")
    assert (bits.sum(axis=1) == 1).all()
    assert (bits.argmax(axis=1) == hashes.each(objects, reports.function)).all()
    assert set(reports.function.tolist()) == set(range(5))


def _collect(sketch, counts, *, seed, server=None):
    """A server, by default a new one of medians, with one report of each person."""
    server = server or CountMedianServer(sketch)
    objects = np.repeat(np.arange(len(counts)), counts)
    server.add(sketch.privatize(objects, stream=KeyedStream.from_seed(seed)))
    return server


def test_estimates_are_near_the_counts_as_often_as_the_standard_error_says():
    sketch = CountMedianSketch(2.0, m=256, functions=32)
    counts = np.full(400, 100)
    server = _collect(sketch, counts, seed="spread")
    for groups in (None, 7, 1):
        error = server.standard_error(groups=groups)
        off = (server.estimate(np.arange(400), groups=groups) - 100) / error
        assert abs(off.mean()) < 6 / math.sqrt(400)
        assert 0.85 < off.std() < 1.15
    every, mean = np.arange(400), CountMeanServer(sketch)
    _collect(sketch, counts, seed="spread", server=mean)
    same = CountMedianServer(sketch, counts=mean)
    assert np.allclose(same.estimate(every, groups=1), mean.estimate(every), rtol=1e-9)
    assert (same.estimate(every) == server.estimate(every)).all()


def test_a_median_forgets_a_collision_that_moves_a_mean():
    sketch = CountMedianSketch(4.0, m=64, functions=31)
    counts = np.zeros(300, np.int64)
    counts[0] = 60_000
    places = np.array([sketch.hashes.positions(np.arange(300), j) for j in range(31)])
    shared = (places == places[:, :1]).sum(axis=0)
    collides = np.flatnonzero((shared >= 2) & (shared < 12))
    assert len(collides) >= 5
    server = _collect(sketch, counts, seed="collision")
    by_median, by_mean = server.estimate(collides), server.estimate(collides, groups=1)
    assert (by_mean > 1_500).all()
    assert np.abs(by_median).max() < 1_200


def test_servers_refuse_what_is_not_theirs_or_too_few():
    sketch = CountMedianSketch(2.0, m=64, functions=8)
    other = CountMedianSketch(1.0, m=64, functions=8)
    few = _collect(sketch, np.array([100]), seed="few")
    with pytest.raises(UsageError, match="groups=3"):
        few.estimate(np.arange(3))
    assert few.estimate(np.arange(3), groups=3).shape == (3,)
    wide = CountMedianSketch(2.0, m=128, functions=8)
    for call in (
        lambda: few.estimate(np.arange(3), groups=0),
        lambda: CountMedianServer(sketch, counts=CountMeanServer(other)),
        lambda: few.add(wide.privatize(np.arange(2), stream=KeyedStream.from_seed(0))),
        *(lambda p=p: CountMedianSketch(p) for p in (0.0, math.nan, "2", 33.0)),
    ):
        with pytest.raises(UsageError):
            call()
