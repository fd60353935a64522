"""How many coin bits a program reads, and what that number tells about its output."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

from dpaudit_prove.exploration.engine import Exploration
from dpaudit_prove.exploration.graph import Graph
from dpaudit_prove.exploration.solve import SCALE_BITS
from dpaudit_prove.results import CoinCount, ProvedBounds

__all__ = ["bits_of", "coin_count"]

_MOST_STEPS = 3_000_000
_LEFT = 2.0**-30
_ROUNDING = 1e-9
_SHOWN = 200


def bits_of(requests: Sequence[int]) -> int:
    """The bits of some requests: ⌈log2 n⌉ for one of n values."""
    return sum((count - 1).bit_length() for count in requests)


def coin_count(explored: Exploration, *, information: bool = False) -> CoinCount:
    """Whether every path reads the same number of bits; if not, what the number tells, if asked.

    Formal guarantee: `constant` is given only if every path of the program was followed (residual
    0) or if all that was followed agrees and the rest has no other state; the information is at
    least its lower bound (all but h(r) + r of it is of the paths that were followed).
    """
    graph = explored.graph
    least = _least(graph)
    constant = _constant(graph)
    if constant is not None or not information:
        return CoinCount(constant=constant, least=least)
    table, left = _joint(graph)
    return CoinCount(
        constant=None, least=least, information=_information(table, left), law=_law(table)
    )


def _law(table: dict[tuple[int, Hashable], float]) -> tuple[tuple[int, float], ...]:
    """The smallest numbers of bits with lower bounds of their probabilities."""
    found: dict[int, float] = defaultdict(float)
    for (count, _), mass in table.items():
        found[count] += mass * (1 - _ROUNDING)
    return tuple(sorted(found.items())[:_SHOWN])


def _least(graph: Graph) -> int:
    first = graph.started
    heap, done = [(bits_of(first.requests), first.to)], set[int]()
    while heap:
        bits, to = heapq.heappop(heap)
        if to < 0:
            return bits
        if to in done:
            continue
        done.add(to)
        for branch in graph.states[to].branches or ():
            heapq.heappush(heap, (bits + bits_of(branch.requests), branch.to))
    return 0


def _constant(graph: Graph) -> int | None:
    """The number of bits on every path; None if it varies, or some state was not followed."""
    first = graph.started
    bits = {first.to: bits_of(first.requests)}
    todo, ends = [first.to], set[int]()
    while todo:
        number = todo.pop()
        if number < 0:
            ends.add(bits[number])
            continue
        branches = graph.states[number].branches
        if branches is None:
            return None
        for branch in branches:
            now = bits[number] + bits_of(branch.requests)
            if branch.to < 0:
                ends.add(now)
            elif branch.to not in bits:
                bits[branch.to] = now
                todo.append(branch.to)
            elif bits[branch.to] != now:
                return None
    return ends.pop() if len(ends) == 1 else None


def _joint(graph: Graph) -> tuple[dict[tuple[int, Hashable], float], float]:
    """Lower bounds of the joint probabilities of bits and output, and what they leave out."""
    first = graph.started
    scale = 1 << SCALE_BITS
    found: dict[tuple[int, int], int] = defaultdict(int)
    layers: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    layers[bits_of(first.requests)][first.to] = scale
    steps, left = 0, scale
    while layers and steps < _MOST_STEPS and left > _LEFT * scale:
        count = min(layers)
        layer = layers.pop(count)
        while layer:
            to, mass = layer.popitem()
            steps += 1
            if to < 0:
                found[count, to] += mass
                left -= mass
                continue
            state = graph.states[to]
            low, high = state.domains[state.register]
            for branch in state.branches or ():
                share = mass * (branch.high - branch.low) // (high - low)
                more = bits_of(branch.requests)
                if share:
                    target = layer if not more else layers[count + more]
                    target[branch.to] = target.get(branch.to, 0) + share
    table = {(count, graph.outputs[-1 - to]): mass / scale for (count, to), mass in found.items()}
    return table, max(left / scale, 0.0)


def _information(table: dict[tuple[int, Hashable], float], left: float) -> ProvedBounds:
    """Bounds of the mutual information; with paths left out only the lower one is known.

    With Z whether a path was followed and r = P(not), I(N; X) ≥ I(N; X | Z) − H(Z) ≥ (1 − r)·I(N;
    X | followed) − h(r).
    """
    total = sum(table.values())
    if not total:
        return ProvedBounds(low=0.0, high=math.inf)
    counts: dict[int, float] = defaultdict(float)
    outputs: dict[Hashable, float] = defaultdict(float)
    for (count, output), mass in table.items():
        counts[count] += mass
        outputs[output] += mass
    inside = sum(
        mass / total * math.log2(mass * total / (counts[count] * outputs[output]))
        for (count, output), mass in table.items()
    )
    rest = min(max(left, 1 - total), 1.0)
    unsure = 0.0 if rest <= 0 else -rest * math.log2(rest) - (1 - rest) * math.log2(1 - rest)
    low = max(0.0, (1 - rest) * inside - unsure - _ROUNDING)
    return ProvedBounds(low=low, high=inside + _ROUNDING if rest == 0 else math.inf)
