"""Calibration and the pancake's bounds against integrals, densities and the paper's logs."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.accounting import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    gaussian_sigma_paper,
    pancake_epsilon_lower,
    pancake_epsilon_upper,
    peak_spacing,
    peak_width,
    smoothing_eta,
    smoothing_tau,
)
from dpaudit.errors import UsageError

LOGS = Path(__file__).parents[1] / "data" / "gpm_hist_da_excerpt.csv"


def published() -> list[dict[str, str]]:
    """A dozen rows of the paper's hist-da.csv."""
    with LOGS.open() as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------- the Gaussian mechanism


def delta_by_integration(epsilon: float, sigma: float, sensitivity: float) -> float:
    """∫ max(0, p − e^ε·q) for p = N(Δ, σ²), q = N(0, σ²): the definition, no closed form."""
    start = (epsilon * sigma**2 + sensitivity**2 / 2) / sensitivity  # where p passes e^ε·q

    def gap(x: float) -> float:
        p = scipy.stats.norm.logpdf(x, sensitivity, sigma)
        return math.exp(p) - math.exp(epsilon + scipy.stats.norm.logpdf(x, 0, sigma))

    assert abs(gap(start)) < 1e-12
    far = max(start, sensitivity) + 12 * sigma
    middle = max(start, min(sensitivity, far))
    return sum(
        scipy.integrate.quad(gap, a, b, epsabs=0, epsrel=1e-9, limit=200)[0]
        for a, b in ((start, middle), (middle, far))
        if b > a
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 3.0, 10.0])
@pytest.mark.parametrize(
    ("sigma", "sensitivity"), [(0.4, 1.0), (1.0, 1.0), (30.0, 7.0), (5.0, 1.0)]
)
def test_gaussian_delta_is_the_hockey_stick_integral(epsilon, sigma, sensitivity):
    expected = delta_by_integration(epsilon, sigma, sensitivity)
    found = gaussian_delta(epsilon, sigma=sigma, sensitivity=sensitivity)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-280)


def delta_mpmath(epsilon: float, t: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, t = mpmath.mpf(epsilon), mpmath.mpf(t)
        return mpmath.ncdf(t / 2 - e / t) - mpmath.exp(e) * mpmath.ncdf(-t / 2 - e / t)


@pytest.mark.parametrize("epsilon", [1e-3, 0.125, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1, 0.5, 0.999])
def test_sigma_epsilon_and_delta_agree_both_ways(epsilon, delta):
    unit = gaussian_sigma(epsilon, delta)
    assert gaussian_sigma_paper(epsilon, delta) >= unit * (1 - 1e-9)
    # sixty digits: no cancellation there
    assert float(delta_mpmath(epsilon, 1 / unit)) == pytest.approx(delta, rel=1e-6)
    for sensitivity in (1e-9, 1.0, 0.0625, 40.0):
        sigma = gaussian_sigma(epsilon, delta, sensitivity=sensitivity)
        law = {"sigma": sigma, "sensitivity": sensitivity}
        assert gaussian_delta(epsilon, **law) == pytest.approx(delta, rel=1e-6)
        assert gaussian_epsilon(delta, **law) == pytest.approx(epsilon, rel=1e-6)
        assert sigma / sensitivity == pytest.approx(unit, rel=1e-12)


@pytest.mark.slow
@given(st.floats(1e-3, 20), st.floats(1e-12, 0.1))
def test_the_exact_calibration_is_the_least_and_below_the_papers(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta)
    assert sigma <= gaussian_sigma_paper(epsilon, delta) * (1 + 1e-9)
    assert gaussian_delta(epsilon, sigma=sigma * 0.999) > delta
    assert gaussian_delta(epsilon, sigma=gaussian_sigma_paper(epsilon, delta)) <= delta * (1 + 1e-9)


def test_paper_calibration_reproduces_the_published_sigmas():
    for row in published():
        sigma = gaussian_sigma_paper(float(row["eps_comp"]), float(row["delta"]))
        assert sigma == pytest.approx(float(row["sigma"]), rel=1e-9)
    table = {0.125: 50.9692, 0.25: 25.5237, 0.5: 12.8008, 1.0: 6.4390}
    for epsilon, sigma in table.items():
        for size in (1, 8):
            found = gaussian_sigma_paper(epsilon, 1e-10, sensitivity=size)
            assert found == pytest.approx(size * sigma, abs=size * 5e-5)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 1.0])
