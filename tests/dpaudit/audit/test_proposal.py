"""From the map to smoothing: what is proposed covers what is not seen, and says so where nothing does."""

import math

import pytest

from dpaudit.accounting import smoothing_eta, smoothing_tau
from dpaudit.audit.power import parse, propose_tau, read_table
from dpaudit.errors import UsageError


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
            assert smoothing_eta(tau=best.tau, sigma=1.0, beta=beta, gamma=gamma) <= 1e-4 * (1 + 1e-6)
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
