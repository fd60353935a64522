"""Releases of floating-point noise on a lattice against fractions, and their compiled passes."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from support.attacks import possible

from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.numeric.lattice import add_on_lattice, lattice_step
from dpaudit.numeric.passes import row_norms
from dpaudit_attacks.floating_point.reach import Reach

G = lattice_step(1.0)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def exact(query, noise, factor, granularity):
    """g·(K + Z) by fractions; Python's round is to even, as IEEE's."""
    own = Fraction(noise * factor)  # the one rounded product
    g = Fraction(granularity)
    return float(g * (round(Fraction(query) / g) + round(own / g)))


def awkward(dtype, g):
    """Numbers at random, ties and their neighbours, both zeros, subnormals, and large ones."""
    rng = np.random.default_rng(1)
    ties = (np.arange(-7, 8) + 0.5) * g
    near = [np.nextafter(ties, s) for s in (-np.inf, np.inf)]
    tiny = np.array([0.0, -0.0, 5e-324, -5e-324, 1e-40, g / 3, -g / 3])
    large = np.array([2.0**51, 2.0**52 - 1, -(2.0**52) + 1, 3.0**30]) * g
    values = np.concatenate(
        [rng.standard_normal(60), rng.standard_normal(60) * 1e4, ties, *near, tiny, large]
    )
    out = torch.from_numpy(values).to(dtype)
    return out[(out.double().abs() < 2.0**52 * g) & torch.isfinite(out)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "granularity"),
    [
        (("f64", "f64"), G),
        (("f64", "f64"), 2.0**-1000),
        (("f32", "f32"), G),
        (("f64", "f32"), 1.0),
        (("f32", "f64"), 2.0**-40),
        (("bf16", "bf16"), 1.0),
    ],
)
def test_exactly_what_fractions_say(kinds, granularity):
    dtypes = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
    of_query, of_noise = (dtypes[k] for k in kinds)
    query = awkward(of_query, granularity)
    pick = torch.from_numpy(np.random.default_rng(2).integers(0, 10**6, len(query)))
    noise = awkward(of_noise, granularity)
    noise = torch.stack([noise[pick % len(noise)], noise[(pick * 7 + 1) % len(noise)]])
    query, factors = torch.stack([query, query.flip(0)]), np.array([1.0, 0.7310585786300049])
    product = noise.double() * torch.from_numpy(factors)[:, None]
    inside = product.abs() < (2.0**52 - 1) * granularity
    noise = torch.where(inside, noise, torch.zeros_like(noise))
    wanted = [
        [exact(float(q), float(x), f, granularity) for q, x in zip(*row, strict=True)]
        for *row, f in zip(query, noise, factors.tolist(), strict=True)
    ]
    kept, want = noise.double().clone(), torch.tensor(wanted, dtype=torch.float64)
    options = {"granularity": granularity, "name": "test", "factors": factors}
    assert torch.equal(add_on_lattice(query, noise, **options), want.to(of_noise))
    for other in (torch.float32, torch.float64, torch.bfloat16):
        got = add_on_lattice(query, kept.clone(), **options, dtype=other)
        assert torch.equal(got, want.to(other))
    assert not (torch.signbit(got) & (got == 0)).any()


def test_in_place_and_the_query_stays(stream):
    for dtype in (torch.float32, torch.float64):
        query = torch.linspace(-3, 3, 40_000, dtype=dtype).reshape(2, -1)
        noise, before = Gaussian().sample(2, 20_000, stream=stream, dtype=dtype), query.clone()
        released = add_on_lattice(query, noise, granularity=G, name="test")
        assert released.data_ptr() == noise.data_ptr()
        assert torch.equal(query, before)
        strided = torch.zeros(20_000, 2, dtype=dtype).T
        again = add_on_lattice(query, strided, granularity=G, name="test")
        assert torch.equal(again, torch.round(query.double() / G).mul(G).to(dtype))


def test_any_number_of_threads_gives_the_same(stream, threads):
    query = torch.randn(3, 300_001, generator=torch.Generator().manual_seed(1))
    made = []
    for n in (1, 2, 5):
        threads(n)
        noise = Gaussian().sample(3, 300_001, stream=stream, dtype=torch.float32)
        norms = row_norms(noise)
        made.append(
            (norms, add_on_lattice(query, noise, granularity=G, name="test", factors=norms))
        )
    for norms, released in made[1:]:
        assert np.array_equal(norms, made[0][0])
        assert torch.equal(released, made[0][1])


def test_low_bits_say_nothing_of_the_query(stream):
    """Two queries with the same nearest multiples of g: the same releases, bit for bit."""
    for dtype in (torch.float32, torch.float64):
        steps = torch.arange(-500, 500, dtype=torch.float64)
        by = torch.linspace(-0.49, 0.49, 1000, dtype=torch.float64)
        at, moved = (x.mul(G).to(dtype)[None] for x in (steps, steps + by))
        for sigma in (1.0, 1e-12):  # the smaller: Z = 0, where −0.0 would show
            noise = Gaussian(sigma=sigma).sample(1, 1000, stream=stream, dtype=dtype)
            made = [add_on_lattice(q, noise.clone(), granularity=G, name="") for q in (at, moved)]
            bits = [m.view(torch.int32 if dtype == torch.float32 else torch.int64) for m in made]
            assert torch.equal(*bits)
        assert not torch.equal(at, moved)


@pytest.mark.parametrize("narrow", [False, True])
def test_reach_reads_a_float_sum_and_not_this(stream, narrow):
    dtype = torch.float32 if narrow else torch.float64
    noise = Gaussian().sample(5000, 1, stream=stream, dtype=dtype)
    truth = torch.full((5000, 1), 1.0, dtype=dtype)
    attack = Reach(dtype="float32" if narrow else "float64")
    plain = possible(attack, (truth + noise).double().numpy(), np.array([3.0]))
    assert (~plain).mean() > 0.02
    lattice = add_on_lattice(truth, noise, granularity=G, name="test").double().numpy()
    assert np.array_equal(np.rint(lattice / G) * G, lattice)
    # narrow: the sums are float64's, rounded once
    for value in (3.0,) if narrow else (0.0, 1.0, 3.0):
        assert possible(Reach(dtype="float64"), lattice, np.array([value])).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 2.0**52 * G, -(2.0**60)])
def test_what_is_beyond_the_lattice_is_refused(dtype, bad):
    fine = torch.zeros(2, 5, dtype=dtype)
    for at in ((0, 0), (1, 4)):
        wrong = fine.clone()
        wrong[at] = bad
        for query, noise in ((wrong, fine.clone()), (fine, wrong.clone())):
            with pytest.raises(UsageError, match="clip"):
                add_on_lattice(query, noise, granularity=G, name="test")
    with pytest.raises(UsageError, match="clip"):
        add_on_lattice(fine, fine + 1, granularity=G, name="test", factors=np.array([1.0, 1e300]))


def test_what_the_dtype_cannot_hold_is_refused():
    def added(query, noise, dtype, g):
        query = torch.full((1, 3), query, dtype=torch.float64)
        noise = torch.full((1, 3), noise, dtype=dtype)
        return add_on_lattice(query, noise, granularity=g, name="test")

    largest = torch.finfo(torch.float32).max
    step = 2.0**103  # half of float32's last step below 2^128: rounds to even, which is infinite
    assert (added(largest, 0.0, torch.float32, step) == largest).all()
    for wrong in (
        (largest, step, torch.float32, step),
        *((2.0**127, 2.0**127, dtype, 2.0**100) for dtype in (torch.float32, torch.bfloat16)),
    ):
        with pytest.raises(UsageError, match="too narrow"):
            added(*wrong)


def test_bad_granularity_and_shapes():
    def refused(query, noise, granularity, says):
        with pytest.raises(UsageError, match=says):
            add_on_lattice(torch.zeros(query), torch.zeros(noise), granularity=granularity, name="")

    for granularity in (0.3, 0.0, -1.0, math.nan, math.inf, 2.0**970, 2.0**-1023):
        refused((1, 2), (1, 2), granularity, "granularity=")
    refused((2,), (2,), G, "noise of shape")
    refused((1, 2), (1, 3), G, "noise of shape")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_norms_are_summed_in_float64(dtype):
    rows = torch.randn(3, 50_001, generator=torch.Generator().manual_seed(2)).to(dtype)
    rows[1] *= 2.0**-3
    wanted = [math.sqrt(math.fsum(x * x for x in row.tolist())) for row in rows.double()]
    np.testing.assert_allclose(row_norms(rows), wanted, rtol=1e-14)
    np.testing.assert_allclose(row_norms(rows.T.contiguous().T), wanted, rtol=1e-14)


def test_norms_of_extreme_sizes_want_their_unit():
    rows = torch.tensor([[3.0, 4.0], [-6.0, 8.0]], dtype=torch.float64)
    for unit in (2.0**-900, 2.0**900):
        assert list(row_norms(rows * unit, unit=unit)) == [5 * unit, 10 * unit]
        assert list(row_norms(rows * unit)) != [5 * unit, 10 * unit]
