import math

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from support.laws import hockey_stick

from dpaudit.accounting.discrete import (
    discrete_gaussian_bounds,
    discrete_laplace_bounds,
    discrete_laplace_delta,
)
from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.discrete import DiscreteGaussian, DiscreteLaplace
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_mitigation, check_noise_source
from dpaudit_mitigations.none import NoMitigation

SOURCES = [
    DiscreteGaussian(),
    DiscreteGaussian(sigma=0.4),
    DiscreteLaplace(),
    DiscreteLaplace(scale=0.7),
]


@pytest.fixture
def stream():
    return KeyedStream.from_seed("discrete")


def column(*values):
    return torch.tensor([[v] for v in values], dtype=torch.float64)


@pytest.mark.parametrize("source", SOURCES)
def test_conforms(source):
    check_noise_source(source)


@pytest.mark.parametrize("source", SOURCES[::2])
def test_releases_of_counts_conform(source):
    check_mitigation(NoMitigation(), source)


@pytest.mark.parametrize("source", SOURCES)
def test_noise_and_releases_are_whole_and_reproducible(source, stream):
    noise = source.sample(50, 40, stream=stream.child(1), dtype=torch.float64)
    assert torch.equal(noise, noise.round())
    query = torch.arange(2000, dtype=torch.float64).reshape(50, 40) - 1000
    assert torch.equal(source.release(query, stream=stream.child(1)), query + noise)
    assert not torch.equal(source.release(query, stream=stream.child(2)), query + noise)


@pytest.mark.parametrize("value", [0.5, -1e-300, 2.0**52 - 0.5, 5e-324])
def test_what_is_no_whole_number_is_refused(value, stream):
    for source in SOURCES:
        with pytest.raises(UsageError, match=r"query value=.*whole numbers; round the query"):
            source.release(column(1.0, value), stream=stream)


def test_minus_zero_is_zero(stream):
    released = DiscreteGaussian(sigma=0.05).release(column(-0.0, 0.0, -3.0), stream=stream)
    assert released[:, 0].tolist() == [0.0, 0.0, -3.0]
    assert not torch.signbit(released[:2]).any()


@pytest.mark.parametrize(
    ("source", "margin"), [(DiscreteGaussian(), 640), (DiscreteLaplace(), 20480)]
)
def test_sums_stay_exact_up_to_the_margin_and_values_beyond_are_refused(source, margin, stream):
    most = float(2**53 - margin)
    query = column(*[most] * 500, *[-most] * 500)
    released = source.release(query, stream=stream.child(1))
    noise = source.sample(1000, 1, stream=stream.child(1), dtype=torch.float64)
    for value, got, plus in zip(
        query[:, 0].tolist(), released[:, 0].tolist(), noise[:, 0].tolist(), strict=True
    ):
        assert int(got) == int(value) + int(plus)
    for value in (most + 1, -most - 1, 2.0**53, 2.0**60, 1e308):
        with pytest.raises(UsageError, match=r"2\^53"):
            source.release(column(value), stream=stream)


@pytest.mark.parametrize(
    "make", [lambda x: DiscreteGaussian(sigma=x), lambda x: DiscreteLaplace(scale=x)]
)
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 1e6, "wide", True])
def test_broken_scales_are_refused(make, scale):
    with pytest.raises(UsageError):
        make(scale)


@pytest.mark.parametrize("number", [np.float64, np.float32, np.int64])
def test_numpys_numbers_are_numbers(number):
    assert DiscreteGaussian(sigma=number(3)).claim == "discrete-gaussian:sigma=3.0"
    assert DiscreteLaplace(scale=number(3)).claim == "discrete-laplace:scale=3.0"


@pytest.mark.parametrize("source", [DiscreteGaussian(sigma=1e3), DiscreteLaplace(scale=1e3)])
def test_integers_do_not_wrap_around_in_a_narrow_type(source, stream):
    noise = source.sample(20, 5, stream=stream.child(1), dtype=torch.float64)
    assert torch.equal(
        source.sample(20, 5, stream=stream.child(1), dtype=torch.int16).double(), noise
    )
    with pytest.raises(UsageError, match=r"dtype=torch\.int8"):
        source.sample(20, 5, stream=stream.child(1), dtype=torch.int8)


# the same law as another exact sampler


