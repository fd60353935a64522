"""Every built-in local mechanism passes the public check, and broken ones do not."""

import dataclasses
import math

import numpy as np
import pytest

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_local_mechanism
from dpaudit_local.mechanisms.count_mean_sketch import (
    CountMeanServer,
    CountMeanSketch,
    CountMedianSketch,
)
from dpaudit_local.mechanisms.hadamard_sketch import HadamardServer, HadamardSketch
from dpaudit_local.mechanisms.one_bit_histogram import OneBitHistogram
from dpaudit_local.mechanisms.randomized_response import (
    Identity,
    RandomizedResponse,
    RandomizedResponseServer,
)
from dpaudit_local.mechanisms.rappor import Rappor, RapporServer
from dpaudit_local.seed_in_reports.bits import SecondCoins

CONFORM = {
    "count-mean-sketch": CountMeanSketch(2.0, m=16, functions=8),
    "count-mean-sketch of Apple's size": CountMeanSketch(4.0),
    "count-median-sketch": CountMedianSketch(),
    "count-median-sketch, small": CountMedianSketch(2.0, m=64, functions=16),
    "hadamard-sketch": HadamardSketch(2.0, m=16, functions=8),
    "hadamard-sketch of Apple's size": HadamardSketch(4.0),
    "identity": Identity(),
    "one-bit-histogram": OneBitHistogram(1.0, positions=12),
    "one-bit-histogram of signs": OneBitHistogram(1.0, positions=12, vector="signs", universe=12),
    "randomized-response": RandomizedResponse(1.5, categories=12),
    "rappor": Rappor(),
    "second coins": SecondCoins(CountMeanSketch(2.0, m=16, functions=8), epsilon=2.0),
}


@pytest.mark.parametrize("name", CONFORM)
def test_built_in_local_mechanisms_conform(name):
    check_local_mechanism(CONFORM[name], universe=12)


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


def fields(reports):
    return [getattr(reports, f.name) for f in dataclasses.fields(reports)]


@pytest.mark.parametrize("name", [name for name in CONFORM if name != "identity"])
def test_the_stream_decides_on_reports_and_objects_stay_as_they_are(name):
    """More objects than any chunk or block of words."""
    mechanism, stream = CONFORM[name], KeyedStream.from_seed("same")
    objects = np.arange(70_000, dtype=np.uint16) % 9
    before = objects.copy()
    one, two, other = (
        fields(mechanism.privatize(objects, stream=s)) for s in (stream, stream, stream.child(1))
    )
    assert all(map(np.array_equal, one, two))
    assert np.array_equal(objects, before)
    assert any((a != b).mean() > 0.3 for a, b in zip(one, other, strict=True))
    assert len(mechanism.privatize(np.zeros(0, np.int64), stream=stream)) == 0


@pytest.mark.parametrize("name", CONFORM)
def test_what_is_no_object_is_refused(name):
    for objects in ([-1], [0.5], [[1]], [True], ["a"]):
        with pytest.raises(UsageError, match="objects"):
            CONFORM[name].privatize(np.array(objects), stream=KeyedStream.from_seed(0))


SERVERS = {
    "count-mean-sketch": CountMeanServer,
    "count-median-sketch": CountMeanServer,
    "hadamard-sketch": HadamardServer,
    "randomized-response": RandomizedResponseServer,
    "rappor": RapporServer,
}


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


@pytest.mark.parametrize("name", SERVERS)
def test_servers_add_up_parts(name):
    kind, mechanism = SERVERS[name], CONFORM[name]
    reports = mechanism.privatize(np.arange(3000) % 12, stream=KeyedStream.from_seed("servers"))
    whole, parts = kind(mechanism), kind(mechanism)
    whole.add(reports)
    parts.add(reports[:1000])
    parts.add(reports[1000:])
    assert whole.reports == parts.reports == 3000
    shown = (
        (lambda s: s.shares()) if kind is RapporServer else (lambda s: s.estimate(np.arange(12)))
    )
    assert np.array_equal(shown(parts), shown(whole))
