"""Values that lack digits: short uniforms, single precision in the tails, and low bits that tell.

The law is right to the digits that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.randomness import KeyedStream
from dpaudit.vectors.generators import XOR, lagged
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Series, Specimen, each, flat

__all__ = ["SPECIMENS"]

Bits = npt.NDArray[np.int64]


def _inverse_cdf(bits: int) -> Make:
    def change(rng: np.random.Generator, z: Array) -> Array:
        k = rng.integers(0, 1 << bits, z.shape).astype(np.float64)
        return np.asarray(scipy.special.ndtri((k + 0.5) * 2.0**-bits))

    return each(change)


def _laplace_32(rng: np.random.Generator, z: Array) -> Array:
    u = (rng.integers(0, 1 << 32, z.shape).astype(np.float64) + 0.5) * 2.0**-32
    return np.where(u < 0.5, np.log(2 * u), -np.log(2 * (1 - u)))


def _symmetric(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Multiples of 2^-23 in (-1, 1), as float32."""
    k = rng.integers(1, 1 << 24, shape).astype(np.float32)
    return k * np.float32(2**-23) - np.float32(1)


def _laplace_float32(rng: np.random.Generator, z: Array) -> Array:
    u = _symmetric(rng, z.shape)
    return np.asarray((-np.sign(u) * np.log1p(-np.abs(u))).astype(np.float64))


def _erfinv_float32(rng: np.random.Generator, z: Array) -> Array:
    return np.asarray((np.float32(2**0.5) * scipy.special.erfinv(_symmetric(rng, z.shape))), float)


