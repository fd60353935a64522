"""The specimens have the law they claim and their flaw; oracles are scalar or other libraries.

Pairs and logarithms that give their uniforms away: test_pair_inversion.py and test_reach.py.
"""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from dpaudit.errors import UsageError
from dpaudit.noise.floating_point import ideal_added, laplace
from dpaudit.noise.floating_point.box_muller import (
    BoxMullerF32,
    BoxMullerF64,
    FourSumGaussian,
    Polar,
)
from dpaudit.noise.floating_point.ideal_added import (
    FineLatticeGaussian,
    IdealAddedGaussian,
    fill_ideal_normal,
)
from dpaudit.noise.floating_point.laplace import NaiveLaplace
from dpaudit.noise.floating_point.ziggurat import Ziggurat
from dpaudit.noise.gaussian import Gaussian
from dpaudit.numeric import kernels
from dpaudit.numeric.random_words import seed_words, start
from dpaudit.queries.histogram import Histogram
from dpaudit.registry import create
from dpaudit.testing import check_noise_source

FINE, BAD = 1e-3, 1e-9  # p-values: ours above the first, planted mistakes below the second

SPECIMENS = [
    "box-muller-f32:sigma=0.5",
    "box-muller-f64:sigma=3",
    "naive-laplace:scale=0.3",
    "naive-laplace:scale=2,bits=24",
    "naive-laplace:form=numpy",
    "naive-laplace:form=numpy,bits=24,scale=7",
    "polar:sigma=0.7",
    "ziggurat",
    "ziggurat:bits=32,sigma=5",
    "ziggurat:bits=24",
    "four-sum-gaussian:sigma=2",
    "four-sum-gaussian:dtype=f64",
    "fine-lattice-gaussian:sigma=10",
    "ideal-added-gaussian:sigma=0.7",
]


def draw(source, count, stream, dtype=torch.float64):
    return np.asarray(source.sample(1, count, stream=stream, dtype=dtype))[0]


def reachable(y, v):
    """Whether some float n has fl(v + n) = y: ``y − v`` rounded, or one of the floats around it."""
    n = y - v
    found = v + n == y
    for toward in (-np.inf, np.inf):
        near = n
        for _ in range(2):
            near = np.nextafter(near, y.dtype.type(toward))
            found |= v + near == y
    return found


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", SPECIMENS)
def test_conforms_and_promises_nothing(name, stream):
    source = create("sources", name)
    check_noise_source(source)
    odd = source.sample(3, 7, stream=stream, dtype=torch.float64)
    assert odd.shape == (3, 7)
    assert source.sample(3, 7, stream=stream, dtype=torch.float32).equal(odd.to(torch.float32))
    for wrong, says in (((3, 7, torch.device("meta")), "device=meta"), ((0, 7, None), "n=0")):
        with pytest.raises(UsageError, match=says):
            source.sample(*wrong[:2], stream=stream, device=wrong[2])
    bounds = source.epsilon(1e-6, host=Histogram(table="uniform", bins=4, records=100))
    assert (bounds.low, bounds.high) == (0.0, math.inf)


def kolmogorov_smirnov(x, cdf):
    """Asymptotic p-value of sorted ``x`` against ``cdf``."""
    u, n = cdf(x), len(x)
    steps = np.arange(n + 1) / n
    return scipy.special.kolmogorov(
        math.sqrt(n) * max((u - steps[:-1]).max(), (steps[1:] - u).max())
    )


@pytest.mark.parametrize("name", SPECIMENS)
def test_has_the_claimed_law_and_a_wrong_scale_is_seen(name, stream):
    source = create("sources", name)
    cdf = scipy.stats.laplace.cdf if isinstance(source, NaiveLaplace) else scipy.special.ndtr
    drawn = draw(source, 250_000, stream)
    z = np.sort(drawn) / getattr(source, "scale", source.sigma)
    assert kolmogorov_smirnov(z, cdf) > FINE
    assert kolmogorov_smirnov(z * 1.06, cdf) < BAD
    assert kolmogorov_smirnov(z + 0.03, cdf) < BAD
    x = drawn / source.sigma
    for lag in (1, 2):  # neighbours do not depend on each other
        assert abs(np.mean(x[:-lag] * x[lag:])) < 1e-2  # 5 standard deviations
        if not name.startswith("naive"):
            assert abs(np.mean((x[:-lag] ** 2 - 1) * (x[lag:] ** 2 - 1))) < 2.4e-2  # 6 of them


