"""Short vectors of small lattices, and exact inverses of small matrices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = ["inverse", "reduced"]

Floats = npt.NDArray[np.float64]
Rows = list[list[int]]

_DELTA = 0.99
_SWAPS = 50_000


def reduced(basis: Floats) -> Floats:
    """A basis (n, n) reduced as Lenstra, Lenstra and Lovász do it (1982), in doubles.

    For at most some 40 rows whose entries lie within 2^45 of each other; after so many swaps (an
    order of magnitude above what such bases need) it returns what it has.
    """
    from dpaudit.audit.battery.predictable.loops import lattice  # loads a compiler

    rows = np.array(basis, np.float64)
    r = np.linalg.qr(rows.T, mode="r")
    size = np.square(np.diag(r))
    lattice(rows, np.ascontiguousarray((r / np.diag(r)[:, None]).T), size, _DELTA, _SWAPS)
    return rows


def inverse(rows: Rows) -> tuple[int, Rows] | None:
    """(m, a) with a/m the inverse of an integer matrix and m its determinant's magnitude.

    None if it is singular.
    """
    n = len(rows)
    left = [[Fraction(x) for x in row] for row in rows]
    right = [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]
    m = Fraction(1)
    for k in range(n):
        pivot = next((i for i in range(k, n) if left[i][k]), None)
        if pivot is None:
            return None
        left[k], left[pivot] = left[pivot], left[k]
        right[k], right[pivot] = right[pivot], right[k]
        by = left[k][k]
        m *= by
        left[k] = [x / by for x in left[k]]
        right[k] = [x / by for x in right[k]]
        for i in range(n):
            times = left[i][k]
            if i != k and times:
                left[i] = [x - times * y for x, y in zip(left[i], left[k], strict=True)]
                right[i] = [x - times * y for x, y in zip(right[i], right[k], strict=True)]
    whole = abs(int(m))
    return whole, [[int(x * whole) for x in row] for row in right]
