import math

import pytest
import scipy.stats
import torch

from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.testing import check_noise_source


def test_conforms():
    check_noise_source(Gaussian(sigma=3.0))


def test_gaussian_has_the_claimed_law_and_a_wrong_scale_is_seen(stream):
    x = Gaussian(sigma=2.0).sample(1, 200_000, stream=stream, dtype=torch.float64).ravel().numpy()
    assert scipy.stats.kstest(x, "norm", args=(0, 2.0)).pvalue > 1e-3
    assert scipy.stats.kstest(x, "norm", args=(0, 2.06)).pvalue < 1e-3


def test_gaussian_float32_is_drawn_in_float32_and_bfloat16_is_rounded(stream):
    source = Gaussian()
    x = source.sample(4, 1000, stream=stream, dtype=torch.float32)
    assert x.dtype == torch.float32
    assert source.sample(4, 1000, stream=stream, dtype=torch.bfloat16).equal(x.to(torch.bfloat16))


@pytest.mark.parametrize("sigma", [0, -1.0, math.nan, math.inf, "1", True])
def test_bad_sigma(sigma):
    with pytest.raises(UsageError, match="sigma="):
        Gaussian(sigma=sigma)


def test_bad_shape(stream):
    with pytest.raises(UsageError, match="n=0"):
        Gaussian().sample(0, 3, stream=stream, dtype=torch.float64)
