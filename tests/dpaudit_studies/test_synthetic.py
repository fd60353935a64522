"""The worst pair for MST and AIM: bounds for μ of stand-ins whose μ is known; one is broken."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from dpaudit_studies.evidence.synthetic import (
    ALPHA,
    CASES,
    DELTA,
    EPSILON,
    PROGRAM,
    RECORDS,
    draw,
    implied_mu,
    judge,
    mu_from_guesses,
    table,
)

CLAIM = implied_mu(1.0, 1e-2)


def released(rng, n, *, share=1.0, noise=1.0):
    """MST's or AIM's marginals of equal records, fitted: (2, n, 2), rows and total.

    Four marginals with noise of their own share ``share`` of ρ unequally, and the model's total is
    their inverse-variance mean.
    """
    parts = share * np.array([0.1, 0.2, 0.3, 0.4])
    sigma = noise / (CLAIM * np.sqrt(parts))
    counts = RECORDS + np.arange(2)[:, None, None] + sigma * rng.normal(size=(2, n, 4))
    total = np.average(counts, axis=2, weights=sigma**-2)
    return np.stack([np.floor(total), total], axis=2)


def test_the_implied_mu_is_that_of_the_budget():
    """ρ = 0.10341… is what the libraries' own bisection gives for (1, 0.01)."""
    assert pytest.approx(0.10341283143348314, rel=1e-6) == CLAIM**2 / 2


def test_a_gaussian_measurement_of_all_of_the_budget_is_shown():
    row = judge(released(np.random.default_rng(1), 60_000), claim=CLAIM)
    assert 0.43 < row["mu_total"] < CLAIM
    assert 0.42 < row["mu_rows"] < CLAIM
    assert row["verdict"] == "no-finding"
    # the estimate is within 3.9 of its standard errors
    assert abs(row["estimate"] / CLAIM - 1) < 3.9 / math.sqrt(4 * 60_000)


def test_what_selection_wastes_is_not_shown():
    row = judge(released(np.random.default_rng(2), 60_000, share=2 / 3), claim=CLAIM)
    assert 0.34 < row["mu_total"] < CLAIM * math.sqrt(2 / 3)


def test_half_the_noise_is_found():
    row = judge(released(np.random.default_rng(3), 5_000, noise=0.5), claim=CLAIM)
    assert row["verdict"] == "finding"
    assert 0.8 < row["mu_total"] < 2 * CLAIM
    assert CLAIM < row["mu_rows"] < 2 * CLAIM
    assert "| 0.5 | 0.322 | 2 × 5,000 |" in next(
        iter(table([{**row, "says": "half", "share": 0.5, "derived": CLAIM * math.sqrt(0.5)}]))
    )


def test_an_exact_total_is_found_in_twenty_releases():
    exact = np.broadcast_to(np.array([100.0, 101.0])[:, None, None], (2, 20, 2))
    row = judge(exact, claim=CLAIM)
    assert row["mu_rows"] > 2
    assert "estimate" not in row


@pytest.mark.parametrize(("n0", "n1"), [(1000, 1000), (1000, 902), (300, 1500)])
@pytest.mark.parametrize("mu", [0.1, 0.4548, 2.0])
def test_bounds_exceed_the_truth_no_more_often_than_allowed(n0, n1, mu):
    """Right guesses at the best threshold, 4,000 times: the share over μ, and the median below."""
    rng = np.random.default_rng(4)
    x = mu / 2 + math.log(n0 / n1) / mu
    rights = rng.binomial(n0, norm.cdf(x), 4000) + rng.binomial(n1, norm.cdf(mu - x), 4000)
    bounds = {right: mu_from_guesses(int(right), (n0, n1)) for right in set(rights)}
    over = sum(bounds[right] > mu for right in rights)
    assert over <= 4000 * ALPHA + 3.9 * math.sqrt(4000 * ALPHA * (1 - ALPHA))
    if n0 == n1 and mu > 0.4:
        assert np.median([bounds[right] for right in rights]) > mu - 0.2


def test_guesses_at_random_show_nothing():
    assert mu_from_guesses(1000, (1000, 1000)) == 0
    assert mu_from_guesses(1900, (300, 1700)) > 0  # 1,700 by guessing always the same
    assert mu_from_guesses(1700, (300, 1700)) == 0


def test_the_program_of_the_other_environments_draws_the_same_cases():
    pytest.importorskip("pandas")
    program = runpy.run_path(str(PROGRAM))
    assert set(program["CASES"]) == {case.name for case in CASES}
    assert (program["RECORDS"], program["EPSILON"], program["DELTA"]) == (RECORDS, EPSILON, DELTA)


def test_a_case_without_its_environment_is_left_out(tmp_path, capsys):
    assert draw(CASES[0], tmp_path / "keep", envs=tmp_path, mbi=None) is None
    assert f"{CASES[0].name} is left out: no {Path(tmp_path)}" in capsys.readouterr().err
    assert not (tmp_path / "keep").exists()