GAUSSIAN = (BoxMullerF32, BoxMullerF64, Polar, Ziggurat, FourSumGaussian, FineLatticeGaussian)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {"sigma": -1.0}) for kind in (*GAUSSIAN, IdealAddedGaussian)),
        *((NaiveLaplace, {"scale": scale}) for scale in (0, math.nan, math.inf, "1", True)),
        *((NaiveLaplace, {"bits": bits}) for bits in (7, 54, 24.0, "53", True)),
        (NaiveLaplace, {"form": "scipy"}),
        *((Ziggurat, {"bits": bits}) for bits in (23, 65)),
        *((FourSumGaussian, {"dtype": dtype}) for dtype in ("float32", 64)),
        *(
            (FineLatticeGaussian, {"granularity": g})
            for g in (0, -(2.0**-60), 3 * 2.0**-60, math.nan, math.inf, True, "fine")
        ),
        (FineLatticeGaussian, {"granularity": 2.0**-51}),  # secure-gaussian's
        (FineLatticeGaussian, {"granularity": 2.0**-52, "sigma": 0.9}),
        (FineLatticeGaussian, {"granularity": 2.0**-101}),  # ideal-added-gaussian's
    ],
)
def test_bad_options_are_refused(kind, options):
    with pytest.raises(UsageError, match=f"{next(iter(options))}="):
        kind(**options)


# ---------------------------------------------------------------- Box-Muller


class Replayed(random.Random):
    """Python's own generator of normals, on the uniforms of a stream."""

    def __init__(self, stream):
        super().__init__()
        self._uniforms = stream.numpy()

    def random(self):
        return self._uniforms.random()


def test_box_muller_f64_is_random_gauss_bit_for_bit(stream):
    python, x = Replayed(stream), draw(BoxMullerF64(sigma=1.3), 100_000, stream)
    assert x.tolist() == [python.gauss(0.0, 1.3) for _ in range(100_000)]


# ---------------------------------------------------------------- polar


@pytest.mark.parametrize("sigma", [1.0, 2.3])
def test_polar_is_numpys_legacy_normal_bit_for_bit(sigma, stream):
    numpys = np.random.RandomState(stream.numpy().bit_generator)
    ours = draw(Polar(sigma=sigma), 100_000, stream)
    assert np.array_equal(ours, numpys.normal(0.0, sigma, 100_000))


# ---------------------------------------------------------------- Laplace


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_laplace_is_numpys_bit_for_bit(scale):
    n = 100_000
    for reference, source in (
        (np.random.RandomState(20223), np.random.RandomState(20223)),
        (np.random.default_rng(20223), np.random.default_rng(20223)),
    ):
        drawn = (source.random(n) * 2**53).astype(np.int64)
        out = np.empty(n)
        laplace._numpy_form(out, drawn, scale, 2.0**-53)
        assert drawn.min() > 0
        assert np.array_equal(out, reference.laplace(0.0, scale, n))


def test_bits_limit_the_values(stream):
    x = draw(BoxMullerF32(), 1_000_000, stream)
    assert abs(x).max() <= math.sqrt(-2 * math.log(2**-24)) * (1 + 1e-6)
    x = draw(NaiveLaplace(bits=8), 100_000, stream)
    assert len(np.unique(abs(x))) == 2**8  # k = 1 … 256
    assert abs(x).max() == 8 * math.log(2)
    x = draw(NaiveLaplace(bits=8, form="numpy"), 100_000, stream)
    assert len(np.unique(x)) == 2**8 - 1  # U = 1/256 … 255/256
    assert len(np.unique(draw(NaiveLaplace(bits=16), 300_000, stream))) <= 2**17
    assert len(np.unique(draw(NaiveLaplace(bits=53), 300_000, stream))) == 300_000


def test_laplace_signs_are_fair(stream):
    for form in ("log", "numpy"):
        x = draw(NaiveLaplace(form=form), 1_000_000, stream)
        assert scipy.stats.binomtest(int((x > 0).sum()), len(x)).pvalue > FINE


# ---------------------------------------------------------------- ziggurat


def on_ziggurat_grid(x, bits):
    """Whether |x| is k·w for a layer's width w over 2^bits."""
    w = kernels._layers(bits)[0]
    k = np.rint(np.abs(x)[:, None] / w)
    k = k[..., None] + np.array([-1.0, 0.0, 1.0])
    return ((k * w[:, None] == np.abs(x)[:, None, None]) & (k >= 0) & (k < 2.0**bits)).any(
        axis=(1, 2)
    )


def test_ziggurat_of_short_words_lies_on_256_grids_and_wrong_values_do_not(stream):
    x = draw(Ziggurat(bits=32), 3000, stream)
    x = x[abs(x) < 3.65]
    assert on_ziggurat_grid(x, 23).all()
    assert on_ziggurat_grid((1.0 + x) - 0.0, 23).mean() < 0.01  # released at 1, held against 0
    assert on_ziggurat_grid(draw(Ziggurat(bits=64), 3000, stream), 23).mean() < 0.01


