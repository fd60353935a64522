from __future__ import annotations

import numpy as np
import pytest

from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.samplers import open_sampler
from dpaudit.samplers.endpoints.worker_main import open_target

torch = pytest.importorskip("torch")
gaussian = pytest.importorskip("dpaudit.noise.gaussian")


def test_calls_draw_from_children_of_the_seed():
    """One worker: two calls, then three in one message, then a fork, which is two."""
    with open_sampler("gaussian:sigma=2", seed="7") as sampler:
        assert sampler.dim is None
        blocks = [sampler.draw(n, 3, timeout=60) for n in (4, 5)]
        many, _ = sampler.draw_calls(3, 2, 3, timeout=60)
        pair = sampler.draw_forked(10, 3, timeout=60)
        blocks += [*np.split(many, 3), sampler.draw(6, 3, timeout=60)]
    assert pair is None or (pair[0] != pair[1]).all()
    source = gaussian.Gaussian(sigma=2)
    for call, block in zip((0, 1, 2, 3, 4, 7), blocks, strict=True):
        expected = source.sample(
            len(block), 3, stream=KeyedStream.from_seed("7").child("call", call)
        )
        np.testing.assert_array_equal(block, expected)
    assert blocks[0].dtype == np.float64


@pytest.mark.slow
def test_a_source_says_its_own_claim_and_none_behind_a_mitigation():
    with open_sampler("gaussian:sigma=2", seed="7") as sampler:
        assert sampler.claim == "gaussian:sigma=2.0"
    with open_sampler("gaussian", seed="7", mitigation="smoothing:tau=0.05") as sampler:
        assert sampler.claim is None


def opened(text, mitigation=None):
    """What the worker calls, in this process."""
    return open_target(open_sampler(text, seed="7", mitigation=mitigation)._spec)


def test_a_mitigation_releases_zeros():
    rotation = pytest.importorskip("dpaudit_mitigations.rotation.fresh").Rotation
    block = opened("gaussian", "rotation").draw(4, 6, 0)
    stream = KeyedStream.from_seed("7").child("call", 0)
    zeros = torch.zeros((4, 6), dtype=torch.float64)
    np.testing.assert_array_equal(
        block, rotation().release(zeros, gaussian.Gaussian(), stream=stream).numpy()
    )


def test_errors_of_the_registry_come_through_as_they_are():
    with pytest.raises(UsageError, match="sigma=-1"):
        opened("gaussian:sigma=-1")
    # from a worker: cli/test_cli.py
    with pytest.raises(UnknownNameError, match="did you mean 'sigma'"):
        opened("gaussian:sgma=1")
    with pytest.raises(UsageError, match="name=value"):
        open_sampler("gaussian:2", seed="1")
