import math
from fractions import Fraction

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.noise.floating_point import sums
from dpaudit_attacks.sensitivity import SensitivityProbes, excess

BOUNDS = [
    (0.0, 1.0, 1000), (0.0, 1.0, 20_000), (2.0**45, 2.0**45 + 1, 1000),
    (-(2.0**45) - 1, -(2.0**45), 1000), (1.0, 1 + 2.0**-50, 1000), (-(2.0**22), 2.0**22, 2000),
    (0.0, 2.0**53, 1100), (-0.5, 0.25, 700), (1e-3, 2e-3, 5000), (1e6, 1e6 + 1, 2),
]  # fmt: skip


def exact(records):
    return sum(map(Fraction, records.tolist()))


def running(dtype):
    """Added up one by one, without numpy's own accumulation."""

    def add(records):
        total = dtype(0)
        for record in records.astype(dtype):
            total = dtype(total + record)
        return float(total)

    return add


@pytest.mark.parametrize(("lower", "upper", "size"), BOUNDS)
def test_pairs_are_neighbours_within_the_bounds(lower, upper, size):
    try:
        pairs = SensitivityProbes(lower=lower, upper=upper, size=size).pairs()
    except UsageError:
        assert size == 2
        return
    for name, a, b in pairs:
        for x in (a, b):
            assert x.shape == (size,)
            assert x.dtype == np.float64
            assert lower <= x.min()
            assert x.max() <= upper
        assert not np.array_equal(a, b), name
        if name.startswith("reordered"):
            assert np.array_equal(np.sort(a), np.sort(b)), name
        else:
            assert name.startswith("one record replaced")
            assert (a != b).sum() == 1, name
            assert abs(exact(a) - exact(b)) <= Fraction(upper) - Fraction(lower), name


def test_integer_wrap_is_probed_at_every_width_within_reach():
    """From below 2^31 to 2^31 and so on, exactly; never where one record alone would not fit."""

    def wraps(**options):
        return SensitivityProbes(kind="wrap-around", **options).pairs()

    [(name, a, b)] = wraps(upper=2.0**22)
    assert name == "one record replaced, past 2^31"
    assert exact(a) < 2**31 <= exact(b)
    names = [n for n, _, _ in wraps(lower=-100, upper=100, size=2000)]
    past = [f"{s}2^{p}" for s in ("", "−") for p in (7, 8, 15, 16, 17)]
    assert names == [f"one record replaced, past {power}" for power in past]
    _, a, b = wraps(lower=0.25, upper=0.26, size=1000)[-1]
    assert exact(a) < 256 < exact(b)


@pytest.mark.parametrize(
    ("lower", "upper", "size", "dtype", "factor"),
    [
        (2.0**45, 2.0**45 + 1, 1000, np.float64, 4),
        (1 + 2.0**-46, 1 + 2.0**-45, 1000, np.float64, 8),
        (1e6, 1e6 + 1, 1000, np.float32, 64),
        (1.0, 1 + 2.0**-20, 1000, np.float32, 8),
    ],
)
def test_one_record_moves_a_running_sum_by_a_unit_in_its_last_place(
    lower, upper, size, dtype, factor
):
    probes = SensitivityProbes(lower=lower, upper=upper, size=size, kind="rounding")
    assert max(r.factor for r in excess(running(dtype), probes) if r.claimed > 0) >= factor


def test_reordering_moves_sums_in_order_but_not_correctly_rounded_ones():
    probes = SensitivityProbes(lower=2.0**45, upper=2.0**45 + 1, kind="reordering")
    worst = excess(running(np.float64), probes)[0]
    assert worst.factor >= 100
    assert worst.exact == 0
    assert worst.claimed == 0
    assert worst.broken
    assert all(r.observed == 0 and not r.broken for r in excess(math.fsum, probes))


def test_float32_reordering_of_records_in_0_1():
    """40,000 records: swallowed below half a unit of 20,000."""
    probes = SensitivityProbes(size=40_000, kind="reordering")
    assert excess(running(np.float32), probes)[0].factor > 5
    assert excess(running(np.float64), probes)[0].factor < 1e-6


def test_whole_numbers_above_2_to_the_53_are_taken_exactly():
    probes = SensitivityProbes(lower=2.0**45, upper=2.0**45 + 1, kind="rounding")
    whole = excess(lambda x: x.astype(np.int64).sum(), probes)
    assert all(r.observed == r.exact == 1 for r in whole)
    assert excess(lambda x: float(x.astype(np.int64).sum()), probes)[0].observed == 4


SPECIMENS = [name for name in sums.__all__ if hasattr(getattr(sums, name), "flawed")]


@pytest.mark.parametrize("name", SPECIMENS)
def test_flawed_specimens_alone_move_by_more_than_they_claim(name):
    m = getattr(sums, name)
    probes = SensitivityProbes(lower=m.lower, upper=m.upper, size=m.size)
    worst = excess(m.total, probes, sensitivity=float(m.sensitivity))[0].factor
    assert worst >= 4 if m.flawed else worst <= 1


def test_a_sum_of_its_own_kind_is_probed_through_any_probes():
    class Mine:
        def pairs(self):
            return [("mine", np.array([0.0, 1.0]), np.array([3.0, 1.0]))]

    [result] = excess(lambda x: 2 * float(x.sum()), Mine(), sensitivity=3.0)
    assert (result.exact, result.observed, result.factor, result.broken) == (3.0, 6.0, 2.0, True)
    with pytest.raises(UsageError, match="sensitivity=None"):
        excess(math.fsum, Mine())
    with pytest.raises(UsageError, match="finite numbers"):
        excess(lambda _: math.nan, Mine(), sensitivity=1.0)
    with pytest.raises(UsageError, match="sensitivity=0"):
        excess(math.fsum, Mine(), sensitivity=0.0)
