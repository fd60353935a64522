"""The states of a program and the branches between them, explored by probability.

Paths through them give coins that lead the program to a given output.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from dpaudit.errors import DpauditError, RefusedProgramError, UsageError
from dpaudit_prove.exploration.law import canonical_output
from dpaudit_prove.interpreter.execution import OutOfTimeError, alarm, run, start
from dpaudit_prove.interpreter.lazy import NeedSplit
from dpaudit_prove.interpreter.machine import Machine, Raised
from dpaudit_prove.interpreter.state import freeze, thaw
from dpaudit_prove.interpreter.values import UNBOUND, Token

__all__ = [
    "Branch",
    "Coin",
    "Graph",
    "State",
    "branches_to",
    "coins_of",
    "likeliest_branches",
    "path_to",
]


@dataclass(slots=True)
class Branch:
    """The continuation after one piece of a decision.

    `weight` of the state's total values lie in [low, high). The program then asks for `requests`
    (numbers of values) and reaches state `to`, whose registers come from `registers`, or ends with
    output `-1 - to`. A state in `Graph.refusals` stands for what cannot be followed.
    """

    low: int
    high: int
    requests: tuple[int, ...]
    registers: tuple[Any, ...]
    to: int


@dataclass(slots=True)
class State:
    """A state: its form, the intervals of its registers and which of them is decided, where."""

    form: Hashable
    domains: tuple[tuple[int, int], ...]
    register: int
    cuts: tuple[int, ...]
    branches: list[Branch] | None = None

    @property
    def total(self) -> int:
        """How many values the register that is decided has."""
        low, high = self.domains[self.register]
        return high - low

    def shares(self) -> Iterator[tuple[Branch, float]]:
        """The branches, and nearly how probable each is here."""
        for branch in self.branches or ():
            yield branch, (branch.high - branch.low) / self.total


@dataclass
class Graph:
    """All states met so far; state 0 is the first decision.

    `first` is the branch that leads there (or to an output) from the start. With `keep_refusals`
    a branch that cannot be followed leads to a state that is never expanded, in `refusals`;
    otherwise the whole program is refused.
    """

    machine: Machine
    states: list[State] = field(default_factory=list)
    numbers: dict[Hashable, int] = field(default_factory=dict)
    outputs: list[Hashable] = field(default_factory=list)
    output_numbers: dict[Hashable, int] = field(default_factory=dict)
    first: Branch | None = None
    undecided: float = 1.0
    deadline: float | None = None
    continuations: set[Hashable] = field(default_factory=set)
    keep_refusals: bool = False
    refusals: dict[int, DpauditError] = field(default_factory=dict)

    def begin(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run a function up to its first decision."""
        start(self.machine, function, args, kwargs)
        self._begin()

    def begin_at(self, form: Hashable) -> None:
        """Continue from a state in which no coin waits to be decided, up to the first decision."""
        self.machine.resume(thaw(form, self.machine.pins)[0])
        self._begin()

    def _begin(self) -> None:
        try:
            with alarm(self.deadline):
                self.first = self._run_branch(0, 1)
        except OutOfTimeError as late:
            raise RefusedProgramError(
                f"{late.where}still running at the time limit, before any coin was decided"
            ) from late

    def _run_branch(self, low: int, high: int) -> Branch:
        try:
            registers, to = self._run_on()
        except (RefusedProgramError, UsageError) as error:
            if not self.keep_refusals:
                raise
            registers, to = (), self._refusal_number(error)
        return Branch(low, high, tuple(self.machine.requests), registers, to)

    def _run_on(self) -> tuple[tuple[Any, ...], int]:
        """Run to the next decision or end: `registers` and `to` of the branch."""
        split = run(self.machine, deadline=self.deadline)
        if self.machine.hidden_number is not UNBOUND:
            form, symbols = freeze(self.machine.frames, self.machine.pins)
            if symbols:
                raise RefusedProgramError("a coin is still undecided when a value is finished")
            self.continuations.add(form)
            return (), -1 - self._output_number(self.machine.hidden_number)
        if split is None:
            return (), -1 - self._output_number(self.machine.result)
        return self._state_number(split)

    def _refusal_number(self, error: DpauditError) -> int:
        form = ("refused", str(error))
        number = self.numbers.setdefault(form, len(self.states))
        if number == len(self.states):
            self.states.append(State(form, ((0, 1),), 0, ()))
            self.refusals[number] = error
        return number

    def _output_number(self, result: Any) -> int:
        if isinstance(result, Raised):
            value: Hashable = ("raises", type(result.error).__name__)
        elif result is UNBOUND:
            raise AssertionError("a run without a result")
        elif self.machine.hiding and isinstance(result, tuple):
            value = tuple(v if type(v) is Token else canonical_output(v) for v in result)
        else:
            value = canonical_output(result)
        key = _typed_key(value)
        if key not in self.output_numbers:
            self.output_numbers[key] = len(self.outputs)
            self.outputs.append(value)
        return self.output_numbers[key]

    def _state_number(self, split: NeedSplit) -> tuple[tuple[Any, ...], int]:
        form, symbols = freeze(self.machine.frames, self.machine.pins)
        registers = tuple([s.origin for s in symbols])
        number = self.numbers.get(form)
        if number is None:
            number = self.numbers[form] = len(self.states)
            register = next(i for i, s in enumerate(symbols) if s is split.symbol)
            domains = tuple([(s.low, s.high) for s in symbols])
            self.states.append(State(form, domains, register, tuple(split.cuts)))
        return registers, number

    def expand(self, number: int) -> list[Branch]:
        """The branches of a state, by running the program once for each."""
        state = self.states[number]
        low, high = state.domains[state.register]
        ends = [low, *state.cuts, high]
        following = []
        for begin, end in pairwise(ends):
            frames, symbols = thaw(state.form, self.machine.pins)
            symbol = symbols[state.register]
            symbol.low, symbol.high = begin, end
            self.machine.resume(frames)
            following.append(self._run_branch(begin, end))
        state.branches = following
        return following

    def explore(
        self, *, residual: float, progress: Callable[[int, float], None] | None = None
    ) -> bool:
        """Expand the likeliest states until at most `residual` is undecided; False if time is up.

        What cannot be followed does not count. The probabilities are floats here: they only say
        what to look at next.
        """
        try:
            with alarm(self.deadline):
                return self._explore(residual, progress)
        except OutOfTimeError:
            return False

    def _explore(self, residual: float, progress: Callable[[int, float], None] | None) -> bool:
        first = self.root
        waiting: dict[int, float] = {}
        carried: dict[int, float] = {}
        heap: list[tuple[float, int]] = []

        def add_mass(number: int, mass: float) -> None:
            if number in self.refusals:
                return
            if self.states[number].branches is None:
                total = waiting[number] = waiting.get(number, 0.0) + mass
                heapq.heappush(heap, (-total, number))
            else:
                carried[number] = carried.get(number, 0.0) + mass

        if first.to >= 0:
            add_mass(first.to, 1.0)
        undecided = sum(carried.values()) + sum(waiting.values())
        steps = 0
        while undecided > residual:
            carry = sum(carried.values()) if steps % 64 == 0 or not heap else 0.0
            if carried and (not heap or carry > 0.6 * undecided):
                for number, mass in self._flow(carried).items():
                    add_mass(number, mass)
                carried.clear()
                undecided = sum(waiting.values())
                if not heap:
                    break
                continue
            mass, number = heapq.heappop(heap)
            if self.states[number].branches is not None or -mass != waiting.get(number):
                continue
            here = waiting.pop(number)
            undecided -= here
            self.expand(number)
            for branch, share in self.states[number].shares():
                if branch.to >= 0 and branch.to not in self.refusals:
                    add_mass(branch.to, here * share)
                    undecided += here * share
            steps += 1
            if steps % 256 == 0 or undecided <= residual:  # the running difference is rounded
                undecided = sum(waiting.values()) + sum(carried.values())
                if progress is not None:
                    progress(len(self.states), undecided)
            if self.deadline is not None and time.monotonic() > self.deadline:
                self.undecided = undecided
                return False
        self.undecided = undecided
        return True

    def _flow(self, source: dict[int, float]) -> dict[int, float]:
        """Follow mass at expanded states to states that are not yet expanded."""
        expanded = [i for i, s in enumerate(self.states) if s.branches is not None]
        position = {number: i for i, number in enumerate(expanded)}
        inside: list[tuple[int, int, float]] = []
        outside: list[tuple[int, int, float]] = []
        for i, number in enumerate(expanded):
            for branch, share in self.states[number].shares():
                if branch.to in position:
                    inside.append((i, position[branch.to], share))
                elif branch.to >= 0:
                    outside.append((i, branch.to, share))
        arrivals = np.zeros(len(expanded))
        for number, mass in source.items():
            arrivals[position[number]] = mass
        rows, columns, values = zip(*inside, strict=True) if inside else ((), (), ())
        shape = len(expanded), len(expanded)
        visits = _visits(scipy.sparse.csr_matrix((values, (rows, columns)), shape=shape), arrivals)
        flow: dict[int, float] = {}
        for i, to, share in outside:
            if visits[i] > 0:
                flow[to] = flow.get(to, 0.0) + float(visits[i]) * share
        return flow

    @property
    def root(self) -> Branch:
        """The branch that led to the first decision."""
        if self.first is None:
            raise RuntimeError("the exploration has not begun")
        return self.first

    @property
    def source_hashes(self) -> dict[str, str]:
        """SHA-256 of the files whose functions were run."""
        return self.machine.sources.hashes()