def _box_muller_float32(rng: np.random.Generator, z: Array) -> Array:
    m = z.size + z.size % 2
    u = rng.integers(0, 1 << 24, (2, m // 2)).astype(np.float32) * np.float32(2**-24)
    radius, angle = np.sqrt(np.float32(-2) * np.log1p(-u[0])), np.float32(2 * np.pi) * u[1]
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()
    return both[: z.size].astype(np.float64).reshape(z.shape)


def _coarse_beyond(limit: float, step: float) -> Make:
    return each(lambda _, z: np.where(np.abs(z) > limit, np.rint(z / step) * step, z))


def _some_single(rng: np.random.Generator, z: Array) -> Array:
    return np.where(rng.random(z.shape) < 1e-3, z.astype(np.float32).astype(np.float64), z)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What low bits may depend on: fresh randomness, and the places of a call's ``count`` values.

    ``position`` values and ``call`` calls came before.
    """

    rng: np.random.Generator
    count: int
    position: int
    call: int


def _with_low(bits: int, low: Callable[[_Asked], Bits]) -> Make:
    """Normal values in draw order, whose last ``bits`` bits are those of ``low``."""

    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()
        position = call = 0

        def draw(n: int, d: int) -> Array:
            nonlocal position, call
            z = rng.standard_normal(n * d)
            own = low(_Asked(rng, n * d, position, call)) & np.int64((1 << bits) - 1)
            position += n * d
            call += 1
            word = (z.view(np.int64) & np.int64(-1 << bits)) | own
            return word.view(np.float64).reshape(n, d)

        return draw

    return make


def _coin(bias: float) -> Callable[[_Asked], Bits]:
    return lambda asked: (asked.rng.random(asked.count) < 0.5 + bias).astype(np.int64)


def _encrypted(stream: KeyedStream) -> Draw:
    """A counter in four low bits, under a stream cipher whose key is secret."""
    rng, key = stream.numpy(), stream.child("key")
    position = 0

    def draw(n: int, d: int) -> Array:
        nonlocal position
        z = rng.standard_normal(n * d)
        hidden = np.frombuffer(key.bytes(n * d), np.uint8).astype(np.int64)
        low = (np.arange(position, position + n * d) ^ hidden) & np.int64(15)
        position += n * d
        return ((z.view(np.int64) & np.int64(-16)) | low).view(np.float64).reshape(n, d)

    return draw


def _sign_of_next(rng: np.random.Generator) -> Series:
    held = rng.standard_normal(1)

    def following(m: int) -> Array:
        nonlocal held
        z = np.concatenate([held, rng.standard_normal(m)])
        held = z[-1:]
        word = z[:-1].view(np.int64) & np.int64(-2)
        return (word | (z[1:] > 0)).view(np.float64)

    return following


def _register(rng: np.random.Generator) -> Series:
    """The last bit comes from a shift register of 31 bits."""
    state = int(rng.integers(1, 1 << 31))
    bits = lagged(np.array([state >> i & 1 for i in range(31)], np.uint64), 28, XOR, 1)

    def following(m: int) -> Array:
        z = rng.standard_normal(m)
        word = (z.view(np.uint64) & ~np.uint64(1)) | bits(m)
        return word.view(np.float64)

    return following


def _copied_bits(lag: int) -> Make:
    """The last eight bits are those of the value ``lag`` before."""

    def begin(rng: np.random.Generator) -> Series:
        kept = rng.integers(0, 256, lag)
        at = 0

        def following(m: int) -> Array:
            nonlocal at
            z = rng.standard_normal(m)
            low = kept[np.arange(at, at + m) % lag]
            at = (at + m) % lag
            return ((z.view(np.int64) & np.int64(-256)) | low).view(np.float64)

        return following

    return flat(begin)


def _resolution(name: str, says: str, make: Make, why: str, **rest: str) -> Specimen:
    return Specimen(name, "resolution", says, make, why=why, **rest)  # type: ignore[arg-type]


def _low(name: str, says: str, make: Make, why: str, **rest: str) -> Specimen:
    return Specimen(name, "low bits", says, make, why=why, **rest)  # type: ignore[arg-type]


_TAIL = (
    "of the 2,000 largest magnitudes about 1,170 are distinct, where float32 values of the right "
    "law leave at least 1,990"
)
_SURE = "certain after some hundred values"

SPECIMENS = (
    _resolution("inverse-cdf-23", "Φ⁻¹ of 23-bit uniforms", _inverse_cdf(23),
                "5.8 million of 10^7 values are distinct, where float32 noise has 8.9 million"),
    _resolution("inverse-cdf-28", "Φ⁻¹ of 28-bit uniforms", _inverse_cdf(28),
                "Φ(z)·2^28 is a whole number and a half to 10^-7, at every value"),
    _resolution("inverse-cdf-40", "Φ⁻¹ of 40-bit uniforms", _inverse_cdf(40),
                "Φ(z)·2^40 is a whole number and a half to 10^-3, at every value; 45 duplicates"),
    _resolution("laplace-32-bit", "Laplace by inverse CDF of 32-bit uniforms", each(_laplace_32),
                "the CDF times 2^32 is a whole number and a half, at every value",
                claim="laplace:scale=1"),
    _resolution("laplace-float32", "Laplace in float32 by log1p of a uniform in steps of 2^-23",
                each(_laplace_float32), _TAIL, claim="laplace:scale=1"),
    _resolution("erfinv-float32", "√2·erfinv in float32 of a uniform in steps of 2^-23",
                each(_erfinv_float32), _TAIL),
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
         _with_low(4, lambda asked: asked.position + np.arange(asked.count)), _SURE),
    _low("low-counter-4-encrypted", "the last four bits are an encrypted counter", _encrypted,
         "without the key the bits of a stream cipher are fresh", expected="missed"),
    _low("last-bit-0.51", "the last bit is 1 with probability 0.51", _with_low(1, _coin(0.01)),
         "63 standard errors at 10^7 values"),
    _low("last-bit-0.5005", "the last bit is 1 with probability 0.5005", _with_low(1, _coin(5e-4)),
         "3.2 standard errors at 10^7 values", expected="borderline"),
    _low("last-bit-of-call", "the last bit is the parity of the call's number",
         _with_low(1, lambda asked: np.full(asked.count, asked.call)), _SURE),
    _low("last-bit-of-place", "the last bit is the parity of the place in its call",
         _with_low(1, lambda asked: np.arange(asked.count)), _SURE),
    _low("last-bit-next-sign", "the last bit is the sign of the next value", flat(_sign_of_next),
         _SURE),
    _low("last-bit-register", "the last bit comes from a shift register of 31 bits",
         flat(_register), "each bit is the sum of two bits before it modulo 2: " + _SURE),
    _low("low-8-bits-lag-1000", "the last eight bits are those of 1,000 values before",
         _copied_bits(1_000), _SURE),
)  # fmt: skip
