import math

import numpy as np
import pytest
import scipy.stats
import torch
from sources_of_trouble import Fixed, NotToBeAsked

from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit_mitigations.rotation.fresh import Rotation


@pytest.mark.parametrize("randomness", ["stream", "csprng"])
def test_each_norm_is_kept_and_the_direction_is_uniform(randomness, stream):
    rows = torch.zeros(20_000, 8, dtype=torch.float64)
    rows[:, 0] = torch.arange(1.0, 20_001)
    noise = Rotation(randomness=randomness).release(
        torch.zeros_like(rows), Fixed(rows), stream=stream
    )
    length = torch.linalg.vector_norm(noise, dim=1)
    assert torch.allclose(length, rows[:, 0], rtol=1e-7)
    for at in (0, 7):
        share = (noise[:, at] / length).numpy()  # Haar: (1 + u)/2 is Beta((d−1)/2, (d−1)/2)
        assert scipy.stats.kstest((share + 1) / 2, "beta", args=(3.5, 3.5)).pvalue > 1e-3
        assert scipy.stats.kstest((share + 1) / 2, "beta", args=(4, 4)).pvalue < 1e-3


def test_float32_norms_are_kept_to_the_lattice(stream):
    """A factor rounded to float32 would be off by up to 6e-8 of the length."""
    d = 100_000
    rows = (
        Gaussian().sample(20, d, stream=stream, dtype=torch.float32)
        * torch.logspace(-1, 1, 20)[:, None]
    )
    turned = Rotation().release(torch.zeros(20, d), Fixed(rows), stream=stream)
    before, after = (torch.linalg.vector_norm(x.double(), dim=1) for x in (rows, turned))
    assert float((after / before - 1).abs().max()) < 2e-9


def test_chi_is_plain_fresh_noise_and_asks_no_source(stream):
    query = torch.zeros(4000, 5, dtype=torch.float64)
    noise = Rotation(renorm="chi").release(query, NotToBeAsked(), stream=stream).numpy()
    assert scipy.stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    assert scipy.stats.kstest((noise**2).sum(1), "chi2", args=(5,)).pvalue > 1e-3
    kept = (
        Rotation()
        .release(query, Fixed(torch.ones(4000, 5, dtype=torch.float64)), stream=stream)
        .numpy()
    )
    assert np.allclose((kept**2).sum(1), 5)


def test_a_silent_source_stays_silent_and_extreme_scales_work(stream):
    zeros = torch.zeros(2, 6, dtype=torch.float64)
    assert torch.equal(Rotation().release(zeros + 1.25, Fixed(zeros), stream=stream), zeros + 1.25)
    for sigma in (1e-280, 1e280):
        noise = Rotation().release(zeros, Gaussian(sigma=sigma), stream=stream)
        assert 0.2 < float((noise / sigma).std()) < 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"renorm": "gauss"}, "renorm=gauss: must be keep or chi"),
        ({"randomness": "os"}, "randomness=os"),
        ({"second_party": b"short"}, "second_party: 5 bytes"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(UsageError, match=says):
        Rotation(**options)
    assert math.isclose(Rotation().scale(3.0), 3.0)
