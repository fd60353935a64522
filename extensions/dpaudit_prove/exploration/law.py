"""The exact law of a program's output, and how often each state is visited, from below.

For a chain with first visits e and transitions P every vector w ≥ 0 with w ≤ e + w·P is a lower
bound of the expected numbers of visits. Proof: w ≤ e·(1 + P + … + P^k) + w·P^(k+1), and the last
term vanishes on every state from which an output can be reached. Floats only propose w; the
inequality is checked in integers, and where it fails w is lowered.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from dpaudit.errors import UsageError

__all__ = ["SCALE_BITS", "Edge", "ExactLaw", "canonical_output", "exact_visits", "lower_visits"]


@dataclass(frozen=True)
class ExactLaw:
    """A program's law: for every output x, P(x) is within [mass[x], mass[x] + residual].

    Formal guarantee: the lower bounds are exact rationals and sum, with the residual, to 1.
    An output that is absent from `mass` has a probability of at most `residual`, and so has any
    set of such outputs: P(S) is within [mass(S), mass(S) + residual] for every set S.

    Outputs are in the form of `canonical_output`. Equal Python values (True, 1, 1.0) are one
    output.

    Attributes:
        mass: a lower bound of each output's probability, each above 0.
        residual: the probability of all paths that were cut off.
        states: how many different states the program had at a request for coins.
    """

    mass: Mapping[Hashable, Fraction]
    residual: Fraction
    states: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "mass", MappingProxyType(dict(self.mass)))
        if any(mass <= 0 for mass in self.mass.values()) or self.residual < 0:
            raise UsageError("mass: every probability is above 0, and the residual is not below 0")
        if sum(self.mass.values()) + self.residual != 1:
            raise UsageError("mass: the probabilities and the residual add up to exactly 1")

    def lower(self, output: Hashable) -> Fraction:
        """A lower bound for the probability of an output."""
        return self.mass.get(output, Fraction(0))

    def upper(self, output: Hashable) -> Fraction:
        """An upper bound for the probability of an output."""
        return self.lower(output) + self.residual


def canonical_output(value: Any) -> Hashable:
    """A hashable form of an output: exact numbers, strings, None, and tuples of these.

    Lists become tuples, NumPy's numbers Python's. The floats -0.0 and NaN, which Python's
    equality gets wrong, become the strings "-0.0" and "nan".

    >>> canonical_output([1, (True, None), -0.0])
    (1, (True, None), '-0.0')

    Raises:
        UsageError: a value of another type.
    """
    if value is None or isinstance(value, (bool, int, str, bytes, Fraction)):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return "-0.0" if value == 0 and math.copysign(1, value) < 0 else value
    if isinstance(value, (tuple, list)):
        return tuple(canonical_output(item) for item in value)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return canonical_output(value.tolist())
    raise UsageError(
        f"output={type(value).__name__}: return numbers, strings, None, or lists of these"
    )


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
    return _lower(visits, size, first, edges, scale)


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


def _lower(
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
