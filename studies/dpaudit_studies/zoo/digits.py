"""Flaws of resolution: rounding, short uniforms, short words; the law looks right."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit_studies.zoo.specimen import Array, Make, Series, Specimen, each, flat

__all__ = ["SPECIMENS", "inverse_cdf", "rounded"]


def rounded(step: float) -> Make:
    """Multiples of ``step``."""
    return each(lambda _, z: np.rint(z / step) * step)


def _significant(digits: int) -> Make:
    def change(rng: np.random.Generator, z: Array) -> Array:
        del rng
        unit = 10.0 ** (np.floor(np.log10(np.abs(z))) - (digits - 1))
        return np.asarray(np.rint(z / unit) * unit)

    return each(change)


def _without_low_bits(bits: int) -> Make:
    mask = np.int64(-1 << bits)
    return each(lambda _, z: (z.view(np.int64) & mask).view(np.float64))


def inverse_cdf(bits: int) -> Make:
    """Φ⁻¹ of uniforms of so many bits."""

    def change(rng: np.random.Generator, z: Array) -> Array:
        k = rng.integers(0, 1 << bits, z.shape).astype(np.float64)
        return np.asarray(scipy.special.ndtri((k + 0.5) * 2.0**-bits))

    return each(change)


def _box_muller(bits: int) -> Make:
    def begin(rng: np.random.Generator) -> Series:
        def following(m: int) -> Array:
            u = rng.integers(1, (1 << bits) + 1, size=(2, (m + 1) // 2)) * 2.0**-bits
            radius, angle = np.sqrt(-2 * np.log(u[0])), 2 * math.pi * u[1]
            return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()[:m]

        return following

    return flat(begin)


_LAYERS = 128
_RIGHT = 3.442619855899  # where the tail begins with 128 _layers
_AREA = 9.91256303526217e-3  # of each layer


def _layers() -> Array:
    """The ziggurat's right ends x_0 > x_1 > … > x_128 = 0 (Marsaglia and Tsang 2000)."""
    x = np.zeros(_LAYERS + 1)
    x[0], x[1] = _AREA / math.exp(-0.5 * _RIGHT**2), _RIGHT
    for i in range(2, _LAYERS):
        x[i] = math.sqrt(-2 * math.log(_AREA / x[i - 1] + math.exp(-0.5 * x[i - 1] ** 2)))
    return x


def _ziggurat(rng: np.random.Generator, z: Array) -> Array:
    """Marsaglia and Tsang's (2000) with one 32-bit word per value.

    Its low 7 bits choose the layer (Doornik 2005).
    """
    x = _layers()
    density = np.exp(-0.5 * x * x)
    out = np.empty(z.size)
    todo: npt.NDArray[np.int64] = np.arange(z.size)
    while todo.size:
        word = rng.integers(-(1 << 31), 1 << 31, todo.size)
        layer = word & (_LAYERS - 1)
        value = word * 2.0**-31 * x[layer]
        inner = np.abs(value) < x[layer + 1]
        height = density[layer] + rng.random(todo.size) * (density[layer + 1] - density[layer])
        wedge = (layer > 0) & (height < np.exp(-0.5 * value * value))
        tail = (layer == 0) & ~inner
        if tail.any():
            a, b = -np.log(1 - rng.random((2, int(tail.sum()))))
            far = np.where(
                2 * b > (a / _RIGHT) ** 2, np.copysign(_RIGHT + a / _RIGHT, value[tail]), np.nan
            )
            value[tail] = far
        good = (inner | wedge | tail) & ~np.isnan(value)
        out[todo[good]] = value[good]
        todo = todo[~good]
    return out.reshape(z.shape)


_digits = partial(Specimen, family="digits")

SPECIMENS = (
    _digits("rounded-1e-3", "rounded to 0.001", rounded(1e-3)),
    _digits("rounded-1e-4", "rounded to 0.0001", rounded(1e-4)),
    _digits("fixed-point-20", "fixed point with 20 binary places", rounded(2.0**-20)),
    _digits("six-digits", "six significant decimal digits, as printed with %g", _significant(6)),
    _digits("float16", "computed in half precision",
            each(lambda _, z: z.astype(np.float16).astype(np.float64))),
    _digits("inverse-cdf-16", "Φ⁻¹ of 16-bit uniforms", inverse_cdf(16)),
    _digits("inverse-cdf-20", "Φ⁻¹ of 20-bit uniforms", inverse_cdf(20)),
    _digits("inverse-cdf-24", "Φ⁻¹ of 24-bit uniforms", inverse_cdf(24)),
    _digits("inverse-cdf-32", "Φ⁻¹ of 32-bit uniforms", inverse_cdf(32)),
    _digits("box-muller-16", "Box-Muller from 16-bit uniforms", _box_muller(16)),
    _digits("ziggurat-32", "the ziggurat of 2000: one 32-bit word for layer and value",
            each(_ziggurat)),
    _digits("low-20-bits-zero", "the last 20 bits of the double are 0", _without_low_bits(20)),
    _digits("low-bit-zero", "the last bit of the double is 0", _without_low_bits(1),
            expected="borderline",
            why="a law of values to 52 places and no more: only a look at the last bit shows it"),
)  # fmt: skip
