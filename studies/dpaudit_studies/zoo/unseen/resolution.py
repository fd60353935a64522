"""Values that lack digits: short uniforms, single precision in the tails, and low bits that tell.

The law is right to the digits that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.digits import inverse_cdf
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Series, Specimen, carried, each, flat
from dpaudit_studies.zoo.transforms import box_muller_of, prbs31

__all__ = ["SPECIMENS"]


def _symmetric(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Multiples of 2^-23 in (-1, 1), as float32."""
    k = rng.integers(1, 1 << 24, shape).astype(np.float32)
    return k * np.float32(2**-23) - np.float32(1)


def _laplace_float32(rng: np.random.Generator, z: Array) -> Array:
    u = _symmetric(rng, z.shape)
    return np.asarray((-np.sign(u) * np.log1p(-np.abs(u))).astype(np.float64))


def _box_muller_float32(rng: np.random.Generator, z: Array) -> Array:
    m = z.size + z.size % 2
    u = rng.integers(0, 1 << 24, (2, m // 2)).astype(np.float32) * np.float32(2**-24)
    return box_muller_of(*u).ravel()[: z.size].astype(np.float64).reshape(z.shape)


def _coarse_beyond(limit: float, step: float) -> Make:
    return each(lambda _, z: np.where(np.abs(z) > limit, np.rint(z / step) * step, z))


def _some_single(rng: np.random.Generator, z: Array) -> Array:
    return np.where(rng.random(z.shape) < 1e-3, z.astype(np.float32).astype(np.float64), z)


def _with_last_bits(z: Array, bits: int, own: npt.NDArray[np.integer[Any]]) -> Array:
    """Values whose last ``bits`` bits are those of ``own``."""
    low = own.astype(np.int64) & np.int64((1 << bits) - 1)
    return ((z.view(np.int64) & np.int64(-1 << bits)) | low).view(np.float64)


def _with_low(
    bits: int, low: Callable[[np.random.Generator, int, int], npt.NDArray[np.int64]]
) -> Make:
    """Normal values in draw order, whose last ``bits`` bits are those of ``low``.

    It takes fresh randomness, the number of values in a call, and the number before them.
    """

    def make(stream: KeyedStream) -> Draw:
        rng, position = stream.numpy(), 0

        def draw(n: int, d: int) -> Array:
            nonlocal position
            z = rng.standard_normal(n * d)
            own = low(rng, n * d, position)
            position += n * d
            return _with_last_bits(z, bits, own).reshape(n, d)

        return draw

    return make


def _coin(bias: float) -> Make:
    return _with_low(1, lambda rng, n, _: (rng.random(n) < 0.5 + bias).astype(np.int64))


def _encrypted(stream: KeyedStream) -> Draw:
    """A counter in four low bits, under a stream cipher whose key is secret."""
    key = stream.child("key")
    return _with_low(
        4, lambda _, n, at: np.arange(at, at + n) ^ np.frombuffer(key.bytes(n), np.uint8)
    )(stream)


def _sign_of_next(rng: np.random.Generator, last: Array, m: int) -> tuple[Array, Array]:
    z = np.concatenate([last, rng.standard_normal(m)])
    return _with_last_bits(z[:-1], 1, (z[1:] > 0).astype(np.int64)), z[-1:]


def _register(rng: np.random.Generator) -> Series:
    """The last bit comes from a shift register of 31 bits."""
    bits = prbs31(rng)
    return lambda m: _with_last_bits(rng.standard_normal(m), 1, bits(m))


def _copied_bits(lag: int) -> Make:
    """The last eight bits are those of the value ``lag`` before."""

    def step(
        rng: np.random.Generator, kept: tuple[npt.NDArray[np.int64], int], m: int
    ) -> tuple[Array, Any]:
        low, at = kept
        places = np.arange(at, at + m) % lag
        return _with_last_bits(rng.standard_normal(m), 8, low[places]), (low, (at + m) % lag)

    return carried(lambda rng: (rng.integers(0, 256, lag), 0), step)


_resolution = partial(Specimen, family="resolution")

_low = partial(Specimen, family="low bits")

_TAIL = (
    "of the 2,000 largest magnitudes about 1,170 are distinct, where float32 values of the right "
    "law leave at least 1,990"
)
_SURE = "certain after some hundred values"

SPECIMENS = (
    _resolution("inverse-cdf-23", "Φ⁻¹ of 23-bit uniforms", inverse_cdf(23),
                "5.8 million of 10^7 values are distinct, where float32 noise has 8.9 million"),
    _resolution("laplace-float32", "Laplace in float32 by log1p of a uniform in steps of 2^-23",
                each(_laplace_float32), _TAIL, claim="laplace:scale=1"),
    _resolution("box-muller-float32", "Box-Muller in float32 from 24-bit uniforms",
                each(_box_muller_float32),
                "the 200 longest of 5·10^6 pairs have 671 lengths to choose from: some 27 "
                "duplicates, where 0.1 are expected"),
    _resolution("coarse-beyond-3.5", "beyond 3.5σ rounded to steps of 2^-9",
                _coarse_beyond(3.5, 2.0**-9),
                "4,650 values, all multiples of 2^-9: certain after three of them"),
    _resolution("some-single", "one value in 1,000 is rounded to float32", each(_some_single),
                "10^4 values whose last 29 bits are 0, where chance gives 0.02"),
    _low("low-counter-4", "the last four bits count the values",
         _with_low(4, lambda _, n, at: at + np.arange(n)), _SURE),
    _low("low-counter-4-encrypted", "the last four bits are an encrypted counter", _encrypted,
         "without the key the bits of a stream cipher are fresh", expected="missed"),
    _low("last-bit-0.51", "the last bit is 1 with probability 0.51", _coin(0.01),
         "63 standard errors at 10^7 values"),
    _low("last-bit-0.5005", "the last bit is 1 with probability 0.5005", _coin(5e-4),
         "3.2 standard errors at 10^7 values", expected="borderline"),
    _low("last-bit-next-sign", "the last bit is the sign of the next value",
         carried(lambda rng: rng.standard_normal(1), _sign_of_next), _SURE),
    _low("last-bit-register", "the last bit comes from a shift register of 31 bits",
         flat(_register), "each bit is the sum of two bits before it modulo 2: " + _SURE),
    _low("low-8-bits-lag-1000", "the last eight bits are those of 1,000 values before",
         _copied_bits(1_000), _SURE),
)  # fmt: skip
