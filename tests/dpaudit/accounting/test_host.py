"""The worst of a host's neighbours against computing all of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from pancake_oracle import epsilon_by_definition

from dpaudit.accounting import (
    compose_epsilon,
    pancake_delta,
    pancake_epsilon,
    pancake_host_composition,
    pancake_host_epsilon,
)
from dpaudit.errors import UsageError


@pytest.mark.slow
@pytest.mark.parametrize(("beta", "gamma", "sigma"), [(0.1, 8.0, 1.0), (0.5, 1.2, 1.0)])
def test_no_neighbour_exceeds_the_bound_and_one_attains_the_value(beta, gamma, sigma):
    rng = np.random.default_rng(5)
    w = rng.standard_normal(7)
    w /= np.linalg.norm(w)
    worst = pancake_host_epsilon(
        1e-6, sigma=sigma, beta=beta, gamma=gamma, sensitivity=1.0, along=w
    )
    everyone = [
        pancake_epsilon(
            1e-6, sigma=sigma, beta=beta, gamma=gamma, along=a, across=math.sqrt(1 - a * a)
        ).value
        for a in w
    ]
    assert max(everyone) <= worst.value + worst.error + 1e-12
    assert worst.value - 1e-9 * worst.value <= max(everyone)
    if gamma >= 8:
        assert worst.value == pytest.approx(max(everyone), rel=1e-9)
        assert worst.error <= 1e-6 * worst.value + 1e-9


def test_what_the_neighbours_left_out_may_still_hold_shows_in_the_error():
    """γ < 1: phase and Gaussian loss are correlated, W ≈ 0.8, and two of ten are not computed."""
    setting = {"sigma": 5.0, "beta": 0.3, "gamma": 0.6}
    along = np.linspace(0.3, 0.31, 10)
    worst = pancake_host_epsilon(1e-6, **setting, sensitivity=1.0, along=along)
    everyone = [
        pancake_epsilon(1e-6, **setting, along=float(a), across=math.sqrt(1 - a * a)).value
        for a in along
    ]
    assert worst.value <= max(everyone) <= worst.value + worst.error
    assert worst.error > 1e-3 * worst.value


@pytest.mark.parametrize("beta", [0.02, 0.3, 2.0])
def test_the_profile_increases_with_the_distance_from_a_whole_period(beta):
    sigma, gamma = 3.0, 24.0
    period = math.sqrt(2 * math.pi) * sigma / gamma
    for epsilon in (-1.0, 0.4, 40.0):
        values = []
        for phase in (0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.45, 0.49, 0.5):
            along = (1 + phase) * period
            values.append(
                pancake_delta(
                    epsilon,
                    sigma=sigma,
                    beta=beta,
                    gamma=gamma,
                    along=along,
                    across=math.sqrt(1 - along**2),
                ).value
            )
        assert all(b >= a * (1 - 1e-9) for a, b in itertools.pairwise(values))


def test_one_exposed_neighbour_among_many_is_found():
    sigma, gamma = 10.0, 100.0
    period = math.sqrt(2 * math.pi) * sigma / gamma
    along = np.full(50_000, 2 * period)
    along[777] = -1.5 * period
    worst = pancake_host_epsilon(
        1e-9, sigma=sigma, beta=1e-2, gamma=gamma, sensitivity=1.0, along=along
    )
    alone = pancake_epsilon(
        1e-9,
        sigma=sigma,
        beta=1e-2,
        gamma=gamma,
        along=1.5 * period,
        across=math.sqrt(1 - (1.5 * period) ** 2),
    )
    assert worst.value == pytest.approx(alone.value, rel=1e-12)


def test_impossible_hosts_are_named():
    setting = {"sigma": 1.0, "beta": 0.1, "gamma": 32.0}
    with pytest.raises(UsageError, match=r"along=\[\]"):
        pancake_host_epsilon(1e-6, **setting, sensitivity=1.0, along=[])
    with pytest.raises(UsageError, match=r"along=1\.5"):
        pancake_host_epsilon(1e-6, **setting, sensitivity=1.0, along=[1.5])
    with pytest.raises(UsageError, match="along=nan"):
        pancake_host_epsilon(1e-6, **setting, sensitivity=1.0, along=[math.nan])
    with pytest.raises(UsageError, match=r"sensitivity=0\.0"):
        pancake_host_epsilon(1e-6, **setting, sensitivity=0.0, along=[0.1])


@pytest.mark.parametrize(("beta", "gamma", "sigma"), [(0.3, 4.0, 2.0), (0.5, 1.2, 1.0)])
def test_the_whole_ball_by_brute_force(beta, gamma, sigma):
    """Every component from −Δ to Δ, from the mixture's definition on a grid."""
    law = {"sigma": sigma, "beta": beta, "gamma": gamma}
    worst = pancake_host_epsilon(1e-4, **law, sensitivity=1.0, along=[0.0], slack=1.0)
    everyone = [
        epsilon_by_definition(1e-4, **law, along=a, across=math.sqrt(1 - a * a))
        for a in np.linspace(0.02, 1.0, 8)
    ]
    assert max(everyone) <= worst.value + worst.error
    assert worst.value <= max(everyone) * 1.03 + worst.error  # the grid may miss the worst a little
    assert worst.error <= math.sqrt(2 * math.pi) / (gamma * sigma) * 1.6
    # an interval that holds no half turn: its far end counts
    period = math.sqrt(2 * math.pi) * sigma / gamma
    some = pancake_host_epsilon(
        1e-4, **law, sensitivity=1.0, along=[0.1 * period], slack=0.05 * period
    )
    end = 0.15 * period
    assert some.value == pytest.approx(
        epsilon_by_definition(1e-4, **law, along=end, across=math.sqrt(1 - end * end)), rel=2e-3
    )


