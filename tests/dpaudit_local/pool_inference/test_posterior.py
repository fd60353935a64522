"""Posteriors against direct sums over all objects, closed forms and other quadrature."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch
from dpaudit_local.pool_inference.evidence import evidence_for
from dpaudit_local.pool_inference.posterior import (
    count_posterior,
    default_nodes,
    exact_nodes,
    pool_posterior,
    unlinked_posterior,
)
from dpaudit_local.pool_inference.settings import Pools


def tanh_sinh(step, low, high):
    """Nodes and weights of the double exponential rule on (low, high), not Gauss–Legendre's."""
    t = np.arange(-3.1, 3.1, step)
    x = 0.5 + 0.5 * np.tanh(np.pi / 2 * np.sinh(t))
    w = step * np.pi / 4 * np.cosh(t) / np.cosh(np.pi / 2 * np.sinh(t)) ** 2
    return low + (high - low) * x, (high - low) * w


def representation(pools, popularity, i, gamma, delta):
    """Equation 2: the assumed probability of each object, (universe, nodes)."""
    phi = np.zeros((pools.universe, gamma.size))
    shares = [1 - gamma, *[gamma * (1 - delta) / (pools.k - 1)] * pools.k]
    shares[i] = gamma * delta
    for share, group in zip(shares, (pools.neutral, *pools.members), strict=True):
        phi[group] = popularity[group, None] / popularity[group].sum() * share
    return phi


def report_probabilities(mechanism, reports, universe):
    """Equation 5 by Hamming distances: ln P(bits | object), (n, universe)."""
    bits = np.unpackbits(reports.bits, axis=1, bitorder="little", count=mechanism.m)
    logs = np.empty((len(bits), universe))
    right, wrong = np.log1p(-mechanism.flip), np.log(mechanism.flip)
    for t, (function, vector) in enumerate(zip(reports.function, bits, strict=True)):
        places = mechanism.hashes.positions(np.arange(universe), int(function))
        distance = (np.eye(mechanism.m, dtype=np.uint8)[places] != vector).sum(axis=1)
        logs[t] = distance * wrong + (mechanism.m - distance) * right
    return logs


