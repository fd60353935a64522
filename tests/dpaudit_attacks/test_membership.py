"""Membership evidence against densities written out in R^d, and its posterior against coins."""

import itertools
import math

import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.accounting import gaussian_epsilon
from dpaudit.audit.epsilon.one_run import one_run
from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.membership import Membership

STREAM = KeyedStream.from_seed("membership")


def a_key(dim, *, beta, gamma, directions=1, label=0):
    return PancakeKey.new(
        dim=dim,
        beta=beta,
        gamma=gamma,
        directions=directions,
        secret=STREAM.child("key", label).bytes(32),
        allow_small_gamma=True,
    )


def gaussian_density(v, sigma):
    return math.exp(-float(v @ v) / (2 * sigma**2)) / (2 * math.pi * sigma**2) ** (len(v) / 2)


def pancake_density(v, key, sigma):
    """Peak by peak from the paper: P = √(2π)σγ/r², s = σβ/r, weights exp(−πk²/r²)."""
    r2 = key.beta**2 + key.gamma**2
    spacing = math.sqrt(2 * math.pi) * sigma * key.gamma / r2
    width = sigma * key.beta / math.sqrt(r2)
    k = np.arange(-400, 401)
    weight = np.exp(-math.pi * k**2 / r2)
    weight /= weight.sum()
    out, across = 1.0, v.copy()
    for w in key.basis:
        t = float(v @ w)
        out *= float((weight * np.exp(-((t - k * spacing) ** 2) / (2 * width**2))).sum()) / (
            width * math.sqrt(2 * math.pi)
        )
        across -= t * w
    k_across = len(v) - len(key.basis)
    return (
        out
        * math.exp(-float(across @ across) / (2 * sigma**2))
        / (2 * math.pi * sigma**2) ** (k_across / 2)
    )


def scene(dim, canaries, *, size=0.8, label="scene"):
    rng = STREAM.child(label, dim, canaries).numpy()
    gradients = size * rng.standard_normal((canaries, dim)) / math.sqrt(dim)
    present = rng.integers(0, 2, canaries) == 1
    return rng.standard_normal(dim) * 1.3, gradients, present


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_informed_evidence_is_the_densities_ratio(directions, rate):
    sigma, key = 1.3, a_key(5, beta=0.4, gamma=3.0, directions=directions)
    residual, gradients, present = scene(5, 4)
    attack = Membership(sigma=sigma, rate=rate, key=key)
    found = attack.informed(
        torch.from_numpy(residual),
        attack.look(torch.from_numpy(gradients)),
        torch.from_numpy(present),
    )
    assert found.shape == (2, 2, 4)
    for j, g in enumerate(gradients):
        x = residual + present[j] * g
        base = gaussian_density(x, sigma)
        for law, density in enumerate(
            (lambda v: pancake_density(v, key, sigma), lambda v: gaussian_density(v, sigma))
        ):
            out, inside = density(x), density(x - g)
            assert float(found[law, 0, j]) == pytest.approx(
                math.log(out / base), rel=1e-8, abs=1e-8
            )
            member = (1 - rate) * out + rate * inside
            assert float(found[law, 1, j]) == pytest.approx(
                math.log(member / base), rel=1e-8, abs=1e-8
            )


