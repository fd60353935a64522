"""Whether the values that a program returns have coins of their own, and how many coins it reads.

Shown: the program is run with every finished value replaced by a token, which it can move and
cannot look at. If all its paths then go through the same state whenever a value is finished, with
no coin half decided, the coins before and after that state are different ones, and the values are
independent: the joint law is the product of the laws of the values. That excludes a pancake across
values, a seed in the first values, and a value that depends on an earlier one.

Where that cannot be done, the joint law itself is compared with the product of its marginals: it is
shown to be the same, up to the tolerance, or not.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.exploration.engine import (
    Exploration,
    Progress,
    ProofOptions,
    law_of,
    machine_for,
)
from dpaudit_prove.exploration.graph import Graph
from dpaudit_prove.exploration.law import SCALE_BITS, ExactLaw
from dpaudit_prove.interpreter.values import Token
from dpaudit_prove.results import CoinCount, ProvedBounds
from dpaudit_prove.verdicts.enclosures import Bounds

__all__ = [
    "Dependence",
    "Factors",
    "NoDisjointCoinsError",
    "coin_count",
    "dependence",
    "factors_of",
    "one_coin_apart",
]


class NoDisjointCoinsError(Exception):
    """Disjoint coins could not be shown; the message says why. They may still be."""


@dataclass(frozen=True)
class Factors:
    """The laws of a program's returned values, which are independent.

    Formal guarantee: the joint law is within `residual` of their product, in total variation; each
    law has its own residual, and these add up to it.
    """

    parts: tuple[Exploration, ...]
    """One per finished value, in the order in which they are finished, and one for the rest."""
    returned: tuple[Any, ...]
    """The returned values: `Token` i is the value of part i; anything else is constant."""
    states: int

    @property
    def order(self) -> tuple[int, ...]:
        """Which part each returned value comes from."""
        return tuple(x.number for x in self.returned if isinstance(x, Token))

    @property
    def laws(self) -> tuple[ExactLaw, ...]:
        """The law of each returned value."""
        return tuple(self.parts[i].law for i in self.order)

    @property
    def residual(self) -> Fraction:
        """The probability of all paths that were not followed."""
        return sum((part.law.residual for part in self.parts), Fraction(0))


def factors_of(
    function: Callable[..., Any], options: ProofOptions, progress: Progress | None = None
) -> Factors:
    """The laws of the returned values, if each has coins of its own.

    Raises:
        NoDisjointCoinsError: not shown; the message says why.
        RefusedProgramError: the program cannot be followed at all.
    """
    reasons = []
    for hiding in ("stored", "returned"):
        try:
            return _chain(function, options, progress, hiding)
        except (NoDisjointCoinsError, RefusedProgramError) as error:
            reasons.append(str(error))
    raise NoDisjointCoinsError(reasons[0] if reasons[0] == reasons[1] else "; or ".join(reasons))


def _chain(
    function: Callable[..., Any], options: ProofOptions, progress: Progress | None, hiding: str
) -> Factors:
    machine, named = machine_for(options.coins, options.kwargs or {})
    machine.hiding = hiding
    limit = options.time_limit
    deadline = None if limit is None else time.monotonic() + limit
    parts: list[Exploration] = []
    form: Hashable = None
    states = 0
    while True:
        graph = Graph(machine, deadline=deadline)
        machine.segment = len(parts)
        if form is None:
            graph.begin(function, options.args, named)
        else:
            graph.begin_at(form)
        if not graph.explore(residual=float(options.residual) / 64, progress=progress):
            raise NoDisjointCoinsError("the time limit came first")
        states += len(graph.states)
        if not graph.continuations:
            return _factors_of_chain([*parts, law_of(graph)], states)
        if len(graph.continuations) > 1 or any(_is_end(x) for x in graph.outputs):
            raise NoDisjointCoinsError(
                f"after value {len(parts) + 1} the program is in one of "
                f"{len(graph.continuations)} states: what follows depends on earlier coins"
            )
        parts.append(law_of(graph))
        form = graph.continuations.pop()


def _is_end(output: Hashable) -> bool:
    return isinstance(output, tuple)


def _factors_of_chain(parts: list[Exploration], states: int) -> Factors:
    """The last piece: what is returned has every token once; other values in it are constant."""
    rest = parts[-1].law
    outputs = list(rest.mass)
    if rest.residual or len(outputs) != 1 or not isinstance(outputs[0], tuple):
        raise NoDisjointCoinsError(
            "what is returned is not a list of values that were finished one by one"
        )
    factors = Factors(tuple(parts), outputs[0], states)
    if len(factors.order) != len(set(factors.order)):
        raise NoDisjointCoinsError("one value is returned twice")
    if not factors.order:
        raise NoDisjointCoinsError("no number is finished before the program returns")
    return factors


@dataclass(frozen=True)
class Dependence:
    """How far a joint law is from the product of its marginals.

    Attributes:
        distance: bounds of the total variation between the two.
        row: the output that adds most to it.
        marginals: the laws of the values; each has the joint law's residual.
    """

    distance: Bounds
    row: Hashable
    marginals: tuple[ExactLaw, ...]


def dependence(law: ExactLaw) -> Dependence | None:
    """Compare a joint law with the product of its marginals; None if it is not of such rows.

    With lower bounds m of the joint law, their marginals m_i and the residual r, the total
    variation is at least Σ (m(x) − Π(m_i(x_i) + r))₊ and at most r + Σ (m(x) − Π m_i(x_i))₊.
    """
    size = len(next((x for x in law.mass if isinstance(x, tuple)), ()))
    rows = {x: p for x, p in law.mass.items() if isinstance(x, tuple) and len(x) == size}
    if not size or len(rows) != len(law.mass):
        return None
    marginals: list[dict[Hashable, Fraction]] = [{} for _ in range(size)]
    for row, mass in rows.items():
        for place, value in zip(marginals, row, strict=True):
            place[value] = place.get(value, Fraction(0)) + mass

    def gains(more: Fraction) -> dict[Hashable, Fraction]:
        return {
            row: mass - math.prod(m[v] + more for m, v in zip(marginals, row, strict=True))
            for row, mass in rows.items()
        }

    low, high = gains(law.residual), gains(Fraction(0))
    return Dependence(
        Bounds(
            sum((g for g in low.values() if g > 0), Fraction(0)),
            min(Fraction(1), law.residual + sum((g for g in high.values() if g > 0), Fraction(0))),
        ),
        max(low, key=lambda row: low[row]),
        tuple(ExactLaw(m, law.residual, law.states) for m in marginals),
    )


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


_MOST_STEPS = 3_000_000
_MOST_UNFOLLOWED = 2.0**-30
_ROUNDING = 1e-9
_MOST_COUNTS = 200


def _bits_of(requests: Sequence[int]) -> int:
    """The bits of some requests: ⌈log2 n⌉ for one of n values."""
    return sum((count - 1).bit_length() for count in requests)


def coin_count(explored: Exploration, *, information: bool = False) -> CoinCount:
    """Whether every path reads the same number of bits; if not, what the number tells, if asked.

    Formal guarantee: `constant` is given only if every path of the program was followed (residual
    0) or if all that was followed agrees and the rest has no other state; the information is at
    least its lower bound (all but h(r) + r of it is of the paths that were followed).
    """
    graph = explored.graph
    least = _least_bits(graph)
    constant = _constant_bits(graph)
    if constant is not None or not information:
        return CoinCount(constant=constant, least=least)
    table, left = _joint(graph)
    return CoinCount(
        constant=None, least=least, information=_information(table, left), law=_bits_law(table)
    )


def _bits_law(table: dict[tuple[int, Hashable], float]) -> tuple[tuple[int, float], ...]:
    """The smallest numbers of bits with lower bounds of their probabilities."""
    masses: dict[int, float] = defaultdict(float)
    for (count, _), mass in table.items():
        masses[count] += mass * (1 - _ROUNDING)
    return tuple(sorted(masses.items())[:_MOST_COUNTS])


def _least_bits(graph: Graph) -> int:
    first = graph.root
    heap, done = [(_bits_of(first.requests), first.to)], set[int]()
    while heap:
        bits, to = heapq.heappop(heap)
        if to < 0:
            return bits
        if to in done:
            continue
        done.add(to)
        for branch in graph.states[to].branches or ():
            heapq.heappush(heap, (bits + _bits_of(branch.requests), branch.to))
    return 0


def _constant_bits(graph: Graph) -> int | None:
    """The number of bits on every path; None if it varies, or some state was not followed."""
    first = graph.root
    bits = {first.to: _bits_of(first.requests)}
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
            now = bits[number] + _bits_of(branch.requests)
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
    first = graph.root
    scale = 1 << SCALE_BITS
    masses: dict[tuple[int, int], int] = defaultdict(int)
    layers: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    layers[_bits_of(first.requests)][first.to] = scale
    steps, left = 0, scale
    while layers and steps < _MOST_STEPS and left > _MOST_UNFOLLOWED * scale:
        count = min(layers)
        layer = layers.pop(count)
        while layer:
            to, mass = layer.popitem()
            steps += 1
            if to < 0:
                masses[count, to] += mass
                left -= mass
                continue
            state = graph.states[to]
            for branch in state.branches or ():
                share = mass * (branch.high - branch.low) // state.total
                more = _bits_of(branch.requests)
                if share:
                    target = layer if not more else layers[count + more]
                    target[branch.to] = target.get(branch.to, 0) + share
    table = {(count, graph.outputs[-1 - to]): mass / scale for (count, to), mass in masses.items()}
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
