"""Membership evidence against densities written out in R^d, and its posterior against coins."""

import itertools
import math

import numpy as np
import pytest
import torch

from dpaudit.accounting import gaussian_epsilon
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.one_run import one_run
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.protocols import Canaries, KnownBatch
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.membership import Membership

STREAM = KeyedStream.from_seed("membership")


def a_key(dim, *, beta, gamma, directions=1):
    secret = STREAM.child("key", 0).bytes(32)
    options = {"secret": secret, "directions": directions, "allow_small_gamma": True}
    return PancakeKey.new(dim=dim, beta=beta, gamma=gamma, **options)


def gaussian_density(v, sigma):
    return math.exp(-float(v @ v) / (2 * sigma**2)) / (2 * math.pi * sigma**2) ** (len(v) / 2)


def pancake_density(v, key, sigma):
    """Peak by peak from the paper: P = √(2π)σγ/r², s = σβ/r, weights exp(−πk²/r²)."""
    r2 = key.beta**2 + key.gamma**2
    spacing = math.sqrt(2 * math.pi) * sigma * key.gamma / r2
    width = sigma * key.beta / math.sqrt(r2)
    k = np.arange(-400, 401)
    weight = np.exp(-math.pi * k**2 / r2)
    weight /= weight.sum() * width * math.sqrt(2 * math.pi)
    along = key.basis @ v
    peaks = [(weight * np.exp(-((t - k * spacing) ** 2) / (2 * width**2))).sum() for t in along]
    wide = (2 * math.pi * sigma**2) ** ((len(v) - len(along)) / 2)
    across = v - along @ key.basis
    return math.prod(map(float, peaks)) * math.exp(-float(across @ across) / 2 / sigma**2) / wide


def scene(dim, canaries, *, size=0.8, label="scene"):
    rng = STREAM.child(label, dim, canaries).numpy()
    gradients = size * rng.standard_normal((canaries, dim)) / math.sqrt(dim)
    present = rng.integers(0, 2, canaries) == 1
    return rng.standard_normal(dim) * 1.3, gradients, present