@pytest.mark.parametrize("scale", [0.6, 30.0])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_law_is_opendps(kind, scale, stream):
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = (
        dp.vector_domain(dp.atom_domain(T="i64")),
        (dp.l2_distance(T=float) if kind == "gaussian" else dp.l1_distance(T="i64")),
    )
    make = dp.m.make_gaussian if kind == "gaussian" else dp.m.make_laplace
    theirs = np.array(make(*space, scale=scale)([0] * 8_000))
    source = DiscreteGaussian(sigma=scale) if kind == "gaussian" else DiscreteLaplace(scale=scale)
    ours = source.sample(200_000, 1, stream=stream.child(kind, str(scale))).ravel()
    edges = np.unique(np.quantile(ours, np.linspace(0, 1, 41)))
    table = np.array(
        [np.histogram(x, bins=[-np.inf, *(edges + 0.5), np.inf])[0] for x in (ours, theirs)]
    )
    table = table[:, table.sum(axis=0) > 0]
    # opendp draws from the operating system, unseeded: an unlucky run fails once in 10^8
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-8


def test_the_laplace_law_is_not_one_of_another_scale(stream):
    ours = DiscreteLaplace(scale=10.0).sample(200_000, 1, stream=stream.child(1)).ravel()
    k = np.arange(-300, 301)
    counts = np.bincount(ours.astype(int) + 300, minlength=601)
    p = {}
    for scale in (10.0, 10.2):
        expected = np.exp(-np.abs(k) / scale)
        expected *= len(ours) / expected.sum()
        common = expected > 10
        seen, wanted = (np.append(x[common], x[~common].sum()) for x in (counts, expected))
        p[scale] = scipy.stats.chisquare(seen, wanted).pvalue
    assert p[10.0] > 1e-3
    assert p[10.2] < 1e-4


# what they promise


@pytest.mark.parametrize(("scale", "shift"), [(0.5, 1), (2.0, 3), (10.0, 1), (3.0, 12)])
def test_the_laplace_profile_is_its_sum(scale, shift):
    with mpmath.workdps(30):
        weight = {z: mpmath.exp(-abs(z) / mpmath.mpf(scale)) for z in range(-400, 401)}
        moved = {z - shift: w for z, w in weight.items()}
        total = sum(weight.values())
        for epsilon in (0.0, 0.05, 0.4, 1.3, 5.0):
            want = float(hockey_stick(weight, moved, mpmath.exp(epsilon)) / total)
            ours = discrete_laplace_delta(epsilon, scale=scale, shift=shift)
            assert ours == pytest.approx(want, rel=1e-9, abs=1e-15)


def test_laplace_bounds_in_one_dimension_and_in_many():
    one = discrete_laplace_bounds(1e-9, scale=10.0, sensitivity=1.0, dim=1)
    assert one.low < 0.1 < one.high * (1 + 1e-6)
    many = discrete_laplace_bounds(1e-9, scale=10.0, sensitivity=2.0, dim=1000)
    assert many.high == pytest.approx(0.4)  # whole numbers of L2 norm 2 have L1 norm at most 4
    assert discrete_laplace_bounds(1e-9, scale=10.0, sensitivity=3.0, dim=2).high == pytest.approx(
        0.3 * math.sqrt(2)
    )


def test_a_histogram_is_as_private_as_the_papers_say():
    host = Histogram(table="uniform", bins=50)
    assert DiscreteLaplace(scale=2.0).epsilon(1e-6, host=host).high == pytest.approx(0.5)
    bounds = DiscreteGaussian(sigma=10.0).epsilon(1e-6, host=host)
    assert 0.39 < bounds.low < bounds.high < 0.4


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize(("scale", "sensitivity"), [(1e-170, 1.0), (1e-309, 2.0), (3.0, 1e200)])
def test_a_loss_beyond_all_doubles_is_refused_in_words(dim, scale, sensitivity):
    with pytest.raises(UsageError, match="rho=inf"):
        discrete_gaussian_bounds(1e-5, scale=scale, sensitivity=sensitivity, dim=dim)


def test_a_laplace_scale_far_below_one_promises_nothing():
    assert discrete_laplace_bounds(1e-5, scale=1e-309, sensitivity=1.0, dim=1).high == math.inf
