"""PROOF.md, line by line, against independent sums over peaks and the exact privacy profile."""

import itertools
import math

import numpy as np
import pytest
import scipy

from dpaudit.accounting import (
    gaussian_delta,
    pancake_delta,
    peak_spacing,
    peak_width,
    smoothed_pancake,
    smoothing_epsilon,
    smoothing_eta,
    smoothing_ratio,
    smoothing_tau_at_ratio,
)
from dpaudit.errors import UsageError

CASES = [
    (beta, gamma, tau)
    for beta, gamma, tau in itertools.product(
        (1e-4, 0.5), (1.0, 3.0, 8.0, 32.0), (0.03, 0.04, 0.08, 0.2, 0.5, 1.0)
    )
    if smoothing_eta(tau=tau, sigma=1.0, beta=beta, gamma=gamma) < 1
]


def peaks(*, beta, gamma, sigma=1.0):
    """Places and weights of the pancakes, summed as Lemma 2.6 has them."""
    r = math.hypot(beta, gamma)
    k = np.arange(-math.ceil(6 * r) - 6, math.ceil(6 * r) + 7)
    weight = np.exp(-math.pi * k**2 / r**2)
    return k * peak_spacing(sigma=sigma, beta=beta, gamma=gamma), weight / weight.sum()


def ratio(*, beta, gamma, tau, count=4001):
    """The smoothed pancake's density over the Gaussian's, on four peaks around 0 and 2σ each."""
    at, weight = peaks(beta=beta, gamma=gamma)
    spacing, total = at[-1] - at[-2], math.hypot(1, tau)
    width = math.hypot(peak_width(sigma=1.0, beta=beta, gamma=gamma), tau)
    x = np.concatenate([np.linspace(-2 * spacing, 2 * spacing, count) + c for c in (0, 2)])
    density = sum(w * scipy.stats.norm.pdf(x, a, width) for a, w in zip(at, weight, strict=True))
    return density / scipy.stats.norm.pdf(x, 0, total)


def test_the_number_of_the_paper_trail():
    eta = smoothing_eta(tau=0.05, sigma=1.0, beta=1e-3, gamma=32.0)
    assert eta == pytest.approx(6.56e-4, rel=1e-3)
    seen = ratio(beta=1e-3, gamma=32.0, tau=0.05)
    assert np.abs(seen - 1).max() == pytest.approx(eta, rel=1e-3)
    assert smoothing_ratio(tau=0.05, sigma=1.0, beta=1e-3, gamma=32.0) == pytest.approx(
        0.638, abs=5e-4
    )
    at_ratio = smoothing_tau_at_ratio(1.5, sigma=1.0, gamma=32.0)
    assert 0.5e-19 < smoothing_eta(tau=at_ratio, sigma=1.0, beta=1e-9, gamma=32.0) < 2e-19


def test_where_the_waves_and_the_lattice_both_count():
    """W and L apart: the ends are (1+W)/(1+L) and nearly (1−W)/(1+L), at γ = 1 where L = 0.086."""
    beta, gamma, tau = 1e-3, 1.0, 1.0
    _, wide, _ = smoothed_pancake(tau, sigma=1.0, beta=beta, gamma=gamma)
    wave, lattice = (
        2 * sum(math.exp(-math.pi * m * m * x) for m in range(1, 9))
        for x in (wide**2, beta**2 + gamma**2)
    )
    seen = ratio(beta=beta, gamma=gamma, tau=tau)
    assert seen.max() == pytest.approx((1 + wave) / (1 + lattice), rel=1e-4)
    assert (1 - wave) / (1 + lattice) <= seen.min() <= (1 - wave) / (1 + lattice) + 0.01
    assert lattice > 0.08


def test_the_ratio_is_a_width_in_spacings():
    for beta, gamma, tau in CASES:
        r = math.hypot(beta, gamma)
        width = math.hypot(peak_width(sigma=2.0, beta=beta, gamma=gamma), 2 * tau)
        by_hand = (
            width
            * (2 * gamma / r)
            / (peak_spacing(sigma=2.0, beta=beta, gamma=gamma) * 2 * math.hypot(1, tau))
        )
        assert smoothing_ratio(tau=2 * tau, sigma=2.0, beta=beta, gamma=gamma) == pytest.approx(
            by_hand, rel=1e-12
        )


@pytest.fixture(scope="module")
def against_the_profile():
    """(η, exact δ at the theorem's ε, its δ, exact δ at the plain ε, the Gaussian's) by case."""
    rows = []
    for beta, gamma, tau in CASES:
        eta = smoothing_eta(tau=tau, sigma=1.0, beta=beta, gamma=gamma)
        sigma, wide, narrow = smoothed_pancake(tau, sigma=1.0, beta=beta, gamma=gamma)
        period = math.sqrt(2 * math.pi) * sigma / narrow
        for turns, distance, epsilon in itertools.product((0.5, 0.27), (1.0,), (0.0, 1.0)):
            along = turns * period
            if along > distance:
                continue
            shift = {"along": along, "across": math.sqrt(distance**2 - along**2)}
            exact, plain = (
                pancake_delta(e, sigma=sigma, beta=wide, gamma=narrow, **shift)
                for e in (epsilon + smoothing_epsilon(eta), epsilon)
            )
            gauss = gaussian_delta(epsilon, sigma=sigma, sensitivity=distance)
            rows.append(
                (
                    eta,
                    exact.value - exact.error,
                    (1 + eta) * gauss,
                    plain.value - plain.error,
                    gauss,
                )
            )
    return np.array(rows)


