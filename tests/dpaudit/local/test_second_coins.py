"""The second randomisation: its law, both ε, and its price."""

import math

import numpy as np
import pytest
from scipy import stats

from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.local.hadamard_sketch import HadamardSketch
from dpaudit.local.randomized_response import RandomizedResponse
from dpaudit.local.rappor import Rappor
from dpaudit.local.report_bits import report_bits
from dpaudit.local.second_coins import SecondCoins
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_local_mechanism

STREAM = KeyedStream.from_seed(5)


def test_two_stages_of_four_make_2_65_and_cost_a_factor():
    twice = SecondCoins(CountMeanSketch(4.0), epsilon=4.0)
    q = 1 / (1 + math.e**2)
    both = 2 * q * (1 - q)
    assert twice.epsilon == pytest.approx(2 * math.log((1 - both) / both))
    assert twice.second_epsilon == pytest.approx(4.0)
    error = math.sqrt(both * (1 - both)) / (1 - 2 * both)
    assert twice.error == pytest.approx(error / (math.sqrt(q * (1 - q)) / (1 - 2 * q)))
    sign = SecondCoins(HadamardSketch(1.0), epsilon=1.0)
    kept = (math.e - 1) / (math.e + 1)
    assert sign.error == pytest.approx(1 / kept)
    assert sign.epsilon == pytest.approx(math.log((1 + kept**2) / (1 - kept**2)))


@pytest.mark.parametrize(
    "mechanism",
    [CountMeanSketch(4.0, m=64, functions=4), Rappor(bits=64), RandomizedResponse(1.0)],
    ids=["sketch", "rappor", "answer"],
)
def test_reports_have_the_composed_law(mechanism):
    twice, n = SecondCoins(mechanism, epsilon=2.0), 4000
    view, objects = report_bits(mechanism), np.ones(4000, dtype=np.int64)
    coins, bits = view.parts(twice.privatize(objects, stream=STREAM))
    own = view.truth(coins, objects)
    for mine, chance in ((own, twice.high), (~own, twice.low)):
        if mine.any():
            ones = int((bits & mine).sum())
            assert stats.binomtest(ones, int(mine.sum()), float(chance)).pvalue > 1e-4
    assert n == len(bits)


def test_second_coins_do_not_depend_on_the_first():
    """With the first stage's coins known, what is left has the second's ε and no less."""
    sketch = CountMeanSketch(4.0, m=64, functions=4)
    twice, view = SecondCoins(sketch, epsilon=4.0), report_bits(sketch)
    first = sketch.privatize(np.arange(3000), stream=STREAM)
    again = twice.again(first, stream=STREAM)
    flips = view.parts(first)[1] != view.parts(again)[1]
    assert stats.binomtest(int(flips.sum()), flips.size, 1 / (1 + math.e**2)).pvalue > 1e-4
    own = view.truth(view.parts(first)[0], np.arange(3000))
    lies = view.parts(first)[1] != own
    table = np.bincount((flips * 2 + lies).ravel(), minlength=4).reshape(2, 2)
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_it_is_a_local_mechanism():
    check_local_mechanism(
        SecondCoins(CountMeanSketch(2.0, m=16, functions=8), epsilon=2.0), universe=12
    )
