import math
from fractions import Fraction

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.noise.floating_point import sums
from dpaudit.noise.floating_point.sums import BoundedSum, rounding_bound

ALL = {name: x for name in sums.__all__ if isinstance(x := getattr(sums, name), BoundedSum)}
CLEAN = {name: x for name, x in ALL.items() if not x.flawed}


def exact(records):
    return sum(map(Fraction, records.tolist()))


def shifted(**changes):
    """A mechanism on few records, with what is not given as for the exact sum."""
    given = {
        "total": math.fsum,
        "lower": 0.0,
        "upper": 1.0,
        "size": 4,
        "sensitivity": Fraction(1),
        "origin": Fraction(0),
        "flawed": False,
    }
    return BoundedSum(**(given | changes))


def test_there_are_flawed_and_clean_ones():
    assert len(ALL) == 9
    assert len(CLEAN) == 3
    assert all("LAB SPECIMEN" not in (sums.__dict__[n].total.__doc__ or "") for n in CLEAN)
    assert all("LAB SPECIMEN" in sums.__dict__[n].total.__doc__ for n in ALL.keys() - CLEAN.keys())


@pytest.mark.parametrize(
    "total", [sums.float64_running, sums.pairwise, sums.fixed_point, math.fsum]
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_sums_of_whole_numbers_are_exact(total, size):
    records = np.random.default_rng(size).integers(-1000, 1000, size).astype(float)
    assert total(records) == records.sum()


@pytest.mark.parametrize("size", [2, 5, 64, 1000])
@pytest.mark.parametrize(
    ("total", "depth"), [("pairwise", None), ("float64_running", "size"), ("fsum", 1)]
)
def test_rounding_bound_holds_and_a_thousandth_of_it_does_not(total, depth, size):
    add = math.fsum if total == "fsum" else getattr(sums, total)
    rng = np.random.default_rng(1)
    depth = {"size": size - 1, None: math.ceil(math.log2(size)), 1: 1}[depth]
    worst = Fraction(0)
    half = rounding_bound(depth=depth, size=size, lower=-1.0, upper=1.0) / 2
    for _ in range(20):
        records = rng.random(size) * 2.0 - rng.random()
        records = np.clip(records, -1, 1)
        worst = max(worst, abs(Fraction(add(records)) - exact(records)) / half)
    assert worst <= 1
    assert worst > Fraction(1, 1000)


def test_wrapping_and_saturating_arithmetic():
    big = np.full(3, 2.0**30)
    assert sums.int32_wrapping(big) == 3 * 2**30 - 2**32
    assert sums.int32_wrapping(big[:1]) == 2**30
    assert sums.int32_saturating(big) == 2**31 - 1
    assert sums.int32_saturating(np.append(big, -1.0)) == 2**31 - 2
    assert sums.int32_saturating(-big) == -(2**31)
    assert sums.fixed_point_wrapping(np.full(512, 1.0)) == -512
    assert sums.fixed_point_wrapping(np.full(511, 1.0)) == 511


def test_float32_running_is_in_order_and_in_float32():
    assert sums.float32_running(np.array([2.0**24, 1, 1])) == 2**24
    assert sums.float32_running(np.array([1, 1, 2.0**24])) == 2**24 + 2


def test_mean_of_nonzero():
    assert sums.mean_of_nonzero(np.array([0, 0.5, 0, 1.0])) == 0.75
    assert sums.mean_of_nonzero(np.zeros(3)) == 0


def test_fixed_point_refuses_what_float64_does_not_hold():
    with pytest.raises(UsageError, match="too many"):
        sums.fixed_point(np.full(2, 2.0**21))


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
    mechanism = shifted()
    wild = mechanism(np.array([-9.0, 9, 0, 0]), 40_000)
    assert abs(wild.mean() - 1) < 6 * 1.5 / 200


def test_bad_values():
    with pytest.raises(UsageError, match="size=1000"):
        sums.fsum_sum(np.zeros(3), 1)
    with pytest.raises(UsageError, match="size=1000"):
        sums.fsum_sum(0.0, 1)
    with pytest.raises(UsageError, match="too large"):
        shifted(total=lambda _: 2.0**60)(np.zeros(4), 1)