def test_ziggurat_of_long_words_is_seen_only_near_zero(stream):
    x = draw(Ziggurat(bits=64), 3_000_000, stream)
    ideal = draw(IdealAddedGaussian(), 3_000_000, stream)
    for low, high, least, most in ((2.0**-12, 2.0**-11, 0.0, 0.2), (1.0, 1.1, 0.95, 1.0)):
        ours, theirs = (z[(abs(z) > low) & (abs(z) < high)][:1500] for z in (x, ideal))
        assert len(theirs) > 500
        assert on_ziggurat_grid(ours, 52).all()
        assert least <= on_ziggurat_grid(theirs, 52).mean() <= most


def test_ziggurat_words_limit_the_values(stream):
    made = {bits: draw(Ziggurat(bits=bits), 1_000_000, stream) for bits in (24, 32, 64)}
    distinct = {bits: len(np.unique(x)) for bits, x in made.items()}
    # 2^24 words: about 1e12/2^25 less 1e18/(6·2^48) repeats
    assert abs(1_000_000 - distinct[24] - 29_200) < 1_500
    assert 999_000 < distinct[32] < 1_000_000  # 2^32: about 1e12/2^33 = 116 repeats
    assert distinct[64] == 1_000_000


@pytest.mark.parametrize("bits", [32, 64])
def test_ziggurat_has_the_tail_of_the_law(bits, stream):
    tail = kernels._TAIL
    x = abs(draw(Ziggurat(bits=bits), 5_000_000, stream))
    beyond = x[x > tail]  # 1,290 are due: 1 ± 0.09 of that, and the mean to 0.025
    share = 2 * scipy.special.ndtr(-tail)
    assert scipy.stats.binomtest(len(beyond), 5_000_000, share).pvalue > FINE
    mean, variance = scipy.stats.truncnorm.stats(tail, np.inf)
    assert abs(beyond.mean() - mean) < 4 * math.sqrt(variance / len(beyond))


def test_ziggurat_agrees_with_numpys_own(stream):
    """numpy's SFC64 is the generator inside: ``standard_normal`` gives the same numbers."""
    a, b, c, n = (int(w) % 2**64 for w in start(seed_words(stream.child("ziggurat")), 0, 0))
    generator = np.random.SFC64(0)
    generator.state = {
        **generator.state,
        "state": {"state": np.array([a, b, c, n], np.uint64)},
        "has_uint32": 0,
    }
    ours = draw(Ziggurat(bits=64), 2000, stream)
    theirs = np.random.Generator(generator).standard_normal(2000)
    # it mirrors the tail's uniforms
    first_tail = np.argmax(abs(ours) > 3.65) if (abs(ours) > 3.65).any() else len(ours)
    assert first_tail > 1000
    assert ours[:first_tail] == pytest.approx(theirs[:first_tail], rel=1e-13)


def test_ziggurat_and_gaussian_are_independent_on_one_stream(stream):
    x, y = draw(Ziggurat(), 10_000, stream), draw(Gaussian(), 10_000, stream)
    assert abs(np.mean(x * y)) < 0.05


# ---------------------------------------------------------------- four sums


@pytest.mark.parametrize(
    ("name", "base", "scalar"),
    [("f32", BoxMullerF32, np.float32), ("f64", BoxMullerF64, np.float64)],
)
def test_four_sum_is_half_the_sum_in_its_own_precision(name, base, scalar, stream):
    parts = [draw(base(sigma=1.7), 2000, stream.child("four-sum", i), scalar) for i in range(4)]
    x = draw(FourSumGaussian(sigma=1.7, dtype=name), 2000, stream)
    for i, value in enumerate(x):
        total = scalar(0)
        for part in parts:
            total = scalar(total + part[i])
        assert value == scalar(total / scalar(2))


# ---------------------------------------------------------------- fine lattice and ideal noise


@pytest.mark.parametrize("k", range(0, 10, 3))
def test_ideal_noise_is_correctly_rounded(k):
    """Against rational arithmetic: (k + F)·σ rounded once, also where F has many leading zeros."""
    rng = random.Random(20224 + k)
    for _ in range(1500):
        high, low = rng.getrandbits(53) >> rng.choice((0, 0, 0, 1, 8, 40)), rng.getrandbits(53)
        mantissa = 1 + rng.getrandbits(52) * 2.0**-52
        exact = (k + Fraction(high, 2**53) + Fraction(low, 2**106)) * Fraction(mantissa)
        ours = ideal_added._rounded(float(k), high * 2.0**-53, low * 2.0**-106, mantissa)
        assert ours == float(exact)


