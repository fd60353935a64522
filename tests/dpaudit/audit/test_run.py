"""The audit as a whole: level, power, plan, and what it says when something goes wrong."""

import numpy as np
import pytest

from dpaudit.audit.plan import make_plan
from dpaudit.audit.run import run_audit
from dpaudit.claims import Claim
from dpaudit.errors import SamplerTimeoutError, UsageError
from dpaudit.stats import binomial_two_sided

GAUSSIAN = Claim.parse("gaussian:sigma=1")


def audit(function, *, claim="gaussian:sigma=1", sampler=None, **options):
    options = {"seed": "7", "samples": 200_000, **options}
    return run_audit(sampler(function), claim=Claim.parse(claim), **options)


def test_family_wise_error(function_sampler):
    """400 audits of honest noise at α = 0.05: no more findings than a level of 0.05 allows."""
    found = 0
    for i in range(400):
        rng = np.random.default_rng(1000 + i)
        result = audit(
            lambda n, d, rng=rng: rng.standard_normal((n, d)),
            sampler=function_sampler,
            seed=str(i),
            samples=20_000,
            alpha=0.05,
        )
        found += result.verdict == "finding"
    assert found <= 20 or binomial_two_sided(found, 400, 0.05) > 1e-3
    assert found >= 1  # α is spent, not thrown away: P(no finding in 400) < 1e-3 even at a true level of 0.02


HONEST = {
    "laplace:scale=2": lambda rng: lambda n, d: rng.laplace(0, 2, (n, d)),
    "discrete-laplace:scale=9.491221581029903": lambda rng: (
        lambda n, d: (rng.geometric(0.1, (n, d)) - rng.geometric(0.1, (n, d))).astype(float)
    ),
    "gaussian:sigma=1": lambda rng: lambda n, d: rng.standard_normal((n, d), dtype=np.float32),
}


@pytest.mark.parametrize("claim", HONEST)
def test_honest_laws_pass(claim, function_sampler):
    result = audit(HONEST[claim](np.random.default_rng(5)), claim=claim, sampler=function_sampler, samples=1_000_000)
    assert result.verdict == "no-finding"
    assert {b.flaw for b in result.cannot_rule_out} >= {"wrong scale", "correlation", "truncated tails"}


def test_a_pass_names_the_pancake_only_where_there_can_be_one(function_sampler):
    normal = np.random.default_rng(5).standard_normal
    many = audit(lambda n, d: normal((n, d)), sampler=function_sampler, dim=256)
    assert any("pancake with γ ≥ 2√d (≥ 32 at d = 256)" in b.flaw for b in many.cannot_rule_out)
    one = audit(lambda n, d: normal((n, d)), sampler=function_sampler, dim=1)
    assert not any("pancake" in b.flaw for b in one.cannot_rule_out)


def test_wrong_scale_at_the_default_size_is_found(function_sampler):
    rng = np.random.default_rng(5)
    result = audit(lambda n, d: rng.standard_normal((n, d)), claim="gaussian:sigma=1.02", sampler=function_sampler)
    assert result.verdict == "finding"
    assert result.tests[0].finding
    assert result.cannot_rule_out == ()


def test_absurdly_large_values_are_a_finding_not_an_overflow(function_sampler):
    for size in (1e12, 1e200, 1e308):
        result = audit(lambda n, d, size=size: np.full((n, d), size), sampler=function_sampler, samples=10_000)
        assert result.verdict == "finding"


def test_a_silent_sampler_after_some_values_is_inconclusive_and_a_flawed_one_still_a_finding(function_sampler):
    for scale, verdict in ((1.0, "inconclusive"), (1.3, "finding")):
        rng, calls = np.random.default_rng(5), []

        def draw(n, d, scale=scale, rng=rng, calls=calls):
            calls.append(n)
            if len(calls) > 50:
                raise SamplerTimeoutError("silent")
            return scale * rng.standard_normal((n, d))

        result = audit(draw, sampler=function_sampler)
        assert result.verdict == verdict
        assert result.samples < result.samples_requested


def test_a_sampler_that_is_silent_at_once_raises(function_sampler):
    def draw(n, d):
        raise SamplerTimeoutError("silent")

    with pytest.raises(SamplerTimeoutError):
        audit(draw, sampler=function_sampler)


def test_same_seed_same_verdict(function_sampler):
    runs = []
    for _ in range(2):
        rng = np.random.default_rng(5)
        runs.append(audit(lambda n, d, rng=rng: rng.standard_normal((n, d)), sampler=function_sampler).tests)
    assert runs[0] == runs[1]


@pytest.mark.parametrize("samples", [1_000, 12_345, 200_000, 10_000_000])
@pytest.mark.parametrize("dim", [None, 1, 64, 1000])
def test_plan_adds_up(samples, dim):
    plan = make_plan(samples, dim=dim)
    total = sum(c.n * c.d for c in plan)
    assert samples * 0.9 - (dim or 64) <= total <= samples
    assert all(c.n >= 1 and c.n * c.d <= max(1 << 19, dim or 0) for c in plan)
    if dim:
        assert {c.d for c in plan} == {dim}


def test_plan_reads_a_file_once():
    assert sum(c.n for c in make_plan(10_000_000, dim=4, available=77)) == 77


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0},
        {"alpha": 1.5},
        {"time_limit": 0},
        {"time_limit": float("nan")},
        {"samples": 10},
        {"dim": 0},
        {"dim": 10**7},
    ],
)
def test_bad_options(options, function_sampler):
    with pytest.raises(UsageError):
        audit(lambda n, d: np.zeros((n, d)), sampler=function_sampler, **options)


def test_dim_against_a_sampler_of_fixed_dimension(function_sampler):
    with pytest.raises(UsageError, match="dim=5"):
        run_audit(function_sampler(None, dim=4), claim=GAUSSIAN, seed="1", dim=5)
