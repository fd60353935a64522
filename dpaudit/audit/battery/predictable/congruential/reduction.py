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
    rows = [[float(x) for x in row] for row in basis]
    n = len(rows)
    r = np.linalg.qr(basis.T, mode="r")
    size = np.square(np.diag(r)).tolist()
    mu = (r / np.diag(r)[:, None]).T.tolist()

    def subtract(k: int, j: int) -> None:
        times = round(mu[k][j])
        if not times:
            return
        rows[k] = [x - times * y for x, y in zip(rows[k], rows[j], strict=True)]
        mu[k][j] -= times
        for i in range(j):
            mu[k][i] -= times * mu[j][i]

    k = 1
    swaps = 0
    while k < n and swaps < _SWAPS:
        subtract(k, k - 1)
        part = mu[k][k - 1]
        if size[k] >= (_DELTA - part * part) * size[k - 1]:
            for j in range(k - 2, -1, -1):
                subtract(k, j)
            k += 1
            continue
        swaps += 1
        new = size[k] + part * part * size[k - 1]
        turned = part * size[k - 1] / new
        size[k], size[k - 1] = size[k - 1] * size[k] / new, new
        rows[k], rows[k - 1] = rows[k - 1], rows[k]
        mu[k][: k - 1], mu[k - 1][: k - 1] = mu[k - 1][: k - 1], mu[k][: k - 1]
        mu[k][k - 1] = turned
        for row in mu[k + 1 :]:
            row[k - 1], row[k] = (
                row[k] + turned * (row[k - 1] - part * row[k]),
                (row[k - 1] - part * row[k]),
            )
        k = max(k - 1, 1)
    return np.array(rows)


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