def test_ideal_tables_are_those_of_the_law():
    sums = [sum(Fraction(math.exp(-j * j / 2)) for j in range(k, 40)) for k in range(11)]
    for k, threshold in enumerate(ideal_added._AT_LEAST, start=1):
        assert int(threshold) == pytest.approx(float(sums[k] / sums[0] * 2**64), rel=1e-13, abs=1)


def test_ideal_noise_has_the_law_in_every_cell(stream):
    """Tenths of the unit cells it is made of, four million values."""
    edges = np.array([*np.arange(45) / 10, np.inf])
    n = 4_000_000
    x = draw(IdealAddedGaussian(sigma=0.7), n, stream) / 0.7
    assert scipy.stats.binomtest(int((x > 0).sum()), n).pvalue > FINE
    counts = np.bincount(np.minimum((abs(x) * 10).astype(int), 44), minlength=45)
    expected = np.diff(scipy.special.ndtr(edges)) * 2 * n
    assert scipy.stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > FINE


@pytest.mark.parametrize("sigma", [1.0, 0.7])
def test_ideal_noise_fills_all_53_bits_at_every_magnitude(sigma, stream):
    x = draw(IdealAddedGaussian(sigma=sigma), 2_000_000, stream)
    _, exponent = np.frexp(x)
    seen = 0
    for e in range(-11, 3):
        part = abs(x[exponent == e]).view(np.uint64)
        if len(part) < 500:
            continue
        seen += 1
        low = np.bincount((part & np.uint64(31)).astype(int), minlength=32)
        assert scipy.stats.chisquare(low).pvalue > FINE / 10
    assert seen >= 12
    coarse = (np.rint(x * 2.0**53) * 2.0**-53)[abs(x) < 2.0**-8]  # what a grid of 2^-53 would leave
    low = np.bincount((abs(coarse).view(np.uint64) & np.uint64(31)).astype(int), minlength=32)
    assert scipy.stats.chisquare(low).pvalue < BAD


def test_ideal_noise_scales_by_powers_of_two_and_reaches_far(stream):
    one, other = np.empty(1000), np.empty(1000)
    fill_ideal_normal(one, sigma=1.0, stream=stream)
    for power in (2.0**-300, 2.0**1000):
        fill_ideal_normal(other, sigma=power, stream=stream)
        assert np.array_equal(one * power, other)


@pytest.mark.parametrize("granularity", [2.0**-52, 2.0**-56, 2.0**-60])
def test_fine_lattice_values_are_multiples_where_floats_can_tell(granularity, stream):
    x = draw(FineLatticeGaussian(granularity=granularity), 200_000, stream)
    steps = x / granularity
    assert np.array_equal(steps, np.rint(steps))
    exact = steps[abs(steps) < 2.0**52].astype(np.int64)
    # and no coarser lattice
    assert scipy.stats.binomtest(int((exact & 1).sum()), len(exact)).pvalue > FINE


# the share of releases at 0 that exclude 1, by source, value + noise computed in the type given
REACH = [
    (IdealAddedGaussian(), torch.float64, 0.40),
    (IdealAddedGaussian(sigma=10), torch.float64, 0.08),
    (FineLatticeGaussian(), torch.float64, 0.40),
    (FineLatticeGaussian(granularity=2.0**-52), torch.float64, 0.05),
    (FourSumGaussian(), torch.float32, 0.25),
    (FourSumGaussian(dtype="f64"), torch.float64, 0.25),
    (BoxMullerF32(), torch.float32, 0.40),
    (BoxMullerF64(), torch.float64, 0.40),
    (Polar(), torch.float64, 0.40),
    (Ziggurat(bits=32), torch.float64, 0.40),
    (Ziggurat(bits=64), torch.float64, 0.40),
    (NaiveLaplace(), torch.float64, 0.40),
    (NaiveLaplace(form="numpy"), torch.float64, 0.40),
]


@pytest.mark.parametrize(("source", "dtype", "share"), REACH)
def test_naive_addition_is_seen_by_reach(source, dtype, share, stream):
    noise = draw(source, 50_000, stream, dtype)
    zero, one = noise.dtype.type(0), noise.dtype.type(1)
    assert reachable(one + noise, one).all()
    assert reachable(zero + noise, zero).all()
    assert 1 - reachable(zero + noise, one).mean() > share


def test_a_coarse_lattice_passes_reach(stream):
    """The control: multiples of 2^−40 added to 0 or 1 are exact, and exclude nothing."""
    noise = np.rint(draw(IdealAddedGaussian(), 50_000, stream) * 2.0**40) * 2.0**-40
    assert reachable(0.0 + noise, 1.0).all()
    assert reachable(1.0 + noise, 0.0).all()
