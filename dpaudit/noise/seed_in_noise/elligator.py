"""Curve25519 points that look like random bytes: Elligator 2, with whole numbers of Python's.

**What is exact.** A uniform point P of the whole curve group, which is cyclic of order 8L, has a
representative r in 0…(p−1)/2 for about half of the points; P is drawn until it has one. Elligator 2
maps these r one to one onto the points that have one (Bernstein, Hamburg, Krasnova and Lange 2013,
Theorem 5), so r is uniform on (p+1)/2 = 2^254 − 9 values, but for a handful of points of small
order. With two random bits on top the 32 bytes are within 2^-250 of uniform. A point of the
prime-order subgroup alone would not do: multiply by L and see. X25519 by its owner removes the
part of small order again.

Not claimed: constant time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import cast

__all__ = [
    "ORDER",
    "FixedBase",
    "base_point",
    "from_representative",
    "representative",
    "uniform_below",
]

P = 2**255 - 19
A = 486662
L = 2**252 + 27742317777372353535851937790883648493
ORDER = 8 * L
"""The order of the whole group."""

_D = -121665 * pow(121666, -1, P) % P
_ROOT = pow(2, (P - 1) // 4, P)
"""A square root of −1."""

Point = tuple[int, int, int, int]
"""Extended coordinates (X, Y, Z, T) on edwards25519, −x² + y² = 1 + d·x²·y²."""


def _square_root(value: int) -> int | None:
    """A root of ``value`` mod p that is at most (p−1)/2; None if it is not a square."""
    root = pow(value, (P + 3) // 8, P)
    if root * root % P != value % P:
        root = root * _ROOT % P
    if root * root % P != value % P:
        return None
    return min(root, P - root)


def representative(u: int, *, second: bool) -> int | None:
    """An r in 0…(p−1)/2 with ``from_representative(r) == u``; None if there is none.

    A point that has one has two, ``second`` says which: one for each sign of v.
    """
    u %= P
    if u in (0, P - A):
        return None
    # r² = −u/(2(u+A)), or −(u+A)/(2u): both are squares, or neither is
    top, bottom = (u + A, u) if second else (u, u + A)
    return _square_root(-top * pow(2 * bottom, -1, P) % P)


def from_representative(r: int) -> int:
    """The u of Elligator 2's point for ``r``, any number (RFC 9380, section 6.7.1, Z = 2)."""
    u = -A * pow(1 + 2 * r * r, -1, P) % P  # 1 + 2r² is never 0: −1/2 is not a square
    right = u * (u * (u + A) + 1) % P
    return u if right == 0 or pow(right, (P - 1) // 2, P) == 1 else (-u - A) % P


def _add(one: Point, two: Point) -> Point:
    x1, y1, z1, t1 = one
    x2, y2, z2, t2 = two
    a, b = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    c, d = 2 * _D * t1 * t2 % P, 2 * z1 * z2 % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


class FixedBase:
    """Multiples of one point, from a table of 32 rows of 256."""

    def __init__(self, point: Point) -> None:
        """A table for ``point``: a twentieth of a second."""
        self._rows: list[list[Point]] = []
        for _ in range(32):
            row: list[Point] = [(0, 1, 1, 0)]
            for _ in range(255):
                row.append(_add(row[-1], point))
            self._rows.append(row)
            point = _add(row[-1], point)

    def _times(self, k: int) -> Point:
        total: Point = (0, 1, 1, 0)
        for row in self._rows:
            if k & 255:
                total = _add(total, row[k & 255])
            k >>= 8
        return total

    def vanishes(self, k: int) -> bool:
        """Whether k times the point is the neutral element, 0 ≤ k < 2^256."""
        _, y, z, _ = self._times(k)
        return (y - z) % P == 0

    def multiple(self, k: int) -> int:
        """The u of k times the point, 0 ≤ k < 2^256; 0 for the neutral one, as in X25519."""
        _, y, z, _ = self._times(k)
        return (z + y) * pow(z - y, -1, P) % P if (z - y) % P else 0

    @classmethod
    def at(cls, u: int) -> FixedBase | None:
        """A table for a point with that u; None if the curve has none (its twist does)."""
        y = (u - 1) * pow(u + 1, -1, P) % P
        point = _at(y)
        return None if point is None else cls(point)


@lru_cache(maxsize=1)
def base_point() -> FixedBase:
    """A generator of the whole group: the usual base point (u = 9) plus a point of order 8."""
    return FixedBase(_add(cast("Point", _at(4 * pow(5, -1, P) % P)), _of_order_eight()))


def _at(y: int) -> Point | None:
    """A point with that y, if there is one."""
    x = _square_root((y * y - 1) * pow(_D * y * y + 1, -1, P) % P)
    return None if x is None else (x, y, 1, x * y % P)


def _of_order_eight() -> Point:
    """L times the first point for which four times that is not neutral."""
    points = (_times(L, point) for y in itertools.count(2) if (point := _at(y)) is not None)
    return next(point for point in points if (_times(4, point)[1] - _times(4, point)[2]) % P)


def _times(k: int, point: Point) -> Point:
    total: Point = (0, 1, 1, 0)
    while k:
        total, point, k = _add(total, point) if k & 1 else total, _add(point, point), k >> 1
    return total


def uniform_below(limit: int, draw: Callable[[int], bytes]) -> int:
    """A uniform number below ``limit`` < 2^256, by refusal; ``draw(n)`` gives n bytes."""
    bits = limit.bit_length()
    while (k := int.from_bytes(draw(32), "little") & ((1 << bits) - 1)) >= limit:
        pass
    return k
