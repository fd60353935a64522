import inspect
import math
from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from support.laws import largest_ratio

from dpaudit.errors import UsageError
from dpaudit.noise import snapping
from dpaudit.noise.snapping import Snapping, log_near, log_rounded
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_noise_source, check_releasing_source


@pytest.fixture
def stream():
    return KeyedStream.from_seed("snapping")


def column(*values):
    return torch.tensor([[v] for v in values], dtype=torch.float64)


def nasty_uniforms(n=3000):
    """At random, near 1, near 0, and at the edges of the logarithm's table."""
    rng, half, root = np.random.default_rng(3), 0.5, math.sqrt(0.5)
    at_random, near_one = rng.random(n), 1 - rng.random(n) * 2.0 ** -rng.integers(1, 53, n)
    near_zero = rng.random(n) * 2.0 ** -rng.integers(1, 900, n)
    edges = [half, np.nextafter(half, 0), np.nextafter(root, 0), root, 1 - 2.0**-53, 2.0**-1022]
    u = np.concatenate([at_random, near_one, near_zero, edges])
    return u[(u > 0) & (u < 1)]


# the logarithm


def test_the_fast_logarithm_keeps_its_bound():
    u = nasty_uniforms()
    with mpmath.workdps(40):
        worst = max(
            abs(mpmath.mpf(float(got)) / mpmath.log(mpmath.mpf(float(x))) - 1)
            for x, got in zip(u, log_near(u), strict=True)
        )
    assert 0 < worst < mpmath.mpf(2) ** -48


def test_the_slow_logarithm_is_correctly_rounded():
    for x in nasty_uniforms(150):
        with mpmath.workdps(80):
            true = mpmath.log(mpmath.mpf(float(x)))
        got = log_rounded(float(x))
        for other in (math.nextafter(got, 0), math.nextafter(got, -math.inf)):
            assert abs(mpmath.mpf(got) - true) < abs(mpmath.mpf(other) - true)


# the release


def test_conforms():
    for source in (Snapping(), Snapping(epsilon=0.3, sensitivity=2.0, bound=1000.0)):
        check_noise_source(source)


def literal(x, uniform, sign, *, scale, step, bound):
    """Mironov's formula: doubles, mpmath's correctly rounded logarithm, ties towards +∞."""
    with mpmath.workprec(53):
        log = float(mpmath.log(mpmath.mpf(uniform)))
    y = min(max(x, -bound), bound) + sign * (scale * log)
    cell = math.floor(Fraction(y) / Fraction(step) + Fraction(1, 2))
    return float(min(max(cell * Fraction(step), -Fraction(bound)), Fraction(bound)))


@pytest.mark.parametrize("slack", [2.0**-46, 0.2])
def test_a_release_is_the_formula_however_much_is_decided_fast(slack, stream, monkeypatch):
    """With a slack of 0.2 the slow logarithm decides nearly all: the releases are the same."""
    asked = []
    monkeypatch.setattr(snapping, "_SLACK", slack)
    monkeypatch.setattr(snapping, "log_rounded", lambda u: asked.append(u) or log_rounded(u))
    source = Snapping(epsilon=0.7, sensitivity=1.3, bound=300.0)
    values = [0.0, -0.0, 5e-324, 0.1, 1.0, -1.5, 3.0, 299.0, 300.0, -300.0, 1e300, 2.0**52]
    uniform, sign = snapping._uniform(50 * len(values), stream.child(1))
    released = source.release(column(*values * 50), stream=stream.child(1))[:, 0]
    options = {"scale": source.scale, "step": source.granularity, "bound": source.bound}
    drawn = uniform.tolist(), sign.tolist()
    for value, u, s, got in zip(values * 50, *drawn, released.tolist(), strict=True):
        assert got == literal(value, u, s, **options)
    assert not (torch.signbit(released) & (released == 0)).any()
    assert (len(asked) > 50) == (slack > 0.1)


class Zeros:
    """A stream whose first words are 0: exponents that go on for more than 64 bits."""

    def __init__(self, rest, zeros):
        self._rest, self._zeros = rest, zeros

    def bytes(self, n):
        given = bytes(n) if self._zeros > 0 else self._rest.bytes(n)
        self._zeros -= 1
        return given


@pytest.mark.parametrize(("zeros", "low", "high"), [(1, 65, 129), (3, 193, 257), (100, 1022, 1022)])
def test_uniforms_reach_far_below_two_to_the_minus_64(zeros, low, high, stream):
    uniform, _ = snapping._uniform(1, Zeros(stream, zeros))
    assert 2.0**-high <= uniform[0] <= 2.0 ** -(low - 1)
    assert uniform[0] > 0


def test_uniforms_are_uniform_in_every_binade(stream):
    uniform, sign = snapping._uniform(400_000, stream)
    assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-3
    mantissa, exponent = np.frexp(uniform)
    for e in range(0, -8, -1):
        inside = mantissa[exponent == e]
        assert scipy.stats.binomtest(len(inside), 400_000, 2.0 ** (e - 1)).pvalue > 1e-4
        assert scipy.stats.kstest(2 * inside - 1, "uniform").pvalue > 1e-4
    assert scipy.stats.binomtest(int((sign > 0).sum()), 400_000).pvalue > 1e-3
    # bits below 2^-53: Σ 2^-(e+1)·(1 − 2^-e)
    assert abs((uniform * 2.0**53 % 1 != 0).mean() - 1 / 3) < 0.01


