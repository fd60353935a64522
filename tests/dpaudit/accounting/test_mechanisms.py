"""Closed forms against integrals, brute force over utilities, and the exact Gaussian profile."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy
from support.laws import profile

from dpaudit.accounting import gaussian_delta, gaussian_sigma
from dpaudit.accounting.mechanisms import (
    exponential_delta,
    exponential_epsilon,
    gaussian_sigma_classical,
    laplace_delta,
    laplace_epsilon,
    laplace_scale,
)
from dpaudit.errors import UsageError


@pytest.mark.parametrize("t", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("share", [-1.5, -0.4, 0.0, 0.3, 0.9, 1.0, 1.2])
def test_the_laplace_profile_is_the_integral_over_the_positive_part(t, share):
    scale = 3.0
    epsilon = share * t

    def gain(x):
        return max(
            0.0, math.exp(-abs(x) / scale) - math.exp(epsilon - abs(x - t * scale) / scale)
        ) / (2 * scale)

    kink = (t - epsilon) * scale / 2
    points = sorted({-60 * scale, 0.0, min(max(kink, 0.0), t * scale), t * scale, 60 * scale})
    integral = sum(scipy.integrate.quad(gain, a, b)[0] for a, b in itertools.pairwise(points))
    assert laplace_delta(epsilon, scale=scale, sensitivity=t * scale) == pytest.approx(
        integral, abs=1e-9
    )


def test_laplace_calibration_and_profile_are_inverse():
    for epsilon in (0.01, 0.5, 3.0):
        for delta in (0.0, 1e-9, 0.01, 0.3):
            scale = laplace_scale(epsilon, delta, sensitivity=2.0)
            assert laplace_delta(epsilon, scale=scale, sensitivity=2.0) == pytest.approx(
                delta, abs=1e-12
            )
            assert laplace_epsilon(delta, scale=scale, sensitivity=2.0) == pytest.approx(
                epsilon, rel=1e-9
            )
    assert laplace_epsilon(0.5, scale=1.0) == 0.0


def _choice(utilities, eta):
    weights = np.exp(eta * np.asarray(utilities, dtype=np.float64))
    return weights / weights.sum()


def test_no_exponential_mechanism_exceeds_the_profile():
    generator = np.random.default_rng(5)
    for _ in range(400):
        outcomes, eta = int(generator.integers(2, 8)), generator.uniform(0.05, 2)
        utilities = generator.uniform(-4, 4, outcomes)
        changes = (
            generator.uniform(-1, 1, outcomes)
            if generator.random() < 0.5
            else generator.choice([-1, 1], outcomes)
        )
        pair = _choice(utilities, eta), _choice(utilities + changes, eta)
        for share in (0.0, 0.2, 0.5, 0.9, 1.0):
            epsilon = share * 2 * eta
            assert profile(*pair, epsilon) <= exponential_delta(epsilon, bound=2 * eta) + 1e-12
        alike = _choice(utilities, eta), _choice(utilities + np.abs(changes), eta)
        assert profile(*alike, 0.5 * eta) <= exponential_delta(0.5 * eta, bound=eta) + 1e-12


@pytest.mark.parametrize("eta", [0.2, 2.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_two_groups_of_outcomes_attain_the_exponential_profile(eta, share):
    epsilon = share * 2 * eta
    gaps = np.linspace(-12, 12, 2401)
    pairs = ((_choice([0, gap], eta), _choice([1, gap - 1], eta)) for gap in gaps)
    best = max(profile(*pair, epsilon) for pair in pairs)
    assert best == pytest.approx(exponential_delta(epsilon, bound=2 * eta), rel=1e-4)


def test_exponential_epsilon_inverts_the_profile():
    assert exponential_epsilon(0.5, sensitivity=3.0) == 3.0
    assert exponential_epsilon(0.5, sensitivity=3.0, monotone=True) == 1.5
    for delta in (1e-9, 1e-3, 0.1):
        epsilon = exponential_epsilon(1.0, delta)
        assert 0 < epsilon < 2
        assert exponential_delta(epsilon, bound=2.0) == pytest.approx(delta, rel=1e-6)
    assert exponential_epsilon(0.1, 0.5) == 0.0


def test_the_classical_gaussian_holds_up_to_one_and_fails_far_above():
    for epsilon in (1e-3, 0.1, 0.5, 1.0):
        for delta in (1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.99):
            sigma = gaussian_sigma_classical(epsilon, delta, sensitivity=2.0)
            assert gaussian_delta(epsilon, sigma=sigma, sensitivity=2.0) <= delta
            assert sigma > gaussian_sigma(epsilon, delta, sensitivity=2.0)
    with pytest.raises(UsageError, match="gaussian_sigma"):
        gaussian_sigma_classical(1.01, 1e-5)
    stretched = math.sqrt(2 * math.log(1.25 / 1e-5)) / 20  # what the formula would say at ε = 20
    assert gaussian_delta(20.0, sigma=stretched) > 100e-5


@pytest.mark.parametrize(
    "call",
    [
        lambda: laplace_delta(math.nan, scale=1.0),
        lambda: laplace_delta(1.0, scale=0.0),
        lambda: laplace_epsilon(1.0, scale=1.0),
        lambda: laplace_scale(0.0),
        lambda: laplace_scale(1.0, -0.1),
        lambda: exponential_delta(-0.1, bound=1.0),
        lambda: exponential_delta(0.1, bound=math.inf),
        lambda: exponential_epsilon(1.0, math.nan),
        lambda: gaussian_sigma_classical(0.0, 1e-5),
        lambda: gaussian_sigma_classical(0.5, 0.0),
    ],
)
def test_values_out_of_range_are_refused(call):
    with pytest.raises(UsageError):
        call()
