"""The conformance checks: built-ins pass; each check fails a plug-in that breaks its contract."""

from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.attacks import Support
from support.function_sampler import FunctionSampler

from dpaudit import registry
from dpaudit.noise.gaussian import Gaussian
from dpaudit.targets import open_sampler
from dpaudit.testing import (
    check_attack,
    check_host,
    check_learning_attack,
    check_mitigation,
    check_noise_source,
    check_releasing_source,
    check_support_attack,
    check_target,
)
from dpaudit_attacks.keyed_distinguisher import NearestPeak
from dpaudit_mitigations.none import NoMitigation


@pytest.mark.slow
@pytest.mark.parametrize("text", ["numpy:normal", "python:numpy.random:standard_normal"])
def test_built_in_samplers_conform(text):
    check_target(open_sampler(text, seed="1"))


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_built_in_can_be_loaded(kind):
    for name in registry.plugins(kind):
        found = registry.load(kind, name)
        found = {"measures": lambda m: m.run, "experiments": files}.get(kind, lambda f: f)(found)
        assert callable(found) or (found / "specs").is_dir()


class Deaf(Gaussian):
    """Ignores its stream."""

    def sample(self, n, d, *, stream, dtype=None, device=None):
        return np.full((n, d), self.sigma)


class Loud(Gaussian):
    """Twice the noise that it claims."""

    def sample(self, *args, **options):
        return super().sample(*args, **options) * 2


class InPlace(NoMitigation):
    def release(self, query, source, *, stream):
        query += super().release(np.zeros_like(query), source, stream=stream)
        return query


class Understated(NoMitigation):
    def scale(self, sigma):
        return sigma / 2


class Far:
    dim, sensitivity = 3, 1.0

    def neighbours(self, n, *, stream):
        return np.stack([np.zeros((n, 3)), np.ones((n, 3))], 1)

    def differences(self, direction):
        return direction


class Stuck(Deaf):
    def release(self, query, *, stream):
        return query + 1


class First(NearestPeak):
    def score(self, releases, candidates):
        return super().score(releases, candidates) + np.array([1.0, 0.0, 0.0])


CROWD = SimpleNamespace(
    timed=False, learn=lambda *_, neighbours: lambda x: x[:, 0] - x[:, 0].mean()
)


VALUE = np.array([0.25, 1.5])
APART = {"neighbours": (np.zeros(1), np.ones(1))}


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (lambda key: check_noise_source(Deaf()), "same noise"),
        (lambda key: check_noise_source(Loud()), "scale is"),
        (lambda key: check_mitigation(InPlace(), Gaussian()), "in place"),
        (lambda key: check_mitigation(Understated(), Gaussian()), "scale says"),
        (lambda key: check_attack(First(key=key, sigma=1.0), dim=64), "order"),
        (lambda key: check_host(Far()), "above Δ"),
        (
            lambda key: check_target(FunctionSampler(lambda n, d: np.ones((n, d)))),
            "same values",
        ),
        (lambda key: check_target(SimpleNamespace(name="old", draw=None)), r"draw.* is now ask"),
        (lambda key: check_learning_attack(CROWD, *two_neighbours(0), **APART), "other releases"),
        (
            lambda key: check_releasing_source(Stuck(), torch.zeros(2, 3, dtype=torch.float64)),
            "another stream",
        ),
    ],
)
def test_a_plug_in_that_breaks_its_contract_fails(check, says, make_key):
    with pytest.raises(AssertionError, match=says):
        check(make_key())


SUPPORT = {
    "reach": VALUE + np.random.default_rng(1).standard_normal((400, 2)),
    "reach:dtype=float32": np.float64(
        VALUE.astype(np.float32) + np.random.default_rng(1).standard_normal((400, 2), np.float32)
    ),
    "laplace-support:sampler=numpy": VALUE + np.random.default_rng(2).laplace(0.0, 1.0, (400, 2)),
    "pair-inversion:sampler=numpy-legacy": VALUE
    + np.random.RandomState(3).normal(0.0, 1.0, (400, 2)),
}


@pytest.mark.parametrize("name", SUPPORT)
def test_built_in_support_attacks_conform(name):
    check_support_attack(registry.create("attacks", name), SUPPORT[name], VALUE)


@pytest.mark.parametrize(
    ("attack", "says"),
    [
        (Support(lambda y, v: np.ones(len(y), bool)), "is not"),
        (Support(lambda y, v: np.ones(y.shape)), "other than 0"),
        (Support(lambda y, v: y < 3), "truth was ruled out by"),
        (Support(lambda y, v: np.isfinite(y) | True), "was not refused"),
        (SimpleNamespace(score=lambda y, v: np.zeros(y.shape)), "support in games"),
    ],
)
def test_bad_support_attacks_fail(attack, says):
    with pytest.raises(AssertionError, match=says):
        check_support_attack(attack, SUPPORT["reach"], VALUE)


def two_neighbours(columns):
    rng = np.random.default_rng(4)
    found = [v + rng.standard_normal((2000, 1)) for v in (0.0, 1.0)]
    return [np.hstack([x, *([1e-6 + 1e-7 * rng.random((2000, 1))] * columns)]) for x in found]


@pytest.mark.parametrize("name", ["bit-features", "timing"])
def test_built_in_learning_attacks_conform(name):
    attack = registry.create("attacks", name)
    check_learning_attack(attack, *two_neighbours(int(attack.timed)), **APART)


@pytest.mark.parametrize(
    "name", ["secure-gaussian", "discrete-gaussian", "discrete-laplace", "snapping"]
)
def test_built_in_releasing_sources_conform(name):
    query = torch.arange(-20.0, 20.0, dtype=torch.float64).reshape(4, 10)
    check_releasing_source(registry.create("sources", name), query)
