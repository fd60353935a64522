"""The ε audit at two neighbours: coverage of its bounds, flaws that are found."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from support.in_process import InProcess

from dpaudit.accounting import gaussian_epsilon
from dpaudit.audit.mechanism import MechanismOptions, PrivacyClaim, run_mechanism_audit
from dpaudit.audit.mechanism.bounds import (
    band,
    epsilon_bounds,
    excess_allowed,
    hockey_stick_p,
    one_sided,
)
from dpaudit.audit.mechanism.events import Cells, Event, Statistic
from dpaudit.audit.mechanism.judge import Aim, divide_alpha, judge, learn, possible_shares
from dpaudit.audit.mechanism.pair import PairAudit
from dpaudit.audit.mechanism.verdict import two_neighbour_blind_spots
from dpaudit.audit.progress import TimeLimit
from dpaudit.errors import SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.stats import clopper_pearson

ZERO_ONE = (np.array([0.0]), np.array([1.0]))
RIGHT = 1 / (1 + math.exp(-1))  # randomized response with ε = 1


def laplace(rng, scale=1.0):
    return lambda v, n: v + rng.laplace(0, scale, (n, len(v)))


def gaussian(rng, sigma=1.0):
    return lambda v, n: v + rng.normal(0, sigma, (n, len(v)))


def response(rng):
    return lambda v, n: np.where(rng.random((n, 1)) < RIGHT, v, 1 - v)


def coarse(release, grid=2.0**20):
    """Rounded to a grid, so that no bits leak what real numbers would not."""
    return lambda v, n: np.round(release(v, n) * grid) / grid


def audit(release, *, epsilon=1.0, delta=0.0, mu=None, neighbours=ZERO_ONE, **options):
    mechanism = release if isinstance(release, InProcess) else InProcess(release)
    options = MechanismOptions(**{"seed": "7", "samples": 20_000, **options})
    claim = PrivacyClaim(epsilon, delta, mu)
    return run_mechanism_audit(mechanism, neighbours=neighbours, claim=claim, options=options)


def test_the_stages_at_two_neighbours_by_themselves():
    """Draw, judge, conclude: nothing is released before the first, nor after it."""
    calls, half = [], coarse(laplace(np.random.default_rng(3), 0.5))

    def counted(v, n):
        calls.append(n)
        return half(v, n)

    options = MechanismOptions(seed="7", samples=20_000)
    claim, limit = PrivacyClaim(1.0, 0.0), TimeLimit(options.time_limit)
    pair = PairAudit(InProcess(counted), ZERO_ONE, claim, options, limit)
    assert not calls
    releases = pair.draw()
    assert sum(calls) == sum(map(len, (*releases.learn, *releases.count))) == 40_000
    evidence = pair.judge(releases)
    assert (evidence.fault, evidence.judgement.epsilon > 1.5) == ("", True)
    result = pair.conclude(evidence)
    assert (result.verdict, result.samples) == ("finding", sum(calls))
    constant = PairAudit(InProcess(lambda v, n: np.ones((n, 1))), ZERO_ONE, claim, options, limit)
    evidence = constant.judge(constant.draw())
    assert evidence.fault.startswith("every release at both neighbours is 1: ")
    assert evidence.judgement.tests == ()
    assert constant.conclude(evidence).verdict == "inconclusive"


def leaking(rng, share, scale=1.0):
    """The value itself, a thousandfold, with probability ``share``."""
    noisy = coarse(laplace(rng, scale))
    return lambda v, n: np.where(rng.random((n, 1)) < share, 1000 * v, noisy(v, n))


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.05])
@pytest.mark.parametrize("p0", [0.01, 0.1, 0.3])
def test_one_event_covers_at_the_boundary(p0, delta):
    """P₁(E) = e^ε·P₀(E) + δ exactly: the bound exceeds ε with probability α at most."""
    epsilon, alpha, draws, times = 0.8, 0.1, 2000, 4000
    rng = np.random.default_rng(11)
    p1 = math.exp(epsilon) * p0 + delta
    second = rng.binomial(draws, 0.5, times)
    inside, outside = rng.binomial(second, p1), rng.binomial(draws - second, p0)
    bounds = epsilon_bounds(inside, outside, draws=draws, delta=delta, alpha=alpha)
    missed = int((bounds > epsilon).sum())
    assert scipy.stats.binom.sf(missed - 1, times, alpha) > 1e-3
    if delta == 0 and p0 >= 0.1:  # some thirty occurrences only come in whole numbers
        assert missed > 0.07 * times  # the error is used, not thrown away


def test_one_event_without_delta_is_the_exact_conditional_binomial():
    for k1, k0, epsilon in ((30, 12, 0.5), (5, 0, 1.0), (1, 0, 0.0), (800, 310, 0.9)):
        exact = scipy.stats.binom.sf(k1 - 1, k1 + k0, 1 / (1 + math.exp(-epsilon)))
        p = hockey_stick_p(k1, k0, draws=5000, epsilon=epsilon, delta=0.0)
        assert p == pytest.approx(exact, rel=1e-9)
        bound = float(epsilon_bounds(k1, k0, draws=5000, delta=0.0, alpha=0.02))
        low = clopper_pearson(k1, k1 + k0, confidence=0.96).low
        assert bound == pytest.approx(math.log(low / (1 - low)), rel=1e-9)


def test_p_and_bound_say_the_same():
    for k1, k0, delta in itertools.product((40, 90), (5, 40), (0.0, 1e-3, 0.01)):
        for epsilon in (0.3, 1.0, 2.0):
            p = hockey_stick_p(k1, k0, draws=4000, epsilon=epsilon, delta=delta)
            for alpha in (1e-6, 1e-3, 0.05):
                bound = float(epsilon_bounds(k1, k0, draws=4000, delta=delta, alpha=alpha))
                if p < 0.99 * alpha:
                    assert bound > epsilon
                if p > 1.01 * alpha:
                    assert bound <= epsilon


def test_excess_is_the_binomial_quantile():
    for draws, delta, alpha in ((1000, 0.01, 0.05), (10**5, 1e-5, 1e-4), (10, 0.9, 1e-6)):
        b = excess_allowed(draws, delta, alpha=alpha)
        law = scipy.stats.binom(draws, delta / 2)
        assert law.sf(b) <= alpha
        assert b == 0 or law.sf(b - 1) > alpha


LAWS = {  # the mechanism, numbers, δ, ε, the least mean bound
    "laplace": (laplace, 1, 0.0, 1.0, 0.8),
    "gaussian": (gaussian, 1, 0.01, gaussian_epsilon(0.01, sigma=1), 1.2),
    "randomized response": (response, 1, 0.0, 1.0, 0.85),
    "gaussian vectors": (gaussian, 3, 0.01, gaussian_epsilon(0.01, sigma=1), 1.2),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_all_bounds_cover_together(law):
    """60 audits of a mechanism with exactly the claimed ε, α = 0.1: all bounds hold together.

    Fails from 15 misses on: a share of 0.3 is found in 84 of 100 cases, one of 0.4 in 99.
    """
    make, k, delta, truth, least_mean = LAWS[law]
    rng = np.random.default_rng(23)
    release, near = make(rng), (np.zeros(k), np.ones(k) / math.sqrt(k))
    n, times, missed, bounds = 1000, 60, 0, []
    options = {"neighbours": near, "aim": Aim(delta, 0.1, real_numbers=True)}
    for _ in range(times):
        second = int(rng.binomial(2 * n, 0.5))
        learned = learn(*(release(v, n) for v in near), rng=rng, **options)
        counted = release(near[0], 2 * n - second), release(near[1], second)
        judged = judge(learned, *counted, claim=PrivacyClaim(truth, delta), alpha=0.1)
        wrong = judged.epsilon > truth or any(t.finding for t in judged.tests)
        if law.startswith("gaussian"):
            wrong |= judged.mu > 1 or any(
                e > gaussian_epsilon(d, sigma=1) for d, e in judged.curve if 0 < d < 0.3
            )
        missed += wrong
        bounds.append(judged.epsilon)
    assert scipy.stats.binom.sf(missed - 1, times, 0.1) > 1e-3
    assert np.mean(bounds) > least_mean


def test_the_coverage_check_sees_an_auditor_that_does_not_split():
    """The best half-line, chosen and counted in the same releases, with all of α."""
    rng = np.random.default_rng(23)
    n, times, missed = 1000, 400, 0
    for _ in range(times):
        second = int(rng.binomial(2 * n, 0.5))
        x0, x1 = np.sort(rng.laplace(0, 1, 2 * n - second)), np.sort(rng.laplace(1, 1, second))
        places = np.sort(np.concatenate([x0, x1]))[::8]
        above = [len(x) - np.searchsorted(x, places) for x in (x0, x1)]
        bounds = epsilon_bounds(above[1], above[0], draws=2 * n, delta=0.0, alpha=0.1)
        missed += bool((bounds > 1).any())
    assert scipy.stats.binom.sf(missed - 1, times, 0.1) < 1e-6


def test_the_band_covers_everywhere_at_once():
    rng = np.random.default_rng(3)
    places, times, missed = np.linspace(-3, 4, 24), 1000, 0
    truth = scipy.stats.norm.sf(places), scipy.stats.norm.sf(places - 1)
    for _ in range(times):
        k0, k1 = ((rng.standard_normal((500, 1)) + s >= places).sum(axis=0) for s in (0, 1))
        b = band(k0, 500, k1, 500, alpha=0.1)
        below = (b.low0 <= truth[0]) & (b.low1 <= truth[1])
        missed += not (below & (truth[0] <= b.high0) & (truth[1] <= b.high1)).all()
    assert scipy.stats.binom.sf(missed - 1, times, 0.1) > 1e-3


def test_delta_of_the_event_that_was_picked_for_it_covers():
    """One cut with half of the error: 2,000 counts at which both of its bounds are tight."""
    rng, n, p0, p1, times = np.random.default_rng(3), 400, 0.1, 0.5, 2000
    for split in (0.1, 0.5, 0.9):
        missed = 0
        for k0, k1 in zip(rng.binomial(n, p0, times), rng.binomial(n, p1, times), strict=True):
            b = one_sided(int(k0), n, int(k1), n, alpha=0.1, split=split)
            missed += not (b.low1[0] <= p1 and p0 <= b.high0[0])
            assert (b.low0[0], b.high1[0]) == (0, 1)
        assert scipy.stats.binom.sf(missed - 1, times, 0.1) > 1e-3
        assert missed > 0.05 * times


@pytest.mark.slow
def test_delta_at_the_claimed_epsilon_is_nearly_all_of_it():
    """Laplace noise of scale 0.8 has δ(1) = 1 − e^(−1/8) = 0.1175; an even grid of cuts 0.075."""
    rng, claim = np.random.default_rng(5), PrivacyClaim(1.0, 0.0)
    release = coarse(laplace(rng, 0.8))
    x, y = ([release(np.array([v]), 50_000) for v in (0.0, 1.0)] for _ in range(2))
    near = (np.zeros(1), np.ones(1))
    found = []
    for epsilon in (1.0, None):
        aim = Aim(0.0, 0.01, epsilon, real_numbers=True)
        learned = learn(*x, rng=np.random.default_rng(1), neighbours=near, aim=aim)
        found.append(judge(learned, *y, claim=claim, alpha=0.01).delta)
    assert found[1] < found[0]
    assert 0.093 < found[0] < 1 - math.exp(-1 / 8)


def _half_line(j: int, likelier: int) -> Event:
    statistic, chosen = Statistic(f"x[{j}]", lambda x: x[:, j]), np.array([False, True])
    return Event(statistic, Cells(np.array([0.5])), chosen, likelier)


def _shares(events, unseen, rng, **more):
    asked = {"sizes": (10_000, 10_000), "pool": 0.75, "delta": 0.0, "alpha": 0.01, **more}
    return divide_alpha(events, unseen, rng=rng, **asked)


def _divided(p0: list[float], p1: list[float], likelier: list[int]) -> list[float]:
    rng = np.random.default_rng(1)
    places = (np.arange(5000) + 0.5) / 5000
    unseen = tuple(
        np.column_stack([rng.permutation(places) < share for share in p]).astype(float)
        for p in (p0, p1)
    )
    return _shares([_half_line(j, side) for j, side in enumerate(likelier)], unseen, rng)


def test_shares_add_up_and_an_event_that_the_other_never_showed_leads():
    shares = _divided([0.0, 0.3, 0.3], [0.9, 0.4, 0.2], [1, 1, 0])
    assert sum(shares) == pytest.approx(0.75)
    assert shares[0] == pytest.approx(0.75 * 5 / 6)
    assert min(shares) > 0.05
    # two directions that show the same share equally; without events or with one all is given
    assert _divided([0.2, 0.4], [0.4, 0.2], [1, 0]) == [0.375, 0.375]
    empty, rng = (np.zeros((0, 1)), np.zeros((0, 1))), np.random.default_rng(1)
    assert _shares([], empty, rng, sizes=(1, 1)) == []
    assert _shares([_half_line(0, 1)], empty, rng, sizes=(1, 1)) == [0.75]


@pytest.mark.parametrize("events", [1, 2, 4, 6])
def test_possible_shares_are_the_least_and_the_largest_that_occur(events):
    rng = np.random.default_rng(3)
    least, most = possible_shares(events, pool=0.75)
    picked, found = [_half_line(j, 1) for j in range(events)], []
    for leading in [0, *range(events), *range(events)]:
        leads = np.arange(events) < leading
        p1, p0 = np.where(leads, 0.6, rng.uniform(0.2, 0.4, events)), np.where(leads, 0.0, 0.2)
        unseen = tuple((rng.random((300, events)) < p).astype(float) for p in (p0, p1))
        found += _shares(picked, unseen, rng, sizes=(600, 600))
    assert min(found) == pytest.approx(least)
    assert max(found) == pytest.approx(most)


@pytest.mark.slow
def test_what_a_pass_states_is_true_at_every_share_that_an_event_can_have():
    """Six events: two of the release, two of learned scores, two of low bits."""
    rng, draws = np.random.default_rng(5), 4_000
    neighbours = (np.zeros(2), np.ones(2))
    passed = audit(coarse(laplace(rng, 4.0)), neighbours=neighbours, samples=draws)
    tests = [t for t in passed.tests if t.name != "trade-off curve"]
    assert (passed.verdict, len(tests)) == ("no-finding", 6)
    spots = {s.flaw: s for s in passed.cannot_rule_out}
    excess = spots["ε above the claim, on an event of probability 1/2"].size
    leak = spots["rare releases that give one neighbour away"].size
    ceiling = float(spots["how large ε really is"].says.split("ε = ")[1].split(" ")[0])
    n = draws // 2
    counted = {
        "excess": (rng.binomial(n, 0.5, 2000), rng.binomial(n, 0.5 * math.exp(-1 - excess), 2000)),
        "leak": (rng.binomial(n, leak, 2000), np.zeros(2000, dtype=int)),
    }
    for share in possible_shares(6, pool=0.75):
        rest = {"draws": draws, "delta": 0.0, "alpha": 0.01 * share}
        assert float(epsilon_bounds(n, 0, **rest)) <= ceiling + 0.005
        for inside, outside in counted.values():
            assert np.mean(epsilon_bounds(inside, outside, **rest) > 1.0) >= 0.87


@pytest.mark.slow
def test_chosen_shares_keep_the_guarantee():
    """2,000 audits of three events at exactly the claim, shares chosen anew in each half."""
    rng, truth, times, missed = np.random.default_rng(7), math.log(2), 2000, 0
    p0, p1 = np.array([0.05, 0.4, 0.6]), np.array([0.1, 0.8, 0.3])
    events = [_half_line(0, 1), _half_line(1, 1), _half_line(2, 0)]
    for _ in range(times):
        unseen = tuple((rng.random((60, 3)) < p).astype(float) for p in (p0, p1))
        shares = divide_alpha(
            events, unseen, sizes=(250, 250), pool=1.0, delta=0.0, alpha=0.2, rng=rng
        )
        second = int(rng.binomial(500, 0.5))
        k0, k1 = rng.binomial(500 - second, p0), rng.binomial(second, p1)
        seen = [(k1[0], k0[0]), (k1[1], k0[1]), (k0[2], k1[2])]
        missed += any(
            float(epsilon_bounds(*seen[i], draws=500, delta=0.0, alpha=0.2 * shares[i])) > truth
            for i in range(3)
        )
    assert scipy.stats.binom.sf(missed - 1, times, 0.2) > 1e-3
    assert missed > 0.1 * times


@pytest.mark.slow
def test_tightness():
    """5e4 counted releases per side: within 7 % of the true ε, or of a Gaussian's μ."""
    rng = np.random.default_rng(5)
    assert 0.94 < audit(coarse(laplace(rng)), samples=100_000).epsilon.low <= 1
    assert 0.95 < audit(response(rng), samples=100_000).epsilon.low <= 1
    claim = {"epsilon": 4.377, "delta": 1e-5, "mu": 1.0}
    result = audit(coarse(gaussian(rng)), samples=100_000, **claim)
    assert result.verdict == "no-finding"
    assert 0.93 < result.mu.low <= 1


