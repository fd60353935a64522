"""Equal reports as one object's: by other quadrature, and the exact sum over all injections."""

import itertools

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch
from dpaudit_local.pool_inference.evidence import evidence_for
from dpaudit_local.pool_inference.memoised import memoised_posterior
from dpaudit_local.pool_inference.posterior import pool_posterior
from dpaudit_local.pool_inference.settings import Pools

STREAM = KeyedStream.from_seed("memoised")
POOLS = Pools(6, (np.array([0, 1]), np.array([3])))
POPULARITY = np.array([0.3, 0.1, 0.2, 0.15, 0.05, 0.2])
SKETCH = CountMeanSketch(3.0, m=64, functions=5)


def behaviours(nodes=60):
    """Nodes and weights over (γ, δ) of two pools."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    g, d = (a.ravel() for a in np.meshgrid((x + 1) / 2, (x + 3) / 4))
    return g, d, np.outer(w, w).ravel()


def choices(i, g, d, popularity=POPULARITY):
    """Φ of each object where pool i is the preferred one, (universe, nodes)."""
    shares = [1 - g, *(g * d if j == i else g * (1 - d) for j in (1, 2))]
    return np.stack([shares[label] for label in POOLS.labels]) * POOLS.weights(popularity)[:, None]


@pytest.mark.parametrize("popularity", [None, POPULARITY], ids=["weak", "informed"])
def test_the_score_is_what_it_says(popularity):
    distinct = SKETCH.privatize(np.array([0, 3, 5]), stream=STREAM)
    which = np.array([0, 1, 0, 2, 0, 1, 0, 0, 0])
    probability = np.exp(SKETCH.log_likelihood(distinct, np.arange(6)))
    g, d, w = behaviours()

    def found(prefix, **options):
        known = POOLS, popularity, distinct[which]
        return memoised_posterior(SKETCH, *known, users=1, prefixes=(prefix,), **options)[0, 0]

    for prefix in (3, 9):
        scores = []
        for i in (1, 2):
            mean = prefix * choices(i, g, d, popularity)
            density = np.exp(-(1 - np.exp(-mean)).sum(axis=0))
            for r, c in enumerate(np.bincount(which[:prefix], minlength=3)):
                if c:
                    density *= probability[r] @ (np.exp(-mean) * mean**c)
            scores.append(density @ w)
        fine = found(prefix, cells=150)
        assert fine == pytest.approx(np.array(scores) / sum(scores), abs=1e-3)
        assert found(prefix) == pytest.approx(fine, abs=0.01)


@pytest.mark.slow
def test_near_the_sum_over_all_ways_to_tell_objects_apart():
    """The exact posterior of a device with memory, in a universe of six.

    By all injections of reports into objects. There the Poisson process is at its worst; who takes
    copies for fresh reports is twice as far off.
    """
    rng = STREAM.child("people").numpy()
    g, d, w = behaviours(16)
    apart, naive = [], []
    for user in range(16):
        phi = choices(1 + user % 2, rng.random(1), 0.5 + rng.random(1) / 2)[:, 0]
        objects = rng.choice(6, 12, p=phi / phi.sum())
        values, which, copies = np.unique(objects, return_inverse=True, return_counts=True)
        distinct = SKETCH.privatize(values, stream=STREAM.child("reports", user))
        probability = np.exp(SKETCH.log_likelihood(distinct, np.arange(6)))
        scores = []
        for i in (1, 2):
            chosen, density = choices(i, g, d), 0.0
            for way in itertools.permutations(range(6), len(values)):
                ways = enumerate(zip(way, copies, strict=True))
                density += np.prod([chosen[z] ** c * probability[r, z] for r, (z, c) in ways], 0)
            scores.append(density @ w)
        exact = np.array(scores) / sum(scores)
        all_copies, options = distinct[which], {"prefixes": (12,)}
        found = memoised_posterior(SKETCH, POOLS, POPULARITY, all_copies, users=1, **options)
        fresh = pool_posterior(evidence_for(SKETCH, POOLS, POPULARITY)(all_copies)[None], **options)
        apart.append(abs(found[0, 0, 0] - exact[0]))
        naive.append(abs(fresh[0, 0, 0] - exact[0]))
    assert np.mean(apart) < 0.1
    assert np.mean(apart) < 0.5 * np.mean(naive)


def test_users_do_not_mix():
    rng = STREAM.child("several").numpy()
    reports = SKETCH.privatize(np.arange(6), stream=STREAM)[rng.integers(0, 6, 5 * 8)]

    def posterior(some, **options):
        return memoised_posterior(SKETCH, POOLS, None, some, prefixes=(4, 8), **options)

    together = posterior(reports, users=5)
    for user in range(5):
        alone = posterior(reports[8 * user : 8 * user + 8], users=1)
        assert alone == pytest.approx(together[user : user + 1], abs=1e-12)


def test_long_repetition_neither_under_nor_overflows():
    distinct = SKETCH.privatize(np.array([3, 5]), stream=STREAM)
    reports = distinct[np.repeat([0, 1], [700, 300])]
    found = memoised_posterior(SKETCH, POOLS, POPULARITY, reports, users=1, prefixes=(7, 700, 1000))
    assert np.isfinite(found).all()
    assert found.sum(axis=2) == pytest.approx(1)


@pytest.mark.parametrize(("users", "prefixes"), [(4, (1,)), (0, (1,)), (3, ()), (3, (3,))])
def test_what_is_refused(users, prefixes):
    reports = SKETCH.privatize(np.arange(6), stream=STREAM)
    with pytest.raises(UsageError, match=r"divide|prefixes"):
        memoised_posterior(SKETCH, POOLS, None, reports, users=users, prefixes=prefixes)
