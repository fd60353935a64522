"""The plug-in: the release's law, its worth to a key holder, and the real protocol's rehearsal."""

import math
from functools import partial

import numpy as np
import pytest
import scipy.stats
import torch
from support.keyed_attackers import guesses, half_a_spacing

from dpaudit.accounting import gaussian_epsilon
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.noise.snapping import Snapping
from dpaudit.numeric.exact_integers import IntegerLaw, draw_integers
from dpaudit.numeric.lattice import lattice_step
from dpaudit.queries.histogram import Histogram
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson
from dpaudit_mitigations.two_servers.mitigation import TwoServers, key_holder_epsilon
from dpaudit_mitigations.two_servers.rehearsal import rehearse


@pytest.mark.parametrize("backdoored", ["answer", "noise", "both"])
def test_one_honest_server_is_enough_and_two_that_share_a_key_hide_nothing(
    backdoored, make_key, stream
):
    # the attacker's likelihood is for the source's own noise: with a key only the phase counts
    key, mitigation = make_key(beta=1e-3), TwoServers(backdoored=backdoored)
    found = guesses(partial(mitigation.release, stream=stream), key, trials=2000)
    honest = scipy.stats.norm.cdf(half_a_spacing(key, sigma=1.0) / 2 / mitigation.scale(1.0))
    for got in found:
        interval = clopper_pearson(got, 2000, confidence=0.999)
        assert (got > 1990) if backdoored == "both" else interval.low <= honest
        assert interval.high >= 0.5


def test_every_release_is_on_the_lattice_and_its_steps_are_the_sum(stream):
    """By definition: K + round(source/g) + exact integers, all from the streams that it names."""
    query = torch.from_numpy(stream.child("q").numpy().standard_normal((3, 50)) * 100)
    source, g = Gaussian(sigma=2.0), lattice_step(1.0)
    released = TwoServers(ratio=0.5).release(query, source, stream=stream)
    theirs = source.sample(3, 50, stream=stream.child("answer"))
    own = draw_integers(150, IntegerLaw.gaussian(1.0 / g), stream=stream.child("noise")).reshape(
        3, 50
    )
    for got, q, v, z in zip(
        released.flatten(), query.flatten(), theirs.ravel(), own.ravel(), strict=True
    ):
        assert float(got) == (round(float(q) / g) + round(float(v) / g) + int(z)) * g


def test_a_releasing_source_is_asked_for_noise_alone(stream):
    """With the query, snapping would clamp it to its bound; so noise and query stay separate."""
    source = Snapping(epsilon=1.0, sensitivity=1.0, bound=64.0)
    query = torch.full((200, 4), 1024.0, dtype=torch.float64)
    released = TwoServers().release(query, source, stream=stream)
    noise = TwoServers().release(torch.zeros_like(query), source, stream=stream)
    assert torch.equal(released, query + noise)


@pytest.mark.slow
def test_epsilon(make_key):
    host, delta = Histogram(), 1e-10
    key = make_key(dim=host.dim, beta=1e-4)
    pancake, honest = Pancake(key=key, sigma=22.4), Gaussian(sigma=22.4)
    both, one = (
        gaussian_epsilon(delta, sigma=22.4 * f, sensitivity=host.sensitivity)
        for f in (math.sqrt(2), 1.0)
    )
    for source in (honest, SecureGaussian(sigma=22.4)):
        bounds = TwoServers().epsilon(source, delta, host=host)
        assert bounds.low <= both <= bounds.high < bounds.low * 1.001
    for backdoored in ("answer", "noise"):
        bounds = TwoServers(backdoored=backdoored).epsilon(pancake, delta, host=host)
        assert both * 0.999 <= bounds.low <= bounds.high <= one * 1.001
        skewed = TwoServers(backdoored=backdoored, ratio=4.0).epsilon(pancake, delta, host=host)
        least = gaussian_epsilon(delta, sigma=22.4 * math.sqrt(17), sensitivity=host.sensitivity)
        assert least * 0.999 <= skewed.low <= skewed.high
        assert skewed.high < bounds.high
    alone = pancake.epsilon(delta, host=host)
    two = TwoServers(backdoored="both").epsilon(pancake, delta, host=host)
    # peaks √2 wider: the loss is halved
    assert 0.49 * alone.low < two.low <= two.high < 0.51 * alone.low
    unknown = TwoServers(backdoored="both", ratio=2.0).epsilon(pancake, delta, host=host)
    assert (unknown.low, unknown.high) == (0.0, alone.high)


