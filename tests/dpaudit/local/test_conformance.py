"""Every built-in local mechanism passes the public check, and broken ones do not."""

import numpy as np
import pytest

from dpaudit import registry
from dpaudit.local.randomized_response import RandomizedResponse
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_local_mechanism

SMALL = {
    "count-mean-sketch": {"epsilon": 2.0, "m": 16, "functions": 8},
    "count-median-sketch": {},
    "hadamard-sketch": {"epsilon": 2.0, "m": 16, "functions": 8},
    "identity": {},
    "one-bit-histogram": {"epsilon": 1.0, "positions": 12},
    "randomized-response": {"epsilon": 1.5, "categories": 12},
    "rappor": {},
}


@pytest.mark.parametrize("name", list(registry.plugins("local")))
def test_built_in_local_mechanisms_conform(name):
    check_local_mechanism(registry.load("local", name)(**SMALL[name]), universe=12)


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
