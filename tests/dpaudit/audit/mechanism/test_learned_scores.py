"""Scores that classifiers learn: what they find, and that bounds hold."""

import numpy as np
import pytest
import scipy

from dpaudit.accounting import gaussian_epsilon
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.judge import Aim, judge, learn
from dpaudit.audit.mechanism.learned_scores import learned_scores
from dpaudit.audit.mechanism.run import audit_mechanism


def parity(rng, odd, n, *, bits=3, of=20):
    """Fair coins whose first few have an even sum, or an odd one."""
    x = rng.integers(0, 2, (n, of)).astype(float)
    x[:, 0] = (x[:, 1:bits].sum(1) + odd) % 2
    return x


def gated(rng, side, n):
    """Normals; where the first two are large, the third one has the sign of their product."""
    x = rng.standard_normal((n, 4))
    gate = (np.abs(x[:, :2]) > 0.5).all(axis=1)
    x[gate, 2] = np.abs(x[gate, 2]) * np.sign(x[gate, 0] * x[gate, 1]) * (1 if side else -1)
    return x


def audit(release, *, seconds, n=6_000, k=2, claim=1.0):
    neighbours, rng = (np.zeros(k), np.ones(k)), np.random.default_rng(5)
    options = {"aim": Aim(0.0, 0.01, real_numbers=True), "seconds": seconds}
    halves = release(0, n), release(1, n)
    learned = learn(*halves, neighbours=neighbours, rng=rng, **options)
    return judge(learned, release(0, n), release(1, n), claim=PrivacyClaim(claim, 0.0), alpha=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("made", [parity, gated])
def test_what_no_coordinate_shows_is_found_and_named(made):
    def release(side, n):
        return made(rng, side, n)

    rng = np.random.default_rng(3)
    assert audit(release, seconds=0).epsilon < 2
    found = audit(release, seconds=20)
    assert found.epsilon > 4
    best = max((t for t in found.tests if t.name.startswith("learned")), key=lambda t: t.statistic)
    assert best.finding
    assert set(best.details["importance"]) >= {"x[0]", "x[1]", "x[2]"}
    assert "x[0]" in best.effect


@pytest.mark.slow
def test_a_sentinel_value_is_a_flag_of_its_own():
    """−1000 stands where the mechanism stopped: at one neighbour it stops early more often."""
    rng = np.random.default_rng(4)

    def release(side, n):
        x = rng.laplace(0, 1, (n, 3))
        stopped = rng.random(n) < (0.30 if side else 0.02)
        x[stopped, 1:] = -1000.0
        return x

    assert audit(release, seconds=10).epsilon > 2.2  # true: ln 15 = 2.7


@pytest.mark.slow
def test_equal_releases_have_equal_scores_wherever_they_stand():
    rng = np.random.default_rng(6)
    rows = [np.round(gated(rng, side, 2_000), 1) for side in (0, 1)]
    scores = learned_scores(*rows, rng=np.random.default_rng(1), seconds=20)
    assert len(scores) == 2
    x = np.concatenate(rows)
    order = rng.permutation(len(x))
    for score in scores:
        values = score.of(x)
        np.testing.assert_array_equal(score.of(x[order]), values[order])
        np.testing.assert_array_equal(score.of(x[7:9]), values[7:9])


@pytest.mark.slow
def test_the_same_seed_learns_the_same():
    rows = [gated(np.random.default_rng(7), side, 1_500) for side in (0, 1)]
    first, second = (
        [s.of(rows[0]) for s in learned_scores(*rows, rng=np.random.default_rng(1), seconds=60)]
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_single_numbers_and_few_releases_are_left_to_fixed_features():
    rng = np.random.default_rng(8)
    for shape in ((5_000, 1), (100, 3)):
        rows = rng.standard_normal((2, *shape))
        assert learned_scores(*rows, rng=rng, seconds=5) == []


@pytest.mark.parametrize("column", [[0.0, 0.0], [1e300, -1e300], [np.inf, 0.0], [5e-324, 0.0]])
def test_odd_numbers_are_scored(column):
    rng = np.random.default_rng(9)
    rows = rng.standard_normal((2, 600, 3))
    rows[:, :, 1] = rng.choice(column, (2, 600))
    for score in learned_scores(*rows, rng=rng, seconds=5):
        assert not np.isnan(score.of(rows[0])).any()


@pytest.mark.slow
def test_bounds_with_learned_scores_cover():
    """40 audits of Gaussian noise at exactly its claim, α = 0.1: fails from 12 misses on."""
    rng, n, times, missed = np.random.default_rng(23), 1_200, 40, 0
    truth, centre = gaussian_epsilon(1e-2, sigma=1.0), np.full(4, 0.5)
    options = {"aim": Aim(1e-2, 0.1, real_numbers=True), "seconds": 5}

    def normals(count, at=0.0):
        return at + rng.standard_normal((count, 4))

    for _ in range(times):
        second = int(rng.binomial(2 * n, 0.5))
        halves = normals(n), normals(n, centre)
        learned = learn(*halves, neighbours=(np.zeros(4), centre), rng=rng, **options)
        assert any(kind == "learned score" for _, _, kind, _ in learned.events)
        counted = normals(2 * n - second), normals(second, centre)
        judged = judge(learned, *counted, claim=PrivacyClaim(truth, 1e-2), alpha=0.1)
        missed += judged.epsilon > truth or any(t.finding for t in judged.tests)
    assert scipy.stats.binom.sf(missed - 1, times, 0.1) > 1e-3


@pytest.mark.slow
def test_an_audit_learns_scores_by_itself():
    rng = np.random.default_rng(11)
    release = lambda value, n: parity(rng, int(value[0]), n)  # noqa: E731
    pair = [0.0] * 20, [1.0] * 20
    result = audit_mechanism(release, neighbours=pair, epsilon=1.0, samples=12_000, seed=1)
    assert result.verdict == "finding"
    assert result.epsilon.low > 4
