"""A posterior's compiled double integral: products at all nodes of (γ, a), own exponents."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = ["BLOCK", "HALVES", "fill_log_scores"]

BLOCK = 8
"""Factors multiplied between two looks at the exponents."""

HALVES = 2.0 ** -np.arange(1100.0)

_jit: Any = numba.njit(
    nogil=True, cache=True, boundscheck=False, error_model="numpy", fastmath={"contract"}
)


@_jit
def fill_log_scores(  # type: ignore[no-untyped-def]
    evidence, slots, ends, gamma, a, weights, halves, out
):
    """Logarithms of scores into ``out`` (users, prefixes, k), from ``evidence`` (users, n, k + 1).

    A factor is E_0 + γ(M − E_0) + γa(E_i − M), where M is the mean of E_1 … E_k and a = (kδ − 1)/(k
    − 1). Rows of evidence are first divided by their largest entry, so that a factor is at most 1
    and at least (1 − γ)(1 − a)γ/k at a node: far above 2^-127 for any number of nodes one would
    use, and a block of 8 stays a normal double. After each block the exponents go into integers,
    one for each node.

    ``slots[t]`` is where observation t goes when every prefix is filled up to whole blocks with
    factors of 1, ``ends`` the prefixes' ends in that layout; ``weights`` (nodes of γ, nodes of a).
    ``contract`` alone of fast mathematics is allowed: a product and a sum may be rounded once
    instead of twice.
    """
    users, n, width = evidence.shape
    k = width - 1
    count, nodes = ends.size, a.size
    length = ends[-1]
    neutral, slope, base = np.ones(length), np.zeros(length), np.empty(length)
    tilt = np.zeros((k, length))
    product, exponent, step = np.empty(nodes), np.empty(nodes, np.int64), np.empty(nodes)
    bits = product.view(np.int64)
    total, top = np.empty((count, k)), np.empty((count, k), np.int64)
    for u in range(users):
        for t in range(n):
            largest, mean = evidence[u, t, 0], 0.0
            for i in range(1, width):
                largest = max(largest, evidence[u, t, i])
                mean += evidence[u, t, i]
            mean /= k * largest
            s = slots[t]
            neutral[s] = evidence[u, t, 0] / largest
            slope[s] = mean - neutral[s]
            for i in range(k):
                tilt[i, s] = evidence[u, t, i + 1] / largest - mean
        total[:], top[:] = 0.0, -(1 << 62)
        for p in range(gamma.size):
            for s in range(length):
                base[s] = neutral[s] + gamma[p] * slope[s]
            for q in range(nodes):
                step[q] = gamma[p] * a[q]
            for i in range(k):
                d = tilt[i]
                product[:], exponent[:] = 1.0, 0
                s = 0
                for b in range(count):
                    while s < ends[b]:
                        c0, c1, c2, c3 = base[s], base[s + 1], base[s + 2], base[s + 3]
                        c4, c5, c6, c7 = base[s + 4], base[s + 5], base[s + 6], base[s + 7]
                        d0, d1, d2, d3 = d[s], d[s + 1], d[s + 2], d[s + 3]
                        d4, d5, d6, d7 = d[s + 4], d[s + 5], d[s + 6], d[s + 7]
                        for q in range(nodes):
                            x = step[q]
                            first = ((c0 + x * d0) * (c1 + x * d1)) * (
                                (c2 + x * d2) * (c3 + x * d3)
                            )
                            second = ((c4 + x * d4) * (c5 + x * d5)) * (
                                (c6 + x * d6) * (c7 + x * d7)
                            )
                            product[q] *= first * second
                        for q in range(nodes):
                            e = (bits[q] >> 52) - 1023
                            exponent[q] += e
                            bits[q] -= e << 52
                        s += 8
                    here = exponent.max()
                    part = 0.0
                    for q in range(nodes):
                        part += (
                            weights[p, q]
                            * product[q]
                            * halves[min(here - exponent[q], halves.size - 1)]
                        )
                    if here > top[b, i]:
                        total[b, i] *= halves[min(here - top[b, i], halves.size - 1)]
                        top[b, i] = here
                        total[b, i] += part
                    else:
                        total[b, i] += part * halves[min(top[b, i] - here, halves.size - 1)]
        for b in range(count):
            for i in range(k):
                out[u, b, i] = np.log(total[b, i]) + top[b, i] * 0.6931471805599453
