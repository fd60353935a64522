"""From a Python function to its exact law."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dpaudit.errors import RefusedProgramError, UsageError
from dpaudit.results.text import one_line
from dpaudit_prove.exploration.graph import Graph
from dpaudit_prove.exploration.law import SCALE_BITS, Edge, ExactLaw, exact_visits, lower_visits
from dpaudit_prove.interpreter.machine import Machine
from dpaudit_prove.interpreter.sources import Sources
from dpaudit_prove.interpreter.state import Pins
from dpaudit_prove.interpreter.values import CoinSource

__all__ = [
    "DEFAULT_RESIDUAL",
    "Exploration",
    "Progress",
    "ProofOptions",
    "explore",
    "law_of",
    "machine_for",
]

DEFAULT_RESIDUAL = Fraction(1, 1 << 40)
Progress = Callable[[int, float], None]


@dataclass(frozen=True, kw_only=True)
class ProofOptions:
    """Settings of a proof.

    Attributes:
        args: positional arguments, after the neighbour if there are neighbours.
        kwargs: arguments by name.
        coins: "random", "numpy", or parameters that a generator is passed in by, comma-separated.
        residual: stop when at most this probability is left.
        tolerance: a law is the claimed one if their total variation is at most this; by default
            twice the residual.
        time_limit: seconds.
        disjoint: also decide whether the returned values have coins of their own; a claim is then
            about each value.
        coin_count: also bound what the number of coins tells about the output.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    coins: str = ""
    residual: Fraction = DEFAULT_RESIDUAL
    tolerance: Fraction | None = None
    time_limit: float | None = None
    disjoint: bool = False
    coin_count: bool = False


@dataclass(frozen=True)
class Refusal:
    """A branch that could not be followed: file, line and construct, and how likely it is.

    `probability` is a lower bound, of the paths that were followed to it; it is part of the law's
    residual.
    """

    reason: str
    probability: Fraction


@dataclass(frozen=True)
class Exploration:
    """A program's law, the graph behind it and the visits of its states.

    `visits` are lower bounds by state, for expanded states; exact where `exact` is true.
    `finished` is false if the time limit came before at most the wanted residual was left, apart
    from `refusals`, the likeliest first.
    """

    law: ExactLaw
    graph: Graph = field(repr=False)
    visits: Mapping[int, Fraction] = field(repr=False)
    exact: bool
    finished: bool
    seconds: float
    refusals: tuple[Refusal, ...] = ()


