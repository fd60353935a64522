import math

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.errors import UsageError
from dpaudit.noise import geometric, sequential
from dpaudit.noise.geometric import GeometricInversion
from dpaudit.noise.sequential import SequentialLaplace
from dpaudit.testing import check_noise_source

SOURCES = [SequentialLaplace, GeometricInversion]


class CountingStream:
    """A stream that counts the bytes that were asked of it."""

    def __init__(self, stream):
        self.stream, self.taken = stream, 0

    def bytes(self, n):
        self.taken += n
        return self.stream.bytes(n)


class GivenStream:
    """A stream that gives one 64-bit word after another."""

    def __init__(self, words):
        self.words = words

    def bytes(self, n):
        return self.words[: n // 8].astype("<u8").tobytes()


@pytest.mark.parametrize(
    "source",
    [s(scale=b) for s in SOURCES for b in (0.3, 3.0)],
    ids=lambda s: f"{type(s).__name__} {s.scale}",
)
def test_conforms(source):
    check_noise_source(source)


def mass(k, scale):
    ratio = math.exp(-1 / scale)
    return (1 - ratio) / (1 + ratio) * ratio ** np.abs(k)


def misfit(values, scale):
    """p-value of χ² against the exact law, in cells of at least 20."""
    k = np.arange(-400, 401)
    expected = mass(k, scale) * len(values)
    kept = expected >= 20
    seen = np.array([(values == i).sum() for i in k[kept]])
    both = [
        np.append(x, rest)
        for x, rest in ((seen, len(values) - seen.sum()), (expected[kept], expected[~kept].sum()))
    ]
    return scipy.stats.chisquare(both[0], both[1] * both[0].sum() / both[1].sum()).pvalue


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_law_and_a_scale_three_percent_off_is_seen(source, scale, stream):
    values = source(scale=scale).sample(40_000, 2, stream=stream).ravel()
    assert misfit(values, scale) > 1e-3
    assert misfit(values, scale * 1.03) < 1e-3
    assert not (np.signbit(values) & (values == 0)).any()


def test_a_sequential_value_takes_as_many_words_as_its_size(stream):
    """The flaw, without a clock: |k| + 1 words of 8 bytes and one byte for the sign."""
    source, seen = SequentialLaplace(), set()
    for i in range(300):
        counting = CountingStream(stream.child(i))
        k = float(source.sample(1, 1, stream=counting, dtype=torch.float64))
        assert counting.taken == 8 * (abs(k) + 1) + 1
        seen.add(abs(k))
    assert len(seen) > 20


def test_inversion_takes_eight_bytes_a_value(stream):
    source = GeometricInversion()
    for i in range(300):
        counting = CountingStream(stream.child(i))
        source.sample(1, 1, stream=counting, dtype=torch.float64)
        assert counting.taken == 8


@pytest.mark.parametrize("scale", [0.05, 1.0, 10.0, 1e5])
def test_inversion_at_its_thresholds(scale):
    """|k| ≥ m exactly where the uniform is below 2·a^m/(1 + a), evaluated independently."""
    rng = np.random.default_rng(3)
    words = rng.integers(0, 2**64, 20_000, dtype=np.uint64)
    words[:4] = 0, 1, 2**64 - 2, 2**64 - 1
    k = GeometricInversion(scale=scale).integers(len(words), stream=GivenStream(words))
    log_uniform = np.log(((words >> np.uint64(12)).astype(float) + 0.5) / 2.0**52)
    log_start = math.log(2) - np.log1p(math.exp(-1 / scale))
    slack = 1e-9
    size = np.abs(k)
    assert (log_uniform < log_start - size / scale + slack)[size > 0].all()
    assert (log_uniform > log_start - (size + 1) / scale - slack).all()
    assert (np.sign(k)[size > 0] == np.where(words & np.uint64(1), -1, 1)[size > 0]).all()
    assert size.max() <= 37 * max(scale, 1)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, 2e5, "1", True])
def test_bad_scale(source, scale):
    with pytest.raises(UsageError, match="scale="):
        source(scale=scale)


@pytest.mark.parametrize("source", SOURCES)
def test_bad_shape(source, stream):
    with pytest.raises(UsageError, match="d=0"):
        source().sample(1, 0, stream=stream, dtype=torch.float64)


def test_sequential_refuses_another_device(stream):
    with pytest.raises(UsageError, match="device=meta"):
        SequentialLaplace().sample(1, 1, stream=stream, device=torch.device("meta"))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16])
def test_inversion_does_not_wrap_around_or_overflow(dtype, stream):
    noise = GeometricInversion(scale=1e5).sample(20, 5, stream=stream.child(1), dtype=torch.float64)
    assert torch.equal(
        GeometricInversion(scale=1e5).sample(20, 5, stream=stream.child(1), dtype=torch.int32),
        noise,
    )
    with pytest.raises(UsageError, match="too narrow"):
        GeometricInversion(scale=1e5).sample(20, 5, stream=stream.child(1), dtype=dtype)


class Host:
    sensitivity, dim = 2.0, 1


def test_epsilon():
    bounds = GeometricInversion(scale=4.0).epsilon(1e-12, host=Host())
    assert bounds.low <= 0.5 <= bounds.high + 1e-9
    assert bounds.high < 0.5001
    assert SequentialLaplace().epsilon(1e-6, host=Host()).high == math.inf


@pytest.mark.parametrize("module", [sequential, geometric])
def test_whole_mechanism(module):
    y = module.release(7.0, 20_000)
    assert y.shape == (20_000,)
    assert (y == np.rint(y)).all()
    assert abs(y.mean() - 7) < 6 * 14.2 / math.sqrt(20_000)
    assert not np.array_equal(y, module.release(7.0, 20_000))
