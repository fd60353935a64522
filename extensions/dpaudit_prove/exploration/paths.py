"""Coins that lead a program to a given output, found in the graph of its states."""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from dpaudit_prove.exploration.graph import Branch, Graph

__all__ = ["Coin", "branches_to", "coins_of", "likeliest_branches", "path_to"]


@dataclass(frozen=True)
class Coin:
    """One request: how many values it could have, and which it has."""

    count: int
    value: int


class _Node:
    """A request, or a part of one; its interval shrinks as decisions are made."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self.parts: tuple[int, _Node, _Node] | None = None
        self.swapped: tuple[int, _Node] | None = None

    def divided(self, m: int) -> tuple[_Node, _Node]:
        if self.parts is None:
            self.parts = (m, _Node(self.low // m, self.high // m), _Node(0, m))
        return self.parts[1], self.parts[2]

    def in_other_order(self, length: int) -> _Node:
        if self.swapped is None:
            self.swapped = (length, _Node(self.low, self.high))
        return self.swapped[1]

    def value(self, *, last: bool) -> int:
        if self.swapped is not None:
            length, inside = self.swapped
            raw = inside.value(last=last).to_bytes(length, "little")
            return int.from_bytes(raw, "big")
        if self.parts is not None:
            m, quotient, rest = self.parts
            return m * quotient.value(last=last) + rest.value(last=last)
        return self.high - 1 if last else self.low


def coins_of(graph: Graph, branches: list[Branch], *, last: bool = False) -> list[Coin]:
    """Coins that take the given branches, from the start; the smallest values, or the largest."""
    requests: list[tuple[int, _Node]] = []
    registers: list[_Node] = []
    at = -1
    for branch in branches:
        if at >= 0:
            node = registers[graph.states[at].register]
            node.low, node.high = branch.low, branch.high
        new = [_Node(0, count) for count in branch.requests]
        requests += zip(branch.requests, new, strict=True)
        registers = [_of(origin, registers, new) for origin in branch.registers]
        at = branch.to
    return [Coin(count, node.value(last=last)) for count, node in requests]


def _of(origin: Any, registers: list[_Node], new: list[_Node]) -> _Node:
    kind, at = origin[0], origin[1]
    if kind in {"register", "new"}:
        nodes = registers if kind == "register" else new
        return nodes[int(at)]
    inside = _of(origin[1], registers, new)
    if kind == "swap":
        return inside.in_other_order(origin[2])
    quotient, rest = inside.divided(origin[2])
    return quotient if kind == "div" else rest


def likeliest_branches(graph: Graph) -> dict[int, tuple[float, int, Branch]]:
    """For every target (a state, or -1 − output): cost, state before, and branch of a best path."""
    first = graph.started
    best: dict[int, tuple[float, int, Branch]] = {first.to: (0.0, -1, first)}
    heap: list[tuple[float, int]] = [(0.0, first.to)]
    done: set[int] = set()
    while heap:
        cost, number = heapq.heappop(heap)
        if number in done or number < 0:
            continue
        done.add(number)
        state = graph.states[number]
        low, high = state.domains[state.register]
        for branch in state.branches or ():
            more = cost + math.log((high - low) / (branch.high - branch.low))
            if branch.to not in best or more < best[branch.to][0]:
                best[branch.to] = (more, number, branch)
                heapq.heappush(heap, (more, branch.to))
    return best


def path_to(graph: Graph, output: Hashable) -> list[Branch] | None:
    """The branches of a likeliest path to an output; None if there is none."""
    best = likeliest_branches(graph)
    for number, value in enumerate(graph.outputs):
        if value == output and type(value) is type(output) and -1 - number in best:
            return branches_to(best, -1 - number)
    return None


def branches_to(best: dict[int, tuple[float, int, Branch]], target: int) -> list[Branch]:
    """The path that `likeliest_branches` found to a target."""
    path: list[Branch] = []
    while True:
        _, before, branch = best[target]
        path.append(branch)
        if before == -1:
            break
        target = before
    return path[::-1]