def explore(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    coins: str = "",
    residual: Fraction = DEFAULT_RESIDUAL,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Exploration:
    """The law of function(*args, **kwargs) over its coins.

    `coins` is "random", "numpy", or the name of a parameter that a generator is passed in;
    several are separated by commas. Exploration stops when at most `residual` is undecided, or has
    led to what cannot be followed: `refusals`.

    Raises:
        RefusedProgramError: all that was explored leads to something that is not a function of the
            coins, or that this engine cannot follow; the message names it, with file and line.
        UsageError: arguments that the function does not take; an output of another type.
    """
    begun = time.monotonic()
    machine, named = machine_for(coins, kwargs or {})
    _check_call(function, args, named)
    deadline = None if time_limit is None else begun + time_limit
    graph = Graph(machine, deadline=deadline, keep_refusals=True)
    graph.begin(function, args, named)
    target = float(residual) / 2
    while True:
        finished = graph.explore(residual=target, progress=progress)
        exploration = law_of(graph)
        left = exploration.law.residual - sum(r.probability for r in exploration.refusals)
        if left <= residual or not finished or not graph.undecided:
            break
        target /= 4
    if graph.refusals and finished and not exploration.law.mass:
        raise next(iter(graph.refusals.values()))
    finished = finished and left <= residual
    return replace(exploration, finished=finished, seconds=time.monotonic() - begun)


def _check_call(
    function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # one of Python's own; the machine says what it thinks of it
        return
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        raise UsageError(
            f"args: {one_line(error)}; the signature is {one_line(signature, limit=200)}; "
            "coins names a parameter for a generator"
        ) from None


def machine_for(coins: str, kwargs: Mapping[str, Any]) -> tuple[Machine, dict[str, Any]]:
    """A machine for some kinds of coins, and the named arguments with generators in them."""
    kinds = frozenset(c for c in coins.split(",") if c)
    named = dict(kwargs) | {name: CoinSource() for name in kinds - {"random", "numpy", "secrets"}}
    return Machine(pins=Pins(), sources=Sources(), coins=kinds & {"random", "numpy"}), named


def law_of(graph: Graph) -> Exploration:
    """The certified law of what was explored so far."""
    first = graph.root
    if first.to < 0:
        value = graph.outputs[-1 - first.to]
        return Exploration(_law({value: Fraction(1)}, 0), graph, {}, True, True, 0.0)
    expanded = _productive_states(graph)
    if first.to not in expanded:
        refusals = _refusals(graph, {first.to: Fraction(1)})
        return Exploration(_law({}, 1), graph, {}, False, False, 0.0, refusals)
    position = {number: i for i, number in enumerate(expanded)}
    edges = [
        (position[i], position[b.to], b.high - b.low, graph.states[i].total)
        for i in expanded
        for b in graph.states[i].branches or ()
        if b.to in position
    ]
    edges = _merge_edges(edges)
    start = position[first.to]
    visits: dict[int, Fraction]
    solved = exact_visits(len(expanded), start, edges)
    exact = solved is not None
    if solved is None:
        scale = 1 << SCALE_BITS
        lower = lower_visits(len(expanded), start, edges)
        visits = {n: Fraction(w, scale) for n, w in zip(expanded, lower, strict=True)}
    else:
        visits = dict(zip(expanded, solved, strict=True))
    ends = _end_masses(graph, visits, exact=exact)
    mass: dict[Hashable, Fraction] = {}
    for to, share in ends.items():
        if to < 0:
            output = graph.outputs[-1 - to]
            mass[output] = mass.get(output, Fraction(0)) + share
    law = _law(mass, len(graph.states) - len(graph.refusals))
    return Exploration(law, graph, visits, exact, True, 0.0, _refusals(graph, ends))


def _refusals(graph: Graph, mass: Mapping[int, Fraction]) -> tuple[Refusal, ...]:
    reached = [
        Refusal(str(e), mass[number]) for number, e in graph.refusals.items() if number in mass
    ]
    return tuple(sorted(reached, key=lambda refusal: -refusal.probability))


def _productive_states(graph: Graph) -> list[int]:
    """The expanded states from which an output, or a state not yet expanded, can be reached."""
    into: dict[int, list[int]] = {}
    for number, state in enumerate(graph.states):
        for branch in state.branches or ():
            into.setdefault(branch.to, []).append(number)
    todo = [t for t in into if t < 0 or graph.states[t].branches is None]
    leading = set(todo)
    while todo:
        for number in into.get(todo.pop(), ()):
            if number not in leading:
                leading.add(number)
                todo.append(number)
    return [i for i, s in enumerate(graph.states) if s.branches is not None and i in leading]


def _merge_edges(edges: list[Edge]) -> list[Edge]:
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for source, target, over, below in edges:
        before = sums.get((source, target))
        sums[source, target] = (over + (before[0] if before else 0), below)
    return [(s, t, over, below) for (s, t), (over, below) in sums.items()]


def _end_masses(
    graph: Graph, visits: Mapping[int, Fraction], *, exact: bool
) -> dict[int, Fraction]:
    """Lower bounds of the probabilities of where the program ends: `Branch.to` of each."""
    mass: dict[int, Fraction] = {}
    scale = 1 << SCALE_BITS
    for number, weight in visits.items():
        state = graph.states[number]
        for branch in state.branches or ():
            if branch.to < 0 or branch.to in graph.refusals:
                share = weight * (branch.high - branch.low) / state.total
                if not exact:
                    share = Fraction(share.numerator * scale // share.denominator, scale)
                mass[branch.to] = mass.get(branch.to, Fraction(0)) + share
    return mass


def _law(mass: Mapping[Hashable, Fraction], states: int) -> ExactLaw:
    positive = {x: p for x, p in mass.items() if p > 0}
    residual = 1 - sum(positive.values(), Fraction(0))
    if residual < 0:
        raise RefusedProgramError(
            "the probabilities add up to more than 1; please report this program"
        )
    return ExactLaw(positive, residual, states)