def test_slack_only_widens():
    law = {"sigma": 10.0, "beta": 0.05, "gamma": 80.0, "sensitivity": 1.0}
    along = [0.025, -0.01]
    values = [
        pancake_host_epsilon(1e-8, **law, along=along, slack=s).value for s in (0.0, 1e-3, 2.0)
    ]
    assert values == sorted(values)
    assert values[1] > values[0]
    assert values[-1] == pancake_host_epsilon(1e-8, **law, along=[0.0], slack=1.0).value
    with pytest.raises(UsageError, match="slack=-1"):
        pancake_host_epsilon(1e-8, **law, along=along, slack=-1)


def test_the_composition_takes_the_worst_neighbour_and_refuses_what_it_cannot_bound():
    pytest.importorskip("dp_accounting")
    law = {"sigma": 10.0, "beta": 0.9, "gamma": 60.0}
    along = [0.01, -0.2, 0.05, 0.19]
    found = pancake_host_composition(1e-6, n=50, **law, sensitivity=1.0, along=along)
    each = [
        compose_epsilon(1e-6, n=50, **law, along=a, across=math.sqrt(1 - a * a)).value
        for a in along
    ]
    assert found.value == pytest.approx(max(each), rel=1e-9)
    assert max(each) > 1.5 * min(each)
    wider = pancake_host_composition(1e-6, n=50, **law, sensitivity=1.0, along=along, slack=0.02)
    assert wider.value > found.value
    with pytest.raises(UsageError, match="no exact composition"):
        pancake_host_composition(1e-6, n=50, **law, sensitivity=1.0, along=[0.0], slack=1.0)


def test_the_bound_covers_periods_that_raise_the_loss():
    """Differences almost along the key: one that is not computed is 0.01 above those that are.

    Without κ the second bound lies 0.01 too low; profiles are exact to 1e-9 here.
    """
    law = {"sigma": 0.94, "beta": 0.27, "gamma": 1.2}
    along = np.linspace(0.92, 0.9999, 9)
    worst = pancake_host_epsilon(1e-3, **law, sensitivity=1.0, along=along)
    each = [pancake_epsilon(1e-3, **law, along=a, across=math.sqrt(1 - a * a)) for a in along]
    most = max(e.value - e.error for e in each)
    assert worst.value + 0.01 < most <= worst.value + worst.error
