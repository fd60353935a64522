"""Bets on releases: fair whatever the law, near the best there is, and bounds below the truth."""

import math

import numpy as np
import pytest
import scipy

from dpaudit.accounting import gaussian_delta, gaussian_epsilon
from dpaudit.audit.betting import releases as bets
from dpaudit.audit.betting.optimal import factors
from dpaudit.audit.betting.releases import ReleaseBets, block_sizes, families
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.claims.implied import of_gaussian
from dpaudit.audit.mechanism.events import Statistic
from dpaudit.audit.mechanism.views import Learner

LINES = [(1.0, 0.0), (0.5, 1e-5), (0.0, 0.1), (2.0, 0.3), (-0.5, 0.6)]


def law(rng, cells):
    return rng.dirichlet(np.full(cells, 0.5), 2)


def one_line(p, epsilon, delta, *, averaged=1):
    slopes, excesses = np.array([[math.exp(epsilon)]]), np.array([[delta]])
    logs, growth = factors(p, slopes, excesses, averaged=averaged)
    return np.exp(logs[0]), float(growth[0])


def largest_mean(f, epsilon, delta):
    """The largest mean of a factor f (2, cells) that any (ε, δ)-DP pair has: a linear program."""
    k, a = f.shape[1], math.exp(epsilon)
    # unknowns: P0, P1, and the excess of each cell in both orders
    eye, zero = np.eye(k), np.zeros((k, k))
    upper = np.block([[-a * eye, eye, -eye, zero], [eye, -a * eye, zero, -eye]])
    budgets = np.zeros((2, 4 * k))
    budgets[0, 2 * k : 3 * k] = budgets[1, 3 * k :] = 1
    sums = np.zeros((2, 4 * k))
    sums[0, :k] = sums[1, k : 2 * k] = 1
    solution = scipy.optimize.linprog(
        -np.concatenate([f[0], f[1], np.zeros(2 * k)]) / 2,
        A_ub=np.concatenate([upper, budgets]),
        b_ub=np.concatenate([np.zeros(2 * k), [delta, delta]]),
        A_eq=sums,
        b_eq=[1, 1],
    )
    return -solution.fun


@pytest.mark.parametrize("averaged", [1, 500])
@pytest.mark.parametrize(("epsilon", "delta"), LINES)
def test_no_law_that_keeps_the_hypothesis_gains(epsilon, delta, averaged):
    rng, most = np.random.default_rng(1), 0.0
    for _ in range(40):
        f, growth = one_line(law(rng, 5), epsilon, delta, averaged=averaged)
        assert (f > 0).all()
        mean = largest_mean(f, epsilon, delta)
        assert mean <= 1 + 1e-9
        most = max(most, mean if growth > 0 else 0)
    assert most > 0.9  # little is given away either


def test_the_check_sees_a_bet_that_forgets_delta():
    rng = np.random.default_rng(2)
    f, growth = one_line(law(rng, 5), 0.0, 0.0)
    assert growth > 0
    assert largest_mean(f, 0.0, 0.05) > 1.01


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.3, 0.0), (0.5, 0.05)])
def test_growth_is_near_the_best_of_all_factors(epsilon, delta):
    rng, a, k = np.random.default_rng(3), math.exp(epsilon), 4
    ratios = []
    for _ in range(12):
        p = law(rng, k)
        _, growth = one_line(p, epsilon, delta)

        def loss(x, p=p):
            u, v, w, most = x[0], x[1 : k + 1], x[k + 1 : 2 * k + 1], x[-2:]
            price = most.sum() * delta / 2
            f1, f0 = 1 - u + v - a * w - price, 1 + u - a * v + w - price
            if min(f1.min(), f0.min()) <= 1e-6:
                return 50.0
            return -0.5 * float(p[1] @ np.log(f1) + p[0] @ np.log(f0))

        caps = [
            {"type": "ineq", "fun": lambda x, i=i: x[-2 + i] - x[1 + i * k : 1 + (i + 1) * k]}
            for i in (0, 1)
        ]
        best = min(
            scipy.optimize.minimize(
                loss,
                np.concatenate([[u], np.full(2 * k, 0.01), [0.02, 0.02]]),
                bounds=[(-0.99, 0.99), *[(0, 3)] * (2 * k + 2)],
                constraints=caps,
                method="SLSQP",
            ).fun
            for u in (-0.3, 0.0, 0.3)
        )
        if -best > 1e-3:
            ratios.append(growth / -best)
    assert len(ratios) >= 6
    assert min(ratios) > 0.8
    assert np.mean(ratios) > 0.96


