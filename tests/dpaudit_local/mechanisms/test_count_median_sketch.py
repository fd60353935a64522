"""The exact ε from all reports of a tiny sketch, and Apple's bits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from support.laws import largest_ratio

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import CountMedianSketch
from dpaudit_local.mechanisms.reports import SketchReports


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


def test_hashed_positions_are_turned_over():
    """At a parameter where coins hardly ever come up, the one bit set is the hashed one."""
    sketch = CountMedianSketch(30.0, m=256, functions=5)
    objects = np.arange(600) % 3
    reports = sketch.privatize(objects, stream=KeyedStream.from_seed("sha"))
    bits = np.unpackbits(reports.bits, axis=1, bitorder="little")
    assert (bits.sum(axis=1) == 1).all()
    assert (bits.argmax(axis=1) == sketch.hashes.each(objects, reports.function)).all()
    assert set(reports.function.tolist()) == set(range(5))


def test_parameters_out_of_range_are_refused():
    for parameter in (0.0, math.nan, "2", 33.0):
        with pytest.raises(UsageError):
            CountMedianSketch(parameter)
