"""Rounding: the grid, its cost, what it refuses, and what is measured of its protection."""

import math
from dataclasses import dataclass

import pytest
import scipy
import torch
from support.keyed_attackers import along_key, attackers, half_a_spacing, successes

from dpaudit.accounting import pancake_epsilon
from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.numeric.lattice import RoundedHost, add_on_lattice, lattice_step
from dpaudit.queries.histogram import Histogram
from dpaudit.stats import clopper_pearson
from dpaudit.testing import check_mitigation
from dpaudit_mitigations.smoothing.rounding import Rounding
from dpaudit_mitigations.smoothing.smoothing import Smoothing

TRIALS = 4000


def test_bfloat16_costs_what_it_says(stream):
    check_mitigation(Rounding(to="bf16"), Gaussian(sigma=1e6))
    for sigma in (1.0, 1.3, 1.9):
        exact = Gaussian(sigma=sigma).sample(500, 1000, stream=stream, dtype=torch.float64)
        error = float((exact.bfloat16().double() - exact).square().mean().sqrt())
        assert Rounding(to="bf16").scale(sigma) == pytest.approx(math.hypot(sigma, error), rel=1e-7)
    assert 0.0015 < math.sqrt(Rounding(to="bf16").scale(1.0) ** 2 - 1) < 0.0018


def test_the_grid(stream):
    assert Rounding(to="integers").grid(7.0) == 1.0
    assert Rounding(grid=0.25).grid(7.0) == 0.25
    by_peaks = Rounding(peaks=2, dim=256).grid(3.0)
    assert by_peaks == pytest.approx(2 * math.sqrt(2 * math.pi) * 3.0 / 32)
    assert Rounding(peaks=2, gamma_min=32, dim=9).grid(3.0) == by_peaks
    assert Rounding(to="bf16").grid(1.0) is None
    assert Rounding(grid=3.0).scale(2.0) == pytest.approx(math.sqrt(4 + 9 / 12))
    with pytest.raises(UsageError, match="grid=1e-300"):
        Rounding(grid=1e-300).release(torch.zeros(1, 2), Gaussian(), stream=stream)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_it_rounds_the_sum_on_the_lattice(dtype, stream):
    """The release on the lattice first, then the grid; lower query bits do not matter."""
    query = torch.from_numpy(stream.child("q").numpy().normal(0, 100, (20, 50))).to(dtype)
    source, step = Gaussian(sigma=2.0), lattice_step(2.0)
    noise = source.sample(20, 50, stream=stream, dtype=torch.float64)
    exact = add_on_lattice(query, noise, granularity=step, name="by hand").to(dtype)
    whole = Rounding(to="integers").release(query, source, stream=stream)
    assert torch.equal(whole, exact.round())
    assert torch.equal(
        Rounding(to="bf16").release(query, source, stream=stream), exact.bfloat16().to(dtype)
    )
    grid = Rounding(grid=0.75).release(query, source, stream=stream)
    assert torch.equal(grid, ((exact.double() / 0.75).round() * 0.75).to(dtype))
    # its own release, not its noise on our lattice
    secure = SecureGaussian(sigma=2.0, granularity=0.5)
    released = secure.release(query, stream=stream.child("secure"))
    got = Rounding(to="integers").release(query, secure, stream=stream.child("secure"))
    assert torch.equal(got, released.round())


@pytest.mark.slow
def test_it_promises_no_more_than_post_processing(make_key):
    host = Histogram()
    for source in (Gaussian(sigma=22.4), Pancake(key=make_key(dim=host.dim), sigma=22.4)):
        got = Rounding(peaks=2, dim=host.dim).epsilon(source, 1e-10, host=host)
        assert got.low == 0.0
        assert got.high == source.epsilon(1e-10, host=RoundedHost(host, lattice_step(22.4))).high
        assert "no proof" in got.says
    secure = SecureGaussian(sigma=22.4)
    assert (
        Rounding(grid=1).epsilon(secure, 1e-10, host=host).high
        == secure.epsilon(1e-10, host=host).high
    )