def direct_posterior(logs, pools, popularity, *, step):
    """Equation 4 as it stands, a sum over all objects at each node of (γ, δ), in logarithms."""
    (g, wg), (d, wd) = tanh_sinh(step, 0, 1), tanh_sinh(step, 1 / pools.k, 1)
    gamma, delta = (a.ravel() for a in np.meshgrid(g, d, indexing="ij"))
    p = np.exp(logs - logs.max(axis=1, keepdims=True))
    laws = [representation(pools, popularity, 1 + i, gamma, delta) for i in range(pools.k)]
    sums = np.array([np.log(p @ law).sum(axis=0) for law in laws])
    score = np.exp(sums - sums.max()) @ np.outer(wg, wd).ravel()
    return score / score.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("m", "epsilon", "universe", "n", "users", "step"),
    [(64, 2.0, 30, 60, 6, 0.06), (1024, 4.0, 50, 180, 1, 0.035)],
)
def test_posterior_is_the_direct_sum_over_all_objects(m, epsilon, universe, n, users, step):
    stream = KeyedStream.from_seed(f"oracle {m} {n}")
    rng = stream.numpy()
    order = rng.permutation(universe)
    pools = Pools(universe, (order[:4], order[4:6], order[6:13]))
    popularity = rng.random(universe)
    mechanism = CountMeanSketch(epsilon, m=m, functions=50)
    evidence, prefixes = evidence_for(mechanism, pools, popularity), (n // 3, n)
    for user in range(users):
        behaviour = rng.random(1), 1 / 3 + rng.random(1) * 2 / 3
        phi = representation(pools, popularity, 1 + user % 3, *behaviour)[:, 0]
        objects = rng.choice(universe, n, p=phi / phi.sum())
        reports = mechanism.privatize(objects, stream=stream.child(user))
        logs = report_probabilities(mechanism, reports, universe)
        ours = pool_posterior(evidence(reports)[None], prefixes=prefixes)[0]
        for found, cut in zip(ours, prefixes, strict=True):
            direct = direct_posterior(logs[:cut], pools, popularity, step=step)
            assert np.abs(found - direct).max() < 1e-10


def one_hot(rng, users, n, k):
    shares = rng.dirichlet(np.ones(k + 1), users)
    picked = np.array([rng.choice(k + 1, n, p=share) for share in shares])
    return np.eye(k + 1)[picked]


def test_objects_in_the_clear_have_the_closed_form():
    evidence, prefixes = one_hot(np.random.default_rng(1), 40, 180, 5), (1, 7, 30, 90, 180)
    counts = evidence.cumsum(axis=1)[:, np.array(prefixes) - 1].astype(int)
    for options, error in (({}, 1e-9), ({"nodes": exact_nodes(180)}, 1e-12)):
        found = pool_posterior(evidence, prefixes=prefixes, **options)
        assert np.abs(found - count_posterior(counts)).max() < error


@pytest.mark.parametrize("counts", [[3, 0, 5, 9], [7, 1000, 0, 900], [1, 3000, 3000, 2990]])
def test_closed_form_deep_in_the_tail(counts):
    total = sum(counts[1:])
    with mpmath.workdps(40):
        scores = []
        # the integral is B(c + 1, N − c + 1) times the chance of at most c of N + 1 at 1 in 3
        for c in counts[1:]:
            term = chance = (mpmath.mpf(2) / 3) ** (total + 1)
            for j in range(c):
                term *= mpmath.mpf(total + 1 - j) / (j + 1) / 2
                chance += term
            scores.append(mpmath.mpf(2) ** c * mpmath.beta(c + 1, total - c + 1) * chance)
        wanted = [float(s / sum(scores)) for s in scores]
        logs = [float(mpmath.log(s / sum(scores))) for s in scores]
    found = count_posterior(np.array(counts))
    assert found == pytest.approx(wanted, abs=1e-12)
    kept = np.array(logs) > -600
    assert np.log(found[kept]) == pytest.approx(np.array(logs)[kept], rel=1e-9, abs=1e-9)


def test_nothing_under_or_overflows():
    rng = np.random.default_rng(2)
    evidence = rng.gamma(0.3, size=(1, 5000, 4)) + 1e-9
    scaled = evidence * 10.0 ** rng.uniform(-290, 290, size=(1, 5000, 1))
    found = pool_posterior(scaled, prefixes=(4999, 5000))
    assert np.isfinite(found).all()
    assert found == pytest.approx(pool_posterior(evidence, prefixes=(4999, 5000)), abs=1e-9)
    assert found.sum(axis=2) == pytest.approx(1)


def test_neutral_then_preferred_in_long_runs():
    """Nodes whose product is 10^-600 halfway and the largest at the end: own exponents."""
    evidence = np.zeros((1, 3000, 3))
    evidence[0, :1500, 0] = 1
    evidence[0, 1500:2300, 1] = 1
    evidence[0, 2300:, 2] = 1
    assert pool_posterior(evidence, prefixes=(1500, 3000))[0, 1] == pytest.approx(
        count_posterior(np.array([1500, 800, 700])), abs=1e-9
    )


@pytest.mark.parametrize("n", [30, 90, 180])
def test_default_nodes_are_as_good_as_exact_ones(n):
    rng = np.random.default_rng(3)
    hard = one_hot(rng, 20, n, 6) * rng.uniform(1, 3000, (20, n, 1)) + rng.uniform(
        0.5, 2, (20, n, 7)
    )
    assert default_nodes(n) < exact_nodes(n) or n == 30
    default = pool_posterior(hard, prefixes=(n,))
    assert np.abs(default - pool_posterior(hard, prefixes=(n,), nodes=exact_nodes(n))).max() < 1e-10


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(2, 9))
@settings(max_examples=30, deadline=None)
def test_pools_and_submissions_have_no_order(seed, n, k):
    rng = np.random.default_rng(seed)
    evidence = rng.gamma(0.5, size=(2, n, k + 1)) + 1e-12
    found = pool_posterior(evidence, prefixes=(n,))
    pools = rng.permutation(k)
    turned = evidence[:, rng.permutation(n)][:, :, np.concatenate([[0], 1 + pools])]
    assert pool_posterior(turned, prefixes=(n,)) == pytest.approx(found[:, :, pools], abs=1e-12)


def test_prefixes_threads_and_other_users_change_nothing():
    evidence = np.random.default_rng(5).random((600, 40, 5))
    both = pool_posterior(evidence, prefixes=(9, 40))
    assert np.array_equal(both, pool_posterior(evidence, prefixes=(9, 40), threads=1))
    assert np.array_equal(both[300:301], pool_posterior(evidence[300:301], prefixes=(9, 40)))
    assert both[:, 0] == pytest.approx(
        pool_posterior(evidence[:, :9], prefixes=(9,))[:, 0], abs=1e-12
    )


@pytest.mark.parametrize(
    ("evidence", "options"),
    [
        *((np.ones(shape), {}) for shape in ((2, 3), (2, 3, 2))),
        *((np.ones((2, 3, 3)), {"prefixes": p}) for p in ((), (2, 2), (0, 2), (4,))),
        *((value * np.ones((2, 3, 3)), {}) for value in (0, -1, np.nan)),
        (np.ones((2, 3, 3)), {"nodes": 0}),
    ],
)
def test_what_is_refused(evidence, options):
    with pytest.raises(UsageError, match=next(iter(options), "above 0|finite|evidence of shape")):
        pool_posterior(evidence, **{"prefixes": (3,), **options})


@pytest.mark.parametrize("counts", [[1, 2], [[1, -1, 2]], [0.5, 1.0, 2.0]])
def test_counts_that_are_none(counts):
    with pytest.raises(UsageError, match="counts"):
        count_posterior(np.array(counts))


def test_one_submission_alone_and_impossible_pools():
    evidence = np.random.default_rng(6).random((50, 5))
    neutral, pools = evidence[:, :1], evidence[:, 1:]
    score = neutral / 2 + pools.mean(axis=1, keepdims=True) / 4 + pools / 4
    wanted = score / score.sum(axis=1, keepdims=True)
    assert unlinked_posterior(evidence) == pytest.approx(wanted, abs=1e-14)
    none = np.array([[[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]])
    wanted = count_posterior(np.array([0, 2, 0]))
    assert pool_posterior(none, prefixes=(2,))[0, 0] == pytest.approx(wanted)
