"""The detectability map: how it is read, its truth where measured, the smoothing proposed."""

import itertools
import math

import numpy as np
import pytest
from support.function_sampler import FunctionSampler

from dpaudit import registry
from dpaudit.accounting import smoothing_eta, smoothing_tau
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.power import blind_spots, frontier, parse, propose_tau, read_table
from dpaudit.claims import Claim
from dpaudit.errors import UsageError

BATTERY = tuple(sorted(set(registry.plugins("tests")) - {"keyless-search"}))
GAUSSIAN = Claim.parse("gaussian:sigma=1")
TABLE = parse(
    """# a comment
flaw,dim,samples,size,unit,by,found_low,found_high
wrong scale,0,100000,1.0,%,moments,0.8,1
wrong scale,0,10000000,0.1,%,moments,0.8,1
spike,0,100000,3,%,covariance,0.8,1
spike,64,100000,30,%,covariance,0.8,1
spike,1024,100000,300,%,covariance,0.8,1
""".splitlines()
)


def at(dim, samples):
    return {p.flaw: p.size for p in frontier(dim=dim, samples=samples, table=TABLE)}


def test_between_points_on_logarithmic_scales():
    assert at(None, 1_000_000)["wrong scale"] == pytest.approx(10**-0.5)
    assert at(None, 100_000)["wrong scale"] == 1.0


def test_beyond_the_points_it_promises_no_more_than_was_measured():
    assert at(None, 10**9)["wrong scale"] == 0.1
    assert at(None, 50_000) == {}


def test_a_dimension_is_read_at_the_next_larger_one():
    assert at(None, 10**5)["spike"] == 3
    assert at(10, 10**5)["spike"] == 30
    assert at(65, 10**5)["spike"] == 300
    assert "spike" not in at(2000, 10**5)


def test_the_package_carries_a_map_that_grows_sharper_with_n():
    points = read_table()
    scale = sorted((p.samples, p.size) for p in points if p.flaw == "wrong scale")
    assert [n for n, _ in scale] == [100_000, 1_000_000, 10_000_000]
    assert all(a > 2 * b for (_, a), (_, b) in itertools.pairwise(scale))
    assert all(p.found_high >= 0.9 for p in points)
    assert all(spot.says for spot in blind_spots(points))


def audited(rng, seed, *, scale=1.0, **options):
    draw = FunctionSampler(lambda n, d: scale * rng.standard_normal((n, d)))
    options = AuditOptions(seed=seed, tests=BATTERY, **options)
    return run_audit(draw, claim=GAUSSIAN, options=options)


@pytest.mark.slow
def test_a_pass_quotes_the_map_and_a_small_audit_does_not():
    rng = np.random.default_rng((5, 2311))
    for samples, quoted in ((120_000, True), (20_000, False)):
        result = audited(rng, "1", samples=samples)
        assert any(b.test.startswith("simulated") for b in result.cannot_rule_out) == quoted
        assert bool(result.power) == quoted
        assert sum(b.flaw == "wrong scale" for b in result.cannot_rule_out) == 1


@pytest.mark.slow
def test_the_map_is_true_where_it_was_measured():
    """Audits of the very flaw that the map finds with probability 0.9 at 10^5 values."""
    points = [p for p in read_table() if p.flaw == "wrong scale" and p.samples == 100_000]
    scale, found = 1 + points[0].size / 100, 0
    for i in range(12):
        rng = np.random.default_rng([8, i])
        result = audited(rng, str(i), scale=scale, samples=100_000, dim=64)
        found += result.verdict == "finding"
    # 6 or fewer of 12 has probability 0.0005 at a power of 0.9; at a power of 0.3 it has 0.96
    assert found >= 7


def table(*sizes, dim=64):
    lines = ["flaw,dim,samples,size,unit,by,found_low,found_high"]
    lines += [
        f'"Gaussian pancake, small γ",{dim},{n},{size},γ (β = 0.01),covariance,0.8,1'
        for n, size in zip((10**5, 10**7), sizes, strict=False)
    ]
    return parse(lines)


def test_the_rest_is_covered_for_every_width():
    found = propose_tau(table(4.0, 9.0), dim=64, samples=10**6, eta=1e-4)
    assert found.gamma_seen == pytest.approx(6.0)  # between, on logarithmic scales
    best, hard = found.covers
    assert best.gamma_min == found.gamma_seen
    for beta in (1e-6, 1e-3, 0.5):
        for gamma in (6.0, 7.0, 40.0):
            assert smoothing_eta(tau=best.tau, sigma=1.0, beta=beta, gamma=gamma) <= 1e-4 * (
                1 + 1e-6
            )
    assert smoothing_eta(tau=0.98 * best.tau, sigma=1.0, beta=1e-6, gamma=6.0) > 1e-4
    assert best.l2_factor == pytest.approx(math.sqrt(1 + best.tau**2))
    assert (hard.gamma_min, hard.tau) == (16.0, smoothing_tau(1e-4, sigma=1.0, gamma=16.0))
    assert f"γ up to 6 are found; smoothing τ = {best.tau:.4g}" in found.says


def test_a_sharper_audit_costs_less():
    few, many = (propose_tau(table(4.0, 9.0), dim=64, samples=n).covers[0] for n in (10**5, 10**7))
    assert many.tau < few.tau
    coarse = propose_tau(table(4.0), dim=64, samples=10**5, eta=0.1).covers[0]
    assert coarse.tau < few.tau


def test_where_smoothing_cannot_the_whole_noise_is_proposed():
    found = propose_tau(table(1.2), dim=64, samples=10**5)
    best = found.covers[0]
    assert (best.tau, best.gamma_min, best.by) == (1.0, 0.0, "the defender's own noise alone")
    assert best.l2_factor == pytest.approx(math.sqrt(2))
    assert "below γ = 3.04" in found.caveats[-1]
    with pytest.raises(UsageError):
        smoothing_tau(1e-6, sigma=1.0, gamma=3.03)
    assert smoothing_tau(1e-6, sigma=1.0, gamma=3.05) < 1.0


@pytest.mark.parametrize("dim", [65, 3143])
def test_a_dimension_beyond_the_map(dim):
    found = propose_tau(table(9.0), dim=dim, samples=10**5)
    assert found.gamma_seen is None
    assert found.covers[0].tau == 1.0
    assert "no pancake is known to be found" in found.says
    assert "The map has no pancake" in found.caveats[0]
    assert found.covers[1].gamma_min == 2 * math.sqrt(dim)


def test_where_the_auditor_chooses_the_dimension_it_says_what_that_is_worth():
    found = propose_tau(read_table(), dim=None, samples=10**6)
    assert 10 < found.gamma_seen < 40
    assert found.covers[0].l2_factor < 1.02
    assert len(found.covers) == 1  # 2√d of no d
    assert any("dimension" in caveat for caveat in found.caveats)


def test_eta_is_checked():
    for eta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(UsageError, match="eta="):
            propose_tau(read_table(), dim=64, samples=10**6, eta=eta)
