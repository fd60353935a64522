"""Every built-in local mechanism passes the public check, and broken ones do not."""

import math

import numpy as np
import pytest

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.local.count_median_sketch import CountMedianSketch
from dpaudit.local.hadamard_sketch import HadamardSketch
from dpaudit.local.hashing import Sha256Hashes
from dpaudit.local.identity import Identity
from dpaudit.local.one_bit_histogram import OneBitHistogram
from dpaudit.local.randomized_response import RandomizedResponse
from dpaudit.local.rappor import Rappor
from dpaudit.local.second_coins import SecondCoins
from dpaudit.local.sequence_fragments import SequenceFragments
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_local_mechanism


def sha256(count, size, n):
    return Sha256Hashes(count, size, names=[f"w{i}" for i in range(n)])


TINY = {"letters": "ab", "fragment_width": 1, "fragment_count": 2, "puzzle_count": 2}
CONFORM = {
    "count-mean-sketch": CountMeanSketch(2.0, m=16, functions=8),
    "count-mean-sketch of Apple's size": CountMeanSketch(4.0),
    "count-mean-sketch, three-wise": CountMeanSketch(
        4.0, hashes="three-wise", m=256, functions=500
    ),
    "count-mean-sketch, sha256": CountMeanSketch(2.0, hashes=sha256(100, 1024, 20)),
    "count-median-sketch": CountMedianSketch(),
    "count-median-sketch, small": CountMedianSketch(2.0, m=64, functions=16),
    "hadamard-sketch": HadamardSketch(2.0, m=16, functions=8),
    "hadamard-sketch of Apple's size": HadamardSketch(4.0),
    "hadamard-sketch, three-wise": HadamardSketch(2.0, hashes="three-wise"),
    "identity": Identity(),
    "one-bit-histogram": OneBitHistogram(1.0, positions=12),
    "randomized-response": RandomizedResponse(1.5, categories=12),
    "rappor": Rappor(),
    "second coins": SecondCoins(CountMeanSketch(2.0, m=16, functions=8), epsilon=2.0),
    "sequence fragments": SequenceFragments(1.0, m=8, functions=2, seed=3, **TINY),
}


@pytest.mark.parametrize("name", CONFORM)
def test_built_in_local_mechanisms_conform(name):
    check_local_mechanism(CONFORM[name], universe=9 if name == "sequence fragments" else 12)


def test_all_that_is_registered_is_among_them():
    assert set(registry.plugins("local")) <= set(CONFORM)


class Understated(RandomizedResponse):
    """Says less than it is."""

    epsilon = 1.0


class Deaf(RandomizedResponse):
    """The same report whatever the stream."""

    def privatize(self, objects, *, stream):
        return super().privatize(objects, stream=type(stream).from_seed(0))


class Otherwise(RandomizedResponse):
    """Samples with another ε than it says its likelihood is of."""

    def privatize(self, objects, *, stream):
        return RandomizedResponse(1.2, categories=12).privatize(objects, stream=stream)


BROKEN = [(Understated, "above epsilon"), (Deaf, "another stream"), (Otherwise, "does not fit")]


@pytest.mark.parametrize(("broken", "why"), BROKEN)
def test_the_check_fails_what_is_broken(broken, why):
    with pytest.raises(AssertionError, match=why):
        check_local_mechanism(broken(1.5, categories=12), universe=12)


def test_reports_can_be_picked():
    reports = RandomizedResponse(1.5, categories=3).privatize(
        np.arange(3), stream=KeyedStream.from_seed(1)
    )
    assert len(reports[:2]) == len(reports[np.array([True, False, True])]) == 2


def test_without_privacy_the_report_is_the_object_and_a_copy(stream):
    """Only the object explains it."""
    objects = np.array([4, 0, 4])
    reports = Identity().privatize(objects, stream=stream)
    objects[0] = 9
    assert reports.category.tolist() == [4, 0, 4]
    assert Identity().epsilon == math.inf
    logs = Identity().log_likelihood(reports, np.array([0, 4]))
    assert logs.tolist() == [[-math.inf, 0.0], [0.0, -math.inf], [-math.inf, 0.0]]
    with pytest.raises(UsageError):
        Identity().privatize(np.array([-1]), stream=stream)
