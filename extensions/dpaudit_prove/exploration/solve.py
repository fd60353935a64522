"""Certified probabilities: how often each state is visited, from below, in exact arithmetic.

For a chain with first visits e and transitions P every vector w ≥ 0 with w ≤ e + w·P is a lower
bound of the expected numbers of visits. Proof: w ≤ e·(1 + P + … + P^k) + w·P^(k+1), and the last
term vanishes on every state from which an output can be reached. Floats only propose w; the
inequality is checked in integers, and where it fails w is lowered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

__all__ = ["SCALE_BITS", "Edge", "exact_visits", "lower_visits"]

SCALE_BITS = 160
_SLACK_BITS = 112
_LARGEST_EXACT = 600
_LARGEST_DENOMINATOR = 4096  # bits
Edge = tuple[int, int, int, int]
"""From, to, and the probability: numerator, denominator."""


def exact_visits(size: int, first: int, edges: Sequence[Edge]) -> list[Fraction] | None:
    """The expected numbers of visits, solved exactly; None if there is no small exact solution.

    Every state must be able to reach an output; states are eliminated in order of their degree.
    """
    if size > _LARGEST_EXACT:
        return None
    into: list[dict[int, Fraction]] = [defaultdict(Fraction) for _ in range(size)]
    out: list[set[int]] = [set() for _ in range(size)]
    for source, target, over, below in edges:
        into[target][source] += Fraction(over, below)
        out[source].add(target)
    constant = [Fraction(1 if i == first else 0) for i in range(size)]
    left = set(range(size))
    order: list[int] = []
    while left:
        s = min(left, key=lambda i: (len(into[i]) * len(out[i]), i))
        left.discard(s)
        order.append(s)
        stay = into[s].pop(s, Fraction(0))
        out[s].discard(s)
        if stay == 1:
            return None
        if stay:
            factor = 1 / (1 - stay)
            constant[s] *= factor
            for p in into[s]:
                into[s][p] *= factor
        for q in out[s] & left:
            weight = into[q].pop(s)
            constant[q] += weight * constant[s]
            for p, share in into[s].items():
                into[q][p] += weight * share
                out[p].add(q)
                if into[q][p].denominator.bit_length() > _LARGEST_DENOMINATOR:
                    return None
        for p in into[s]:
            out[p].discard(s)
    visits = [Fraction(0)] * size
    for s in reversed(order):
        visits[s] = constant[s] + sum(visits[p] * share for p, share in into[s].items())
    return visits


def lower_visits(size: int, first: int, edges: Sequence[Edge]) -> list[int]:
    """Lower bounds of the expected numbers of visits, in units of 2^-SCALE_BITS.

    Formal guarantee: the returned w satisfies w ≤ e + floor(w·P) in integers, hence w ≤ visits.
    """
    scale = 1 << SCALE_BITS
    slack = 1 << (SCALE_BITS - _SLACK_BITS)
    target = [-slack] * size  # solve for a little less, so that the check can hold
    target[first] += scale
    solver = _solver(size, edges)
    visits = [0] * size
    rest = list(target)
    for _ in range(40):
        worst = max(map(abs, rest), default=0)
        if worst < slack >> 8 or solver is None:
            break
        shift = max(worst.bit_length() - 60, 0)
        step = solver(np.array([float(r >> shift) for r in rest]))
        for i, value in enumerate(step.tolist()):
            if np.isfinite(value):
                visits[i] += int(value * 2.0**20) << shift >> 20
        rest = [
            t + f - v for t, f, v in zip(target, _inflow(size, visits, edges), visits, strict=True)
        ]
    return _lowered(visits, size, first, edges, scale)


def _solver(size: int, edges: Sequence[Edge]):  # type: ignore[no-untyped-def]
    rows = [e[0] for e in edges]
    columns = [e[1] for e in edges]
    values = [e[2] / e[3] for e in edges]
    matrix = scipy.sparse.csc_matrix((values, (columns, rows)), shape=(size, size))
    try:
        factors = scipy.sparse.linalg.splu(
            (scipy.sparse.identity(size, format="csc") - matrix).tocsc()
        )
    except RuntimeError:  # singular: some states never reach an output
        return None
    return factors.solve


def _inflow(size: int, visits: list[int], edges: Sequence[Edge]) -> list[int]:
    flow = [0] * size
    for source, target, over, below in edges:
        flow[target] += visits[source] * over // below
    return flow


def _lowered(
    visits: list[int], size: int, first: int, edges: Sequence[Edge], scale: int
) -> list[int]:
    """The largest vector below `visits` that the inequality holds for (found by lowering)."""
    visits = [max(v, 0) for v in visits]
    out: list[list[Edge]] = [[] for _ in range(size)]
    for edge in edges:
        out[edge[0]].append(edge)
    inflow = _inflow(size, visits, edges)
    inflow[first] += scale
    wrong = [i for i in range(size) if visits[i] > inflow[i]]
    rounds = 0
    while wrong:
        rounds += 1
        i = wrong.pop()
        allowed = max(inflow[i], 0)
        if rounds > 50 * size + 1000:
            allowed = 0  # lowering converges too slowly: give this state up
        if visits[i] <= allowed:
            continue
        before, visits[i] = visits[i], allowed
        for _, target, over, below in out[i]:
            inflow[target] -= before * over // below - allowed * over // below
            if visits[target] > inflow[target]:
                wrong.append(target)
    return visits
