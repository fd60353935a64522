"""One-run auditing: published values, bounds that hold by simulation, ways to fool it."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from dpaudit.accounting import gaussian_epsilon
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism import one_run as module
from dpaudit.audit.mechanism.one_run import (
    Guesses,
    Trial,
    one_run,
    one_run_p,
    one_run_p_chosen,
    one_run_p_tradeoff,
    tradeoff_of_epsilon,
    tradeoff_of_mu,
    tradeoff_of_profile,
)
from dpaudit.audit.mechanism.one_run_audits import audit_counts, audit_scores
from dpaudit.errors import UsageError
from dpaudit.stats import rounded_down
from dpaudit_studies.evidence import one_run_exact as exact


def largest_epsilon(guesses, m, *, delta, level, p=one_run_p):
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        rejected = p(m, guesses, epsilon=middle, delta=delta) <= level
        low, high = (middle, high) if rejected else (low, middle)
    return low


def rare(count, times):
    """The chance of so many misses or more at α = 0.1."""
    return scipy.stats.binom.sf(count - 1, times, 0.1)


def theorem(m, guesses, *, epsilon, delta):
    """Steinke, Nasr and Jagielski (2023), Theorem 5.2, as a sum."""
    law = scipy.stats.binom(guesses.count, 1 / (1 + math.exp(-epsilon)))
    beta = law.sf(guesses.right - 1)
    i = np.arange(1, guesses.right + 1)
    return min(1.0, beta + 2 * m * delta * ((law.sf(guesses.right - i - 1) - beta) / i).max())


@pytest.mark.parametrize(("delta", "published"), [(0.0, 0.702), (1e-4, 0.699)])
def test_published_values(delta, published):
    """Steinke, Nasr and Jagielski (2023), Appendix D: 75 of 100 right, 95 % confidence."""
    case = {"m": 100, "delta": delta, "level": 0.05}
    found = largest_epsilon(Guesses(50, 50, 75), p=theorem, **case)
    assert found == pytest.approx(published, abs=1e-3)
    exactly = largest_epsilon(Guesses(50, 50, 75), **case)
    assert published - 1e-3 < exactly < 0.703


EXACT = [(50, 20, 17), (200, 200, 130), (30, 8, 8), (1000, 160, 150), (40, 40, 3)]


@pytest.mark.parametrize(("m", "r", "v"), EXACT)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-4), (0.5, 1e-3), (1.0, 0.01), (2.0, 0.2)])
def test_exact_against_linear_programming(m, r, v, epsilon, delta):
    """No mechanism has a larger tail, and one has it; the published theorem is above."""
    tail, _ = exact.largest_tail(m, r, v, epsilon=epsilon, delta=delta)
    found = one_run_p(m, Guesses(r, 0, v), epsilon=epsilon, delta=delta)
    assert found == pytest.approx(tail, rel=1e-6)
    assert found <= theorem(m, Guesses(r, 0, v), epsilon=epsilon, delta=delta) * (1 + 1e-9)


def test_the_exact_bound_far_in_the_tail_and_at_many_guesses():
    """Where probabilities underflow it is still positive and grows with ε and δ."""
    found = [
        one_run_p(10_000, Guesses(5000, 5000, 9999), epsilon=epsilon, delta=1e-9)
        for epsilon in (0.0, 1.0, 8.0)
    ]
    assert 1e-9 < found[0] <= found[1] < found[2] < 1
    assert one_run_p(10_000, Guesses(5000, 5000, 9999), epsilon=0.0, delta=0.0) < 1e-290


@pytest.mark.parametrize(
    ("m", "epsilon", "delta", "level"),
    [(100, 0.0, 0.002, 0.05), (100, 1.0, 0.01, 0.1), (1000, 0.0, 0.002, 0.1)],
)
def test_a_mechanism_that_chooses_the_plan_keeps_the_bound_for_chosen_plans_only(
    m, epsilon, delta, level
):
    """It spends its δ where that pays most: what holds for each plan alone fails for their choice.

    By linear programming over all mechanisms, so exactly.
    """

    def largest_error(p):
        plans = []
        for r in (8, 20, 50, 100):
            tails = [p(m, Guesses(r, 0, v), epsilon=epsilon, delta=delta) for v in range(r + 1)]
            refuting = [v for v in range(r + 1) if tails[v] <= level]
            plans += [(r, refuting[0])] if refuting else []
        return exact.largest_joint_tail(m, plans, epsilon=epsilon, delta=delta)[0]

    assert largest_error(one_run_p_chosen) <= level * (1 + 1e-6)
    assert largest_error(one_run_p) > 1.05 * level


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.0), (0.5, 0.05), (1.0, 0.01)])
@pytest.mark.parametrize(("m", "r", "v"), [(10, 10, 9), (12, 6, 6), (10, 8, 7)])
def test_tradeoff_p_against_linear_programming(m, r, v, epsilon, delta):
    """The largest P(t ≥ v) over all laws of t that meet every constraint, by brute force.

    For a piecewise linear curve.
    """
    t, grow = np.arange(r + 1), math.exp(epsilon)
    rows, limits = [], []
    for j in range(1, r + 1):
        right, wrong = np.where(t >= j, t, 0) / m, np.where(t >= j - 1, r - t, 0) / m
        rows += [right - grow * wrong, grow * right - wrong]
        limits += [delta, grow - 1 + delta]
    whole = {"A_eq": [np.ones(r + 1)], "b_eq": [1], "bounds": (0, 1)}
    best = scipy.optimize.linprog(-(t >= v).astype(float), A_ub=rows, b_ub=limits, **whole)
    found = one_run_p_tradeoff(m, Guesses(r, 0, v), tradeoff_of_epsilon(epsilon, delta))
    assert found == pytest.approx(-best.fun, rel=5e-3)


def test_inverse_curves():
    for y in (0.01, 0.3, 0.9, 0.999):
        x = tradeoff_of_epsilon(1.0, 0.05)(y)
        allowed = min(1.0, math.e * x + 0.05, 1 - (1 - 0.05 - x) / math.e)
        assert allowed >= y - 1e-12
        assert tradeoff_of_mu(1.5)(y) == pytest.approx(
            scipy.stats.norm.cdf(scipy.stats.norm.ppf(y) - 1.5)
        )


TIMES = 120  # red from 24 errors on at α = 0.1: a share of 0.3 is seen in 99 of 100 cases


def responses(rng, m, epsilon, delta=0.0):
    """Coins by randomized response, or bare with probability δ: exactly (ε, δ)-DP per canary."""
    member = rng.random(m) < 0.5
    told = np.where(rng.random(m) < 1 / (1 + math.exp(-epsilon)), member, ~member)
    bare = rng.random(m) < delta
    return np.where(bare, 2.0 * (2 * member - 1), 1.0 * (2 * told - 1)), member


def all_or_nothing(rng, m, share):
    """All coins with probability ``share``, otherwise none: the worst (0, share)-DP."""
    member = rng.random(m) < 0.5
    return (member * 1.0 if rng.random() < share else np.zeros(m)), member


def normals(rng, m, mu):
    member = rng.random(m) < 0.5
    return rng.standard_normal(m) + mu * member, member


def missed(make, times, *, epsilon, delta, alpha=0.1, mu=None, guesses=None):
    count, bounds = 0, []
    claim = {"claim": PrivacyClaim(epsilon, delta, mu), "guesses": guesses}
    for i in range(times):
        rng = np.random.default_rng(1000 + i)
        found = one_run(*make(rng), alpha=alpha, ties=rng, **claim)
        wrong = found.p <= alpha or found.epsilon > epsilon
        count += wrong or (mu is not None and (found.mu > mu or found.p_mu <= alpha))
        bounds.append((found.epsilon, found.mu))
    return count, np.mean(bounds, axis=0)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        pytest.param(0.5, 0.0, marks=pytest.mark.slow),
        (1.0, 1e-3),
        pytest.param(1.0, 0.05, marks=pytest.mark.slow),
    ],
)
def test_bounds_hold_for_randomized_response(epsilon, delta):
    make = lambda rng: responses(rng, 300, epsilon, delta)  # noqa: E731
    assert rare(missed(make, TIMES, epsilon=epsilon, delta=delta)[0], TIMES) > 1e-3


@pytest.mark.slow
def test_bounds_hold_with_guesses_fixed_beforehand():
    make = lambda rng: responses(rng, 1000, 1.0)  # noqa: E731
    count, (mean, _) = missed(make, TIMES, epsilon=1.0, delta=0.0, guesses=1000)
    assert rare(count, TIMES) > 1e-3
    assert mean > 0.83
    assert count >= 1  # half of α is for ε


@pytest.mark.slow
def test_bounds_hold_where_everything_leaks_at_once():
    """The case in which the errors are as dependent as δ allows."""

    def count(delta):
        return missed(lambda rng: all_or_nothing(rng, 100, 0.2), 400, epsilon=0.0, delta=delta)[0]

    assert rare(count(0.2), 400) > 1e-3
    assert count(0.0) > 50  # it is found where δ is not claimed


@pytest.mark.slow
def test_bounds_hold_for_normal_scores():
    """μ-GDP for each canary; the ε of the claim is the exact one at δ."""
    mu, delta = 2.0, 1e-3
    claim = {"epsilon": gaussian_epsilon(delta, sigma=1 / mu), "delta": delta, "mu": mu}
    count, (_, mean_mu) = missed(lambda rng: normals(rng, 500, mu), TIMES, **claim)
    assert rare(count, TIMES) > 1e-3
    assert mean_mu > 0.3 * mu


def test_choosing_the_number_of_guesses_by_their_rightness_without_paying_fails_the_check():
    count = 0
    for i in range(TIMES):
        scores, member = normals(np.random.default_rng(1000 + i), 500, 0.0)
        right = np.cumsum(~member[np.argsort(scores)])
        made = (Guesses(0, k, int(right[k - 1])) for k in range(8, 501, 4))
        count += min(one_run_p(500, g, epsilon=0.0, delta=0.0) for g in made) <= 0.1
    assert rare(count, TIMES) < 1e-6


@pytest.mark.slow
def test_choosing_the_plan_by_coins_of_guessed_canaries_fails_the_check(monkeypatch):
    """Scores say nothing: the coins that are not guessed may choose the plan, the others not."""

    def errors():
        count = 0
        for i in range(TIMES):
            rng = np.random.default_rng(5000 + i)
            scores, member = normals(rng, 300, 0.0)
            claim = PrivacyClaim(0.0, 1e-5)
            count += one_run(scores, member, claim=claim, alpha=0.1, ties=rng).p <= 0.1
        return count

    assert rare(errors(), TIMES) > 1e-3

    def peeking(ranked, _level):
        some = range(10, 130, 10)
        plans = [ranked.guess(a, b) for a in some for b in some]
        odds = [scipy.stats.binom.sf(g.right - 1, g.count, 0.5) for g in plans]
        return plans[int(np.argmin(odds))]

    monkeypatch.setattr(module, "_choose", peeking)
    assert rare(errors(), TIMES) < 1e-6


def test_a_chosen_number_of_guesses_is_not_compared_with_a_curve():
    chosen = Trial(100, Guesses(10, 10, 19), 1.0, left_out=80)
    with pytest.raises(ValueError, match="chosen"):
        chosen.p(tradeoff_of_mu(1.0))
    with pytest.raises(ValueError, match="chosen"):
        chosen.refutes(0.05, tradeoff_of_mu(1.0))
    epsilon = largest_epsilon(Guesses(10, 10, 19), 100, delta=1e-4, level=0.05, p=one_run_p_chosen)
    assert chosen.refutes(0.05, (epsilon - 1e-6, 1e-4))
    assert not chosen.refutes(0.05, (epsilon + 1e-3, 1e-4))


def test_tightness_and_power():
    rng = np.random.default_rng(5)
    scores, member = responses(rng, 10_000, 1.0)
    found = one_run(scores, member, claim=PrivacyClaim(1.0, 1e-6), alpha=0.05, ties=rng)
    assert 0.88 < found.epsilon <= 1
    assert found.p > 0.05
    scores, member = responses(rng, 2000, 2.0)
    assert one_run(scores, member, claim=PrivacyClaim(1.0, 1e-6), alpha=0.05, ties=rng).p < 1e-3
    scores, member = normals(rng, 5000, 3.0)
    found = one_run(scores, member, claim=PrivacyClaim(8.0, 1e-5, 1.0), alpha=0.05, ties=rng)
    assert found.p_mu < 1e-3


def test_the_order_of_the_file_shows_nothing():
    """Equal scores with all members first: a stable sort alone would name every one of them."""
    member, claim = np.arange(1000) < 500, {"claim": PrivacyClaim(0.0, 0.0), "alpha": 0.01}
    for scores in (np.zeros(1000), np.round(np.random.default_rng(3).standard_normal(1000))):
        found = one_run(scores, member, ties=np.random.default_rng(4), **claim)
        assert found.epsilon == 0
        assert found.p > 0.01


@pytest.mark.parametrize(
    ("m", "guesses", "says"),
    [(7, None, "canaries=7"), (100, 0, "guesses=0"), (100, 101, "guesses=101")],
)
def test_refusals(m, guesses, says):
    made = {"ties": np.random.default_rng(1), "guesses": guesses}
    with pytest.raises(UsageError, match=says):
        one_run(np.zeros(m), np.zeros(m, bool), claim=PrivacyClaim(1, 0), alpha=0.1, **made)


def trial_of(details):
    """The trial that a row's details describe."""
    guesses = Guesses(*(details[name] for name in ("top", "bottom", "right")))
    canaries = details["canaries"]
    return Trial(canaries, guesses, details["share"], details["left_out"])