def test_paper_calibration_keeps_its_digits_where_the_textbook_form_cancels(epsilon):
    with mpmath.workdps(60):
        q = -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(1e-10))
        expected = 1 / (q + mpmath.sqrt(q * q + 2 * mpmath.mpf(epsilon)))
    assert gaussian_sigma_paper(epsilon, 1e-10) == pytest.approx(float(expected), rel=1e-9)


def test_profile_ends_at_zero():
    assert gaussian_delta(math.inf, sigma=1.0) == 0.0
    assert gaussian_epsilon(0.5, sigma=1.0) == 0.0  # δ alone already covers it


PANCAKE = {"sigma": 1.0, "beta": 1e-3, "gamma": 32}
NAMED = [
    ("sigma", lambda x: gaussian_delta(1.0, sigma=x)),
    ("sensitivity", lambda x: gaussian_epsilon(1e-5, sigma=1.0, sensitivity=x)),
    ("epsilon", lambda x: gaussian_sigma(x, 1e-5)),
    ("epsilon", lambda x: gaussian_sigma_paper(x, 1e-5)),
    ("gamma", lambda x: peak_spacing(**(PANCAKE | {"gamma": x}))),
    ("beta", lambda x: peak_width(**(PANCAKE | {"beta": x}))),
    ("sensitivity", lambda x: pancake_epsilon_upper(1e-5, **PANCAKE, sensitivity=x)),
    ("tau", lambda x: smoothing_eta(tau=x, **PANCAKE)),
    ("delta", lambda x: gaussian_epsilon(x, sigma=1.0)),
    ("delta", lambda x: gaussian_sigma(1.0, x)),
    ("delta", lambda x: gaussian_sigma_paper(1.0, x)),
    ("delta", lambda x: pancake_epsilon_lower(x, beta=1e-3, gamma=32)),
    ("delta", lambda x: pancake_epsilon_upper(x, **PANCAKE)),
]


@pytest.mark.parametrize(("name", "call"), NAMED)
def test_impossible_arguments_are_named(name, call):
    """An undefined epsilon is not perfect privacy, either."""
    for bad in (0.0, -1.0, math.nan, 1.0 if name == "delta" else math.inf):
        with pytest.raises(UsageError, match=f"{name}={bad}"):
            call(bad)
    with pytest.raises(UsageError, match="epsilon=nan"):
        gaussian_delta(math.nan, sigma=1.0)


# ---------------------------------------------------------------- the pancake's shape


def mixture(x, *, sigma, beta, gamma, tau=0.0):
    """The pancake's density along the key convolved with N(0, τ²), by definition."""
    r2 = beta**2 + gamma**2
    reach = math.ceil(math.sqrt(r2) * 6) + 2
    k = np.arange(-reach, reach + 1)
    weight = np.exp(-math.pi * k**2 / r2)
    weight /= weight.sum()
    centre = k * math.sqrt(2 * math.pi) * sigma * gamma / r2
    width = math.hypot(sigma * beta / math.sqrt(r2), tau)
    return (weight * scipy.stats.norm.pdf(x[:, None], centre, width)).sum(axis=1)


