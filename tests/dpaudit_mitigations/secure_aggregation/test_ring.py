"""Fixed point: exact sums, signed decoding, room checked beforehand, and never a clipped value."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import CheatingError, UsageError
from dpaudit_mitigations.secure_aggregation.ring import LEAST_HEADROOM, FixedPoint, noise_reach


def form(**changes):
    return FixedPoint(
        **{"bits": 32, "granularity": 2.0**-10, "parties": 3, "bound": 1000.0, **changes}
    )


@given(
    bits=st.sampled_from([16, 32, 64]),
    parties=st.integers(1, 20),
    exponent=st.integers(-40, 40),
    share=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32),
)
def test_sums_of_encoded_values_are_exact(bits, parties, exponent, share, seed):
    g = math.ldexp(1.0, exponent)
    f = FixedPoint.widest(bits=bits, granularity=g, parties=parties, sigma=0.0, length=8)
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, (parties, 8)) * f.bound * share
    values[:, 0], values[:, 1] = f.bound, -f.bound  # the corners, all parties at once
    total = np.zeros(8, f"<u{bits // 8}")
    for row in values:
        total += f.encode(row)
    exact = [
        sum(round(Fraction(float(v)) / Fraction(g)) for v in values[:, i]) * Fraction(g)
        for i in range(8)
    ]
    assert [Fraction(float(x)) for x in f.decode(total)] == exact


def test_decoding_is_signed_and_unsigned_decoding_would_not_do():
    f = form()
    ring = f.encode(np.array([-1.5, 0.0, 2.25]))
    assert f.decode(ring).tolist() == [-1.5, 0.0, 2.25]
    assert (ring * f.granularity)[0] > 1e6  # read as unsigned


def overflows(encode):
    """Whether an encoder says so when a value is out of range, a little or a lot."""
    said = []
    for value in (1000.01, -1000.01, 1e9, -1e300, math.inf, math.nan):
        try:
            encode(np.array([0.0, value]))
            said.append(False)
        except UsageError:
            said.append(True)
    return all(said)


def test_out_of_range_is_an_error_and_never_clipped():
    f = form()
    assert overflows(f.encode)
    # silent clipping, as elsewhere
    assert not overflows(lambda v: f.encode(np.nan_to_num(np.clip(v, -f.bound, f.bound))))
    with pytest.raises(UsageError, match="clip to public bounds") as e:
        f.encode(np.array([123456.789]))
    assert "123456" not in str(e.value)  # the value stays where it is


def test_noise_beyond_its_room_is_an_error_before_anything_is_sent():
    f = form(sigma=1.0)
    most = f.limit - 1024 * 1000
    assert (
        f.decode(f.encode(np.array([1000.0]), noise=lambda n: np.full(n, most)))[0]
        == f.limit / 1024
    )
    for noise in (most + 1, -(most + 1)):
        # whatever the value: that it is refused says nothing of it
        for value in (1000.0, 0.0, -1000.0):
            with pytest.raises(UsageError, match="nothing was sent"):
                f.encode(np.array([value]), noise=lambda n, z=noise: np.full(n, z))


def test_sizes_beyond_all_measure_are_refused_as_such():
    for granularity, sigma in ((2.0**-500, 1e200), (2.0**-960, 1e300), (2.0**-10, 1e160)):
        with pytest.raises(UsageError, match="takes 900 bits"):
            form(granularity=granularity, sigma=sigma)
    for parties in (500, 30_000):
        with pytest.raises(UsageError, match="granularity="):
            FixedPoint.finest(bits=16, parties=parties, bound=1e308, sigma=1.0, length=10)


def test_what_is_no_real_number_is_refused():
    for bad in (np.array([1 + 5j]), np.array(["7"]), np.array([None])):
        with pytest.raises(UsageError, match="takes real numbers"):
            form().encode(bad)
    assert form().decode(form().encode(np.array([-0.0]))).tobytes() == bytes(8)


@pytest.mark.parametrize("sigma", [0.0, 3.0, 500.0])
@pytest.mark.parametrize("parties", [3, 10, 1000])
def test_the_bit_budget(parties, sigma):
    """Construction passes exactly if bound and 8.5σ or more of all parties fit; else a fix."""
    widest = FixedPoint.widest(
        bits=32, granularity=2.0**-8, parties=parties, sigma=sigma, length=10**6
    )
    assert widest.headroom >= LEAST_HEADROOM or sigma == 0
    need = widest.bound * 256 + widest.reach
    assert parties * need <= 2**31 - 1 < parties * (need + 1)
    with pytest.raises(UsageError, match="bits=32"):
        form(
            bits=32,
            granularity=2.0**-8,
            parties=parties,
            sigma=sigma,
            length=10**6,
            bound=widest.bound + 2**-8,
        )


def test_a_ring_too_narrow_would_wrap():
    """What the refusal prevents: ten parties with the bound for one."""
    one = FixedPoint.widest(bits=16, granularity=1.0, parties=1, sigma=0.0, length=1)
    total = np.zeros(1, np.uint16)
    for _ in range(10):
        total += one.encode(np.array([30_000.0]))
    assert one.decode(total)[0] != 300_000
    with pytest.raises(UsageError, match="bits=16"):
        FixedPoint(bits=16, granularity=1.0, parties=10, bound=30_000.0)


@pytest.mark.parametrize("scale", [0.7, 3.0, 100.0, 1e6])
@pytest.mark.parametrize("values", [1, 10**6, 10**9])
def test_reach_covers_gaussian_and_skellam_tails(scale, values):
    reach = noise_reach(scale, values)
    assert reach >= LEAST_HEADROOM * scale
    assert 2 * values * scipy.stats.norm.sf(reach / scale) <= 2**-40
    if scale <= 100:
        half = scale * scale / 2
        assert 2 * values * scipy.stats.skellam.sf(reach, half, half) <= 2**-40
    assert noise_reach(0.0, values) == 0


def test_finest_is_the_finest():
    for bits, bound, sigma in ((32, 1.0, 0.01), (16, 100.0, 1.0), (64, 3.0, 5.0)):
        options = {"bits": bits, "parties": 5, "bound": bound, "sigma": sigma, "length": 1000}
        f = FixedPoint.finest(**options)
        with pytest.raises(UsageError, match=f"bits={bits}"):
            FixedPoint(granularity=f.granularity / 2, **options)
        assert (
            FixedPoint.finest(**options, finest=4 * f.granularity).granularity == 4 * f.granularity
        )


def test_a_sum_that_nobody_can_have_sent_is_refused():
    f = form(bits=64)
    assert f.decode(np.array([3 * f.limit], np.uint64))[0] == 3 * f.limit / 1024
    for bad in (3 * f.limit + 1, 2**63, 2**64 - 3 * f.limit - 1):
        with pytest.raises(CheatingError, match="beyond all parties"):
            f.decode(np.array([0, bad], np.uint64))
    with pytest.raises(UsageError, match="int32"):
        form().decode(np.zeros(3, np.int32))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"granularity": 0.3}, "power of two"),
        ({"granularity": math.nan}, "power of two"),
        ({"granularity": 0.0}, "power of two"),
        ({"bits": 31}, "bits=31"),
        ({"parties": 0}, "parties=0"),
        ({"length": 0}, "length=0"),
        ({"bound": -1.0}, "bound=-1"),
        ({"bound": math.inf}, "bound=inf"),
        ({"bound": 1e300}, "bits=32"),
        ({"sigma": math.nan}, "sigma=nan"),
    ],
)
def test_bad_forms(changes, says):
    with pytest.raises(UsageError, match=says):
        form(**changes)


def test_every_field_is_in_the_context():
    changes = (
        {"bits": 64},
        {"granularity": 0.5},
        {"parties": 4},
        {"bound": 2.0},
        {"sigma": 1.0},
        {"length": 2},
    )
    assert len({form().context, *(form(**c).context for c in changes)}) == 7
