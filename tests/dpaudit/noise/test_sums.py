import math
from fractions import Fraction

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.noise.floating_point import sums
from dpaudit.noise.floating_point.sums import BoundedSum, rounding_bound

ALL = {name: x for name in sums.__all__ if isinstance(x := getattr(sums, name), BoundedSum)}


def exact(records):
    return sum(map(Fraction, records.tolist()))


def shifted(total=math.fsum):
    """A mechanism on few records, of another total if given."""
    exactly = {"sensitivity": Fraction(1), "origin": Fraction(0), "flawed": False}
    return BoundedSum(total=total, lower=0.0, upper=1.0, size=4, **exactly)


@pytest.mark.parametrize(
    "total", [sums.float64_running, sums.pairwise, sums.fixed_point, math.fsum]
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_sums_of_whole_numbers_are_exact(total, size):
    records = np.random.default_rng(size).integers(-1000, 1000, size).astype(float)
    assert total(records) == records.sum()


@pytest.mark.parametrize("size", [2, 5, 64, 1000])
@pytest.mark.parametrize(
    ("add", "depth"),
    [
        (sums.pairwise, lambda size: math.ceil(math.log2(size))),
        (sums.float64_running, lambda size: size - 1),
        (math.fsum, lambda size: 1),
    ],
)
def test_rounding_bound_holds_and_a_thousandth_of_it_does_not(add, depth, size):
    rng, worst = np.random.default_rng(1), Fraction(0)
    half = rounding_bound(depth=depth(size), size=size, lower=-1.0, upper=1.0) / 2
    for _ in range(20):
        records = np.clip(rng.random(size) * 2.0 - rng.random(), -1, 1)
        worst = max(worst, abs(Fraction(add(records)) - exact(records)) / half)
    assert Fraction(1, 1000) < worst <= 1


def test_wrapping_and_saturating_arithmetic():
    big = np.full(3, 2.0**30)
    assert sums.int32_wrapping(big) == 3 * 2**30 - 2**32
    assert sums.int32_wrapping(big[:1]) == 2**30
    assert sums.int32_saturating(big) == 2**31 - 1
    assert sums.int32_saturating(np.append(big, -1.0)) == 2**31 - 2
    assert sums.int32_saturating(-big) == -(2**31)
    assert sums.fixed_point_wrapping(np.full(512, 1.0)) == -512
    assert sums.fixed_point_wrapping(np.full(511, 1.0)) == 511


def test_float32_running_is_in_order_and_in_float32_and_means_leave_zeros_out():
    assert sums.float32_running(np.array([2.0**24, 1, 1])) == 2**24
    assert sums.float32_running(np.array([1, 1, 2.0**24])) == 2**24 + 2
    assert sums.mean_of_nonzero(np.array([0, 0.5, 0, 1.0])) == 0.75
    assert sums.mean_of_nonzero(np.zeros(3)) == 0


def test_fixed_point_never_leaves_the_bounds_and_is_order_free():
    rng = np.random.default_rng(2)
    records = rng.random(1000)
    assert sums.fixed_point(records) == sums.fixed_point(rng.permutation(records))
    assert 0 <= exact(records) - Fraction(sums.fixed_point(records)) < Fraction(1000, 2**32)


@pytest.mark.parametrize("name", ALL)
def test_mechanism_centres_on_the_total_with_the_claimed_scale(name):
    """Mean and mean size of the noise: |k| of discrete Laplace has mean and spread about Δ."""
    mechanism = ALL[name]
    records = np.full(mechanism.size, mechanism.lower)
    records[0] = mechanism.upper
    n = 20_000
    noise = mechanism(records, n) - float(Fraction(mechanism.total(records)) - mechanism.origin)
    scale = float(mechanism.sensitivity)
    assert noise.shape == (n,)
    assert abs(noise.mean()) < 6 * 1.5 * scale / math.sqrt(n) + scale / 256
    assert abs(np.abs(noise).mean() / scale - 1) < 6 / math.sqrt(n) + 1 / 256


def test_releases_lie_on_one_lattice_whatever_the_records():
    mechanism = sums.fsum_sum
    spacing = 2.0 ** (math.floor(math.log2(mechanism.sensitivity)) - 8)
    records = mechanism.lower + np.random.default_rng(5).random(mechanism.size)
    steps = mechanism(records, 1000) / spacing
    assert (steps == np.rint(steps)).all()
    assert len(np.unique(steps)) > 500


def test_records_are_clipped():
    wild = shifted()(np.array([-9.0, 9, 0, 0]), 40_000)
    assert abs(wild.mean() - 1) < 6 * 1.5 / 200


def test_bad_values():
    for bad in (np.zeros(3), 0.0):
        with pytest.raises(UsageError, match="size=1000"):
            sums.fsum_sum(bad, 1)
    with pytest.raises(UsageError, match="too large"):
        shifted(total=lambda _: 2.0**60)(np.zeros(4), 1)
    with pytest.raises(UsageError, match="too many"):
        sums.fixed_point(np.full(2, 2.0**21))
