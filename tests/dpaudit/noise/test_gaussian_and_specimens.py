import math

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.errors import UsageError
from dpaudit.noise.floating_point.box_muller import BoxMullerF32
from dpaudit.noise.gaussian import Gaussian
from dpaudit.testing import check_noise_source


@pytest.mark.parametrize("source", [Gaussian(sigma=3.0), BoxMullerF32(sigma=0.5)])
def test_conforms(source):
    check_noise_source(source)


def test_gaussian_has_the_claimed_law_and_a_wrong_scale_is_seen(stream):
    x = Gaussian(sigma=2.0).sample(1, 1_000_000, stream=stream).ravel().numpy()
    assert scipy.stats.kstest(x, "norm", args=(0, 2.0)).pvalue > 1e-3
    assert scipy.stats.kstest(x, "norm", args=(0, 2.03)).pvalue < 1e-3


def test_gaussian_float32_is_drawn_in_float32_and_bfloat16_is_rounded(stream):
    source = Gaussian()
    x = source.sample(4, 1000, stream=stream, dtype=torch.float32)
    assert x.dtype == torch.float32
    assert source.sample(4, 1000, stream=stream, dtype=torch.bfloat16).equal(x.to(torch.bfloat16))


def test_box_muller_pairs_lie_on_its_grid(stream):
    """The flaw itself: from both outputs of a pair the 24-bit uniform comes back."""
    share = {}
    for source in (BoxMullerF32(), Gaussian()):
        x = source.sample(1, 1_000_000, stream=stream).numpy().reshape(-1, 2)
        u1 = np.exp(-(x**2).sum(1) / 2) * 2**24
        u1 = u1[u1 < 2**13]  # small enough that float32's rounding does not blur the grid
        assert len(u1) > 150
        share[type(source)] = (np.abs(u1 - np.rint(u1)) < 0.1).mean()
    assert share[BoxMullerF32] > 0.97
    assert share[Gaussian] < 0.3  # 0.2 by chance


def test_box_muller_never_leaves_its_range(stream):
    x = BoxMullerF32().sample(1, 1_000_000, stream=stream)
    assert float(x.abs().max()) <= math.sqrt(-2 * math.log(2**-24)) * (1 + 1e-6)


@pytest.mark.parametrize("sigma", [0, -1.0, math.nan, math.inf, "1", True])
def test_bad_sigma(sigma):
    with pytest.raises(UsageError, match="sigma="):
        Gaussian(sigma=sigma)


def test_bad_shape(stream):
    with pytest.raises(UsageError, match="n=0"):
        Gaussian().sample(0, 3, stream=stream)


def test_odd_sizes(stream):
    assert BoxMullerF32().sample(3, 7, stream=stream).shape == (3, 7)
