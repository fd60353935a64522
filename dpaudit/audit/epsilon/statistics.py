"""What a release is reduced to before it is looked at: one number, learned from other releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Statistic", "coarse_statistics", "low_bit_statistics"]

_MOST_FULL = 256
"""Dimensions up to which covariances are estimated in full."""
_COORDINATES = 4
_ZERO = 5000.0
"""Stands for the lowest set bit of 0, above that of any number."""
_LOW_BIT_COORDINATES = 3
_LOW_BIT_NUMBERS = 1 << 22
"""Looked at to choose them."""
_LOWEST_PLACE, _TOP_PLACE = -1075, 1025
"""Of the lowest set bit of a float64 number; the last one stands for 0."""
_LARGEST = np.finfo(np.float64).max
_SQUARED = 1e100
"""Numbers between its inverse and itself can be squared, multiplied and summed; others are scaled first."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Statistic:
    """A map from releases (n, k) to numbers (n,), with words and JSON-ready parameters to repeat it from."""

    says: str
    of: Callable[[Array], Array]
    details: Mapping[str, Any] = field(default_factory=dict)


def coarse_statistics(x0: Array, x1: Array, rng: np.random.Generator) -> list[Statistic]:
    """Candidates that see a release as real numbers, learned from ``x0`` and ``x1`` (n, k) at the two neighbours.

    For k = 1 the release itself. Otherwise a linear and a quadratic discriminant (log-ratio of two fitted normal laws),
    the coordinates that differ most, a random projection, which keeps apart the vectors of a discrete law, and the
    smallest and the largest magnitude of a row, where an exact zero or an outlier shows in whichever coordinate it is.
    """
    k = x0.shape[1]
    if k == 1:
        return [Statistic("x", lambda x: x[:, 0])]
    largest = max(float(np.abs(x).max()) for x in (x0, x1))
    if largest != 0 and not 1 / _SQUARED < largest < _SQUARED:
        scale = 2.0 ** float(np.clip(-np.frexp(largest)[1], -1000, 1000))
        return [_rescaled(s, scale) for s in coarse_statistics(x0 * scale, x1 * scale, rng)]
    m0, m1 = np.asarray(x0.mean(axis=0)), np.asarray(x1.mean(axis=0))
    v0, v1 = np.asarray(x0.var(axis=0)), np.asarray(x1.var(axis=0))
    floor = 1e-12 * (v0 + v1).max() + 1e-30 * largest**2 + 1e-300
    v0, v1 = v0 + floor, v1 + floor
    weights: Array
    full = k <= _MOST_FULL and min(len(x0), len(x1)) >= 20 * k
    if full:
        ridge = np.diag(1e-9 * (v0 + v1))
        c0, c1 = np.cov(x0.T) + ridge, np.cov(x1.T) + ridge
        p0, p1 = (np.linalg.inv(c).astype(np.float64) for c in (c0, c1))
        weights = np.asarray(np.linalg.solve(c0 + c1, m1 - m0), np.float64)
        quadratic = Statistic("quadratic discriminant", lambda x: _mahalanobis(x - m0, p0) - _mahalanobis(x - m1, p1))
    else:
        weights = np.asarray((m1 - m0) / (v0 + v1), np.float64)
        quadratic = Statistic(
            "diagonal quadratic discriminant", lambda x: ((x - m0) ** 2 / v0 - (x - m1) ** 2 / v1).sum(axis=1)
        )
    found = [_linear("linear discriminant ⟨w, x⟩", weights), quadratic]
    differ = np.abs(m1 - m0) / np.sqrt(v0 + v1) + np.abs(np.log(v1 / v0))
    farthest = map(int, np.argsort(-differ)[:_COORDINATES])
    found += [Statistic(f"x[{j}]", partial(_coordinate, j=j)) for j in farthest]
    found += [_linear("random projection ⟨w, x⟩", rng.standard_normal((k,)))]
    found += [Statistic("smallest |x[j]|", lambda x: np.abs(x).min(axis=1))]
    return [*found, Statistic("largest |x[j]|", lambda x: np.abs(x).max(axis=1))]


