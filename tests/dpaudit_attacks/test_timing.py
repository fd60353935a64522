import itertools
import math
import time

import numpy as np
import pytest

from dpaudit.noise.geometric import GeometricInversion
from dpaudit.noise.sequential import SequentialLaplace
from dpaudit.randomness import KeyedStream
from dpaudit.stats import binomial_two_sided
from dpaudit_attacks.timing import Timing, _permutation_test, timing_leak

SCALE = 10.0


def laplace(rng, n, scale=SCALE):
    """Discrete Laplace noise as the difference of two geometric variables."""
    return (rng.geometric(-math.expm1(-1 / scale), (2, n)).astype(float) * [[1], [-1]]).sum(0)


def busy(rng, n):
    """Seconds of a busy machine: two speeds that take turns, drift, a heavy tail and bursts."""
    speed = 1.0 + (np.cumsum(rng.random(n) < 0.01) % 2)
    drift = 1 + 0.15 * np.sin(np.arange(n) / 500 + 6 * rng.random())
    seconds = 20e-6 * speed * drift + 2e-6 * rng.exponential(size=n)
    burst = np.convolve(rng.random(n) < 0.002, np.ones(20))[:n] > 0
    return seconds * np.where(burst, 1 + 30 * rng.random(n), 1)


def timed(source, calls, label):
    root, noise, seconds = KeyedStream.from_seed(label), np.empty(calls), np.empty(calls)
    for i in range(calls):
        began = time.perf_counter_ns()
        noise[i] = source.sample(1, 1, stream=root.child("call", i))[0, 0]
        seconds[i] = (time.perf_counter_ns() - began) * 1e-9
    return noise, seconds


def games(rng, n, *, seconds, gap=1.0):
    """Releases at 0 and at ``gap`` with the seconds that ``seconds(|noise|)`` says: (n, 2) each."""
    sides = []
    for value in (0.0, gap):
        noise = laplace(rng, n)
        sides.append(np.column_stack([noise + value, seconds(np.abs(noise))]))
    return sides


def success(statistic, first, second):
    return ((statistic(first) < 0).mean() + (statistic(second) > 0).mean()) / 2


NEIGHBOURS = (np.zeros(1), np.ones(1))


def test_learns_nearly_the_best_rule_where_the_law_of_time_is_known():
    """Seconds 20 + |k| + N(0, 0.6²): the exact likelihood ratio is the oracle."""
    rng = np.random.default_rng(1)

    def seconds(size):
        return 20 + size + 0.6 * rng.standard_normal(len(size))

    def oracle(x):
        y, t = x.T
        logs = [-np.abs(y - v) / SCALE - ((t - 20 - np.abs(y - v)) / 0.6) ** 2 / 2 for v in (0, 1)]
        return logs[1] - logs[0]

    statistic = Timing().learn(*games(rng, 10_000, seconds=seconds), neighbours=NEIGHBOURS)
    test = games(rng, 20_000, seconds=seconds)
    best, learned = success(oracle, *test), success(statistic, *test)
    assert best > 0.75
    assert learned > best - 0.02
    assert success(lambda x: x[:, 0] - 0.5, *test) < 0.55


def test_time_without_a_message_costs_next_to_nothing():
    rng = np.random.default_rng(2)
    learn, test = (games(rng, 20_000, seconds=lambda size: busy(rng, len(size))) for _ in range(2))
    statistic = Timing().learn(*learn, neighbours=NEIGHBOURS)
    alone = success(lambda x: x[:, 0] - 0.5, *test)
    assert abs(success(statistic, *test) - alone) < 0.01


@pytest.mark.parametrize("slope", [2e-6, -2e-6])
def test_a_leak_on_a_busy_machine_is_used_whichever_way_it_goes(slope):
    """Calls at 0 and at 5 in random turns: learn from the first half, guess the second."""
    rng = np.random.default_rng(3)
    noise, coins = laplace(rng, 40_000), rng.random(40_000) < 0.5
    releases = np.column_stack(
        [noise + 5 * coins, 1e-4 + busy(rng, 40_000) + slope * np.abs(noise)]
    )
    learn, test = (
        (x[~c], x[c]) for x, c in zip(np.split(releases, 2), np.split(coins, 2), strict=True)
    )
    statistic = Timing().learn(*learn, neighbours=(np.zeros(1), np.full(1, 5.0)))
    assert success(statistic, *test) > success(lambda x: x[:, 0] - 2.5, *test) + 0.05


