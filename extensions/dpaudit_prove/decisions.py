"""Decides a claim by exact laws: proved, refuted with a counterexample, or undecided.

A counterexample consists of coins on which unmodified Python returns the output in question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from dpaudit.errors import DpauditError
from dpaudit.results.text import one_line
from dpaudit_prove.exploration.engine import Exploration, ProofOptions
from dpaudit_prove.exploration.graph import Coin, Graph, coins_of, path_to
from dpaudit_prove.exploration.law import ExactLaw
from dpaudit_prove.replay import ReplayMismatchError, replays
from dpaudit_prove.results import Counterexample, ProvedBounds, ProvedPoint
from dpaudit_prove.verdicts.claims import ClaimedLaw
from dpaudit_prove.verdicts.disjoint import Dependence, Factors, dependence, one_coin_apart
from dpaudit_prove.verdicts.distances import (
    Epsilon,
    distance,
    epsilon_at,
    judge,
    profile,
    rationals,
)
from dpaudit_prove.verdicts.enclosures import Range, as_floats, at_least, at_most, digits, down, up

__all__ = [
    "Decision",
    "InterpreterMismatchError",
    "Program",
    "decide_factors",
    "decide_joint_law",
    "decide_law",
    "decide_privacy",
    "likeliest_outputs",
]

_MOST_OUTPUTS = 400
_LARGEST_END = 1000
_UNDECIDED = {"disjoint": "not shown"}
Verdict = Literal["proved", "refuted", "undecided"]


@dataclass(frozen=True)
class Decision:
    """A verdict, its sentence, fields of the result and what the certificate is to show."""

    verdict: Verdict
    reason: str
    fields: dict[str, Any]
    shows: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A function with the settings of its proof; unmodified Python runs it on given coins."""

    function: Callable[..., Any]
    options: ProofOptions

    @property
    def tolerance(self) -> Fraction:
        """The largest total variation at which a law is the claimed one."""
        options = self.options
        return 2 * options.residual if options.tolerance is None else options.tolerance

    @contextmanager
    def replays(
        self, args: Sequence[Any] | None = None
    ) -> Iterator[Callable[[Sequence[Coin]], Hashable]]:
        """``run(coins)`` → what Python returns, on the proof's arguments or on ``args``."""
        options = self.options
        kinds = [kind for kind in options.coins.split(",") if kind]
        with replays(
            self.function,
            options.args if args is None else args,
            options.kwargs or {},
            passed=[kind for kind in kinds if kind not in {"random", "numpy", "secrets"}],
            everywhere=bool({"random", "numpy"} & set(kinds)),
        ) as run:
            yield run

    def replay(self, coins: Sequence[Coin], args: Sequence[Any] | None = None) -> Hashable:
        """Run the program in Python on coins.

        Raises:
            InterpreterMismatchError: it asked for other coins.
        """
        try:
            with self.replays(args) as run:
                return run(coins)
        except ReplayMismatchError as error:
            raise InterpreterMismatchError(
                f"replay: {error}; Python and the interpreter disagree; please report this program"
            ) from error

    def counterexample(
        self,
        explored: Exploration,
        output: Hashable,
        reason: str,
        *,
        args: Sequence[Any] | None = None,
    ) -> Counterexample:
        """The coins of a path to ``output``, and what Python returns on them: the same.

        Raises:
            InterpreterMismatchError: Python returns something else, or asks for other coins.
        """
        coins = _coins_to(explored.graph, output)
        returned = self.replay(coins, args)
        if returned != output:
            raise InterpreterMismatchError(
                f"replay: on the same coins Python returned {_quoted(returned)}, the interpreter "
                f"{_quoted(output)}; please report this program"
            )
        return _counterexample(output, coins, reason)


def decide_law(program: Program, explored: Exploration, claim: ClaimedLaw) -> Decision:
    """Whether the law of the output is the claimed one, by total variation."""
    law = explored.law
    tolerance = program.tolerance
    far = distance(law, claim)
    bounds = far.total_variation
    fields: dict[str, Any] = {
        "tolerance": up(tolerance),
        "total_variation": as_floats(bounds),
        "log_ratio": as_floats(far.log_ratio),
        "claimed": _claimed_probabilities(law, claim),
    }
    between = f"between {at_least(bounds.lower)} and {at_most(bounds.upper)}"
    if bounds.lower > tolerance:
        output = far.event[0]
        claimed = claim.probability(output)
        why = (
            f"P({_quoted(output)}) ≥ {at_least(law.lower(output))}, but {claim} "
            f"gives it at most {at_most(claimed.upper)}"
        )
        fields["counterexample"] = program.counterexample(explored, output, why)
        return Decision("refuted", f"total variation to {claim} is {between}; {why}", fields)
    if bounds.upper <= tolerance:
        reason = f"total variation to {claim} is at most {at_most(bounds.upper)}"
        return Decision("proved", reason, fields)
    return Decision(
        "undecided",
        f"total variation to {claim} is {between}, and {digits(tolerance)} is the tolerance"
        + ("" if explored.finished else "; the time limit came first"),
        fields,
    )


