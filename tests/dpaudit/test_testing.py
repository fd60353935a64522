"""The conformance checks: every built-in passes its own, and each check fails a plug-in that breaks its contract."""

import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.noise.gaussian import Gaussian
from dpaudit.samplers import open_sampler
from dpaudit.testing import (
    check_attack,
    check_closed_sampler,
    check_host,
    check_mitigation,
    check_noise_source,
)
from dpaudit_attacks.keyed_distinguisher import NearestPeak
from dpaudit_mitigations.none import NoMitigation


@pytest.mark.parametrize("text", ["gaussian", "box-muller-f32", "python:numpy.random:standard_normal"])
def test_built_in_samplers_conform(text):
    check_closed_sampler(open_sampler(text, seed="1"))


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_built_in_can_be_loaded(kind):
    for name in registry.plugins(kind):
        assert callable(registry.load(kind, name))


class Deaf(Gaussian):
    """Does not listen to its stream."""

    def sample(self, n, d, *, stream, dtype=None, device=None):
        return torch.ones(n, d, dtype=dtype or torch.float64) * self.sigma


class Loud(Gaussian):
    """Twice the noise that it says."""

    def sample(self, *args, **options):
        return super().sample(*args, **options) * 2


@pytest.mark.parametrize(("source", "says"), [(Deaf(), "same noise"), (Loud(), "scale is")])
def test_bad_sources_fail(source, says):
    with pytest.raises(AssertionError, match=says):
        check_noise_source(source)


class InPlace(NoMitigation):
    def release(self, query, source, *, stream):
        return query.add_(super().release(torch.zeros_like(query), source, stream=stream))


class Understated(NoMitigation):
    def scale(self, sigma):
        return sigma / 2


@pytest.mark.parametrize(("mitigation", "says"), [(InPlace(), "in place"), (Understated(), "scale says")])
def test_bad_mitigations_fail(mitigation, says):
    with pytest.raises(AssertionError, match=says):
        check_mitigation(mitigation, Gaussian())


def test_bad_attacks_fail(make_key):
    class First(NearestPeak):
        def score(self, releases, candidates):
            return super().score(releases, candidates) + torch.tensor([1.0, 0.0, 0.0])

    with pytest.raises(AssertionError, match="order"):
        check_attack(First(key=make_key(), sigma=1.0), dim=64)


def test_bad_hosts_fail():
    class Far:
        dim, sensitivity = 3, 1.0

        def neighbours(self, n, *, stream):
            return torch.stack([torch.zeros(n, 3), torch.ones(n, 3)], 1).double()

        def differences(self, direction):
            return direction

    with pytest.raises(AssertionError, match="above Δ"):
        check_host(Far())


def test_bad_samplers_fail(function_sampler):
    with pytest.raises(AssertionError, match="same values"):
        check_closed_sampler(function_sampler(lambda n, d: np.ones((n, d))))