def test_a_row_names_the_guesses_of_its_bound_and_of_its_p(tmp_path):
    """The smallest p at the claim and the largest bound may come from other numbers of guesses."""
    scores, member = normals(np.random.default_rng(14), 400, 2.0)
    np.savez(tmp_path / "s.npz", score=scores, member=member)
    claim = PrivacyClaim(0.5, 0.0, 0.2)
    found = audit_scores(tmp_path / "s.npz", claim=claim, alpha=0.01, seed="1")
    p_of = {
        "ε": lambda trial: one_run_p(400, trial.guesses, epsilon=0.5, delta=0.0),
        "μ": lambda trial: one_run_p_tradeoff(trial.canaries, trial.guesses, tradeoff_of_mu(0.2)),
    }
    for test in found.tests:
        by_p, by = trial_of(test.details["p"]), trial_of(test.details)
        assert test.p == pytest.approx(min(1.0, 2 / by_p.share * p_of[test.unit](by_p)))
        assert f"≥ {rounded_down(test.statistic)} by {by}" in test.effect
        assert float(rounded_down(test.statistic)) <= test.statistic
        assert f"; p of {by_p}" in test.effect
        assert test.p < 0.5
        assert by != by_p
    assert len(found.tests) == 2


def test_top_guesses_are_chosen_where_only_they_show_something():
    """Three in ten of the members leak, the others look like everyone else."""
    shown = []
    for i in range(10):
        rng = np.random.default_rng(i)
        member = rng.random(1000) < 0.5
        scores = rng.standard_normal(1000) + 6.0 * member * (rng.random(1000) < 0.3)
        found = one_run(scores, member, claim=PrivacyClaim(1.0, 1e-5), alpha=0.05, ties=rng)
        assert found.by_epsilon.guesses.bottom == 0
        shown.append(found.epsilon)
    assert min(shown) > 2.5


