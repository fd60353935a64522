"""A small network's log-odds, compiled; imported only where one was trained."""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["log_odds"]


@numba.njit(nogil=True, cache=True)
def log_odds(x, w0, b0, w1, b1, w2, b2):  # type: ignore[no-untyped-def]
    """Log-odds (n,) of inputs ``x`` (n, k) by a network of two hidden layers with ReLU.

    Row by row: a product of matrices would round a row by its place among others.
    """
    n, k = x.shape
    first, second, out = np.empty(len(b0)), np.empty(len(b1)), np.empty(n)
    for i in range(n):
        first[:] = b0
        for j in range(k):
            if x[i, j] != 0.0:
                for h in range(len(b0)):
                    first[h] += x[i, j] * w0[j, h]
        second[:] = b1
        for j in range(len(b0)):
            if first[j] > 0.0:
                for h in range(len(b1)):
                    second[h] += first[j] * w1[j, h]
        total = b2[0]
        for h in range(len(b1)):
            if second[h] > 0.0:
                total += second[h] * w2[h, 0]
        out[i] = total
    return out
