import math
import time

import numpy as np
import pytest

from dpaudit.noise.geometric import GeometricInversion
from dpaudit.noise.sequential import SequentialLaplace
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.timing import Timing

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


@pytest.mark.slow
def test_the_time_of_the_sequential_sampler_tells_the_value_and_that_of_inversion_does_not():
    gains = []
    for source in (SequentialLaplace(), GeometricInversion()):
        noise, seconds = timed(source, 20_000, "planted")
        rows = np.column_stack([noise, seconds])
        rows[1::2, 0] += 20.0
        learnt = Timing().learn(
            rows[0:10_000:2], rows[1:10_000:2], neighbours=(np.zeros(1), np.full(1, 20.0))
        )
        others = rows[10_000::2], rows[10_001::2]
        alone = success(lambda y, by=learnt: by.output(y[:, :-1]), *others)
        gains.append(success(learnt, *others) - alone)
    assert gains[0] > 0.02  # 4.4 standard errors of a success
    assert abs(gains[1]) < 0.02
