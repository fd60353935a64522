"""The growth-optimal bet on one release against (ε, δ)-DP, from what is known of its law.

A release falls into a cell j; it was made at neighbour b = 0 or 1, by a fair coin. The hypothesis
is P₁(E) ≤ a·P₀(E) + c and P₀(E) ≤ a·P₁(E) + c for all events E. The factors

    f₁(j) = 1 − u + V_j − a·W_j − p,    f₀(j) = 1 + u − a·V_j + W_j − p,
    p = (max V + max W)·c/2,    V, W ≥ 0,

have mean at most 1 under it, whatever the law: E f = 1 + ½·(E₁V − a·E₀V) + ½·(E₀W − a·E₁W) − p,
and V/max V is a test, so E₁V − a·E₀V ≤ c·max V. By duality of linear programmes no other function
of neighbour and cell has a mean of at most 1 under all laws of the hypothesis, unless it is smaller
than one of these everywhere: betting by them loses nothing.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["factors"]

Array = npt.NDArray[np.float64]

_OFFSETS = np.array([-0.8, -0.5, -0.3, -0.18, -0.1, -0.05, 0, 0.05, 0.1, 0.18, 0.3, 0.5, 0.8])
_CAPS = np.array([1.0, 0.75, 0.5, 0.3, 0.1])
_FLOOR = 0.01
"""Least factor: no release loses more than this leaves."""


def factors(
    cells: Array, slopes: Array, excesses: Array, *, averaged: int = 1
) -> tuple[Array, Array]:
    """Logarithms (hypotheses, 2, cells) of the factors f₀, f₁, and growth (hypotheses,) of each.

    ``cells`` (2, cells) are what is thought of the cells' probabilities at the neighbours;
    ``slopes`` and ``excesses`` (hypotheses, lines) are a and c of lines that hold all at once, of
    which each hypothesis is bet against by one. Growth is the expected logarithm of a factor, in
    nats, if the probabilities are right; where none is promised, the factors are 1. Of
    ``averaged`` releases the factor is the mean of theirs, whose logarithm is expected to second
    order.

    Guarantee: under its hypothesis the mean of a factor is at most 1, whatever
    ``cells`` are.
    """
    logs = np.zeros((len(slopes), *cells.shape))
    growth = np.zeros(len(slopes))
    offsets = _OFFSETS if averaged == 1 else np.zeros(1)  # of a mean they move nothing
    _factors(cells[0], cells[1], slopes, excesses, averaged, offsets, _CAPS, logs, growth)
    return logs, growth


@numba.njit(cache=True, nogil=True)
def _line(p0, p1, slopes, excesses, averaged):  # type: ignore[no-untyped-def]
    """The line that is exceeded most, in standard deviations of one release; −1 for none.

    Of several averaged the one that promises the most growth.
    """
    best, most = -1, 0.0
    for line in range(len(slopes)):
        a, c = slopes[line], excesses[line]
        for one, other in ((p0, p1), (p1, p0)):
            gain, square = -c, 1e-12
            for j in range(len(one)):
                if other[j] > a * one[j]:
                    gain += other[j] - a * one[j]
                    square += other[j] + a * a * one[j]
            value = gain * gain / square
            if averaged > 1:
                bet = min(averaged * gain / square, 1 / (a + c))
                value = bet * gain - bet * bet * square / (2 * averaged)
            if gain > 0 and value > most:
                best, most = line, value
    return best


@numba.njit(cache=True, nogil=True)
def _try(p0, p1, a, c, u, cap, ways, averaged, here):  # type: ignore[no-untyped-def]
    """Fill ``here`` (2, cells) with logarithms of the factors of one choice; growth, or −∞."""
    greatest, price = np.zeros(2), 0.0
    shift = u if averaged == 1 else 0.0  # a mean varies little: only its expectation counts
    for again in range(1 if c == 0 else 2):  # what the largest bet costs makes the others smaller
        for j in range(len(p0)):
            both = a * (p0[j] + p1[j]) / averaged
            one, other = p1[j] * (1 + shift - price), p0[j] * (1 - shift - price)
            here[1, j] = max(0.0, one - a * other) / both if ways != 1 else 0.0
            here[0, j] = max(0.0, other - a * one) / both if ways != 0 else 0.0
            if again == 0:
                for b in range(2):
                    greatest[b] = max(greatest[b], here[b, j])
        if again == 0:
            room = 1 - _FLOOR - c * (1 - _FLOOR) / (a + c)  # less the price of both ways bet to it
            greatest[0] = cap * min(greatest[0], max(0.0, room - u) / a)
            greatest[1] = cap * min(greatest[1], max(0.0, room + u) / a)
            price = (greatest[0] + greatest[1]) * c / 2
    room1, room0 = 1 - u - price - _FLOOR, 1 + u - price - _FLOOR
    if room1 <= 0 or room0 <= 0:
        return -np.inf
    idle1, idle0 = math.log(1 - u - price), math.log(1 + u - price)
    growth, mean, square = 0.0, 0.0, 0.0
    for j in range(len(p0)):
        v = min(here[1, j], greatest[1], room0 / a)
        w = min(here[0, j], greatest[0], room1 / a)
        if v == 0 and w == 0:  # most cells
            here[1, j], here[0, j] = idle1, idle0
        else:
            here[1, j] = math.log(1 - u + v - a * w - price)
            here[0, j] = math.log(1 + u - a * v + w - price)
        growth += 0.5 * (p1[j] * here[1, j] + p0[j] * here[0, j])
        if averaged > 1:
            f1, f0 = math.exp(here[1, j]), math.exp(here[0, j])
            mean += 0.5 * (p1[j] * f1 + p0[j] * f0)
            square += 0.5 * (p1[j] * f1 * f1 + p0[j] * f0 * f0)
    if averaged == 1:
        return growth
    return math.log(mean) - (square / mean / mean - 1) / (2 * averaged)


@numba.njit(cache=True, nogil=True)
def _factors(p0, p1, slopes, excesses, averaged, offsets, caps, logs, growth):  # type: ignore[no-untyped-def]
    here = np.empty((2, len(p0)))
    for g in range(len(slopes)):
        line = _line(p0, p1, slopes[g], excesses[g], averaged)
        if line < 0:
            continue
        a, c = slopes[g, line], excesses[g, line]
        for ways in range(2 if c == 0 else 0, 3):  # both ways cost nothing without c
            for cap in caps[: 1 if c == 0 else len(caps)]:
                for u in offsets:
                    gain = _try(p0, p1, a, c, u, cap, ways, averaged, here)
                    if gain > growth[g]:
                        growth[g] = gain
                        logs[g] = here