@pytest.mark.parametrize(
    ("sigma", "beta", "gamma"),
    [(1.0, 0.1, 4.0), (7.0, 0.02, 9.0), (0.3, 0.7, 2.0), (1.0, 0.05, 1.0)],
)
def test_peaks_make_the_homogeneous_clwe_density(sigma, beta, gamma):
    """Spacing and width are right if the mixture is ∝ exp(−x²/2σ²)·Σ_k exp(−π(k − γ·u)²/β²).

    That is the homogeneous CLWE density in the variable u = x/(√(2π)σ): a Gaussian envelope that
    survives where ⟨x, w⟩ times γ is near a whole number.
    """
    x = np.linspace(-5 * sigma, 5 * sigma, 4001)
    phase = gamma * x / (math.sqrt(2 * math.pi) * sigma)
    k = np.arange(-100, 101)
    comb = np.exp(-math.pi * (k - phase[:, None]) ** 2 / beta**2).sum(axis=1)
    target = np.exp(-(x**2) / (2 * sigma**2)) * comb
    spacing = peak_spacing(sigma=sigma, beta=beta, gamma=gamma)
    width = peak_width(sigma=sigma, beta=beta, gamma=gamma)
    weight = np.exp(-math.pi * k**2 / (beta**2 + gamma**2))
    for factor in (1, 1.001):  # the check sees a spacing 0.1 % off
        peaks = np.exp(-((x[:, None] - k * spacing * factor) ** 2) / (2 * width**2))
        ours = (weight * peaks).sum(axis=1)
        error = np.abs(ours / ours.max() - target / target.max()).max()
        assert error < 1e-9 if factor == 1 else error > 1e-4


@pytest.mark.parametrize(
    ("sigma", "beta", "gamma"), [(1.0, 1e-3, 3.0), (50.0, 0.1, 32.0), (2.0, 3.0, 4.0)]
)
def test_peaks_have_the_claimed_variance(sigma, beta, gamma):
    r2 = beta**2 + gamma**2
    k = np.arange(-600, 601)
    weight = np.exp(-math.pi * k**2 / r2)
    weight /= weight.sum()
    spacing = peak_spacing(sigma=sigma, beta=beta, gamma=gamma)
    variance = (
        peak_width(sigma=sigma, beta=beta, gamma=gamma) ** 2 + (weight * (k * spacing) ** 2).sum()
    )
    assert variance == pytest.approx(sigma**2, rel=1e-9)


# ------------------------------------------------------ what the pancake leaves of privacy


def test_lower_bound_against_the_published_column():
    """The closed form is ln 4 looser than the exact ratio behind it if the peaks are far apart."""
    rows = published()
    assert len(rows) == 12
    for row in rows:
        beta, gamma, theirs = float(row["beta"]), float(row["gamma"]), float(row["eps_actual"])
        ours = pancake_epsilon_lower(float(row["delta"]), beta=beta, gamma=gamma)
        x = gamma / (4 * beta) * math.sqrt(math.pi / (2 * (beta**2 + gamma**2)))
        closed = math.log((1 - 1e-10) / 4) + x**2 / 2 + math.log(math.sqrt(math.pi / 2) * x)
        assert theirs == pytest.approx(closed, rel=1e-12)  # the brief's reading of their formula
        assert theirs <= ours <= theirs + math.log(4) + 2 / x**2 + 1e-15 * theirs
    assert pancake_epsilon_lower(1e-10, beta=1e-5, gamma=32) == pytest.approx(4.9087e8, rel=1e-4)


@pytest.mark.parametrize("fraction", [0.01, 0.25])
@pytest.mark.parametrize("beta", [1e-4, 0.1, 0.5])
def test_lower_bound_is_what_the_nearest_peak_attack_proves(fraction, beta):
    """The attack errs by at most e = 2Φ(−fP/2s), so ε ≥ ln((1 − δ − e)/e), in 60 digits."""
    delta, gamma, sigma = 1e-10, 8.0, 3.0
    with mpmath.workdps(60):
        half = fraction * peak_spacing(sigma=sigma, beta=beta, gamma=gamma) / 2
        error = mpmath.erfc(half / peak_width(sigma=sigma, beta=beta, gamma=gamma) / mpmath.sqrt(2))
        expected = max(0, mpmath.log((1 - delta - error) / error)) if error < 1 - delta else 0
    ours = pancake_epsilon_lower(delta, beta=beta, gamma=gamma, fraction=fraction)
    assert ours == pytest.approx(float(expected), rel=1e-9)