def test_half_the_noise_is_found():
    rng = np.random.default_rng(5)
    found = audit(coarse(laplace(rng, 0.5)))
    assert found.verdict == "finding"
    assert 1.5 < found.epsilon.low <= 2
    claim = {"epsilon": gaussian_epsilon(1e-3, sigma=1), "delta": 1e-3}
    for near in (ZERO_ONE, (np.zeros(16), np.full(16, 0.25))):
        half = coarse(gaussian(rng, 0.5))
        assert audit(half, neighbours=near, **claim).verdict == "finding"


@pytest.mark.slow
def test_noise_of_the_wrong_spread_is_found_though_means_agree():
    """σ depends on the value: a learned likelihood ratio shows it best."""
    rng = np.random.default_rng(5)
    release = coarse(lambda v, n: rng.normal(0, 1 + 0.5 * (v[0] > 0), (n, 8)))
    vectors = (np.zeros(8), np.full(8, 1e-3))
    result = audit(release, epsilon=0.1, delta=1e-3, neighbours=vectors)
    assert result.verdict == "finding"
    assert any(t.finding and "quadratic" in t.effect for t in result.tests)
    assert any("noise depends on the value" in a for a in result.advice)


@pytest.mark.slow
def test_a_leak_of_twice_delta_is_found_and_of_delta_is_not():
    for seed in range(2):
        rng = np.random.default_rng(seed)
        found, honest = (
            audit(leaking(rng, share), delta=0.01, samples=50_000) for share in (0.02, 0.01)
        )
        assert found.verdict == "finding"
        assert 0.012 < found.delta.low < 0.021
        assert honest.verdict == "no-finding"


