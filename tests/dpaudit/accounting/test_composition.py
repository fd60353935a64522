"""Many releases against the Gaussian's closed form, one release, and a two-fold integral."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from dpaudit.accounting import (
    compose_epsilon,
    compose_epsilon_trivial,
    gaussian_delta,
    gaussian_epsilon,
    pancake_epsilon,
    smoothed_pancake,
)
from dpaudit.errors import MissingExtraError, UsageError

PERIOD = math.sqrt(2 * math.pi)


@pytest.fixture
def library():
    return pytest.importorskip("dp_accounting")


@pytest.mark.parametrize("n", [1, 10, 300])
def test_a_wide_pancake_composes_like_the_gaussian(library, n):
    ours = compose_epsilon(
        1e-6, n=n, sigma=20.0, beta=3.0, gamma=32.0, along=0.1, across=math.sqrt(0.99)
    )
    exact = gaussian_epsilon(1e-6, sigma=20.0, sensitivity=math.sqrt(n))
    assert exact * (1 - 1e-9) <= ours.value <= exact * 1.01


@pytest.mark.parametrize("n", [1, 10, 300])
def test_a_small_phase_shift_composes_like_one_more_gaussian_coordinate(library, n):
    sigma, beta, gamma, phase = 20.0, 0.05, 32.0, 1e-3
    along = PERIOD * sigma / gamma * (1 + phase)
    t = math.sqrt((along**2 + 0.25) / sigma**2 + 2 * math.pi * (phase / beta) ** 2)
    ours = compose_epsilon(1e-6, n=n, sigma=sigma, beta=beta, gamma=gamma, along=along, across=0.5)
    exact = gaussian_epsilon(1e-6, sigma=1 / t, sensitivity=math.sqrt(n))
    assert exact * (1 - 1e-6) <= ours.value <= exact * 1.01


def test_the_smoothed_pancake_composes_like_the_gaussian(library):
    # R = 1.3: η about 1e-14
    sigma, beta, gamma = smoothed_pancake(2.0, sigma=20.0, beta=1e-3, gamma=32.0)
    ours = compose_epsilon(
        1e-6, n=100, sigma=sigma, beta=beta, gamma=gamma, along=0.5, across=math.sqrt(0.75)
    )
    exact = gaussian_epsilon(1e-6, sigma=sigma, sensitivity=10.0)
    assert exact * (1 - 1e-9) <= ours.value <= exact * 1.001


@pytest.mark.parametrize("beta", [0.3, 0.5])
def test_one_release_is_the_exact_profile_from_above(library, beta):
    setting = {"sigma": 20.0, "beta": beta, "gamma": 32.0, "along": 0.5, "across": 0.8}
    exact = pancake_epsilon(1e-6, **setting)
    ours = compose_epsilon(1e-6, n=1, **setting)
    assert exact.value - exact.error <= ours.value <= exact.value * 1.001 + 1e-4


def test_two_releases_are_the_integral_over_both_phases(library):
    """E over two independent phases of the Gaussian's profile at √2·t, on an independent grid."""
    sigma, beta, gamma, along, across = 5.0, 0.6, 20.0, 0.35, 0.8
    u = (np.arange(3000) + 0.5) / 3000 - 0.5
    k = np.arange(-9, 10)

    def comb(u):
        return np.exp(-math.pi * (k - u[:, None]) ** 2 / beta**2).sum(axis=1)

    p = comb(u) / comb(u).sum()
    h = np.log(comb(u)) - np.log(comb((u - along * gamma / (PERIOD * sigma) + 0.5) % 1 - 0.5))
    step = 1e-3
    cells = np.round(h / step).astype(int)
    pmf = np.bincount(cells - cells.min(), p)
    both = np.convolve(pmf, pmf)
    loss = (np.arange(len(both)) + 2 * cells.min()) * step
    kept = both > 0
    ours = compose_epsilon(
        1e-3, n=2, sigma=sigma, beta=beta, gamma=gamma, along=along, across=across
    )

    def delta(epsilon):
        t = math.sqrt(2) * math.hypot(along, across) / sigma
        values = np.interp(
            loss[kept], grid, [gaussian_delta(epsilon - x, sigma=1 / t) for x in grid]
        )
        return float((both[kept] * values).sum())

    grid = np.linspace(loss.min(), loss.max(), 2000)
    assert delta(ours.value) <= 1e-3 * (1 + 1e-6)
    assert delta(ours.value - 2e-3) > 1e-3


def test_the_grid_is_pessimistic_and_refining_it_helps(library):
    setting = {"n": 20, "sigma": 20.0, "beta": 0.5, "gamma": 32.0, "along": 0.5, "across": 0.8}
    coarse, middle, fine = (
        compose_epsilon(1e-6, **setting, discretization=d).value for d in (0.05, 0.01, 0.002)
    )
    assert coarse > middle > fine
    trivial = compose_epsilon_trivial(1e-6, **setting)
    assert (
        pancake_epsilon(1e-6, **{k: v for k, v in setting.items() if k != "n"}).value
        < fine
        < trivial
    )


def test_impractical_losses_are_refused_with_the_way_out(library):
    with pytest.raises(UsageError, match="compose_epsilon_trivial") as refusal:
        compose_epsilon(1e-6, n=10, sigma=20.0, beta=1e-4, gamma=32.0, along=0.5, across=0.8)
    assert "discretization=" in str(refusal.value)
    one = pancake_epsilon(1e-7, sigma=20.0, beta=1e-4, gamma=32.0, along=0.5, across=0.8)
    bound = compose_epsilon_trivial(
        1e-6, n=10, sigma=20.0, beta=1e-4, gamma=32.0, along=0.5, across=0.8
    )
    assert bound == pytest.approx(10 * one.value, rel=1e-9)
    with pytest.raises(UsageError, match=r"gamma=0\.5"):
        compose_epsilon(1e-6, n=100, sigma=20.0, beta=1.0, gamma=0.5, along=0.9, across=0.1)


def test_impossible_arguments_are_named(library):
    setting = {"sigma": 20.0, "beta": 0.5, "gamma": 32.0, "along": 0.5, "across": 0.8}
    for n in (0, -1, 1.5):
        with pytest.raises(UsageError, match=f"n={n}"):
            compose_epsilon(1e-6, n=n, **setting)
    with pytest.raises(UsageError, match="delta=1e-13"):
        compose_epsilon(1e-13, n=2, **setting)
    with pytest.raises(UsageError, match="discretization=0"):
        compose_epsilon(1e-6, n=2, **setting, discretization=0.0)
    assert compose_epsilon(1e-6, n=2, **(setting | {"along": 0.0, "across": 0.0})).value == 0.0


def test_without_the_extra_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.pld_pmf", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dpaudit\[accounting\]'"):
        compose_epsilon(1e-6, n=2, sigma=20.0, beta=0.5, gamma=32.0, along=0.5, across=0.8)
