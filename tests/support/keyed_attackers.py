"""Keyed attackers at two candidates, for the tests of mitigations and the bench of smoothing."""

import math

import torch

from dpaudit.accounting import peak_spacing, smoothed_pancake
from dpaudit.noise.pancake import Pancake
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio, NearestPeak

CHUNK = 500  # pairs at a time: 4096 coordinates stay below 100 MB


def informed(key, *, sigma, tau):
    """The optimal attacker on pancakes smoothed by N(0, (τσ)²): the resulting likelihood."""
    total, beta, gamma = smoothed_pancake(tau * sigma, sigma=sigma, beta=key.beta, gamma=key.gamma)
    return LikelihoodRatio(key=key.at(beta=beta, gamma=gamma, allow_small_gamma=True), sigma=total)


def attackers(key, *, sigma, tau):
    """Those who know the key: nearest peak, the pancake's likelihood, the smoothed pancake's."""
    return {
        "nearest-peak": NearestPeak(key=key, sigma=sigma),
        "likelihood": LikelihoodRatio(key=key, sigma=sigma),
        "informed": informed(key, sigma=sigma, tau=tau),
    }


def successes(mitigation, source, attacks, pairs, *, trials, stream):
    """How often each attack is right on pairs; ``pairs(n, stream)`` makes them, shape (n, 2, d)."""
    right = dict.fromkeys(attacks, 0)
    for at in range(0, trials, CHUNK):
        here = stream.child(at)
        q = pairs(min(CHUNK, trials - at), here.child("pairs"))
        truth = torch.from_numpy(here.child("truth").numpy().integers(0, 2, len(q)))
        y = mitigation.release(q[torch.arange(len(q)), truth], source, stream=here.child("release"))
        for name, attack in attacks.items():
            right[name] += int((attack.score(y, q).argmax(1) == truth).sum())
    return right


def along_key(key, distance):
    """Pairs that differ by ``distance`` along the key: the worst neighbours there can be."""
    step = torch.from_numpy(key.direction.copy()) * distance
    return lambda n, _: torch.stack([torch.zeros(key.dim, dtype=torch.float64), step]).expand(
        n, 2, key.dim
    )


def half_a_spacing(key, *, sigma):
    return 0.5 * peak_spacing(sigma=sigma, beta=key.beta, gamma=key.gamma)


def two_proportions(a, b, trials):
    """Two-sided p-value for equal success rates, by the pooled test's normal approximation."""
    pooled = (a + b) / (2 * trials)
    z = (a - b) / trials / math.sqrt(2 * pooled * (1 - pooled) / trials)
    return math.erfc(abs(z) / math.sqrt(2))


def guesses(release, key, *, trials, attacks=(NearestPeak, LikelihoodRatio)):
    """How often each attack names the right one of two queries half a spacing apart.

    ``release(query, source)`` with a pancake at σ = 1.
    """
    q = along_key(key, half_a_spacing(key, sigma=1.0))(1, None)[0]
    truth = torch.arange(trials) % 2
    y = release(q[truth], Pancake(key=key, sigma=1.0))
    return [int((a(key=key, sigma=1.0).score(y, q).argmax(1) == truth).sum()) for a in attacks]