def test_no_noise_at_all_and_no_answer_at_all():
    bare = audit(lambda v, n: np.tile(v, (n, 1)))
    assert bare.verdict == "finding"
    assert bare.epsilon.low > 6
    silent = audit(lambda v, n: np.zeros((n, 1)))
    assert silent.verdict == "inconclusive"
    assert "every release at both neighbours is 0" in silent.reason
    assert silent.epsilon.low == 0


def test_plain_floating_point_addition_is_a_finding_of_its_own():
    rng = np.random.default_rng(5)
    result = audit(laplace(rng))
    assert result.verdict == "finding"
    assert {t.name.split(",")[0] for t in result.tests if t.finding} == {"low bits"}
    assert any("Mironov" in a for a in result.advice)
    apart = audit(laplace(rng), real_numbers=True)
    assert apart.verdict == "no-finding"
    assert apart.epsilon.low <= 1
    assert any(t.advisory and t.p < 1e-6 for t in apart.tests)
    assert any("--real-numbers keeps them out" in a for a in apart.advice)
    assert not any("not differentially private" in a for a in apart.advice)
    assert apart.details == {"last_bits_excluded": True}
    assert apart.cannot_rule_out[-3].flaw == "what the last bits of a release tell"
    assert not audit(coarse(laplace(rng))).advice