@pytest.mark.slow
def test_little_honest_noise_is_little_protection(make_key):
    """A coarse pancake (γ = 1): the profile is between both Gaussians', far from the lower one."""
    host = Histogram()
    key = make_key(dim=host.dim, beta=1e-4, gamma=1.0, allow_small_gamma=True)
    source = Pancake(key=key, sigma=22.4)
    bounds = TwoServers(ratio=0.125).epsilon(source, 1e-10, host=host)
    both, one = (
        gaussian_epsilon(1e-10, sigma=22.4 * f, sensitivity=host.sensitivity)
        for f in (math.hypot(1, 0.125), 0.125)
    )
    assert both < bounds.low <= bounds.high <= one * 1.001


def test_of_an_unknown_source_the_honest_noise_is_what_counts():
    class Anything:
        sigma, dim, claim = 2.0, None, "gaussian:sigma=2"

        def epsilon(self, delta, *, host):
            from dpaudit.types import EpsilonBounds

            return EpsilonBounds(low=0.0, high=math.inf, says="unknown")

    bounds = key_holder_epsilon(
        Anything(), 1e-6, host=Histogram(), backdoored="answer", ratio=1.0, step=lattice_step(2.0)
    )
    assert bounds.low == 0
    assert bounds.high == pytest.approx(
        gaussian_epsilon(1e-6, sigma=2.0, sensitivity=1.0), rel=1e-3
    )


@pytest.mark.parametrize("backdoored", ["answer", "noise", "both"])
def test_rehearsal_publishes_the_sum(backdoored, make_key, stream):
    """Every step of the publication from both streams, with one backdoored server or two."""
    source = Pancake(key=make_key(dim=64), sigma=2.0)
    query = torch.arange(64, dtype=torch.float64) - 20.5
    done = rehearse(query, source, backdoored=backdoored, ratio=1.0, stream=stream)
    g = 2.0 ** (math.ceil(math.log2(2 * 16 * 2.0 + 42.5)) - 30)
    total = np.rint(query.numpy() / g)
    law = IntegerLaw.gaussian(2.0 / g)
    answer = KeyedStream(stream.child("answer").entropy()).child("rehearsal@0")
    for server, own in (("answer", answer), ("noise", stream.child("noise"))):
        if backdoored in (server, "both"):
            total += np.rint(source.sample(1, 64, stream=own)[0] / g)
        else:
            total += draw_integers(64, law, stream=own.child("chunk", 0))
    assert done.published.tolist() == (total * g).tolist()
    assert 64 * 4 < done.figures.wire < 2000
    assert set(done.figures.seconds) >= {"total", "release", "server 1's noise", "server 2's noise"}
    assert done.figures.seconds["total"] >= done.figures.seconds["release"] > 0


def test_the_wire_is_four_bytes_a_coordinate(stream):
    d = 600_000
    figures = TwoServers().rehearse(torch.zeros(1, d), SecureGaussian(sigma=2.0), stream=stream)
    assert 4 * d < figures.wire < 4 * d * 1.05


def test_only_a_pancakes_key_is_a_pancakes_key(make_key):
    """Noise that carries its own seed may have a pancake's key; only the secret matters."""
    source = SeedInNoise(key=make_key(), sigma=22.34)
    found = TwoServers().epsilon(source, 1e-10, host=Histogram())
    assert (found.low, round(found.high, 3)) == (0.0, 0.25)
    assert TwoServers(backdoored="both").epsilon(source, 1e-10, host=Histogram()).high == math.inf