def _claimed_probabilities(law: ExactLaw, claim: ClaimedLaw) -> tuple[ProvedBounds, ...]:
    """Claimed probabilities of the outputs of :func:`likeliest_outputs`, in their order."""
    return tuple(as_floats(claim.probability(x)) for x, _ in likeliest_outputs(law))


def likeliest_outputs(law: ExactLaw) -> list[tuple[Hashable, Fraction]]:
    """At most 400 outputs with their probabilities, the likeliest first."""
    return sorted(law.mass.items(), key=lambda item: -item[1])[:_MOST_OUTPUTS]


def decide_factors(program: Program, factors: Factors, claim: ClaimedLaw | None) -> Decision:
    """Values with coins of their own: whether each has the claimed law."""
    statement = f"{len(factors.laws)} values have coins of their own: their joint law is a product"
    statement += f", up to {at_most(factors.residual)}"

    def counterexample(place: int, output: Hashable, reason: str) -> Counterexample:
        targets = {factors.order[place]: output}
        coins: list[Coin] = []
        for i, graph in enumerate(part.graph for part in factors.parts):
            coins += _coins_to(graph, targets.get(i, graph.outputs[0]))
        returned = program.replay(coins)
        if not isinstance(returned, tuple) or output not in filter(_is_number, returned):
            raise InterpreterMismatchError(
                f"replay: Python returned {_quoted(returned)}; please report this program"
            )
        return _counterexample(returned, coins, reason)

    tolerance = program.tolerance
    decision = _decide_independent(factors.laws, statement, claim, tolerance, counterexample)
    if claim is not None:
        decision.fields["claimed"] = _claimed_probabilities(factors.laws[0], claim)
    return decision


def _decide_independent(
    laws: Sequence[ExactLaw],
    reason: str,
    claim: ClaimedLaw | None,
    tolerance: Fraction,
    counterexample: Callable[[int, Hashable, str], Counterexample],
) -> Decision:
    """Compare each of some independent values with the claimed law, if there is one."""
    fields: dict[str, Any] = {"disjoint": "shown"}
    if claim is None:
        return Decision("proved", reason, fields)
    far = [distance(law, claim) for law in laws]
    low = max(d.total_variation.lower for d in far)
    high = sum((d.total_variation.upper for d in far), Fraction(0))
    fields |= {
        "tolerance": up(tolerance),
        "total_variation": ProvedBounds(low=down(low), high=up(high)),
    }
    if low > tolerance:
        place = next(i for i, d in enumerate(far) if d.total_variation.lower == low)
        output = far[place].event[0]
        why = (
            f"value {place + 1} is {_quoted(output)} with probability ≥ "
            f"{at_least(laws[place].lower(output))}, but {claim} gives it at most "
            f"{at_most(claim.probability(output).upper)}"
        )
        fields["counterexample"] = counterexample(place, output, why)
        return Decision("refuted", f"{reason}; {why}", fields)
    if high <= tolerance * len(laws):
        return Decision(
            "proved", f"{reason}; total variation to {claim} is at most {at_most(high)}", fields
        )
    return Decision("undecided", f"{reason}; their laws are not decided", fields)


def decide_joint_law(
    program: Program, explored: Exploration, why: str, claim: ClaimedLaw | None
) -> Decision:
    """Decide independence by the joint law, where disjoint coins could not be shown for ``why``."""
    joint, tolerance = dependence(explored.law), program.tolerance
    why = f"coins of their own could not be shown ({one_line(why, limit=300)})"
    if joint is None:
        return Decision("undecided", f"{why}, and there is no joint law of values", _UNDECIDED)
    shows = {"dependence": [str(joint.distance.lower), str(joint.distance.upper)]}
    if joint.distance.lower > tolerance:
        return replace(_refute_independence(program, explored, joint), shows=shows)
    if joint.distance.upper > tolerance:
        return Decision(
            "undecided", f"{why}, and dependence is not shown either", _UNDECIDED, shows
        )
    rows = list(explored.law.mass)

    def counterexample(place: int, output: Hashable, reason: str) -> Counterexample:
        row = next(r for r in rows if isinstance(r, tuple) and r[place] == output)
        return program.counterexample(explored, row, reason)

    statement = f"the joint law of {len(joint.marginals)} values is the product of their laws, up "
    statement += f"to {at_most(joint.distance.upper)}"
    decision = _decide_independent(joint.marginals, statement, claim, tolerance, counterexample)
    return replace(decision, shows=shows)


