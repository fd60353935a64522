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


def one(delta, law, a):
    """The pancake's ε at one difference of length 1 with component ``a``."""
    return pancake_epsilon(delta, **law, along=float(a), across=math.sqrt(1 - a * a))


@pytest.mark.slow
@pytest.mark.parametrize(("beta", "gamma", "sigma"), [(0.1, 8.0, 1.0), (0.5, 1.2, 1.0)])
def test_no_neighbour_exceeds_the_bound_and_one_attains_the_value(beta, gamma, sigma):
    law = {"sigma": sigma, "beta": beta, "gamma": gamma}
    w = np.random.default_rng(5).standard_normal(7)
    w /= np.linalg.norm(w)
    worst = pancake_host_epsilon(1e-6, **law, sensitivity=1.0, along=w)
    most = max(one(1e-6, law, a).value for a in w)
    assert worst.value - 1e-9 * worst.value <= most <= worst.value + worst.error + 1e-12
    if gamma >= 8:
        assert worst.value == pytest.approx(most, rel=1e-9)
        assert worst.error <= 1e-6 * worst.value + 1e-9


@pytest.mark.slow
def test_what_the_neighbours_left_out_may_still_hold_shows_in_the_error():
    """γ < 1: phase and Gaussian loss are correlated, W ≈ 0.8, and two of ten are not computed."""
    law, along = {"sigma": 5.0, "beta": 0.3, "gamma": 0.6}, np.linspace(0.3, 0.31, 10)
    worst = pancake_host_epsilon(1e-6, **law, sensitivity=1.0, along=along)
    most = max(one(1e-6, law, a).value for a in along)
    assert worst.value <= most <= worst.value + worst.error
    assert worst.error > 1e-3 * worst.value


@pytest.mark.parametrize("beta", [0.02, 0.3, 2.0])
def test_the_profile_increases_with_the_distance_from_a_whole_period(beta):
    law = {"sigma": 3.0, "beta": beta, "gamma": 24.0}
    period = math.sqrt(2 * math.pi) * 3.0 / 24.0
    for epsilon in (-1.0, 0.4, 40.0):
        values = []
        for phase in (0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.45, 0.49, 0.5):
            along = (1 + phase) * period
            across = math.sqrt(1 - along**2)
            values.append(pancake_delta(epsilon, **law, along=along, across=across).value)
        assert all(b >= a * (1 - 1e-9) for a, b in itertools.pairwise(values))


def test_one_exposed_neighbour_among_many_is_found():
    law = {"sigma": 10.0, "beta": 1e-2, "gamma": 100.0}
    period = math.sqrt(2 * math.pi) * 10.0 / 100.0
    along = np.full(50_000, 2 * period)
    along[777] = -1.5 * period
    worst = pancake_host_epsilon(1e-9, **law, sensitivity=1.0, along=along)
    assert worst.value == pytest.approx(one(1e-9, law, 1.5 * period).value, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"along": []}, r"along=\[\]"),
        ({"along": [1.5]}, r"along=1\.5"),
        ({"along": [math.nan]}, "along=nan"),
        ({"sensitivity": 0.0}, r"sensitivity=0\.0"),
        ({"slack": -1}, "slack=-1"),
    ],
)
def test_impossible_hosts_are_named(options, says):
    good = {"sigma": 1.0, "beta": 0.1, "gamma": 32.0, "sensitivity": 1.0, "along": [0.1]}
    with pytest.raises(UsageError, match=says):
        pancake_host_epsilon(1e-6, **(good | options))


@pytest.mark.slow
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
    near, slack, end = [0.1 * period], 0.05 * period, 0.15 * period
    some = pancake_host_epsilon(1e-4, **law, sensitivity=1.0, along=near, slack=slack)
    exact = epsilon_by_definition(1e-4, **law, along=end, across=math.sqrt(1 - end * end))
    assert some.value == pytest.approx(exact, rel=2e-3)


@pytest.mark.slow
def test_slack_only_widens():
    law = {"sigma": 10.0, "beta": 0.05, "gamma": 80.0, "sensitivity": 1.0}
    along = [0.025, -0.01]
    values = [
        pancake_host_epsilon(1e-8, **law, along=along, slack=s).value for s in (0.0, 1e-3, 2.0)
    ]
    assert values == sorted(values)
    assert values[1] > values[0]
    assert values[-1] == pancake_host_epsilon(1e-8, **law, along=[0.0], slack=1.0).value


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


@pytest.mark.slow
def test_the_bound_covers_periods_that_raise_the_loss():
    """Differences almost along the key: one that is not computed is 0.01 above those that are.

    Without κ the second bound lies 0.01 too low; profiles are exact to 1e-9 here.
    """
    law = {"sigma": 0.94, "beta": 0.27, "gamma": 1.2}
    along = np.linspace(0.92, 0.9999, 9)
    worst = pancake_host_epsilon(1e-3, **law, sensitivity=1.0, along=along)
    each = [one(1e-3, law, a) for a in along]
    most = max(e.value - e.error for e in each)
    assert worst.value + 0.01 < most <= worst.value + worst.error