def test_the_choice_follows_ranks_where_scores_are_skewed():
    """A monotone change of the scores changes no rank; what is shown stays near."""

    def shown(change):
        return np.mean(
            [
                one_run(
                    change(scores), member, claim=PrivacyClaim(1.0, 1e-5), alpha=0.05, ties=rng
                ).epsilon
                for rng in map(np.random.default_rng, range(8))
                for scores, member in [normals(rng, 1000, 2.0)]
            ]
        )

    assert shown(lambda scores: np.exp(2 * scores)) > 0.93 * shown(lambda scores: scores)


@pytest.mark.slow
def test_bounds_hold_where_most_of_alpha_is_for_mu():
    claim, count = {"claim": PrivacyClaim(9, 1e-5, 1.0), "alpha": 0.1, "share": 0.1}, 0
    for i in range(TIMES):
        rng = np.random.default_rng(3000 + i)
        found = one_run(*normals(rng, 300, 1.0), ties=rng, **claim)
        count += found.mu > 1.0
        assert (found.mu > 1.0) == (found.p_mu <= 0.1)
    assert rare(count, TIMES) > 1e-3


def oracle_split(scores, member, *, level, delta, rng):
    """jax_privacy 2.0's ``epsilon_one_run`` with ``Split()``, re-implemented from its source.

    Half of the canaries chooses the threshold whose bound is largest there; the other half is
    judged with it, as many guesses "in" as there are scores at or above it (Theorem 5.2).
    """
    half = rng.random(len(scores)) < 0.5

    def bound(some, threshold):
        picked = scores[some] >= threshold
        g = Guesses(int(picked.sum()), 0, int(member[some][picked].sum()))
        return largest_epsilon(g, int(some.sum()), delta=delta, level=level) if g.count else 0.0

    grid = np.quantile(scores[half], np.linspace(0.3, 0.995, 60))
    return bound(~half, max(grid, key=lambda threshold: bound(half, threshold)))


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "m"), [(1.0, 1000), (3.0, 500)])
def test_on_the_same_scores_it_shows_more_than_a_split(mu, m):
    ours, theirs = [], []
    for i in range(6):
        rng = np.random.default_rng(40 + i)
        scores, member = normals(rng, m, mu)
        found = one_run(scores, member, claim=PrivacyClaim(1.0, 1e-5), alpha=0.05, ties=rng)
        ours.append(found.epsilon)
        theirs.append(oracle_split(scores, member, level=0.05, delta=1e-5, rng=rng))
    assert np.mean(ours) > np.mean(theirs)