def test_lower_bound_stays_below_the_upper_where_the_query_can_move_that_far():
    grid = itertools.product(
        [1e-6, 1e-3, 0.1, 1.0], [1.0, 32.0, 5120.0], [1.0, 50.0], [1e-12, 1e-3], [0.1, 0.25, 0.5]
    )
    for beta, gamma, sigma, delta, fraction in grid:
        # Δ ≥ |⟨q0 − q1, w⟩| ≥ f·P
        least = fraction * peak_spacing(sigma=sigma, beta=beta, gamma=gamma)
        law = {"sigma": sigma, "beta": beta, "gamma": gamma}
        low = pancake_epsilon_lower(delta, beta=beta, gamma=gamma, fraction=fraction)
        for sensitivity in (least, 3 * least):
            assert 0 <= low <= pancake_epsilon_upper(delta, **law, sensitivity=sensitivity)


def test_upper_bound_is_the_gaussians_at_the_peak_width():
    width = peak_width(sigma=3.0, beta=0.1, gamma=32)
    upper = pancake_epsilon_upper(1e-6, sigma=3.0, beta=0.1, gamma=32)
    assert gaussian_sigma_paper(upper, 1e-6) == pytest.approx(width, rel=1e-9)
    assert upper >= gaussian_epsilon(1e-6, sigma=width)
    # never below nothing at all
    assert pancake_epsilon_upper(0.9, sigma=1e6, beta=1.0, gamma=1.0) == 0.0


def test_lower_bound_says_nothing_where_it_can_say_nothing():
    assert pancake_epsilon_lower(1e-10, beta=1e-5, gamma=32, fraction=0.0) == 0.0
    assert pancake_epsilon_lower(1e-10, beta=100.0, gamma=1.0) == 0.0
    assert pancake_epsilon_lower(0.999, beta=0.5, gamma=4.0) == 0.0
    for fraction in (-0.1, 0.51, math.nan):
        with pytest.raises(UsageError, match=f"fraction={fraction}"):
            pancake_epsilon_lower(1e-10, beta=1e-5, gamma=32, fraction=fraction)


# ---------------------------------------------------------------- smoothing


def deviation(*, tau, sigma, beta, gamma):
    """Smallest and largest ratio of the smoothed pancake's density to the Gaussian's."""
    total = math.hypot(sigma, tau)
    spacing = math.sqrt(2 * math.pi) * sigma * gamma / (beta**2 + gamma**2)
    near = np.linspace(-2 * spacing, 2 * spacing, 2001)
    x = np.concatenate([near, near + total, near + 3.3 * total])
    ratio = mixture(x, sigma=sigma, beta=beta, gamma=gamma, tau=tau)
    ratio /= scipy.stats.norm.pdf(x, 0, total)
    return float(ratio.min()), float(ratio.max())


@pytest.mark.parametrize(
    ("tau", "beta", "gamma"),
    [
        (2.5, 1e-3, 32.0),
        (1.5, 1e-3, 32.0),
        (1.0, 0.3, 40.0),
        (15.0, 1e-3, 5.0),
        (10.0, 0.8, 3.0),
        (50.0, 1e-3, 3.0),
    ],
)
def test_eta_is_the_largest_deviation_on_a_grid(tau, beta, gamma):
    law = {"sigma": 50.0, "beta": beta, "gamma": gamma}
    eta, (low, high) = smoothing_eta(tau=tau, **law), deviation(tau=tau, **law)
    worst = max(1 - low, high - 1)
    assert 0.97 * eta <= worst <= eta * (1 + 1e-6) + 1e-12
    assert worst > smoothing_eta(tau=1.05 * tau, **law)  # the check has an edge


@pytest.mark.parametrize("gamma", [0.3, 0.7, 1.5])
@pytest.mark.parametrize("beta", [1e-3, 1.0])
@pytest.mark.parametrize("tau", [0.05, 0.7, 1.0])
def test_eta_holds_for_small_gamma_where_the_lattice_counts(gamma, beta, tau):
    eta = smoothing_eta(tau=tau, sigma=1.0, beta=beta, gamma=gamma)
    if eta == math.inf:
        return
    assert eta < 1
    low, high = deviation(tau=tau, sigma=1.0, beta=beta, gamma=gamma)
    assert 1 - eta - 1e-9 <= low
    assert high <= 1 + eta + 1e-9