def _visits(matrix: Any, source: Any) -> Any:
    """Expected visits from given first ones; where some never end, those of the first steps."""
    size = len(source)
    identity = scipy.sparse.identity(size, format="csc")
    try:
        visits = scipy.sparse.linalg.splu((identity - matrix.T).tocsc()).solve(source)
        if np.isfinite(visits).all() and visits.min(initial=0.0) > -1e-6:
            return visits
    except RuntimeError:  # singular
        pass
    visits, now = source.copy(), source
    for _ in range(4 * size + 100):
        now = matrix.T @ now
        visits += now
    return visits


def _typed_key(value: Any) -> Hashable:
    """A key that keeps equal values of different types apart."""
    if isinstance(value, tuple):
        return ("tuple", *[_typed_key(v) for v in value])
    return (type(value).__name__, value)


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

    def divide(self, m: int) -> tuple[_Node, _Node]:
        if self.parts is None:
            self.parts = (m, _Node(self.low // m, self.high // m), _Node(0, m))
        return self.parts[1], self.parts[2]

    def swap_bytes(self, length: int) -> _Node:
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
        registers = [_node_of(origin, registers, new) for origin in branch.registers]
        at = branch.to
    return [Coin(count, node.value(last=last)) for count, node in requests]


def _node_of(origin: Any, registers: list[_Node], new: list[_Node]) -> _Node:
    kind, at = origin[0], origin[1]
    if kind in {"register", "new"}:
        nodes = registers if kind == "register" else new
        return nodes[int(at)]
    inside = _node_of(origin[1], registers, new)
    if kind == "swap":
        return inside.swap_bytes(origin[2])
    quotient, rest = inside.divide(origin[2])
    return quotient if kind == "div" else rest


def likeliest_branches(graph: Graph) -> dict[int, tuple[float, int, Branch]]:
    """For every target (a state, or -1 − output): cost, state before, and branch of a best path."""
    first = graph.root
    best: dict[int, tuple[float, int, Branch]] = {first.to: (0.0, -1, first)}
    heap: list[tuple[float, int]] = [(0.0, first.to)]
    done: set[int] = set()
    while heap:
        cost, number = heapq.heappop(heap)
        if number in done or number < 0:
            continue
        done.add(number)
        state = graph.states[number]
        for branch in state.branches or ():
            more = cost + math.log(state.total / (branch.high - branch.low))
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