def low_bit_statistics(x0: Array, x1: Array, v0: Array, v1: Array) -> list[Statistic]:
    """Candidates that see how many bits a float64 release uses (Mironov 2012), for queries ``v0`` and ``v1`` (m,).

    The place of the lowest set bit, of the release and of what is left when either query value is taken off, and the
    number of trailing zeros together with the binary exponent: in the coordinate where the query values differ most, and
    in the few where ``x0`` and ``x1`` (n, k), releases at the two neighbours, differ most in these.
    """
    k = x0.shape[1]
    as_long = len(v0) == k
    with np.errstate(over="ignore"):
        first = int(np.argmax(np.abs(v1 - v0))) if as_long else 0
    learned = [j for j in _differing_low_bits(x0, x1) if j != first] if k > 1 else []
    found = []
    for j in (first, *learned):
        name = "x" if k == 1 else f"x[{j}]"
        found += [
            Statistic(f"lowest set bit of {name}", partial(_lowest_bit_of, j=j)),
            Statistic(f"exponent and trailing zeros of {name}", partial(_exponent_and_zeros_of, j=j)),
        ]
        if as_long:
            values = sorted({float(v0[j]), float(v1[j])} - {0.0})
            found += [Statistic(f"lowest set bit of {name} − {v:g}", partial(_less, j=j, value=v)) for v in values]
    return found


def _differing_low_bits(x0: Array, x1: Array) -> list[int]:
    """The coordinates whose lowest set bits differ most in distribution between releases (n, k): the first few."""
    rows = max(1, min(len(x0), len(x1), _LOW_BIT_NUMBERS // x0.shape[1]))
    counts = []
    for x in (x0[:rows], x1[:rows]):
        place = np.minimum(_lowest_bit(x), _TOP_PLACE).astype(np.int64) - _LOWEST_PLACE
        wide = _TOP_PLACE - _LOWEST_PLACE + 1
        place += np.arange(x.shape[1]) * wide
        counts.append(np.bincount(place.ravel(), minlength=wide * x.shape[1]).reshape(-1, wide))
    gaps = np.abs(counts[1] - counts[0]).sum(axis=1)
    return [int(j) for j in np.argsort(-gaps, kind="stable")[:_LOW_BIT_COORDINATES]]


def _rescaled(statistic: Statistic, scale: float) -> Statistic:
    return Statistic(statistic.says, lambda x: statistic.of(x * scale), {**statistic.details, "scaled_by": scale})


def _lowest_bit_of(x: Array, *, j: int) -> Array:
    return _lowest_bit(x[:, j])


def _exponent_and_zeros_of(x: Array, *, j: int) -> Array:
    return _exponent_and_zeros(x[:, j])


def _coordinate(x: Array, *, j: int) -> Array:
    return x[:, j]


def _less(x: Array, *, j: int, value: float) -> Array:
    with np.errstate(over="ignore"):
        return _lowest_bit(np.clip(x[:, j] - value, -_LARGEST, _LARGEST))


def _linear(says: str, weights: Array) -> Statistic:
    # not x @ weights: its rounding depends on a row's place, and equal rows must give equal numbers
    return Statistic(says, lambda x: (x * weights).sum(axis=1), {"weights": weights.tolist()})


def _mahalanobis(x: Array, precision: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", x @ precision, x))


def _parts(x: Array) -> tuple[Array, Array]:
    """Binary exponent, and trailing zeros of the 53-bit mantissa."""
    mantissa, exponent = np.frexp(x)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    return exponent.astype(np.float64), np.frexp((whole & -whole).astype(np.float64))[1] - 1.0


def _lowest_bit(x: Array) -> Array:
    exponent, zeros = _parts(x)
    return np.where(x == 0, _ZERO, exponent - 53 + zeros)


def _exponent_and_zeros(x: Array) -> Array:
    exponent, zeros = _parts(x)
    return np.where(x == 0, np.copysign(64 * _ZERO, x), 64 * exponent + zeros)  # −0.0 is another float than 0.0
