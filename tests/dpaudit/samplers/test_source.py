from __future__ import annotations

import numpy as np
import pytest

from dpaudit.errors import SamplerTimeoutError, UnknownNameError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.samplers import open_sampler

torch = pytest.importorskip("torch")
gaussian = pytest.importorskip("dpaudit.noise.gaussian")


def test_calls_draw_from_children_of_the_seed():
    with open_sampler("gaussian:sigma=2", seed="7") as sampler:
        assert sampler.dim is None
        blocks = [sampler.draw(n, 3, timeout=60) for n in (4, 5)]
    for call, block in enumerate(blocks):
        stream = KeyedStream.from_seed("7").child("call", call)
        expected = gaussian.Gaussian(sigma=2).sample(4 + call, 3, stream=stream)
        np.testing.assert_array_equal(block, expected.numpy())
    assert blocks[0].dtype == np.float64


def test_a_mitigation_releases_zeros():
    rotation = pytest.importorskip("dpaudit_mitigations.rotation.fresh").Rotation
    with open_sampler("gaussian", seed="7", mitigation="rotation") as sampler:
        block = sampler.draw(4, 6, timeout=60)
    stream = KeyedStream.from_seed("7").child("call", 0)
    zeros = torch.zeros((4, 6), dtype=torch.float64)
    np.testing.assert_array_equal(block, rotation().release(zeros, gaussian.Gaussian(), stream=stream).numpy())


def test_errors_of_the_registry_come_through_as_they_are():
    for text, kind, match in (
        ("gaussian:sgma=1", UnknownNameError, "did you mean 'sigma'"),
        ("gaussian:sigma=-1", UsageError, "sigma=-1"),
    ):
        with open_sampler(text, seed="1") as sampler, pytest.raises(kind, match=match):
            sampler.draw(1, 1, timeout=60)
    with pytest.raises(UsageError, match="name=value"):
        open_sampler("gaussian:2", seed="1")


def test_importing_torch_counts_in_the_first_time_limit(alive):
    with open_sampler("gaussian:sigma=1.25", seed="1") as sampler:
        with pytest.raises(SamplerTimeoutError):
            sampler.draw(1, 1, timeout=0.1)
        assert not alive("gaussian:sigma=1.25")