def test_rows_are_read_one_by_one():
    rng = np.random.default_rng(4)
    first, second = games(rng, 500, seconds=lambda size: 20 + size)
    statistic = Timing().learn(first, second, neighbours=NEIGHBOURS)
    assert np.array_equal(statistic(first)[3:5], statistic(first[3:5]))


def test_vectors():
    """Two coordinates: the time follows Σ|noise|."""
    rng, values = np.random.default_rng(5), (np.zeros(2), np.array([3.0, -4.0]))

    def sides():
        noise = (laplace(rng, 10_000).reshape(-1, 2) for _ in values)
        both = zip(noise, values, strict=True)
        return [np.column_stack([z + v, 20 + np.abs(z).sum(1)]) for z, v in both]

    assert success(Timing().learn(*sides(), neighbours=values), *sides()) > 0.9


def test_a_clock_that_stands_still_leaves_the_output():
    rng = np.random.default_rng(6)
    learn, test = (games(rng, 5000, seconds=np.zeros_like, gap=20.0) for _ in range(2))
    statistic = Timing().learn(*learn, neighbours=(np.zeros(1), np.full(1, 20.0)))
    assert success(statistic, *test) > 0.78
    assert np.isfinite(statistic(test[0])).all()


def test_permutation_p_value_is_the_exact_one():
    """All 720 orders of six values against 10,000 random ones."""
    size, times = np.array([3.0, 1, 4, 1, 5, 9]), np.array([2.0, 7, 1, 8, 9, 9.5])
    ranks = [np.argsort(np.argsort(times)) - 2.5, np.array([2, 0.5, 3, 0.5, 4, 5]) - 2.5]
    seen = abs(ranks[0] @ ranks[1])
    exact = np.mean(
        [abs(ranks[0] @ ranks[1][list(o)]) >= seen - 1e-9 for o in itertools.permutations(range(6))]
    )
    rho, p = _permutation_test(size, times, 10_000, np.random.default_rng(7))
    assert abs(p - exact) < 5 * math.sqrt(exact * (1 - exact) / 10_000)
    assert abs(rho - np.corrcoef(ranks)[0, 1]) < 1e-12


@pytest.mark.slow
def test_honest_noise_passes_on_a_simulated_busy_machine():
    """80 repeats: p is uniform, so 1 % fall below 0.01 and 20 % below 0.2."""
    rng = np.random.default_rng(8)
    p = np.array(
        [
            timing_leak(laplace(rng, 600), busy(rng, 600), rng=rng, permutations=99).p
            for _ in range(80)
        ]
    )
    assert (p > 0.01).sum() >= 74
    for level in (0.2, 0.5, 0.8):
        assert binomial_two_sided(int((p <= level).sum()), 80, level) > 1e-3


@pytest.mark.parametrize("slope", [3e-7, -3e-7])
def test_a_planted_leak_is_found_on_the_same_machine(slope):
    rng = np.random.default_rng(9)
    noise = laplace(rng, 8_000)
    found = timing_leak(noise, 1e-4 + busy(rng, 8_000) + slope * np.abs(noise), rng=rng)
    assert found.p < 0.001
    assert (found.rho > 0) == (slope > 0)


@pytest.mark.slow
def test_the_sequential_sampler_is_found_and_its_time_tells_the_value():
    found = timing_leak(
        *timed(SequentialLaplace(), 10_000, "planted"), rng=np.random.default_rng(10), gap=20.0
    )
    assert found.p < 0.001
    assert found.rho > 0.1
    assert found.gain > 0
    assert found.calls == 10_000
    assert found.counted == 5_000
    assert found.alone_interval.low <= found.alone <= found.alone_interval.high
    assert found.with_time_interval.low <= found.with_time <= found.with_time_interval.high


@pytest.mark.slow
def test_inversion_passes_on_this_machine():
    """100 repeats of 2,000 calls with whatever else the machine does: p > 0.01 in at least 95."""
    passes = 0
    for i in range(100):
        noise, seconds = timed(GeometricInversion(), 2_000, f"control {i}")
        passes += (
            timing_leak(noise, seconds, rng=np.random.default_rng(i), permutations=999).p > 0.01
        )
    assert passes >= 95


def test_constant_times_show_nothing():
    found = timing_leak(
        laplace(np.random.default_rng(11), 1000), np.ones(1000), rng=np.random.default_rng(12)
    )
    assert (found.rho, found.p) == (0.0, 1.0)
