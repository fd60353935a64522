"""Marsaglia's polar method backwards, as in numpy's legacy ``RandomState.normal``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit_attacks.floating_point.replay.libm import jit
from dpaudit_attacks.floating_point.replay.release import Addition, sector

__all__ = ["Polar"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_ROUNDING = 2.0**-53
_GRID = 2.0**52
_TRIES = 1 << 14


@dataclass(frozen=True)
class Polar:
    """Outputs scale·(f·x₂) and then scale·(f·x₁), float64 throughout.

    f = √(−2·ln r²/r²), r² = x₁² + x₂² in (0, 1). x₁ and x₂ are multiples of 2^−52 in [−1, 1): twice
    a 53-bit uniform, less 1.
    """

    def outputs(self, x1: Floats, x2: Floats, *, scale: float) -> Floats:
        """The pairs of outputs of ``x1`` and ``x2`` (n,), shape (2, n)."""
        pairs: Floats = _forward(x1, x2, float(scale))
        return pairs

    def feasible(
        self,
        releases: npt.NDArray[Any],
        values: npt.NDArray[Any],
        *,
        addition: Addition,
        scale: float,
    ) -> Bools:
        """Whether some x lead exactly from ``values`` to ``releases``, both (2, n), shape (n,)."""
        centre, half = addition.noise(releases, values)
        where = sector(
            centre, half, scale=float(scale), rounding=_ROUNDING, pairs=math.pi * _GRID * _GRID
        )
        with np.errstate(all="ignore"):
            low, high = np.exp(-(where.high**2) / 2), np.exp(-(where.low**2) / 2)  # of r²
            # walk along the smaller coordinate, solve for the other
            swap = np.abs(where.first) > np.abs(where.second)
            small, large = (
                np.where(swap, (where.second, where.first), (where.first, where.second))
                / where.radius
            )
            ring = np.sqrt(np.stack([low, high]))
            middle = small * np.exp(-(where.radius**2) / 4)
            spread = ring[1] * where.spread * np.abs(large) + (ring[1] - ring[0]) * np.abs(small)
            left = np.floor((middle - spread) * _GRID) - 2
            right = np.ceil((middle + spread) * _GRID) + 2
            across = (high - low) / np.maximum(np.sqrt(low), 1 / _GRID) * _GRID + 8
            wide = where.wide | ~((right - left + 1) * across <= _TRIES)
        possible = np.ones(wide.shape, bool)
        possible[wide] = addition.reachable(releases[:, wide], values[:, wide]).all(0)
        ask = np.flatnonzero(~wide)
        possible[ask] = _search(
            releases[:, ask],
            values[:, ask],
            addition.dtype.type(addition.divisor),
            float(scale),
            np.stack([left[ask], right[ask]]).astype(np.int64),
            np.stack([low[ask], high[ask]]),
            swap[ask],
            np.where(large[ask] < 0, -1.0, 1.0),
        )
        return possible


@jit
def _factor(x1, x2):  # type: ignore[no-untyped-def]
    """The factor f; 0 where the method draws again."""
    r2 = x1 * x1 + x2 * x2
    return math.sqrt(-2.0 * math.log(r2) / r2) if 0.0 < r2 < 1.0 else 0.0


@jit
def _forward(x1, x2, scale):  # type: ignore[no-untyped-def]
    out = np.empty((2, x1.size), np.float64)
    for i in range(x1.size):
        f = _factor(x1[i], x2[i])
        out[0, i] = scale * (f * x2[i])
        out[1, i] = scale * (f * x1[i])
    return out


@jit
def _search(y, v, divisor, scale, walk, ring, swap, sign):  # type: ignore[no-untyped-def]
    """Whether grid points of each pair's strip give exactly its two releases."""
    possible = np.zeros(y.shape[1], np.bool_)
    for p in range(y.shape[1]):
        y1, y2, v1, v2 = y[0, p], y[1, p], v[0, p], v[1, p]
        for j in range(walk[0, p], walk[1, p] + 1):
            a = np.float64(j) * 2.0**-52
            top = ring[1, p] - a * a
            if top < 0.0:
                continue
            first = np.int64(math.sqrt(max(ring[0, p] - a * a, 0.0)) * 2.0**52) - 3
            last = np.int64(math.sqrt(top) * 2.0**52) + 4
            for i in range(first, last + 1):
                b = sign[p] * (np.float64(i) * 2.0**-52)
                x2, x1 = (b, a) if swap[p] else (a, b)
                f = _factor(x1, x2)
                if f == 0.0 or (v1 + scale * (f * x2)) / divisor != y1:
                    continue
                if (v2 + scale * (f * x1)) / divisor == y2:
                    possible[p] = True
                    break
            if possible[p]:
                break
    return possible
