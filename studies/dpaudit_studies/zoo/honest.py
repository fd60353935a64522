"""Honest samplers of N(0, 1) from five makers, which an audit must not accuse.

All return what their makers return, in float64; float32 noise stays on the float32 grid, as in
practice.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy

from dpaudit.errors import UnknownNameError
from dpaudit.randomness import KeyedStream
from dpaudit.registry import nearest
from dpaudit_studies.zoo.specimen import Array, Draw, Make

__all__ = ["HONEST", "RECOVERABLE", "honest"]

RECOVERABLE = frozenset({"numpy-legacy", "torch-float32", "torch-float64"})
"""Right laws from a Mersenne Twister, whose state an audit recovers."""


def _numpy(stream: KeyedStream) -> Draw:
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(stream.entropy(), "big")))
    return lambda n, d: rng.standard_normal((n, d))


def _numpy_legacy(stream: KeyedStream) -> Draw:
    words = np.frombuffer(stream.entropy(), "<u4")
    rng = np.random.RandomState(words)
    return lambda n, d: np.asarray(rng.standard_normal((n, d)))


def _torch(dtype: str) -> Make:
    def make(stream: KeyedStream) -> Draw:
        import torch

        generator = torch.Generator().manual_seed(int.from_bytes(stream.entropy()[:8], "big") >> 1)
        kind = getattr(torch, dtype)
        return lambda n, d: np.asarray(
            torch.randn((n, d), dtype=kind, generator=generator).double().numpy()
        )

    return make


def _product(stream: KeyedStream) -> Draw:
    """The source ``gaussian`` of this package: a ziggurat keyed from ChaCha20, afresh per call."""
    from dpaudit.noise.gaussian import Gaussian

    source, call = Gaussian(), 0

    def draw(n: int, d: int) -> Array:
        nonlocal call
        call += 1
        return np.asarray(source.sample(n, d, stream=stream.child("call", call)))

    return draw


def _csprng(stream: KeyedStream) -> Draw:
    """ChaCha20 through Φ⁻¹: 52 bits for the tail's depth, one for the sign; tails equally fine."""

    def draw(n: int, d: int) -> Array:
        signs = np.unpackbits(np.frombuffer(stream.bytes((n * d + 7) // 8), np.uint8))[: n * d]
        z: Array = np.copysign(scipy.special.ndtri(stream.uniform(n * d) / 2), signs - 0.5)
        return z.reshape(n, d)

    return draw


HONEST: Mapping[str, Make] = {
    "numpy-generator": _numpy,
    "numpy-legacy": _numpy_legacy,
    "torch-float32": _torch("float32"),
    "torch-float64": _torch("float64"),
    "dpaudit-gaussian": _product,
    "chacha20-inverse-cdf": _csprng,
}


def honest(name: str) -> Make:
    """The honest sampler of that name.

    Raises:
        UnknownNameError: there is none, with the nearest match.
    """
    if name not in HONEST:
        raise UnknownNameError(f"sampler={name}: not among the honest ones{nearest(name, HONEST)}")
    return HONEST[name]
