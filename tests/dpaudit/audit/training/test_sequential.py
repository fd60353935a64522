"""Training audited by bets: validity while it is watched, power within one run, refusals."""

import math

import numpy as np
import pytest
import scipy.stats

import dpaudit
from dpaudit.audit.betting.releases import ReleaseBets
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.views import Learner
from dpaudit.audit.training import sequential
from dpaudit.errors import SamplerCrashError, UsageError

M, STEPS = 60, 60
BASE, ODD = np.zeros((5, M)), 10.0 * np.eye(M)
ALPHA = 0.05


def steps(sigma=1.0, *, taken=STEPS, clip=True, log=None):
    """DP-SGD of ``taken`` steps that yields its noisy gradients."""

    def train(dataset, seed):
        rng = np.random.default_rng(seed)
        for _ in range(taken):
            if log is not None:
                log.append(np.flatnonzero(dataset.max(axis=0) == 10.0))
            g = dataset[rng.random(len(dataset)) < 0.5]
            if clip:
                g = g / np.maximum(1.0, np.linalg.norm(g, axis=1, keepdims=True))
            dataset = yield g.sum(axis=0) + rng.normal(0, sigma, M)

    return train


def audited(train, **options):
    given = {
        "canaries": ODD, "scores": lambda w, canaries: w[: len(canaries)], "alpha": ALPHA,
        "dpsgd": f"sigma=1,rate=0.5,steps={STEPS}", "seed": 1, "sequential": True, **options,
    }  # fmt: skip
    return dpaudit.audit_training(train, BASE, **given)


def test_half_the_noise_is_found_within_one_run_which_ends_there():
    log = []
    result = audited(steps(0.5, log=log))
    how = result.details["sequential"]
    assert (result.verdict, how["stopped"], how["unit"]) == ("finding", "contradicted", "step")
    assert how["looks"][-1][0] == len(log) < STEPS
    assert how["looks"][-1][1] >= math.log10(1 / ALPHA)
    (bets,) = result.tests
    assert bets.finding
    assert bets.p <= bets.p_adjusted <= ALPHA
    assert f"stopped after {len(log)} steps" in result.reason
    assert 0 < result.epsilon.low <= 4.0
    assert "sequential=True" in bets.reproduce


def test_an_honest_run_is_taken_to_its_end_and_says_what_it_leaves_open():
    log, seen = [], []
    result = audited(steps(log=log), progress=lambda *now: seen.append(now))
    assert (result.verdict, result.details["sequential"]["stopped"]) == ("no-finding", "limit")
    assert len(log) == STEPS
    assert seen == [(n, STEPS) for n in range(1, STEPS + 1)]
    flaws = {spot.flaw for spot in result.cannot_rule_out}
    assert "what a step shows of earlier batches" in flaws
    assert not any(flaw.startswith("what the training shows") for flaw in flaws)


def test_coins_are_tossed_anew_for_every_step():
    log = []
    audited(steps(log=log))
    there = np.zeros((len(log), M), dtype=bool)
    for row, present in zip(there, log, strict=True):
        row[present] = True
    assert abs(there.mean() - 0.5) < 4 * 0.5 / math.sqrt(there.size)
    assert abs((there[1:] == there[:-1]).mean() - 0.5) < 4 * 0.5 / math.sqrt(there[1:].size)


def test_more_steps_than_claimed_are_a_finding_at_the_first_of_them():
    log = []
    result = audited(steps(taken=4 * STEPS, log=log))
    assert [t.name for t in result.tests if t.finding] == ["one run, number of steps"]
    assert len(log) == STEPS + 1
    assert f"more than {STEPS} steps" in str(result)


def test_noise_that_repeats_is_learned_from_earlier_steps():
    def train(dataset, seed):
        rng = np.random.default_rng(seed)
        noises = rng.normal(0, 1, (3, M))
        for t in range(STEPS):
            g = dataset[rng.random(len(dataset)) < 0.5]
            g = g / np.maximum(1.0, np.linalg.norm(g, axis=1, keepdims=True))
            dataset = yield g.sum(axis=0) + noises[t % 3]

    assert audited(train).verdict == "finding"


def test_models_are_compared_by_what_a_step_changed():
    """The yielded weights add up all steps: only the change tells of this step's canaries."""

    def train(dataset, seed, w=0.0):
        steps_of = steps(0.3)(dataset, seed)
        step = next(steps_of)
        while True:
            w = w + step
            try:
                step = steps_of.send((yield w))
            except StopIteration:
                return

    assert audited(train).verdict == "finding"


def shifted(sigma):
    return lambda data, seed: (
        data.sum(axis=0) / 10 + np.random.default_rng(seed).normal(0, sigma, M)
    )