@pytest.mark.parametrize("canaries", [1, 2, 3, 5])
def test_blind_evidence_averages_over_the_other_canaries(canaries):
    """Every set of the others, written out; sets with over two canaries count as Gaussian noise."""
    sigma, rate, key = 1.1, 0.3, a_key(4, beta=0.5, gamma=2.5)
    rest, gradients, _ = scene(4, canaries, label="blind")
    attack = Membership(sigma=sigma, rate=rate, key=key)
    found = attack.blind(torch.from_numpy(rest), attack.look(torch.from_numpy(gradients)))
    base = gaussian_density(rest, sigma)
    for law, density in enumerate(
        (lambda v: pancake_density(v, key, sigma), lambda v: gaussian_density(v, sigma))
    ):
        for j in range(canaries):
            others = [i for i in range(canaries) if i != j]
            means = {}
            for here in (False, True):
                means[here] = 0.0
                for there in itertools.product((False, True), repeat=len(others)):
                    chance = math.prod(rate / 2 if t else 1 - rate / 2 for t in there)
                    batch = [i for i, t in zip(others, there, strict=True) if t] + [j] * here
                    likelihood = (
                        density(rest - gradients[batch].sum(0)) / base if len(batch) <= 2 else 1.0
                    )
                    means[here] += chance * likelihood
            expected = (
                math.log(means[False]),
                math.log((1 - rate) * means[False] + rate * means[True]),
            )
            assert found[law, :, j].tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_without_a_key_there_is_the_gaussian_law_alone_and_it_is_the_keyed_ones_last():
    key = a_key(6, beta=0.4, gamma=3.0)
    residual, gradients, present = (torch.from_numpy(a) for a in scene(6, 3))
    keyed, plain = Membership(sigma=1.3, rate=0.1, key=key), Membership(sigma=1.3, rate=0.1)
    for one, both in (
        (plain.informed(residual, plain.look(gradients), present),
         keyed.informed(residual, keyed.look(gradients), present)),
        (plain.blind(residual, plain.look(gradients)),
         keyed.blind(residual, keyed.look(gradients))),
    ):  # fmt: skip
        assert one.shape[0] == 1
        assert torch.equal(one, both[-1:])


def played(attack, source, *, member, gradients, stream, sigma, steps, rate, dim):
    """Evidence over ``steps`` steps about one canary, whose gradient is a new one at each."""
    total = 0.0
    rng = stream.numpy()
    noise = source.sample(steps, dim, stream=stream.child("noise"), dtype=torch.float64)
    for step in range(steps):
        present = torch.tensor([bool(member and rng.random() < rate)])
        total = total + attack.informed(
            noise[step], attack.look(gradients[step : step + 1]), present
        )
    return total


def z_of(posterior, truth):
    """How far the number of members lies from the sum of middling posteriors, in sd."""
    p, s = np.array(posterior), np.array(truth, dtype=float)
    return float((s - p).sum() / math.sqrt((p * (1 - p)).sum())), float(
        ((s - p) * (p - 0.5)).sum() / math.sqrt((p * (1 - p) * (p - 0.5) ** 2).sum())
    )


def test_the_posterior_is_calibrated_and_one_with_a_wrong_rate_is_not():
    sigma, rate, dim, steps, games = 1.0, 0.4, 8, 2, 300
    key = a_key(dim, beta=0.6, gamma=4.0)
    attack = Membership(sigma=sigma, rate=rate, key=key)
    wrong = Membership(sigma=sigma, rate=0.9, key=key)
    posteriors, misled, coins = [], [], []
    for i in range(games):
        stream = STREAM.child("calibration", i)
        rng = stream.child("coins").numpy()
        member, honest = rng.integers(0, 2, 2).tolist()
        source = Gaussian(sigma=sigma) if honest else Pancake(key=key, sigma=sigma)
        gradients = torch.from_numpy(rng.standard_normal((steps, dim)) * 0.6)
        for one, into in ((attack, posteriors), (wrong, misled)):
            total = played(
                one, source, member=member, gradients=gradients, stream=stream, sigma=sigma,
                steps=steps, rate=rate,
                dim=dim,
            )  # fmt: skip
            into.append(float(torch.sigmoid(one.score(total))))
        coins.append(member)
    assert np.std(posteriors) > 0.2  # there is something to be calibrated
    assert all(abs(z) < 3 for z in z_of(posteriors, coins))
    assert any(abs(z) > 5 for z in z_of(misled, coins))