@pytest.mark.slow
def test_what_a_pass_cannot_exclude_is_about_right():
    """A mechanism as bad as the blind spot is found with P ≈ 0.9; a quarter as bad, rarely."""
    draws = 4_000
    rng = np.random.default_rng(9)
    spots = audit(coarse(laplace(rng, 2.0)), samples=draws).cannot_rule_out
    excess = next(s for s in spots if s.flaw.startswith("ε above the claim")).size
    leak = next(s for s in spots if s.flaw.startswith("rare releases")).size

    def found(release, audits):
        results = (audit(release, seed=str(i), samples=draws) for i in range(audits))
        return sum(result.verdict == "finding" for result in results)

    # P < 1e-3 if the chance were 0.9
    assert found(coarse(laplace(rng, 1 / (1 + excess))), 20) >= 13
    assert found(coarse(laplace(rng, 1 / (1 + excess / 4))), 12) <= 4
    assert found(leaking(rng, leak, 2.0), 20) >= 13
    assert found(leaking(rng, leak / 4, 2.0), 12) <= 4


def test_a_claim_beyond_the_sample_says_so():
    result = audit(coarse(laplace(np.random.default_rng(5), 0.1)), epsilon=12.0)
    assert result.verdict == "no-finding"
    assert any("raise --samples" in s.says for s in result.cannot_rule_out)


