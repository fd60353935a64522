"""The exact profile against a dense grid, Monte Carlo, limits, and the paper's two bounds."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from pancake_oracle import by_definition

from dpaudit.accounting import (
    gaussian_delta,
    gaussian_epsilon,
    pancake_delta,
    pancake_epsilon,
    pancake_epsilon_lower,
    pancake_epsilon_upper,
    peak_spacing,
    peak_width,
    smoothed_pancake,
)
from dpaudit.accounting._phase import GAUSS, KRONROD, Pair, X, _rest, phase_of
from dpaudit.accounting.profile import _by_period, averaged
from dpaudit.errors import UsageError

CASES = [
    # beta, gamma, along (in P), across
    (0.1, 4.0, 1.25, 0.0),
    (0.3, 2.0, 0.15, 0.5),
    (0.5, 0.5, 0.3, 0.0),
    (0.05, 0.5, 0.2, 0.3),
    (1.0, 1.0, 0.5, 0.5),
    (3.0, 0.5, 2.0, 0.1),
    (0.4, 6.0, 2.37, 0.6),
    (0.4, 6.0, 2.37, 0.02),
]


@pytest.mark.slow
@pytest.mark.parametrize(("beta", "gamma", "shift", "across"), CASES)
def test_the_profile_is_the_integral_of_the_definition(beta, gamma, shift, across):
    sigma = 1.0 if gamma > 3 else 7.0
    along = shift * peak_spacing(sigma=sigma, beta=beta, gamma=gamma)
    setting = {"sigma": sigma, "beta": beta, "gamma": gamma}
    setting |= {"along": along, "across": across * sigma}
    top = pancake_epsilon(1e-8, **setting).value
    points = (0.0, top / 4, top)
    for epsilon, expected in zip(points, by_definition(points, **setting), strict=True):
        exact = pancake_delta(epsilon, **setting)
        assert exact.value == pytest.approx(expected, rel=1e-4 if across < 0.1 else 1e-6, abs=2e-13)
        assert exact.error <= 1e-6 * exact.value + 1e-20


@pytest.mark.slow
def test_six_digits_where_the_definition_is_integrated_by_mpmath():
    """One setting, from the definition, in 15 digits."""
    sigma, beta, gamma, along, across = 1.0, 0.5, 1.5, 0.6, 0.3
    with mpmath.workdps(15):
        r2 = mpmath.mpf(beta) ** 2 + mpmath.mpf(gamma) ** 2
        spacing = mpmath.sqrt(2 * mpmath.pi) * sigma * gamma / r2
        width = sigma * beta / mpmath.sqrt(r2)
        weights = {k: mpmath.exp(-mpmath.pi * k * k / r2) for k in range(-5, 6)}
        total = sum(weights.values())

        def f(x):
            return sum(w / total * mpmath.npdf(x, k * spacing, width) for k, w in weights.items())

        def inner(x):
            c, t = mpmath.mpf(0.8) - mpmath.log(f(x) / f(x - along)), mpmath.mpf(across) / sigma
            return f(x) * (mpmath.ncdf(t / 2 - c / t) - mpmath.exp(c) * mpmath.ncdf(-t / 2 - c / t))

        points = list(np.linspace(-6, 6, 16))
        expected = mpmath.quad(inner, points, method="gauss-legendre", maxdegree=4)
    exact = pancake_delta(0.8, sigma=sigma, beta=beta, gamma=gamma, along=along, across=across)
    assert exact.value == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize(
    ("beta", "gamma", "across", "visible"),
    [
        (0.05, 1.0, 0.9, True),
        (0.4, 1.0, 0.9, True),
        (0.4, 3.0, 0.2, None),
        (0.4, 40.0, 0.0, None),
        (0.4, 20.0, 0.8, False),
    ],
)
def test_averaging_over_periods_is_within_its_error_of_summing_them(beta, gamma, across, visible):
    along = math.sqrt(1 - across**2)
    for sigma, epsilon in ((1.0, 0.0), (1.0, 8.0), (5.0, 1.0)):
        pair = Pair(sigma, beta, gamma, along, across)
        summed, average = _by_period(epsilon, pair), averaged(epsilon, pair)
        error = summed.error + average.error + 1e-12 * summed.value
        assert abs(summed.value - average.value) <= error
    pair = Pair(1.0, beta, gamma, along, across)
    gap = abs(_by_period(1.0, pair).value / averaged(1.0, pair).value - 1)
    # the sum over periods matters where W is large, not where it is nil
    assert visible is None or (gap > 1e-7) == visible


# ---------------------------------------------------------------- between the two theorems


@pytest.mark.parametrize(
    ("beta", "gamma"),
    [(1e-6, 2e6), (1e-6, 32.0), (1e-3, 4.0), (0.1, 0.5), (0.15, 6.0), (0.3, 2.0), (1.0, 32.0)],
)
def test_the_exact_epsilon_lies_between_theorem_4_2_and_4_4(beta, gamma):
    for fraction, sigma, delta in ((0.0, 50.0, 1e-12), (0.5, 1.0, 1e-3)):
        law = {"sigma": sigma, "beta": beta, "gamma": gamma}
        spacing = peak_spacing(**law)
        along = (math.floor(0.3 / spacing) + fraction) * spacing
        size = max(1.0, 1.2 * along)
        exact = pancake_epsilon(delta, **law, along=along, across=math.sqrt(size**2 - along**2))
        low = pancake_epsilon_lower(delta, beta=beta, gamma=gamma, fraction=fraction)
        high = pancake_epsilon_upper(delta, **law, sensitivity=size)
        assert low <= exact.value * (1 + 1e-7) + exact.error
        assert exact.value - exact.error <= high
        assert exact.error <= 1e-6 * exact.value + 1e-9
        # narrow pancakes: the bound, f²π/8β²·…, is 4 to 9 times less than the loss
        assert low <= 1e4 or low > exact.value / 20


@pytest.mark.slow
def test_a_wide_pancake_is_the_gaussian():
    for sigma, delta, share in [(1.0, 1e-12, 0.1), (30.0, 1e-4, 0.9)]:
        change = {"along": share, "across": math.sqrt(1 - share**2)}
        for beta, gamma in ((3.0, 3.0), (8.0, 0.5)):
            exact = pancake_epsilon(delta, sigma=sigma, beta=beta, gamma=gamma, **change)
            assert exact.value == pytest.approx(gaussian_epsilon(delta, sigma=sigma), rel=1e-4)


def test_without_a_component_on_the_key_it_is_the_gaussian():
    for epsilon in (0.0, 0.3, 4.0):
        exact = pancake_delta(epsilon, sigma=2.0, beta=1e-5, gamma=32.0, along=0.0, across=3.0)
        gaussian = gaussian_delta(epsilon, sigma=2.0, sensitivity=3.0)
        assert exact.value == pytest.approx(gaussian, rel=1e-12)
    # and, across a whole period, nearly so: the phase is only rounding
    along = 5 * math.sqrt(2 * math.pi) * 2.0 / 32.0
    exact = pancake_delta(0.3, sigma=2.0, beta=1e-2, gamma=32.0, along=along, across=1.0)
    gaussian = gaussian_delta(0.3, sigma=2.0, sensitivity=math.hypot(along, 1.0))
    assert exact.value == pytest.approx(gaussian, rel=1e-9)


def test_a_small_phase_shift_of_a_thin_pancake_is_one_more_gaussian_coordinate():
    sigma, beta, gamma, phase = 20.0, 1e-4, 128.0, 3e-6
    along = (7 + phase) * math.sqrt(2 * math.pi) * sigma / gamma
    t = math.sqrt((along**2 + 0.5**2) / sigma**2 + 2 * math.pi * (phase / beta) ** 2)
    exact = pancake_epsilon(1e-9, sigma=sigma, beta=beta, gamma=gamma, along=along, across=0.5)
    assert exact.value == pytest.approx(gaussian_epsilon(1e-9, sigma=1 / t), rel=1e-6)


def test_the_smoothed_pancake_is_a_pancake():
    law = {"sigma": 1.0, "beta": 0.2, "gamma": 3.0}
    sigma, beta, gamma = smoothed_pancake(0.1, **law)
    total = {"sigma": sigma, "beta": beta, "gamma": gamma}
    assert peak_spacing(**total) == pytest.approx(peak_spacing(**law))
    assert math.hypot(beta, gamma) == pytest.approx(math.hypot(0.2, 3.0))
    assert peak_width(**total) == pytest.approx(math.hypot(0.1, peak_width(**law)))


@pytest.mark.slow
def test_the_profile_falls_grows_with_the_shift_and_forgets_its_sign():
    def delta(epsilon, along=0.4, across=0.5):
        law = {"sigma": 1.0, "beta": 0.3, "gamma": 8.0}
        return pancake_delta(epsilon, **law, along=along, across=across).value

    values = [delta(e) for e in np.linspace(0, 20, 15)]
    assert all(a > b for a, b in itertools.pairwise(values))
    assert delta(math.inf) == 0
    assert delta(-3.0) > 1 - math.exp(-3.0)
    by_across = [delta(2.0, across=a) for a in (0.0, 1e-3, 0.1, 1.0, 3.0)]
    assert by_across == sorted(by_across)
    assert delta(2.0, along=-0.4) == pytest.approx(delta(2.0), rel=1e-9)
    # both directions: δ(−ε) = 1 − e^−ε + e^−ε·δ(ε) of the other, which is the same
    for e in (0.5, 2.0):
        back = -math.expm1(-e) + math.exp(-e) * delta(e)
        assert delta(-e) == pytest.approx(back, rel=1e-9)


def test_the_phase_of_many_turns_keeps_its_digits():
    with mpmath.workdps(60):
        along, gamma, sigma = (mpmath.mpf(x) for x in (0.987654321, 2e6, 1.3))
        turns = along * gamma / (mpmath.sqrt(2 * mpmath.pi) * sigma)
        expected = float(turns - mpmath.nint(turns))
    assert phase_of(0.987654321, sigma=1.3, gamma=2e6) == pytest.approx(expected, rel=1e-14)


def test_the_quadrature_rule_is_gauss_kronrod():
    for power in range(23):
        exact = 0.0 if power % 2 else 2 / (power + 1)
        assert (KRONROD * X**power).sum() == pytest.approx(exact, abs=1e-14)
        if power < 14:
            assert (GAUSS * X**power).sum() == pytest.approx(exact, abs=1e-14)


@pytest.mark.parametrize(
    "bad",
    [
        {"sigma": 0.0},
        {"beta": math.nan},
        {"gamma": math.inf},
        {"along": math.nan},
        {"across": -1.0},
    ],
)
def test_impossible_arguments_are_named(bad):
    good = {"sigma": 1.0, "beta": 0.1, "gamma": 32.0, "along": 0.1, "across": 0.9}
    ((name, value),) = bad.items()
    for call, argument in ((pancake_delta, 1.0), (pancake_epsilon, 1e-6)):
        with pytest.raises(UsageError, match=f"{name}={value}"):
            call(argument, **(good | bad))
    with pytest.raises(UsageError, match="epsilon=nan"):
        pancake_delta(math.nan, **good)
    with pytest.raises(UsageError, match="delta=2"):
        pancake_epsilon(2, **good)


def test_importing_the_accounting_loads_no_scipy_parts_and_no_torch():
    code = (
        "import sys, dpaudit.accounting; "
        "names = 'torch', 'dp_accounting', 'scipy.special', 'scipy.optimize', 'scipy.stats'; "
        "print([m for m in names if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "[]"


# ------------------- what is left out for speed is 0 in doubles: the same bits as whole sums


def whole(u, beta):
    a = np.abs(u)
    around = [(k * k - 2 * k * a, k * k + 2 * k * a) for k in range(1, 5)]
    others = sum(np.exp(-math.pi * x / beta**2) + np.exp(-math.pi * y / beta**2) for x, y in around)
    return np.log1p(others)


@pytest.mark.parametrize(
    "beta", [1e-7, 1e-3, 0.05, 0.0647, 0.0915, 0.092, 0.1, 0.11, 0.2, 0.5, 0.999]
)
def test_the_other_teeth(beta):
    rng = np.random.default_rng(0)
    near = 10 ** rng.uniform(-17, -0.31, 3000)
    u = np.concatenate(
        [rng.uniform(-0.5, 0.5, 3000), 0.5 - near, near - 0.5, near, [0.0, 0.5, -0.5]]
    )
    np.testing.assert_array_equal(_rest(u, beta), whole(u, beta))


def test_the_wave():
    rng = np.random.default_rng(1)
    for gamma in [0.01, *10 ** rng.uniform(-2.3, 4, 100)]:
        for across in (0.8, 0.01):
            ratio = gamma * (across / math.hypot(0.6, across))
            whole = 2 * sum(math.exp(-math.pi * (m * ratio) ** 2) for m in range(1, 1000))
            want = math.inf if ratio < 0.01 else whole
            assert Pair(1.0, 0.1, float(gamma), 0.6, across).wave == want