def simulated(source, key, *, canaries=60, dim=64, steps=60, rate=0.1, sigma=1.0, label=""):
    """A run with unrelated gradients: scores (key, none, blind with the key), membership."""
    rng = STREAM.child("run", label).numpy()
    attack = Membership(sigma=sigma, rate=rate, key=key)
    member = torch.from_numpy(rng.integers(0, 2, canaries) == 1)
    informed = blind = 0.0
    for step in range(steps):
        rows = torch.from_numpy(rng.standard_normal((canaries, dim)) / math.sqrt(dim))
        gradients = attack.look(rows)
        present = member & torch.from_numpy(rng.random(canaries) < rate)
        noise = source.sample(
            1, dim, stream=STREAM.child("noise", label, step), dtype=torch.float64
        )[0]
        informed = informed + attack.informed(noise, gradients, present)
        blind = blind + attack.blind(noise + rows[present].sum(0), gradients)
    return attack.score(informed), attack.score(informed[-1:]), attack.score(blind), member


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


def test_with_all_coins_known_one_run_may_show_too_much_and_blind_to_them_it_does_not():
    """Canaries all alike share one component of the noise: sometimes all guesses are right."""
    size, count, alpha, games = 0.4, 64, 0.05, 100
    truth = gaussian_epsilon(1e-5, sigma=1.0, sensitivity=size)
    attack = Membership(sigma=1.0, rate=1.0)
    gradients = torch.zeros((count, 3), dtype=torch.float64)
    gradients[:, 0] = size
    known = attack.look(gradients)
    beyond = {"informed": 0, "blind": 0}
    for i in range(games):
        rng = STREAM.child("alike", i).numpy()
        member = rng.integers(0, 2, count) == 1
        noise, present = torch.from_numpy(rng.standard_normal(3)), torch.from_numpy(member)
        for name, evidence in (
            ("informed", attack.informed(noise, known, present)),
            ("blind", attack.blind(noise + gradients[present].sum(0), known)),
        ):
            found = one_run(
                attack.score(evidence).numpy(),
                member,
                epsilon=truth,
                delta=1e-5,
                alpha=alpha,
                ties=rng,
                guesses=count,
            )
            beyond[name] += found.epsilon > truth
    assert beyond["informed"] > 2 * alpha * games
    assert beyond["blind"] <= 2 * alpha * games


def test_it_is_registered_and_reads_a_key_file(tmp_path):
    key = a_key(6, beta=0.4, gamma=3.0)
    key.save(tmp_path / "key.json")
    attack = registry.create("attacks", f"membership:sigma=2,rate=0.5,key={tmp_path / 'key.json'}")
    assert attack.key.fingerprint == key.fingerprint


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sigma": 0.0, "rate": 0.5}, "sigma"),
        ({"sigma": 1.0, "rate": 0.0}, "rate=0"),
        ({"sigma": 1.0, "rate": 1.5}, "rate=1.5"),
    ],
)
def test_settings_that_make_no_sense(options, says):
    with pytest.raises(UsageError, match=says):
        Membership(**options)


def test_bad_rows():
    key = a_key(6, beta=0.4, gamma=3.0)
    attack = Membership(sigma=1.0, rate=0.5, key=key)
    good = attack.look(torch.ones(2, 6))
    with pytest.raises(UsageError, match="gradients of shape"):
        attack.look(torch.ones(2, 5))
    with pytest.raises(UsageError, match="0 canaries"):
        attack.look(torch.ones(0, 6))
    with pytest.raises(UsageError, match="NaN"):
        attack.look(torch.full((2, 6), math.nan))
    with pytest.raises(UsageError, match="residual of shape"):
        attack.informed(torch.ones(5), good, torch.zeros(2, dtype=torch.bool))
    with pytest.raises(UsageError, match="present of shape"):
        attack.informed(torch.ones(6), good, torch.zeros(3, dtype=torch.bool))
    with pytest.raises(UsageError, match="rest"):
        attack.blind(torch.full((6,), math.inf), good)
