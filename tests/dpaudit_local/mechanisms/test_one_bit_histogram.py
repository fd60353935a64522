"""The exact law and ε of the sampler itself, and the server's estimates and errors."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from support.laws import largest_ratio, logarithm

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.hashing import RandomHashes
from dpaudit_local.mechanisms.one_bit_histogram import OneBitHistogram
from dpaudit_local.mechanisms.reports import BitReports

SMALL = [
    OneBitHistogram(1.0, positions=5),
    OneBitHistogram(0.2, positions=4, universe=3),
    OneBitHistogram(2.0, positions=6, vector="signs", universe=9, seed=3),
]


class Words:
    """A stream whose bytes are these words: positions first, then coins."""

    def __init__(self, positions, coins):
        self.words = np.array([*positions, *coins], dtype="<u8")

    def child(self, *labels):
        return self

    def bytes(self, n):
        assert n == 8 * len(self.words)
        return self.words.tobytes()


def law_of_the_sampler(mechanism):
    """P(position, sign | object), exactly.

    Words of one remainder modulo p make one position, two intervals the two signs.
    """
    p, lie = mechanism.positions, mechanism.flip_words
    law = {}
    for x, j in itertools.product(range(mechanism.universe), range(p)):
        share = Fraction(len(range(j, 2**64, p)), 2**64)
        last = (2**64 - 1 - j) // p * p + j
        coins = [0, lie - 1, lie, 2**64 - 1]
        got = mechanism.privatize(np.full(4, x), stream=Words([j, last, j + p, j], coins))
        assert (got.position == j).all()
        assert got.sign[0] == got.sign[1] == -got.sign[2] == -got.sign[3]
        law[x, j, int(got.sign[0])] = share * Fraction(lie, 2**64)
        law[x, j, int(got.sign[2])] = share * Fraction(2**64 - lie, 2**64)
    return law


@pytest.mark.parametrize("mechanism", SMALL)
def test_epsilon_is_the_largest_likelihood_ratio_of_the_sampler_itself(mechanism):
    law = law_of_the_sampler(mechanism)
    objects = range(mechanism.universe)
    outputs = list(itertools.product(range(mechanism.positions), (-1, 1)))
    assert all(sum(law[x, j, s] for j, s in outputs) == 1 for x in objects)
    worst = largest_ratio([[law[x, j, s] for j, s in outputs] for x in objects])
    assert mechanism.epsilon == float(logarithm(worst))
    reports = BitReports(*(np.array(column) for column in zip(*outputs, strict=True)))
    logs = mechanism.log_likelihood(reports, np.array(objects)) - math.log(mechanism.positions)
    np.testing.assert_allclose(
        np.exp(logs), [[float(law[x, j, s]) for x in objects] for j, s in outputs], rtol=1e-12
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 5.0])
def test_epsilon_never_exceeds_what_was_asked_for(epsilon):
    flip = Fraction(OneBitHistogram(epsilon).flip_words, 2**64)
    assert logarithm((1 - flip) / flip) <= Decimal(epsilon)
    # Tang et al., A.1.1
    assert OneBitHistogram(epsilon).flip == pytest.approx(1 / (1 + math.exp(epsilon)), rel=1e-14)


def test_one_hot_signs_are_plus_at_the_own_position_alone():
    signs = [OneBitHistogram(positions=4).signs(np.full(4, x), np.arange(4)) for x in range(4)]
    np.testing.assert_array_equal(signs, 2 * np.eye(4) - 1)


def cells(mechanism, x, n, name):
    reports = mechanism.privatize(np.full(n, x), stream=KeyedStream.from_seed(name))
    return np.bincount(
        2 * reports.position.astype(int) + (reports.sign > 0), minlength=2 * mechanism.positions
    )


@pytest.mark.parametrize("mechanism", SMALL)
def test_reports_follow_the_law_and_a_weaker_coin_would_be_seen(mechanism):
    law, n = law_of_the_sampler(mechanism), 200_000
    expected = [n * float(law[1, j, s]) for j in range(mechanism.positions) for s in (-1, 1)]
    assert scipy.stats.chisquare(cells(mechanism, 1, n, "cells"), expected).pvalue > 1e-3
    same = {
        name: getattr(mechanism, name) for name in ("positions", "vector", "universe", "hashes")
    }
    weak = OneBitHistogram(mechanism.epsilon + 0.05, **same)
    assert scipy.stats.chisquare(cells(weak, 1, n, "cells"), expected).pvalue < 1e-4


def test_a_default_device_speaks_apples_format():
    mechanism = OneBitHistogram()
    assert (mechanism.epsilon, mechanism.positions) == (1.0, 5000)
    reports = mechanism.privatize(np.arange(4000), stream=KeyedStream.from_seed("apple"))
    assert reports.position.dtype == np.uint32
    assert reports.sign.dtype == np.int8
    assert reports.position.max() < 5000
    assert set(reports.sign.tolist()) == {-1, 1}


def hashes(count, size):
    return RandomHashes(count, size, stream=KeyedStream.from_seed(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "epsilon=0"),
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"epsilon": 40.0}, "use identity"),
        ({"positions": 1}, "positions=1: .*from 2 to 4294967296"),
        ({"positions": 5e3}, "positions=5000.0"),
        ({"vector": "hadamard"}, "vector=hadamard"),
        ({"universe": 1}, "universe=1"),
        ({"universe": 5001}, "universe=5001: .*use signs"),
        ({"hashes": hashes(5000, 2)}, "one-hot vectors use none"),
        ({"vector": "signs", "hashes": hashes(5000, 4)}, "5000 functions of size 4"),
        ({"vector": "signs", "hashes": hashes(50, 2)}, "50 functions of size 2"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UsageError, match=message):
        OneBitHistogram(**options)


@pytest.mark.parametrize(
    ("position", "sign", "message"),
    [
        ([5], [1], r"reports.position=5"),
        ([-1], [1], "reports.position=-1"),
        ([0.0], [1], "reports.position"),
        ([0], [0], "reports.sign"),
        ([0, 1], [1], "one for each position"),
    ],
)
def test_bad_reports(position, sign, message):
    reports = BitReports(np.array(position), np.array(sign))
    with pytest.raises(UsageError, match=message):
        SMALL[0].log_likelihood(reports, np.array([0]))


@pytest.mark.parametrize("mechanism", SMALL)
def test_bad_objects(mechanism):
    for objects in ([9], [-1], [0.5], [[1]], [True]):
        with pytest.raises(UsageError, match="objects"):
            mechanism.privatize(np.array(objects), stream=Words([], []))


def test_positions_are_one_for_each_object():
    with pytest.raises(UsageError, match="positions=1"):
        SMALL[0].signs(np.arange(3), np.array([1]))
