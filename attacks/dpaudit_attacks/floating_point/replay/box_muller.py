"""Box-Muller backwards: from two outputs to the few uniforms that may have made them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit_attacks.floating_point.replay.libm import jit
from dpaudit_attacks.floating_point.replay.release import Addition, sector

__all__ = ["BoxMuller"]

Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_TRIES = 1 << 14  # candidates of one pair beyond which it counts as feasible without a search
_AT_ONCE = 1 << 20  # grid points held in memory


@dataclass(frozen=True)
class BoxMuller:
    """Outputs fl(fl(radius(K)·cos(T))·scale) and the same with sin.

    K and T are whole numbers, 1 ≤ K ≤ 2^bits. K·2^−bits is the uniform of the radius √(−2·ln u),
    T·2^−bits the angle in turns, 0 ≤ T < 2^bits, or 0 < T ≤ 2^bits where ``whole_turn``. ``radius``
    and ``turn`` map whole numbers (n,) to numbers of type ``dtype``, as the library does;
    ``scaled``: radius(K)·scale is rounded first.
    """

    bits: int
    dtype: np.dtype[Any]
    radius: Callable[[Integers], npt.NDArray[Any]]
    turn: Callable[[Integers], tuple[npt.NDArray[Any], npt.NDArray[Any]]]
    scaled: bool = False
    whole_turn: bool = False

    def outputs(self, k: Integers, t: Integers, *, scale: float) -> npt.NDArray[Any]:
        """The pairs of outputs of uniforms ``k`` and ``t`` (n,), shape (2, n)."""
        before, after = self._scales(scale)
        radius, (cosine, sine) = self.radius(k) * before, self.turn(t)
        return np.stack([radius * cosine * after, radius * sine * after])

    def feasible(
        self,
        releases: npt.NDArray[Any],
        values: npt.NDArray[Any],
        *,
        addition: Addition,
        scale: float,
    ) -> Bools:
        """Whether uniforms lead from ``values`` to exactly ``releases``, both (2, n), as (n,)."""
        centre, half = addition.noise(releases, values)
        rounding = float(np.finfo(self.dtype).eps) / 2
        where = sector(
            centre,
            half,
            scale=float(self.dtype.type(scale)),
            rounding=rounding,
            pairs=4.0**self.bits,
        )
        size, double = 2.0**self.bits, self.dtype == np.float64
        slack = 2 if double else 1
        with np.errstate(all="ignore"):
            low = np.floor(np.exp(-where.high * where.high / 2) * size) - slack
            high = np.ceil(np.exp(-where.low * where.low / 2) * size) + slack
            middle = np.arctan2(where.second, where.first) / (2 * np.pi) * size
            # a step and a quarter: θ is rounded (0.64 of a step at most), and so is 2π (0.47)
            spread = where.spread / (2 * np.pi) * size + (3.25 if double else 1.25)
            left, right = np.floor(middle - spread), np.ceil(middle + spread)
            low, high = np.clip(low, 1, size), np.clip(high, 1, size)
            wide = where.wide | ~((high - low + 1) * (right - left + 1) <= _TRIES)
        possible = np.ones(wide.shape, bool)
        ask = np.flatnonzero(~wide)
        possible[wide] = addition.reachable(releases[:, wide], values[:, wide]).all(0)
        bounds = np.stack([low[ask], high[ask], left[ask], right[ask]]).astype(np.int64)
        for part in _parts(bounds):
            here = ask[part]
            possible[here] = self._search(
                releases[:, here], values[:, here], bounds[:, part], addition, scale
            )
        return possible

    def _search(
        self,
        y: npt.NDArray[Any],
        v: npt.NDArray[Any],
        bounds: Integers,
        addition: Addition,
        scale: float,
    ) -> Bools:
        before, after = self._scales(scale)
        k, k_ends = _ranges(bounds[0], bounds[1])
        t, t_ends = _ranges(bounds[2], bounds[3])
        t %= 1 << self.bits
        if self.whole_turn:
            t[t == 0] = 1 << self.bits
        cosine, sine = self.turn(t)
        possible: Bools = _match(
            y,
            v,
            addition.dtype.type(addition.divisor),
            after,
            (self.radius(k) * before, k_ends),
            (cosine, sine, t_ends),
        )
        return possible

    def _scales(self, scale: float) -> tuple[Any, Any]:
        one, factor = self.dtype.type(1), self.dtype.type(scale)
        return (factor, one) if self.scaled else (one, factor)


def _parts(bounds: Integers) -> list[slice]:
    """Runs of pairs with about _AT_ONCE grid points together."""
    ends = np.cumsum(bounds[1] - bounds[0] + bounds[3] - bounds[2] + 2)
    if not ends.size:
        return []
    cuts = np.searchsorted(ends, np.arange(_AT_ONCE, ends[-1], _AT_ONCE), side="right")
    edges = np.unique(np.concatenate([[0], cuts, [ends.size]]))
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]


def _ranges(low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """All whole numbers low…high one range after the other, and where each range ends."""
    ends = np.cumsum(high - low + 1)
    starts = np.concatenate([[0], ends[:-1]])
    return np.arange(ends[-1]) + np.repeat(low - starts, high - low + 1), ends


@jit
def _match(y, v, divisor, scale, radii, turns):  # type: ignore[no-untyped-def]
    """Whether a radius and a turn of each pair's give exactly its two releases."""
    radius, k_ends = radii
    cosine, sine, t_ends = turns
    possible = np.zeros(y.shape[1], np.bool_)
    k0, t0 = 0, 0
    for p in range(y.shape[1]):
        y1, y2, v1, v2 = y[0, p], y[1, p], v[0, p], v[1, p]
        for t in range(t0, t_ends[p]):
            for k in range(k0, k_ends[p]):
                if (v1 + radius[k] * cosine[t] * scale) / divisor != y1:
                    continue
                if (v2 + radius[k] * sine[t] * scale) / divisor == y2:
                    possible[p] = True
                    break
            if possible[p]:
                break
        k0, t0 = k_ends[p], t_ends[p]
    return possible