def _refute_independence(program: Program, explored: Exploration, joint: Dependence) -> Decision:
    row = joint.row
    reason = (
        f"the joint law differs from the product of its marginals by at least "
        f"{at_least(joint.distance.lower)} in total variation; {_quoted(row)} has "
        f"probability ≥ {at_least(explored.law.lower(row))}"
    )
    example = program.counterexample(explored, row, reason)
    reason += _one_coin_change(program, explored, row)
    return Decision(
        "refuted", reason, {"disjoint": "refuted", "counterexample": replace(example, says=reason)}
    )


def decide_privacy(
    program: Program,
    calls: Sequence[tuple[Any, ...]],
    explored: Sequence[Exploration],
    claim_epsilon: str,
    claim_delta: Fraction,
) -> Decision:
    """Whether two neighbours are (ε, δ)-indistinguishable; the least ε and the profile."""
    laws = explored[0].law, explored[1].law
    epsilon = Epsilon.parse(claim_epsilon)
    verdict, point = judge(*laws, epsilon=epsilon, delta=claim_delta)
    epsilons = [Epsilon.of(Fraction(i, 4)) for i in range(21)]
    points = [point, *profile(*laws, epsilons)]
    least = epsilon_at(*laws, claim_delta)
    fields: dict[str, Any] = {
        "claim_epsilon": epsilon.text,
        "claim_delta": str(claim_delta),
        "epsilon": as_floats(least),
        "profile": tuple(
            ProvedPoint(epsilon=p.epsilon, delta=as_floats(p.delta), near=e.near)
            for p, e in zip(points, [epsilon, *epsilons], strict=True)
        ),
    }
    where = f"δ({epsilon.text}) is between {at_least(point.delta.lower)} and "
    where += f"{at_most(point.delta.upper)}; at δ = {digits(claim_delta)} the least ε is between "
    where += f"{at_least(least.lower)} and {at_most(least.upper)}"
    certified = [*zip([epsilon, *epsilons], points, strict=True)]
    ends = _end_points(least)
    certified += zip(ends, profile(*laws, ends), strict=True)
    shows = {"profile": rationals((e, p.delta) for e, p in certified)}
    if verdict == "refuted":
        first = 0 if point.direction == "a" else 1
        output = point.event[0]
        reason = (
            f"P({_quoted(output)}) ≥ {at_least(laws[first].lower(output))} "
            f"for one neighbour and ≤ {at_most(laws[1 - first].upper(output))} for the other"
        )
        fields["counterexample"] = program.counterexample(
            explored[first], output, reason, args=calls[first]
        )
        return Decision("refuted", f"{where}; {reason}", fields, shows)
    return Decision(verdict, where, fields, shows)


def _end_points(least: Range) -> list[Epsilon]:
    """The two ends of the least ε, rounded outwards to 9 digits behind the point."""
    below = math.floor(least.lower * 10**9) if least.lower < _LARGEST_END else 0
    above = math.ceil(least.upper * 10**9) if least.upper < _LARGEST_END else 0
    return [Epsilon.of(Fraction(x, 10**9)) for x in (below, above) if x > 0]


_LARGEST_JSON = 1 << 53


class InterpreterMismatchError(DpauditError):
    """Python and the interpreter disagree about a program, so no result about it holds."""


def _coins_to(graph: Graph, output: Hashable) -> list[Coin]:
    """The coins of a likeliest path to an output, which has mass."""
    path = path_to(graph, output)
    assert path is not None  # noqa: S101
    return coins_of(graph, path)


def _one_coin_change(program: Program, explored: Exploration, row: Hashable) -> str:
    """A sentence of two runs of Python that differ in one coin and in several values, or ""."""
    graph, outputs = explored.graph, [row, *list(explored.law.mass)[:20]]
    paths = [path for output in outputs if (path := path_to(graph, output)) is not None]
    tapes = [[(c.count, c.value) for c in coins_of(graph, path)] for path in paths]
    with program.replays() as replay_one:

        def run(tape: Sequence[tuple[int, int]]) -> Hashable:
            try:
                return replay_one([Coin(*c) for c in tape])
            except ReplayMismatchError:
                return None

        pair = one_coin_apart(run, tapes)
    if pair is None:
        return ""
    before, after, first, second = pair
    at = next(i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
    return (
        f"; Python returns {_quoted(first)}, and with coin {at + 1} alone changed "
        f"from {before[at][1]} to {after[at][1]} (of {before[at][0]}) {_quoted(second)}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Fraction))


def _quoted(output: Hashable) -> str:
    return one_line(repr(output), limit=80)


def _counterexample(output: Hashable, coins: Sequence[Coin], reason: str) -> Counterexample:
    return Counterexample(
        output=one_line(repr(output), limit=200),
        coins=tuple((_whole(c.count), _whole(c.value)) for c in coins),
        says=reason,
    )


def _whole(value: int) -> int | str:
    return value if value < _LARGEST_JSON else str(value)
