"""Whether the values that a program returns have coins of their own.

Shown: the program is run with every finished value replaced by a token, which it can move and
cannot look at. If all its paths then go through the same state whenever a value is finished, with
no coin half decided, the coins before and after that state are different ones, and the values are
independent: the joint law is the product of the laws of the values. That excludes a pancake across
values, a seed in the first values, and a value that depends on an earlier one.

Refuted: the joint law itself is not the product of its marginals.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit.prove.exploration.engine import Progress, law_of, machine_for
from dpaudit.prove.exploration.graph import Graph
from dpaudit.prove.exploration.law import ExactLaw
from dpaudit.prove.interpreter.values import Token

__all__ = ["Factors", "NotShownError", "dependence", "factors_of", "one_coin_apart"]


class NotShownError(Exception):
    """Disjoint coins could not be shown; the message says why. They may still be."""


@dataclass(frozen=True)
class Factors:
    """The laws of a program's returned values, which are independent.

    Formal guarantee: the joint law is within `residual` of their product, in total variation; each
    law has its own residual, and these add up to it.
    """

    laws: tuple[ExactLaw, ...]
    graphs: tuple[Graph, ...]
    """One per finished value, in the order in which they are finished, and one for the rest."""
    order: tuple[int, ...]
    """Which finished value each law is of."""
    states: int

    @property
    def residual(self) -> Fraction:
        """The probability of all paths that were not followed."""
        return sum((law.residual for law in self.laws), Fraction(0))


def factors_of(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    coins: str,
    residual: Fraction,
    time_limit: float | None,
    progress: Progress | None,
) -> Factors:
    """The laws of the returned values, if each has coins of its own.

    Raises:
        NotShownError: not shown; the message says why.
        RefusedProgramError: the program cannot be followed at all.
    """
    reasons = []
    for hides in ("stored", "returned"):
        try:
            return _chain(function, args, kwargs, coins, residual, time_limit, progress, hides)
        except (NotShownError, RefusedProgramError) as error:
            reasons.append(str(error))
    raise NotShownError(reasons[0] if reasons[0] == reasons[1] else "; or ".join(reasons))


def _chain(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    coins: str,
    residual: Fraction,
    time_limit: float | None,
    progress: Progress | None,
    hides: str,
) -> Factors:
    machine, named = machine_for(coins, kwargs)
    machine.hides = hides
    deadline = None if time_limit is None else time.monotonic() + time_limit
    laws: list[ExactLaw] = []
    graphs: list[Graph] = []
    form: Hashable = None
    states = 0
    while True:
        graph = Graph(machine, deadline=deadline)
        machine.segment = len(laws)
        if form is None:
            graph.begin(function, args, named)
        else:
            graph.begin_at(form)
        if not graph.explore(residual=float(residual) / 64, progress=progress):
            raise NotShownError("the time limit came first")
        states += len(graph.states)
        if not graph.continuations:
            return _ended([*graphs, graph], laws, states)
        if len(graph.continuations) > 1 or any(_is_end(x) for x in graph.outputs):
            raise NotShownError(
                f"after value {len(laws) + 1} the program is in one of "
                f"{len(graph.continuations)} states: what follows depends on earlier coins"
            )
        laws.append(law_of(graph).law)
        graphs.append(graph)
        form = graph.continuations.pop()


def _is_end(output: Hashable) -> bool:
    return isinstance(output, tuple)


def _ended(graphs: list[Graph], laws: list[ExactLaw], states: int) -> Factors:
    """The last piece: what is returned has every token once; other values in it are constant."""
    rest = law_of(graphs[-1]).law
    outputs = list(rest.mass)
    if rest.residual or len(outputs) != 1 or not isinstance(outputs[0], tuple):
        raise NotShownError(
            "what is returned is not a list of values that were finished one by one"
        )
    order = tuple(p.number for p in outputs[0] if isinstance(p, Token))
    if len(order) != len(set(order)):
        raise NotShownError("one value is returned twice")
    if not order:
        raise NotShownError("no number is finished before the program returns")
    return Factors(tuple(laws[t] for t in order), tuple(graphs), order, states)


def dependence(law: ExactLaw) -> tuple[Fraction, Hashable]:
    """A lower bound of the total variation between a law and the product of its marginals.

    Also the output that adds most to it. 0 where nothing is shown.
    """
    size = len(next((x for x in law.mass if isinstance(x, tuple)), ()))
    rows = {x: p for x, p in law.mass.items() if isinstance(x, tuple) and len(x) == size}
    if not size or len(rows) != len(law.mass):
        return Fraction(0), None
    marginals: list[dict[Hashable, Fraction]] = [{} for _ in range(size)]
    for row, mass in rows.items():
        for place, value in zip(marginals, row, strict=True):
            place[value] = place.get(value, Fraction(0)) + mass
    gains = {
        row: mass - math.prod((m[v] + law.residual for m, v in zip(marginals, row, strict=True)))
        for row, mass in rows.items()
    }
    best = max(gains, key=lambda row: gains[row])
    return sum((g for g in gains.values() if g > 0), Fraction(0)), best


def one_coin_apart(
    run: Callable[[Sequence[tuple[int, int]]], Hashable],
    tapes: Sequence[Sequence[tuple[int, int]]],
    *,
    most: int = 3000,
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], Hashable, Hashable] | None:
    """Two coin strings that differ in one coin and change at least two returned values.

    `run` returns what Python returns on coins, or None if it asks for others.
    """
    tried = 0
    for tape in tapes:
        before = run(tape)
        if not isinstance(before, tuple):
            continue
        for i, (count, value) in enumerate(tape):
            for other in {0, count - 1, value ^ 1, (value + 1) % count} - {value}:
                if other >= count:
                    continue
                tried += 1
                if tried > most:
                    return None
                changed = [*tape[:i], (count, other), *tape[i + 1 :]]
                after = run(changed)
                if (
                    isinstance(after, tuple)
                    and len(after) == len(before)
                    and sum(a != b for a, b in zip(before, after, strict=True)) > 1
                ):
                    return list(tape), changed, before, after
    return None