def test_several_runs_show_more_than_one(tmp_path):
    """Scores of the second run lie elsewhere, as losses of another model do."""
    shown = []
    for pair in range(8):
        names = [str(tmp_path / f"{i}.npz") for i in range(2)]
        for i, name in enumerate(names):
            scores, member = normals(np.random.default_rng(60 + 2 * pair + i), 1000, 2.0)
            np.savez(name, score=100.0 * i + scores, member=member)
        audits = [
            audit_scores(name, claim=PrivacyClaim(1.0, 1e-5), alpha=0.05, seed="1")
            for name in (*names, ";".join(names))
        ]
        assert audits[2].samples == 2000
        shown.append([audit.epsilon.low for audit in audits])
    alone, other, both = np.mean(shown, axis=0)
    assert both > max(alone, other) + 0.1


@pytest.mark.parametrize(
    ("counts", "claim", "guesses", "m", "share"),
    [
        # Steinke, Nasr and Jagielski (2023), Appendix D
        ("40,10,15,35", PrivacyClaim(0.1, 1e-4), Guesses(55, 45, 75), 100, 1.0),
        ("150,350,0,500", PrivacyClaim(3.0, 0.0), Guesses(150, 0, 150), 1000, 0.3),
    ],
)
def test_counts(counts, claim, guesses, m, share):
    one = audit_counts(counts, claim=claim, alpha=0.05, seed="1")
    expected = largest_epsilon(guesses, m, delta=claim.delta, level=share * 0.9 * 0.05)
    assert one.epsilon.low == pytest.approx(expected, abs=2e-4)
    assert one.verdict == "finding"