def test_the_exact_profile_never_exceeds_the_theorem(against_the_profile):
    _, exact, promised, _, _ = against_the_profile.T
    assert len(exact) > 60
    assert (exact <= promised * (1 + 1e-11) + 1e-15).all()


def test_the_theorem_is_needed_and_nearly_tight(against_the_profile):
    eta, exact, promised, plain, gauss = against_the_profile.T
    # without its ln((1+η)/(1−η)) and 1 + η it would be false
    assert (plain > gauss * 1.01).sum() > 10
    wide = eta > 1e-2
    assert (exact[wide] / promised[wide]).max() > 0.9


def test_a_factor_of_two_in_eta_would_be_seen():
    """Half the logarithm is too little: half a turn along the key the exact profile exceeds it."""
    beta, gamma, tau = 1e-4, 32.0, 0.03
    eta = smoothing_eta(tau=tau, sigma=1.0, beta=beta, gamma=gamma)
    sigma, wide, narrow = smoothed_pancake(tau, sigma=1.0, beta=beta, gamma=gamma)
    period = math.sqrt(2 * math.pi) * sigma / narrow
    shift = {"along": period / 2, "across": 0.0}
    tiny = gaussian_delta(0.1, sigma=sigma, sensitivity=period / 2)
    assert (
        pancake_delta(
            0.1 + smoothing_epsilon(eta), sigma=sigma, beta=wide, gamma=narrow, **shift
        ).value
        <= (1 + eta) * tiny
    )
    assert (
        pancake_delta(
            0.1 + 0.5 * smoothing_epsilon(eta), sigma=sigma, beta=wide, gamma=narrow, **shift
        ).value
        > 2 * tiny
    )


def test_tau_at_a_ratio_is_the_least_for_every_beta():
    for ratio_, gamma in itertools.product((0.5, 1.5, 2.0), (8.0, 32.0, 5e3)):
        tau = smoothing_tau_at_ratio(ratio_, sigma=3.0, gamma=gamma)
        assert smoothing_ratio(tau=tau, sigma=3.0, beta=1e-12, gamma=gamma) == pytest.approx(
            ratio_, rel=1e-12
        )
        for beta, more in itertools.product((1e-6, 0.1, 3.0), (1.0, 2.0)):
            assert smoothing_ratio(tau=tau, sigma=3.0, beta=beta, gamma=more * gamma) >= ratio_ * (
                1 - 1e-12
            )
    with pytest.raises(
        UsageError, match=r"ratio=1\.5 needs smoothing beyond σ; defend against γ ≥ 5\.32"
    ):
        smoothing_tau_at_ratio(1.5, sigma=1.0, gamma=5.3)
    assert smoothing_tau_at_ratio(1.5, sigma=1.0, gamma=5.3174) == pytest.approx(1.0, abs=1e-3)


# --------------------------- Section 5: a discrete Gaussian on the lattice, one coordinate, exactly


def lattice_ratio(*, beta, gamma, tau, step):
    """The rounded pancake plus a discrete Gaussian over the rounded Gaussian, near 0 and 1.5σ."""
    at, weight = peaks(beta=beta, gamma=gamma)
    width = peak_width(sigma=1.0, beta=beta, gamma=gamma)
    n = np.arange(-math.ceil(9 / step), math.ceil(9 / step) + 1)
    edges = (np.append(n, n[-1] + 1) - 0.5) * step
    noise = sum(
        w * np.diff(scipy.special.ndtr((edges - a) / width))
        for a, w in zip(at, weight, strict=True)
    )
    own = np.exp(-((n * step) ** 2) / (2 * tau**2))
    both = scipy.signal.fftconvolve(noise, own / own.sum(), mode="same")
    honest = np.diff(scipy.special.ndtr(edges / math.hypot(1, tau)))
    near = np.abs(n * step) < 2.0
    return both[near] / honest[near]


@pytest.mark.parametrize(
    ("beta", "gamma", "tau", "step"),
    [(0.2, 8.0, 0.15, 0.01), (0.3, 3.0, 0.5, 0.02), (0.25, 8.0, 0.1, 0.01)],
)
def test_the_lattice_theorem_holds(beta, gamma, tau, step):
    waves = math.floor(math.sqrt(2 * math.pi) / gamma / (4 * step))
    eta = smoothing_eta(tau=tau, sigma=1.0, beta=beta, gamma=gamma, waves=waves)
    assert 1e-12 < eta < 1
    assert np.abs(lattice_ratio(beta=beta, gamma=gamma, tau=tau, step=step) - 1).max() <= eta + 1e-9


def test_and_needs_its_further_term():
    """On a lattice near a third of the peaks' distance a slow beat outlives own noise."""
    gamma, tau = 8.0, 0.3
    step = math.sqrt(2 * math.pi) / gamma / 3.1
    seen = np.abs(lattice_ratio(beta=1e-3, gamma=gamma, tau=tau, step=step) - 1).max()
    assert seen > 1e-3 > 100 * smoothing_eta(tau=tau, sigma=1.0, beta=1e-3, gamma=gamma)
    assert smoothing_eta(tau=tau, sigma=1.0, beta=1e-3, gamma=gamma, waves=0) == math.inf