@pytest.mark.parametrize(("epsilon", "says"), [(2.0, "are sure to show"), (2.5, "can show")])
def test_a_claim_that_only_the_largest_share_could_contradict(epsilon, says):
    claim = PrivacyClaim(epsilon, 0.0)
    spots = two_neighbour_blind_spots(draws=100, drawn=200, claim=claim, alphas=(2.5e-4, 6.25e-3))
    assert f"ε = {epsilon:g} is more than so few releases {says}:" in spots[1].says


def test_draws_take_turns_and_the_second_half_tosses_coins():
    mechanism = InProcess(coarse(laplace(np.random.default_rng(5))))
    result = audit(mechanism, samples=20_000)
    assert result.samples == result.samples_requested == 40_000
    pairs = list(zip(mechanism.asked[::2], mechanism.asked[1::2], strict=True))
    assert len(pairs) == 32
    assert all({a[0], b[0]} == {(0.0,), (1.0,)} for a, b in pairs)
    assert all(a[1] == b[1] for a, b in pairs[:16])
    assert len({a[0] for a, _ in pairs}) == 2  # neither always comes first
    second = [n for pair in pairs[16:] for v, n in pair if v == (1.0,)]
    assert all(a[1] + b[1] == 1250 for a, b in pairs[16:])
    assert len(set(second)) > 5