def test_counts_of_unfair_coins_are_inconclusive():
    unfair = audit_counts("150,50,0,800", claim=PrivacyClaim(3.0, 0.0), alpha=0.05, seed="1")
    assert unfair.verdict == "inconclusive"


@pytest.mark.parametrize("text", ["1,2,3", "1,2,3,x", "1,2,-3,4", "1,2,1,2", "1.5,2,3,4"])
def test_counts_refused(text):
    with pytest.raises(UsageError, match="counts="):
        audit_counts(text, claim=PrivacyClaim(1.0, 0.0), seed="1")


def test_a_profile_is_its_tightest_pair():
    pairs = [(0.0, 0.3), (1.0, 0.05), (2.0, 0.001)]
    inverse = tradeoff_of_profile(pairs)
    for y in (0.001, 0.1, 0.5, 0.9, 1.0):
        expected = max(tradeoff_of_epsilon(e, d)(y) for e, d in pairs)
        assert inverse(y) == pytest.approx(expected)


def outputs(m, r, law, coins):
    """The mechanism's output, which canaries are guessed and how, with its probability."""
    found = {}
    for guessed in itertools.combinations(range(m), r):
        for bits in itertools.product((0, 1), repeat=r):
            t = sum(coins[i] == bit for i, bit in zip(guessed, bits, strict=True))
            found[guessed, bits] = law[t] / (math.comb(m, r) * math.comb(r, t))
    return found