def test_eta_is_not_vacuous_for_small_gamma():
    grid = itertools.product((0.7, 1.0, 1.5), (1e-3, 0.7, 1.0, 2.0), (0.7, 5.0))
    etas = [smoothing_eta(tau=t, sigma=1.0, beta=b, gamma=g) for g, b, t in grid]
    assert sum(eta < 1 for eta in etas) >= 12
    # The lattice term itself: γ=1, β→0, τ=σ has W = 0.4158, L = 0.0864; the lowest point of the
    # ratio comes near 1 − η.
    eta = smoothing_eta(tau=1.0, sigma=1.0, beta=1e-3, gamma=1.0)
    low, _ = deviation(tau=1.0, sigma=1.0, beta=1e-3, gamma=1.0)
    assert 1 - low == pytest.approx(eta, rel=0.02)


def test_eta_is_infinite_where_the_peaks_stay_apart():
    assert smoothing_eta(tau=1e-6, sigma=1.0, beta=1e-5, gamma=32) == math.inf
    assert smoothing_eta(tau=1.0, sigma=1.0, beta=1e-5, gamma=0.1) == math.inf


@pytest.mark.parametrize(("tau", "beta", "gamma"), [(0.05, 1e-3, 32.0), (0.9, 0.05, 1.2)])
def test_smoothed_pancake_keeps_the_promised_privacy(tau, beta, gamma):
    """(ε + ln((1+η)/(1−η)), (1+η)δ) by direct integration along the key, over all shifts."""
    sigma, epsilon = 1.0, 0.5
    total = math.hypot(sigma, tau)
    eta = smoothing_eta(tau=tau, sigma=sigma, beta=beta, gamma=gamma)
    assert 1e-5 < eta < 1
    step = 1 / 400
    x = np.arange(-9, 9, step)
    p = mixture(x, sigma=sigma, beta=beta, gamma=gamma, tau=tau)
    for fraction in (0.5, 4.25):
        shift = fraction * peak_spacing(sigma=sigma, beta=beta, gamma=gamma)
        q = mixture(x - shift, sigma=sigma, beta=beta, gamma=gamma, tau=tau)
        promised = epsilon + math.log((1 + eta) / (1 - eta))
        delta = np.maximum(0, p - math.exp(promised) * q).sum() * step
        assert delta <= (1 + eta) * gaussian_delta(epsilon, sigma=total, sensitivity=shift) + 1e-12


@pytest.mark.parametrize("eta", [0.5, 1e-3, 1e-9])
@pytest.mark.parametrize("gamma", [4.0, 5120.0, 7.8e8])
@pytest.mark.parametrize("sigma", [1e-9, 50.0])
def test_tau_is_the_least_that_meets_eta_for_every_beta(eta, gamma, sigma):
    tau = smoothing_tau(eta, sigma=sigma, gamma=gamma)
    for beta in (1e-8, 1e-5, 1e-3, 0.1, 1.0, 10.0):
        for larger in (1.0, 1.5, 20.0):
            found = smoothing_eta(tau=tau, sigma=sigma, beta=beta, gamma=gamma * larger)
            assert found <= eta * (1 + 1e-6)
    assert smoothing_eta(tau=0.99 * tau, sigma=sigma, beta=1e-9, gamma=gamma) > eta * 1.005


def test_tau_refuses_what_smoothing_cannot_do():
    with pytest.raises(UsageError, match=r"gamma=0\.5"):
        smoothing_tau(1e-6, sigma=1.0, gamma=0.5)
    for eta in (1.0, 20.0, 0.0, -1.0, math.nan):
        with pytest.raises(UsageError, match=f"eta={eta}"):
            smoothing_tau(eta, sigma=1.0, gamma=32.0)
