"""Samplers that claim another law than the Gaussian, or whose noise depends on its value."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Specimen, each

__all__ = ["SPECIMENS", "discrete_gaussian"]


def _value(name: str, description: str, change: Callable[[Array, float], Array]) -> Specimen:
    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()
        return lambda n, d, value=0.0: change(rng.standard_normal((n, d)), value)

    return Specimen(name, description, make, family="value", takes_value=True)


_VALUES = (
    _value("wider-above-0", "σ is 3 % larger for values above 0",
           lambda z, v: z * (1.03 if v > 0 else 1.0)),
    _value("drawn-to-0", "noise is drawn towards 0 by 0.03 where the value is not 0",
           lambda z, v: z - 0.03 * np.sign(v)),
    _value("float32-release", "value and noise are added in single precision",
           lambda z, v: (z + v).astype(np.float32).astype(np.float64) - v),
)  # fmt: skip


def discrete_gaussian(rng: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> Array:
    """Values of that law, by a table of its probabilities."""
    k = np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1)
    upto = np.cumsum(np.exp(-0.5 * (k / sigma) ** 2))
    index = np.searchsorted(upto, upto[-1] * rng.random(shape), side="right")
    return np.asarray(k[index], np.float64)


def _discrete_laplace(rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Array:
    p = -math.expm1(-1 / scale)
    return (rng.geometric(p, shape) - rng.geometric(p, shape)).astype(np.float64)


def _signed_geometric(scale: float, first: int) -> Make:
    """A magnitude from ``first`` on and a fair sign: 0 too often (first = 0) or never (1)."""
    p = -math.expm1(-1 / scale)
    return each(lambda rng, z: np.copysign(rng.geometric(p, z.shape) - 1.0 + first, z))


def _laplace_from_bits(bits: int) -> Make:
    def change(rng: np.random.Generator, z: Array) -> Array:
        u = (rng.integers(0, 1 << bits, z.shape) + 0.5) * 2.0**-bits
        return np.asarray(np.copysign(np.log(u), z))

    return each(change)


def _neighbours(z: Array, rho: float) -> Array:
    """A moving average along the block's values: correlation about ``rho`` of neighbours."""
    return np.asarray((z + rho * np.roll(z.ravel(), 1).reshape(z.shape)) / math.sqrt(1 + rho * rho))


def _laplace_of(z: Array) -> Array:
    """N(0, 1) mapped to Laplace of scale 1, value by value."""
    return np.asarray(np.copysign(np.log(2 * scipy.special.ndtr(-np.abs(z))), z))


def _cut_discrete(sigma: float, limit: int) -> Make:
    def change(rng: np.random.Generator, z: Array) -> Array:
        k = discrete_gaussian(rng, sigma, z.shape)
        while (beyond := np.abs(k) > limit).any():
            k[beyond] = discrete_gaussian(rng, sigma, (int(beyond.sum()),))
        return k

    return each(change)


def _claim(name: str, description: str, claim: str, make: Make) -> Specimen:
    return Specimen(name, description, make, family="other claim", claim=claim)


_LAPLACE = "laplace:scale=1"
_DISCRETE = "discrete-gaussian:sigma=10"
_GEOMETRIC = "discrete-laplace:scale=10"

_CLAIMS = (
    _claim("laplace-scale", "Laplace, 0.5 % too wide", _LAPLACE,
           each(lambda rng, z: rng.laplace(0, 1.005, z.shape))),
    _claim("laplace-16-bit", "Laplace from 16-bit uniforms", _LAPLACE, _laplace_from_bits(16)),
    _claim("laplace-is-gaussian", "Gaussian of the Laplace's variance", _LAPLACE,
           each(lambda _, z: math.sqrt(2) * z)),
    _claim("laplace-ar1", "Laplace values of an AR(1) with about 0.02 from value to value",
           _LAPLACE,
           each(lambda _, z: _laplace_of(_neighbours(z, 0.02)))),
    _claim("even-only", "discrete Gaussian without odd numbers", _DISCRETE,
           each(lambda rng, z: 2 * np.rint(discrete_gaussian(rng, 10.0, z.shape) / 2))),
    _claim("discrete-scale", "discrete Gaussian, 0.3 % too wide", _DISCRETE,
           each(lambda rng, z: discrete_gaussian(rng, 10.03, z.shape))),
    _claim("discrete-cut", "discrete Gaussian, beyond 4σ drawn again", _DISCRETE,
           _cut_discrete(10.0, 40)),
    _claim("rounded-gaussian", "rounded Gaussian in place of a discrete one",
           "discrete-gaussian:sigma=1",
           each(lambda _, z: np.rint(z))),
    _claim("geometric-double-zero", "two-sided geometric whose 0 has both signs", _GEOMETRIC,
           _signed_geometric(10.0, 0)),
    _claim("geometric-off-by-one", "two-sided geometric that starts at 1", _GEOMETRIC,
           _signed_geometric(10.0, 1)),
    _claim("geometric-scale", "two-sided geometric, 0.3 % too wide", _GEOMETRIC,
           each(lambda rng, z: _discrete_laplace(rng, 10.03, z.shape))),
)  # fmt: skip

SPECIMENS = (*_VALUES, *_CLAIMS)