@pytest.mark.parametrize(("m", "r", "v"), [(5, 5, 4), (6, 3, 3), (5, 2, 2)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (0.5, 0.05), (1.0, 0.01)])
def test_the_worst_mechanism_is_as_private_as_claimed_and_keeps_the_bounds(m, r, v, epsilon, delta):
    tail, law = exact.largest_tail(m, r, v, epsilon=epsilon, delta=delta)
    here = outputs(m, r, law, (0,) * m)
    there = outputs(m, r, law, (1,) + (0,) * (m - 1))
    assert sum(here.values()) == pytest.approx(1)
    grow = math.exp(epsilon)
    assert sum(max(0.0, p - grow * there[o]) for o, p in here.items()) <= delta + 1e-9
    assert sum(max(0.0, p - grow * here[o]) for o, p in there.items()) <= delta + 1e-9
    assert sum(p for (_, bits), p in here.items() if bits.count(0) >= v) == pytest.approx(tail)
    guesses = Guesses(r, 0, v)
    for bound in (
        one_run_p(m, guesses, epsilon=epsilon, delta=delta),
        one_run_p_tradeoff(m, guesses, tradeoff_of_epsilon(epsilon, delta)),
    ):
        assert tail <= bound * (1 + 2e-3)


@pytest.mark.parametrize("case", exact.CASES)
def test_the_printed_cases_are_the_best_there_is(case):
    """Up to 10,000 canaries; the recursion for curves, a relaxation, is near."""
    m, r, v, epsilon, delta = case
    tail, _ = exact.largest_tail(m, r, v, epsilon=epsilon, delta=delta)
    guesses = Guesses(r, 0, v)
    assert one_run_p(m, guesses, epsilon=epsilon, delta=delta) == pytest.approx(tail, rel=1e-6)
    found = one_run_p_tradeoff(m, guesses, tradeoff_of_epsilon(epsilon, delta))
    assert tail <= found <= 1.6 * tail