def laws(key, sigma):
    """The densities of the pancake and of Gaussian noise."""
    return (lambda v: pancake_density(v, key, sigma), lambda v: gaussian_density(v, sigma))


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_informed_evidence_is_the_densities_ratio(directions, rate):
    sigma, key = 1.3, a_key(5, beta=0.4, gamma=3.0, directions=directions)
    residual, gradients, present = scene(5, 4)
    attack = Membership(sigma=sigma, rate=rate, key=key)
    rest, coins, known = (torch.from_numpy(a) for a in (residual, present, gradients))
    found = attack.score(KnownBatch(rest, coins), Canaries(known))
    assert found.shape == (2, 2, 4)
    for j, g in enumerate(gradients):
        x = residual + present[j] * g
        base = gaussian_density(x, sigma)
        for law, density in enumerate(laws(key, sigma)):
            out, inside = density(x) / base, density(x - g) / base
            wanted = math.log(out), math.log((1 - rate) * out + rate * inside)
            assert found[law, :, j].tolist() == pytest.approx(wanted, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("canaries", [1, 2, 3, 5])
def test_blind_evidence_averages_over_the_other_canaries(canaries):
    """Every set of the others, written out; sets with over two canaries count as Gaussian noise."""
    sigma, rate, key = 1.1, 0.3, a_key(4, beta=0.5, gamma=2.5)
    rest, gradients, _ = scene(4, canaries, label="blind")
    attack = Membership(sigma=sigma, rate=rate, key=key)
    found = attack.score(torch.from_numpy(rest), Canaries(torch.from_numpy(gradients)))
    base = gaussian_density(rest, sigma)
    for (law, density), j in itertools.product(enumerate(laws(key, sigma)), range(canaries)):
        others, means = [i for i in range(canaries) if i != j], [0.0, 0.0]
        for here, *there in itertools.product((False, True), repeat=canaries):
            batch = [i for i, t in zip(others, there, strict=True) if t] + [j] * here
            x = rest - gradients[batch].sum(0)
            likelihood = density(x) / base if len(batch) <= 2 else 1.0
            means[here] += math.prod(rate / 2 if t else 1 - rate / 2 for t in there) * likelihood
        wanted = math.log(means[0]), math.log((1 - rate) * means[0] + rate * means[1])
        assert found[law, :, j].tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_without_a_key_there_is_the_gaussian_law_alone_and_it_is_the_keyed_ones_last():
    residual, gradients, present = (torch.from_numpy(a) for a in scene(6, 3))

    def evidence(key):
        attack = Membership(sigma=1.3, rate=0.1, key=key)
        canaries = Canaries(gradients)
        informed = attack.score(KnownBatch(residual, present), canaries)
        return informed, attack.score(residual, canaries)

    for one, both in zip(evidence(None), evidence(a_key(6, beta=0.4, gamma=3.0)), strict=True):
        assert one.shape[0] == 1
        assert torch.equal(one, both[-1:])


def played(attack, noise, gradients, inside):
    """Evidence over the steps about one canary, whose gradient is a new one at each."""
    return sum(
        attack.score(KnownBatch(z, torch.tensor([bool(there)])), Canaries(g[None]))
        for z, g, there in zip(noise, gradients, inside, strict=True)
    )


def z_of(posterior, truth):
    """How far the number of members lies from the sum of middling posteriors, in sd."""
    p, s = np.array(posterior), np.array(truth, dtype=float)
    return [
        float(((s - p) * w).sum() / math.sqrt((p * (1 - p) * w**2).sum()))
        for w in (np.ones(len(p)), p - 0.5)
    ]


@pytest.mark.slow
def test_the_posterior_is_calibrated_and_one_with_a_wrong_rate_is_not():
    sigma, rate, dim, steps, games = 1.0, 0.4, 8, 2, 300
    key = a_key(dim, beta=0.6, gamma=4.0)
    attacks = [Membership(sigma=sigma, rate=assumed, key=key) for assumed in (rate, 0.9)]
    posteriors, coins = ([], []), []
    for i in range(games):
        stream = STREAM.child("calibration", i)
        rng = stream.child("coins").numpy()
        member, honest = rng.integers(0, 2, 2).tolist()
        source = Gaussian(sigma=sigma) if honest else Pancake(key=key, sigma=sigma)
        gradients = torch.from_numpy(rng.standard_normal((steps, dim)) * 0.6)
        noise = source.sample(steps, dim, stream=stream.child("noise"), dtype=torch.float64)
        inside = (stream.numpy().random(steps) < rate) & bool(member)
        for attack, into in zip(attacks, posteriors, strict=True):
            total = played(attack, noise, gradients, inside)
            into.append(float(torch.sigmoid(attack.log_odds(total))))
        coins.append(member)
    assert np.std(posteriors[0]) > 0.2  # there is something to be calibrated
    assert all(abs(z) < 3 for z in z_of(posteriors[0], coins))
    assert any(abs(z) > 5 for z in z_of(posteriors[1], coins))


def simulated(source, key, *, canaries=60, dim=64, steps=60, rate=0.1, label=""):
    """A run with unrelated gradients: scores (key, none, blind with the key), membership."""
    rng = STREAM.child("run", label).numpy()
    attack = Membership(sigma=1.0, rate=rate, key=key)
    member = torch.from_numpy(rng.integers(0, 2, canaries) == 1)
    informed = blind = 0.0
    for step in range(steps):
        rows = torch.from_numpy(rng.standard_normal((canaries, dim)) / math.sqrt(dim))
        known = Canaries(rows)
        present = member & torch.from_numpy(rng.random(canaries) < rate)
        stream = STREAM.child("noise", label, step)
        noise = source.sample(1, dim, stream=stream, dtype=torch.float64)[0]
        informed = informed + attack.score(KnownBatch(noise, present), known)
        blind = blind + attack.score(noise + rows[present].sum(0), known)
    return *map(attack.log_odds, (informed, informed[-1:], blind)), member


def test_the_key_is_decisive_on_its_pancakes():
    key = a_key(64, beta=1e-4, gamma="2sqrtd")
    keyed, plain, blind, member = simulated(Pancake(key=key), key, canaries=20, label="pancake")
    assert keyed[member].min() > keyed[~member].max() + 3
    assert blind[member].min() > blind[~member].max()
    assert not plain[member].min() > plain[~member].max()


def test_a_key_to_noise_without_pancakes_gives_what_no_key_gives():
    key = a_key(64, beta=1e-4, gamma="2sqrtd")
    keyed, plain, _, member = simulated(Gaussian(), key, label="honest")
    assert torch.allclose(keyed, plain, atol=1e-9)
    assert member.any()


@pytest.mark.slow
def test_with_all_coins_known_one_run_may_show_too_much_and_blind_to_them_it_does_not():
    """Canaries all alike share one component of the noise: sometimes all guesses are right."""
    size, count, alpha, games = 0.4, 64, 0.05, 100
    truth = gaussian_epsilon(1e-5, sigma=1.0, sensitivity=size)
    attack = Membership(sigma=1.0, rate=1.0)
    gradients = torch.zeros((count, 3), dtype=torch.float64)
    gradients[:, 0] = size
    canaries, claim = Canaries(gradients), {"claim": PrivacyClaim(truth, 1e-5), "alpha": alpha}
    beyond = [0, 0]
    for i in range(games):
        rng = STREAM.child("alike", i).numpy()
        member = rng.integers(0, 2, count) == 1
        noise, present = torch.from_numpy(rng.standard_normal(3)), torch.from_numpy(member)
        informed = attack.score(KnownBatch(noise, present), canaries)
        blind = attack.score(noise + gradients[present].sum(0), canaries)
        for at, evidence in enumerate((informed, blind)):
            scores = attack.log_odds(evidence).numpy()
            beyond[at] += one_run(scores, member, ties=rng, guesses=count, **claim).epsilon > truth
    assert beyond[0] > 2 * alpha * games >= beyond[1]
