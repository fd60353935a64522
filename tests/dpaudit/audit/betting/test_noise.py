"""Sequential audits: anytime-valid on honest noise, quick on flawed noise, whole at the end."""

import math

import numpy as np
import pytest
import scipy
from support.function_sampler import FunctionSampler

import dpaudit
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.betting.noise import BETS, Betting, log_scale_mixture
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream
from dpaudit.stats import binomial_two_sided

GAUSSIAN = Claim.parse("gaussian:sigma=1")


def blocks(rng, count, rows=8, d=16, change=lambda z: z):
    for call in range(count):
        yield SampleBlock(call, change(rng.standard_normal((rows, d))), claim=GAUSSIAN, spread=rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", BETS)
def test_each_bet_is_fair_at_every_look(name):
    """Ville: P(capital ever reaches 10) ≤ 0.1 over 30 blocks; the mean capital is at most 1.

    60 times: fails from 16 on, which a share of 0.4 gives in 99 of 100 cases.
    """
    reached, last = 0, []
    for i in range(60):
        bet = BETS[name](KeyedStream.from_seed(i))
        top = 0.0
        for block in blocks(np.random.default_rng([17, i]), 30):
            bet.update(block)
            top = max(top, bet.log_capital)
        reached += top >= math.log(10)
        last.append(min(bet.log_capital, 50.0))
    assert reached <= 6 or binomial_two_sided(reached, 60, 0.1) > 1e-3
    # capital is at most 10 with probability 0.9 or more, so a truncated mean has a bounded spread
    assert np.mean(np.minimum(np.exp(last), 10)) < 1 + 3 * 10 / math.sqrt(60) / 2


def test_the_check_catches_an_unfair_bet():
    """Repeated looks at a fixed-n test: the same 60 runs reach p ≤ 0.1 far too often."""
    reached = 0
    for i in range(60):
        total = count = 0
        least = 1.0
        for block in blocks(np.random.default_rng([17, i]), 30):
            total, count = total + block.z.sum(), count + block.z.size
            least = min(least, math.erfc(abs(total) / math.sqrt(2 * count)))
        reached += least <= 0.1
    assert binomial_two_sided(reached, 60, 0.1) < 1e-6


def test_the_scale_mixture_is_a_likelihood_ratio():
    """Against numerical integration over the prior, one Gamma at a time."""
    z = np.random.default_rng(3).standard_normal(5) * 1.3
    square = float(z @ z)

    def likelihood(t):
        return t ** (len(z) / 2) * math.exp(-(t - 1) * square / 2)

    def mixed(b):
        prior = scipy.stats.gamma(b, scale=1 / b)
        return scipy.integrate.quad(lambda t: likelihood(t) * prior.pdf(t), 0, np.inf)[0]

    expected = math.log((mixed(2.0) + mixed(200.0)) / 2)
    assert log_scale_mixture(len(z), square) == pytest.approx(expected, abs=1e-6)


FLAWS = {
    "bet on the scale": lambda z: 1.1 * z,
    "bet on the mean": lambda z: z + 0.1,
    "bet on the shape": lambda z: np.sign(z) * np.abs(z) ** 1.1 * 0.95,
    "bet on correlation": lambda z: (z + 0.3 * np.roll(z, 1)) / math.hypot(1, 0.3),
    "bet on a direction": lambda z: z * np.array([1.6] + [1.0] * 15),
    "bet on repeats": lambda z: np.repeat(z[:4], 2, axis=0),
}


@pytest.mark.parametrize("name", BETS)
def test_each_bet_wins_against_its_flaw(name):
    bet = BETS[name](KeyedStream.from_seed(1))
    for block in blocks(np.random.default_rng(1), 100, change=FLAWS[name]):
        bet.update(block)
    assert bet.log_capital > math.log(1000)
    assert bet.effect


def test_scale_off_by_ten_percent_stops_within_five_percent_of_the_fixed_n():
    stopped = []
    for i in range(6):
        rng = np.random.default_rng([4, i])
        result = run_audit(
            FunctionSampler(lambda n, d, rng=rng: 1.1 * rng.standard_normal((n, d))),
            claim=GAUSSIAN,
            options=AuditOptions(seed=str(i), sequential=True, samples=1_000_000),
        )
        assert result.verdict == "finding"
        assert result.tests[0].finding
        stopped.append(result.samples)
    assert np.mean(stopped) < 0.05 * 1_000_000


def test_what_bets_do_not_see_the_battery_sees_at_the_end():
    """Rows of fixed length: no bet uses norms. Honest noise is read to its end and passes."""
    rng = np.random.default_rng(4)

    def sphere(n, d):
        z = rng.standard_normal((n, d))
        length = np.sqrt(rng.chisquare(d, (n, 1)) * 0.5 + d * 0.5)
        return z * length / np.linalg.norm(z, axis=1, keepdims=True)

    def honest(n, d):
        return rng.standard_normal((n, d))

    options = AuditOptions(
        seed="1", sequential=True, samples=120_000, dim=64, tests=("norms", "moments")
    )
    for draw, verdict in ((sphere, "finding"), (honest, "no-finding")):
        result = run_audit(FunctionSampler(draw), claim=GAUSSIAN, options=options)
        assert result.verdict == verdict
        assert result.sequential
        assert result.samples > 115_000


def test_no_repeats_are_bet_on_for_a_discrete_claim():
    bets = Betting(Claim.parse("discrete-laplace:scale=1"), KeyedStream.from_seed(1), alpha=0.01)
    assert "bet on repeats" not in {r.name for r in bets.results(alpha=0.02)}


@pytest.mark.slow
def test_a_fork_that_repeats_its_parent_is_advice_and_no_bet():
    """A forked child draws its parent's noise, as any fork of a generator does."""
    asked = {"samples": 100_000, "seed": 1, "sequential": True, "tests": ["forks"]}
    name = "python:numpy.random:standard_normal"
    result = dpaudit.audit_sampler(name, claim=str(GAUSSIAN), **asked)
    assert result.verdict == "no-finding"
    # the child was drawn, and did repeat
    assert next(t for t in result.tests if t.name == "forks").statistic > 0
    assert not next(t for t in result.tests if t.name == "bet on repeats").finding