def test_two_spacings_are_coin_tossing_and_a_grid_of_half_a_spacing_is_not(make_key, stream):
    """Half a spacing apart, where a key holder always wins; honest noise alone gives 51.6 %."""
    key = make_key(dim=256, beta=1e-3)
    found = {}
    for peaks in (2, 0.5):
        m = Rounding(peaks=peaks, dim=256)
        # the errors along the key, were they independent
        attacks = attackers(key, sigma=1.0, tau=m.grid(1.0) / math.sqrt(12))
        pairs = along_key(key, half_a_spacing(key, sigma=1.0))
        right = successes(m, Pancake(key=key), attacks, pairs, trials=TRIALS, stream=stream)
        found[peaks] = right.values()
    best = scipy.stats.norm.cdf(0.5 * half_a_spacing(key, sigma=1.0))
    for right in found[2]:
        interval = clopper_pearson(right, TRIALS, confidence=0.999)
        assert interval.low <= best
        assert interval.high >= 0.5
    assert min(found[0.5]) > 0.9 * TRIALS


@dataclass
class Pair:
    """A host of two query results."""

    first: torch.Tensor
    second: torch.Tensor

    @property
    def dim(self):
        return len(self.first)

    @property
    def sensitivity(self):
        return float(torch.linalg.vector_norm(self.first - self.second))

    def neighbours(self, n, *, stream):
        raise NotImplementedError

    def differences(self, direction):
        return ((self.first - self.second).numpy() @ direction).reshape(1)


def apart_after_rounding(key, step):
    """A whole turn apart but for 0.002·g per coordinate, which the lattice makes g: g‖w‖₁."""
    w = torch.from_numpy(key.direction.copy())
    turn = math.sqrt(2 * math.pi) / key.gamma
    first = (turn * w / step).round() * step + 0.501 * step * w.sign()
    return Pair(first, 0.499 * step * w.sign())


@pytest.mark.slow
@pytest.mark.parametrize("mitigation", [Rounding(grid=lattice_step(1.0)), Smoothing(tau=1e-9)])
def test_what_the_lattice_does_to_a_phase_is_in_epsilon(mitigation, make_key, stream):
    """Peaks as wide as a lattice step: a key holder reads the rounding of two queries."""
    key, step, n, delta = make_key(dim=64, beta=1e-6), lattice_step(1.0), 5000, 1e-6
    host, source = apart_after_rounding(key, step), Pancake(key=key)
    direction = torch.from_numpy(key.direction.copy())
    turn = math.sqrt(2 * math.pi) / key.gamma
    near = []
    for name, query in (("first", host.first), ("second", host.second)):
        released = mitigation.release(query.expand(n, 64), source, stream=stream.child(name))
        # the event: the phase is within half of g‖w‖₁ of the first rounded query's peak
        turns = ((released - (host.first / step).round() * step) @ direction) / turn
        off = (turns - turns.round()).abs() * turn
        near.append(int((off < step * float(direction.abs().sum()) / 2).sum()))
    first, second = (clopper_pearson(k, n, confidence=0.9999) for k in near)
    shown = math.log((first.low - delta) / second.high)
    assert shown > 4
    assert mitigation.epsilon(source, delta, host=host).high > shown
    # what ``high`` was taken from: the phases before the lattice
    assert source.epsilon(delta, host=host).high < 3


@pytest.mark.slow
def test_no_pair_on_the_lattice_exceeds_the_bound(make_key, stream):
    """Ordinary queries, rounded: the pair that is released from, each computed by itself."""
    key, step = make_key(dim=64, beta=1e-5), lattice_step(1.0)
    w = torch.from_numpy(key.direction.copy())
    source, above = Pancake(key=key), 0
    for i in range(6):
        q = torch.from_numpy(stream.child(i).numpy().uniform(-1, 1, (2, 64)) * 0.02)
        host = Pair(q[0], q[1])
        k = (q / step).round() * step
        along, size = float((k[0] - k[1]) @ w), float(torch.linalg.vector_norm(k[0] - k[1]))
        law = {"sigma": 1.0, "beta": 1e-5, "gamma": key.gamma}
        across = math.sqrt(size**2 - along**2)
        exact = pancake_epsilon(1e-10, **law, along=along, across=across)
        assert exact.value <= Rounding(grid=1.0).epsilon(source, 1e-10, host=host).high
        above += exact.value > source.epsilon(1e-10, host=host).high
    assert above > 0  # unrounded phases are no bound
