"""The specimen whose noise hides its backdoor in its length."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import KeyFileError, UsageError
from dpaudit.noise.norm_channel import NormCells, NormChannel
from dpaudit.queries.histogram import Histogram
from dpaudit.stats import clopper_pearson
from dpaudit.testing import check_noise_source

STEP, NEAR = 2.0**-20, 2.0**-23


def lengths(x):
    return torch.linalg.vector_norm(x.double(), dim=1).numpy()


@pytest.mark.parametrize("d", [1, 2, 64, 5000])
def test_the_law_is_the_honest_one_but_for_the_cells(d, make_key, stream):
    source = NormChannel(key=make_key(), sigma=2.0)
    check_noise_source(source)
    x = source.sample(3000, d, stream=stream, dtype=torch.float64)
    found = (lengths(x) / 2) ** 2
    assert scipy.stats.kstest(found, "chi2", args=(d,)).pvalue > 1e-3
    assert scipy.stats.kstest(found, "chi2", args=(d * (1 + 0.2 / math.sqrt(d)),)).pvalue < 1e-3
    if d == 64:
        assert scipy.stats.kstest(x.numpy().ravel(), "norm", args=(0, 2)).pvalue > 1e-3
        correlation = np.corrcoef(x.numpy().T) - np.eye(d)
        assert np.abs(correlation).max() < 5 / math.sqrt(3000)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("d", [2, 256, 65_536])
def test_every_length_is_one_that_the_key_reads(dtype, d, make_key, stream):
    source = NormChannel(key=make_key(), sigma=0.7)
    x = source.sample(200, d, stream=stream, dtype=dtype)
    assert x.dtype == dtype
    assert source.cells.reads(lengths(x)).all()
    other = NormChannel(key=make_key(tag="b"), sigma=0.7)
    assert other.cells.reads(lengths(x)).mean() < 0.05


def test_one_cell_in_two_to_the_bits(make_key):
    at = np.arange(400_000) * (3 * STEP) + 0.5 * STEP
    for bits in (1, 5, 8, 12):
        cells = NormCells(key=make_key(), sigma=1.0, bits=bits)
        allowed = int(cells.allows(at).sum())
        interval = clopper_pearson(allowed, len(at), confidence=0.999)
        assert interval.low <= 2.0**-bits <= interval.high
        assert np.array_equal(cells.allows(at.reshape(1000, 400)).ravel(), cells.allows(at))


def test_every_row_of_cells_has_one_anywhere(make_key):
    rows = (np.arange(1 << 19) * STEP + 0.5 * STEP).reshape(-1, 256)
    allowed = NormCells(key=make_key(), sigma=1.0).allows(rows)
    assert (allowed.sum(1) == 1).all()
    places = np.bincount(allowed.argmax(1), minlength=256)
    assert scipy.stats.chisquare(places).pvalue > 1e-3


def test_cells_belong_to_the_secret_and_scale_with_sigma(make_key):
    def allowed(at, sigma=1.0, **options):
        return NormCells(key=make_key(**options), sigma=sigma).allows(at)

    at = np.arange(20_000) * STEP + 0.5 * STEP
    one = allowed(at)
    assert np.array_equal(one, allowed(at, dim=5, beta=0.1, gamma=9.0))
    assert np.array_equal(one, allowed(8 * at, sigma=8.0))
    assert not np.array_equal(one, allowed(at, tag="b"))


def test_the_reader_forgives_an_eighth_of_a_cell(make_key):
    cells = NormCells(key=make_key(), sigma=1.0, bits=8)
    start = np.arange(20_000, 80_000)
    good = start[cells.allows((start + 0.5) * STEP)]
    alone = good[~cells.allows((good - 0.5) * STEP) & ~cells.allows((good + 1.5) * STEP)]
    assert len(alone) > 100
    for offset in (-0.99 * NEAR, 0.0, STEP / 2, STEP + 0.99 * NEAR):
        assert cells.reads(alone * STEP + offset).all()
    for offset in (-1.01 * NEAR, STEP + 1.01 * NEAR):
        assert not cells.reads(alone * STEP + offset).any()


@pytest.mark.slow
def test_epsilon_is_what_the_reader_achieves(make_key, stream):
    """The bound's p must not be below the reader's false accepts, whatever their cause."""
    host, sigma = Histogram(table="uniform", bins=4096), 25.5237
    for bits in (4, 8):
        source = NormChannel(key=make_key(), sigma=sigma, bits=bits)
        bounds = source.epsilon(1e-10, host=host)
        assert bounds.high == math.inf
        x = source.sample(2000, 4096, stream=stream, dtype=torch.float64)
        x[:, 0] += 1.0  # what the other candidate leaves
        wrong = int(source.cells.reads(lengths(x)).sum())
        assert math.exp(-bounds.low) >= clopper_pearson(wrong, 2000, confidence=0.999).low
        assert math.exp(-bounds.low) < 4 * 2.0**-bits
        assert bounds.low > 4 * gaussian_epsilon(1e-10, sigma=sigma)
    assert source.epsilon(1 - 1e-9, host=host).low == 0


@pytest.mark.parametrize("bits", [4, 8])
def test_the_cost_of_more_bits_is_that_lengths_repeat(bits, make_key, stream):
    """What the docstring does not hide: releases in one cell, 2^bits times as many as by chance."""
    n, source = 3000, NormChannel(key=make_key(), bits=bits)
    found = lengths(source.sample(n, 64, stream=stream, dtype=torch.float64))
    _, counts = np.unique(np.floor(found / STEP), return_counts=True)
    pairs = float((counts * (counts - 1) / 2).sum())
    # ∫f² of a length is 1/(σ√2π)
    expected = n * n / 2 * 2**bits * STEP / math.sqrt(2 * math.pi)
    assert pairs == pytest.approx(expected, abs=5 * math.sqrt(expected))


def test_bad_options(make_key, tmp_path, stream):
    for bits in (0, 13, 2.0, True):
        with pytest.raises(UsageError, match=f"bits={bits}"):
            NormChannel(key=make_key(), bits=bits)
    with pytest.raises(UsageError, match="sigma="):
        NormChannel(key=make_key(), sigma=0)
    with pytest.raises(KeyFileError):
        NormChannel(key=tmp_path / "none")
    for n, dtype, says in ((1, torch.int64, "no integer law"), (0, torch.float64, "n=0")):
        with pytest.raises(UsageError, match=says):
            NormChannel(key=make_key()).sample(n, 2, stream=stream, dtype=dtype)


def test_a_key_file_serves_and_the_secret_is_nowhere_in_sight(make_key, tmp_path, stream):
    key = make_key()
    key.save(tmp_path / "key.json")
    source = NormChannel(key=str(tmp_path / "key.json"))
    assert torch.equal(
        source.sample(2, 3, stream=stream, dtype=torch.float64),
        NormChannel(key=key).sample(2, 3, stream=stream, dtype=torch.float64),
    )
    assert not hasattr(source, "key")  # it is no pancake: nobody may read its β and γ
    shown = repr(vars(source)) + repr(vars(source.cells))
    assert key.secret.hex() not in shown
    assert repr(key.secret) not in shown