def test_slow_drift_is_no_difference():
    rng, state = np.random.default_rng(5), [0]

    def drifting(v, n):
        state[0] += 1
        return v + 0.02 * state[0] + rng.laplace(0, 1, (n, 1))

    assert audit(coarse(drifting), samples=40_000).verdict == "no-finding"


def silent_after(calls, release):
    """The release, which is silent after so many calls."""
    left = iter(range(calls))

    def slow(v, n):
        if next(left, None) is None:
            raise SamplerTimeoutError("test mechanism: silent")
        return release(v, n)

    return slow


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "inconclusive"), (0.5, "finding")])
def test_silence_after_some_counts_is_inconclusive_and_a_flaw_still_a_finding(scale, verdict):
    result = audit(silent_after(52, coarse(laplace(np.random.default_rng(5), scale))))
    assert result.verdict == verdict
    assert result.samples < result.samples_requested
    assert result.cannot_rule_out == ()


def test_silence_before_any_count_and_changing_lengths_are_errors():
    with pytest.raises(SamplerTimeoutError):
        audit(silent_after(0, None))
    lengths = itertools.count(1)
    with pytest.raises(SamplerOutputError, match="same length"):
        audit(lambda v, n: np.zeros((n, next(lengths))))
    with pytest.raises(UsageError, match=r"samples=20000.*--samples"):
        audit(lambda v, n: np.broadcast_to(0.0, (n, 100_000))[:, :], time_limit=60)


BAD = {"epsilon": (-1.0, math.nan, 1e9), "delta": (1.0,), "mu": (math.inf,)}
BAD |= {"alpha": (0.0,), "time_limit": (0.0,), "samples": (10,)}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, some in BAD.items() for v in some])
def test_refusals(name, value):
    with pytest.raises(UsageError, match=f"{name.replace('_', '-')}="):
        audit(lambda v, n: np.zeros((n, 1)), **{name: value})