def response(epsilon):
    """Randomised response with exactly ε, as releases at chosen neighbours."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))

    def release(rng, sides):
        return np.where(rng.random(len(sides)) < keep, sides, ~sides).astype(float)[:, None]

    return release


def gaussian(mu):
    return lambda rng, sides: (mu * sides + rng.normal(size=len(sides)))[:, None]


def learner(rng):
    return Learner(rng, (np.zeros(1), np.ones(1)), low_bits=False, seconds=0)


def watch(claim, release, seed, *, most, alpha=0.05, bounds=False, how=ReleaseBets):
    rng = np.random.default_rng([seed, 44])
    audit = how(claim, alpha=alpha, views=learner(rng), bounds=bounds)
    for size in block_sizes(most, growth=0.1):
        sides = rng.random(size) < 0.5
        if audit.update(release(rng, sides), sides) and not bounds:
            break
    return audit


class Peeking(ReleaseBets):
    """Learns from a block before it bets on it."""

    def update(self, rows, sides):
        self._rows.append(rows)
        self._sides.append(sides)
        self._learn()
        self._rows, self._sides = [self._rows[0][: -len(rows)]], [self._sides[0][: -len(rows)]]
        return super().update(rows, sides)


AT_THE_CLAIM = {
    "response": (PrivacyClaim(1.0, 0.0), response(1.0)),
    "gaussian": (PrivacyClaim.of(mu=1.0), gaussian(1.0)),
    "approximate": (PrivacyClaim(0.5, float(scipy.special.ndtr(0.0))
                                 - math.exp(0.5) * float(scipy.special.ndtr(-1.0))), gaussian(1.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_THE_CLAIM)
@pytest.mark.parametrize(
    ("runs", "most"), [(60, 300), pytest.param(1_000, 1_000, marks=pytest.mark.slow)]
)
def test_watched_at_every_moment_a_true_claim_is_hardly_ever_refuted(name, runs, most):
    """At most α·runs are expected; the limit is 3.5 standard errors above.

    Of 1,000 runs an audit with a true α of 0.09 would fail.
    """
    claim, release = AT_THE_CLAIM[name]
    wrong = sum(watch(claim, release, s, most=most).contradicted for s in range(runs))
    assert wrong <= 0.05 * runs + 3.5 * math.sqrt(runs * 0.05 * 0.95)


def test_the_check_catches_bets_placed_after_the_releases():
    claim, release = AT_THE_CLAIM["response"]
    wrong = sum(watch(claim, release, s, most=600, how=Peeking).contradicted for s in range(100))
    assert wrong > 5 + 3.5 * math.sqrt(100 * 0.05 * 0.95)


@pytest.mark.parametrize("seed", range(3))
def test_bounds_stay_below_the_truth_and_come_near(seed):
    audit = watch(PrivacyClaim(2.0, 0.0), response(1.0), seed, most=8000, bounds=True)
    delta = max(0.0, (math.exp(1) - math.exp(2)) / (1 + math.exp(1)))
    keep = math.exp(1) / (1 + math.exp(1))
    mu = 2 * float(scipy.special.ndtri(keep))
    assert 0.8 <= audit.bounds["ε"] <= 1.0
    assert audit.bounds["δ"] <= delta + 1e-12
    assert 0.7 * mu <= audit.bounds["μ"] <= mu
    assert not audit.contradicted


@pytest.mark.slow
def test_bounds_cover_all_at_once():
    wrong = 0
    for seed in range(60):
        audit = watch(PrivacyClaim.of(mu=1.0), gaussian(1.0), 100 + seed, most=400, bounds=True)
        epsilon = next(v for n, v in audit.bounds.items() if n == "ε")
        wrong += audit.bounds["μ"] > 1.0 or audit.contradicted
        wrong += epsilon > PrivacyClaim.of(mu=1.0).epsilon
    assert wrong <= 3 + 3.5 * math.sqrt(60 * 0.05 * 0.95)


def test_half_the_noise_is_found_within_hundreds_of_releases():
    drawn = [watch(PrivacyClaim(1.0, 0.0), response(2.0), s, most=5000).drawn for s in range(9)]
    assert np.median(drawn) < 500


def test_dependent_releases_of_a_block_are_averaged():
    """One coin decides all canaries of a run: products would refute a true claim, means do not."""
    keep = math.exp(1) / (1 + math.exp(1))

    def run(averaged, seed):
        rng = np.random.default_rng(seed)
        audit = ReleaseBets(
            PrivacyClaim(1.0, 0.0), alpha=0.05, views=learner(rng), bounds=False, averaged=averaged
        )
        for _ in range(40):
            sides = rng.random(50) < 0.5
            truth = rng.random() < keep  # all right or all wrong: each alone is 1-DP
            if audit.update((sides if truth else ~sides).astype(float)[:, None], sides):
                return True
        return False

    assert sum(run(50, s) for s in range(40)) <= 2 + 3.5 * math.sqrt(40 * 0.05 * 0.95)
    assert sum(run(1, s) for s in range(40)) > 20


def test_the_tangents_are_those_of_the_gaussian_curve():
    for mu in (0.1, 1.0, 4.0):
        for epsilon, delta in of_gaussian(mu):
            exact = float(
                scipy.special.ndtr(mu / 2 - epsilon / mu)
                - math.exp(epsilon) * scipy.special.ndtr(-mu / 2 - epsilon / mu)
            )
            assert exact <= delta + 1e-9
            assert delta <= exact + 1e-6


@pytest.mark.parametrize("given", [{"epsilon": 1.0, "delta": 1e-3}, {"mu": 1.0}, {"rho": 0.5}])
def test_whoever_keeps_a_value_keeps_the_lines_of_every_larger_one(given):
    """Otherwise a bound could pass a true value by; shown for Gaussian releases."""
    z = np.linspace(-6, 6, 241)
    for family in families(PrivacyClaim.of(**given), 0.05):
        for mu in (0.2, 0.7, 1.5):
            p0, p1 = scipy.special.ndtr(z), scipy.special.ndtr(z + mu)
            keeps = {
                "ε": gaussian_epsilon(given.get("delta", 1e-5), sigma=1 / mu),
                "δ": gaussian_delta(PrivacyClaim.of(**given).epsilon, sigma=1 / mu),
                "μ": mu,
                "ρ": mu * mu / 2,
            }[family.name]
            larger = family.values >= keeps
            assert larger.any()
            for a, c in zip(family.slopes[larger], family.excesses[larger], strict=True):
                assert (p1 <= np.min(np.outer(p0, a) + c, axis=1) + 1e-9).all()
            smaller = family.values < 0.9 * keeps
            lines = zip(family.slopes[smaller], family.excesses[smaller], strict=True)
            assert all((p1 > np.min(np.outer(p0, a) + c, axis=1)).any() for a, c in lines)


def test_shares_add_up_and_claim_comes_first():
    for claim in (PrivacyClaim(1.0, 0.0), PrivacyClaim(1.0, 0.0, 0.5), PrivacyClaim.of(rho=0.5)):
        shares = [f.alpha for f in families(claim, 0.04)]
        assert math.fsum(shares) == pytest.approx(0.04)
        assert shares[0] == 0.04 * bets.MAIN_SHARE


def test_the_chance_of_a_late_refutation():
    near = watch(PrivacyClaim(1.0, 0.0), response(1.3), 2, most=80)
    rng = np.random.default_rng(5)
    assert not near.contradicted
    assert near.chance(20_000, rng) > 0.8
    far = watch(PrivacyClaim(1.0, 0.0), response(0.2), 1, most=3000)
    assert far.chance(1_000, rng) < 0.01


def test_more_statistics_of_a_caller_are_bet_on():
    def last_digit(x):
        return np.round(x[:, 0] * 1e6) % 2

    rng = np.random.default_rng(1)
    views = Learner(
        rng,
        (np.zeros(1), np.zeros(1)),
        more=lambda *_: [Statistic("parity", last_digit)],
        seconds=0,
    )
    audit = ReleaseBets(PrivacyClaim(1.0, 0.0), alpha=0.05, views=views, bounds=False)
    for size in block_sizes(400):
        sides = rng.random(size) < 0.5
        x = np.round(rng.normal(size=size) * 1e6)
        x += (x % 2 != sides) * 1.0
        if audit.update(x[:, None] / 1e6, sides):
            break
    assert audit.contradicted
    assert audit.leading is not None
    assert audit.leading.kind == "low bits"