def test_run_after_run_ends_where_the_claim_is_contradicted():
    runs, found = {"dpsgd": None, "mu": 1.0, "runs": 60}, []
    for sigma in (1.0, 0.4):
        result = audited(shifted(sigma), **runs)
        how = result.details["sequential"]
        assert how["unit"] == "run"
        found.append((result.verdict, len(how["looks"]) < 60, result.mu.low >= 1))
    assert found == [("no-finding", False, False), ("finding", True, True)]
    one = audited(shifted(0.2), **{**runs, "canaries": ODD[:1], "runs": 400})
    assert (one.verdict, one.details["sequential"]["looks"][-1][0] < 400) == ("finding", True)


def contradictions(factor_of_each, *, times=100, blocks=30, m=40, leak=0.1):
    """How often a mechanism at exactly (0, ``leak``) is accused: all coins are out, or none."""
    accused = 0
    for seed in range(times):
        rng = np.random.default_rng(seed)
        bets = ReleaseBets(
            PrivacyClaim.of(0.0, leak),
            alpha=ALPHA,
            views=Learner(rng, (np.zeros(1), np.ones(1)), low_bits=False, seconds=0.0),
            bounds=False,
            averaged=1 if factor_of_each else m,
        )
        for _ in range(blocks):
            coins = rng.random(m) < 0.5
            shown = coins * 2.0 - 1 if rng.random() < leak else np.zeros(m)
            if bets.update(shown[:, None], coins):
                accused += 1
                break
    return accused


def test_canaries_that_leak_together_are_no_finding_unless_their_factors_were_multiplied():
    """P(at most 12 of 100) is 0.9985 at a rate of 0.05, 0.001 at 0.25; multiplied is known-bad."""
    most = 12
    assert contradictions(factor_of_each=False) <= most
    assert contradictions(factor_of_each=True) > most


def test_coins_that_do_not_change_between_steps_would_be_caught():
    """A known-bad audit: with one run's coins for all steps, honest weights are accused."""
    rng = np.random.default_rng(1)
    claim = PrivacyClaim.of(dpsgd="sigma=1,rate=0.5,steps=1")
    accused = {}
    for fresh in (True, False):
        past = sequential._Past(by_step=True)
        views = Learner(rng, (np.zeros(1), np.ones(1)), low_bits=False, seconds=0.0)
        bets = ReleaseBets(claim, alpha=ALPHA, views=views, averaged=M)
        coins, w = rng.random(M) < 0.5, np.zeros(M)
        for step in range(1, STEPS + 1):
            coins = rng.random(M) < 0.5 if fresh else coins
            w = w + (coins & (rng.random(M) < 0.5)) + rng.normal(0, 1, M)
            rows = past.rows(sequential._Unit(w, coins, 0, step))
            if rows is not None:
                bets.update(rows, coins)
        accused[fresh] = bets.contradicted
    assert accused == {True: False, False: True}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_honest_runs_watched_at_every_step_are_rarely_a_finding():
    """150 runs at exactly the claim; a true rate of 0.2 would pass with probability 0.004."""
    found = sum(audited(steps(), seed=i).verdict == "finding" for i in range(150))
    assert scipy.stats.binom.sf(found - 1, 150, ALPHA) > 1e-3


def stale(dataset, seed):
    for _ in range(5):
        yield dataset.sum(axis=0)


def raising(dataset, seed):
    dataset = yield dataset.sum(axis=0)
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("train", "options", "error", "text"),
    [
        (stale, {}, UsageError, "train=stale: yields without taking the next data set"),
        (raising, {}, SamplerCrashError, "train raised ValueError: broken"),
        (steps(), {"dpsgd": None, "mu": 1.0}, UsageError, "claim=1-GDP: train yields"),
        (steps(), {"guesses": 10}, UsageError, "guesses=10: sequential"),
        (steps(), {"sequential": False}, UsageError, "train: yields instead of returning"),
        (shifted(1.0), {}, UsageError, "runs=1: sequential"),
        (steps(), {"scores": lambda w, c: w[:3]}, UsageError, "score: has shape"),
        (steps(), {"scores": lambda w, c: w.none}, SamplerCrashError, "score raised"),
    ],
)
def test_refusals(train, options, error, text):
    with pytest.raises(error, match=text.split(":")[0]) as caught:
        audited(train, **options)
    assert text in str(caught.value)


def test_a_generator_is_closed_when_the_audit_ends():
    closed = []

    def train(dataset, seed):
        try:
            yield from steps(0.2)(dataset, seed)
        finally:
            closed.append(True)

    assert audited(train).verdict == "finding"
    assert closed == [True]


def test_one_canary_by_steps_needs_no_average():
    claim = {"canaries": ODD[:1], "dpsgd": "sigma=1,rate=0.5,steps=300"}
    found = [audited(steps(sigma, taken=300), **claim).verdict for sigma in (1.0, 0.01)]
    assert found == ["no-finding", "finding"]


def test_several_ranks_and_hidden_generators_are_refused(monkeypatch):
    with pytest.raises(UsageError, match="train: returned a generator; to be audited step"):
        audited(lambda dataset, seed: steps()(dataset, seed), runs=2)
    monkeypatch.setattr(sequential, "world_size", lambda: 2)
    with pytest.raises(UsageError, match="world_size=2: sequential=True"):
        audited(steps())