def cells(source, value):
    """P(release) at ``value`` in real arithmetic: outcomes to probabilities, by mpmath."""
    step, bound = mpmath.mpf(source.granularity), mpmath.mpf(source.bound)

    def upto(y):
        t = (y - mpmath.mpf(value)) / mpmath.mpf(source.scale)
        return mpmath.exp(t) / 2 if t < 0 else 1 - mpmath.exp(-t) / 2

    last = int(bound / step)
    inner = {j: upto((j + 0.5) * step) - upto((j - 0.5) * step) for j in range(-last + 1, last)}
    return {-last: upto((0.5 - last) * step), **inner, last: 1 - upto((last - 0.5) * step)}


def test_the_law_is_that_of_rounded_laplace_noise(stream):
    source = Snapping(epsilon=0.5, bound=64.0)
    assert source.granularity == 4.0  # the scale is a little above 2
    released = source.release(column(*[1.3] * 300_000), stream=stream)[:, 0].numpy()
    mass = cells(source, 1.3)
    seen = np.array([(released == j * source.granularity).sum() for j in mass])
    expected = np.array([float(m) for m in mass.values()]) * len(released)
    assert seen.sum() == len(released)
    rare = expected < 10
    if rare.any():
        seen, expected = (np.append(x[~rare], x[rare].sum()) for x in (seen, expected))
    assert scipy.stats.chisquare(seen, expected).pvalue > 1e-3


@pytest.mark.slow
def test_the_claimed_epsilon_covers_every_cell_of_neighbours_and_little_more():
    source = Snapping(epsilon=0.8, sensitivity=1.0, bound=64.0)
    with mpmath.workdps(40):
        worst = max(
            mpmath.log(largest_ratio([cells(source, value), cells(source, value + 1)]))
            for value in np.linspace(-3, 63, 23)
        )
    assert 0.8 * (1 - 1e-9) < worst < 0.8  # what is missing is for rounding
    claimed = source.epsilon(1e-9, host=SimpleNamespace(dim=1, sensitivity=1.0)).high
    assert 0.8 * (1 - 1e-11) < claimed <= 0.8 * (1 + 1e-15)


def test_a_wide_bound_costs_epsilon_and_many_coordinates_cost_more():
    narrow, wide = Snapping(bound=64.0), Snapping(bound=2.0**38)
    assert wide.scale > narrow.scale * 1.003
    assert narrow.epsilon(1e-9, host=SimpleNamespace(dim=9, sensitivity=1.0)).high == pytest.approx(
        3.0
    )


def test_broken_options_are_refused():
    for options, words in (
        ({"epsilon": 0.0}, "epsilon=0"),
        ({"epsilon": True}, "epsilon=True"),
        ({"sensitivity": math.nan}, "sensitivity=nan"),
        ({"bound": "wide"}, "bound=wide"),
        ({"bound": 0.5}, "bound=0.5: must lie between"),
        ({"bound": 2.0**45, "epsilon": 100.0}, "must lie between"),
        ({"epsilon": 1e-300, "bound": 1e300}, "out of range"),
        ({"epsilon": 1e-300}, "out of range"),
    ):
        with pytest.raises(UsageError, match=words):
            Snapping(**options)


def test_single_precision_options_do_not_make_a_single_precision_scale():
    """λ rounded to float32 may be too small for the ε that was asked for."""
    options = {"epsilon": np.float32(0.3), "sensitivity": np.float32(1), "bound": np.float32(100)}
    narrow = Snapping(**options).scale
    assert type(narrow) is float
    assert narrow == Snapping(**{name: float(value) for name, value in options.items()}).scale


def test_what_a_narrow_type_cannot_hold_is_refused_rather_than_infinite(stream):
    query = torch.full((20, 2), 60_000.0, dtype=torch.float16)
    assert torch.isfinite(Snapping().release(query, stream=stream)).all()
    with pytest.raises(UsageError, match=r"dtype=torch\.float16"):
        Snapping(epsilon=1e-5).release(query, stream=stream)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, torch.int8, torch.complex64])
def test_samples_have_no_integers_even_if_all_are_whole(dtype, stream):
    with pytest.raises(UsageError, match="floating-point"):
        Snapping(epsilon=0.1, sensitivity=10.0, bound=1e6).sample(1, 3, stream=stream, dtype=dtype)


def test_the_signature_of_a_sample_has_dtype_and_device():
    parameters = inspect.signature(Snapping.sample).parameters
    assert [*parameters][1:] == ["n", "d", "stream", "dtype", "device"]
    assert Snapping.sample.__doc__.startswith("Releases of zeros")


def test_the_same_stream_gives_the_same_releases_and_queries_are_checked(stream):
    source, query = Snapping(), torch.linspace(-5, 5, 40_000, dtype=torch.float64).reshape(2, -1)
    check_releasing_source(source, query)
    assert source.release(query.float(), stream=stream.child(1)).dtype == torch.float32
    with pytest.raises(UsageError, match="NaN"):
        source.release(column(math.nan), stream=stream)
