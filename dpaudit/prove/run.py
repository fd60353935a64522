"""Answers a question about a program: proved, refuted with a counterexample, or undecided."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, Literal

from dpaudit import provenance
from dpaudit.errors import DpauditError, RefusedProgramError, UsageError
from dpaudit.prove.exploration.engine import DEFAULT_RESIDUAL, Exploration, Progress, explore
from dpaudit.prove.exploration.graph import Graph
from dpaudit.prove.exploration.law import ExactLaw
from dpaudit.prove.exploration.paths import Coin, coins_of, path_to
from dpaudit.prove.questions import ProofOptions
from dpaudit.prove.replay import ReplayMismatchError, replay, replays
from dpaudit.prove.verdicts.claims import ClaimedLaw
from dpaudit.prove.verdicts.coin_count import coin_count
from dpaudit.prove.verdicts.disjoint import (
    Dependence,
    Factors,
    NotShownError,
    dependence,
    factors_of,
    one_coin_apart,
)
from dpaudit.prove.verdicts.distances import distance
from dpaudit.prove.verdicts.enclosures import Bounds
from dpaudit.prove.verdicts.profiles import (
    Epsilon,
    EpsilonRange,
    epsilon_at,
    judge,
    profile,
    rationals,
)
from dpaudit.results.text import one_line
from dpaudit.types import AuditedFile, Counterexample, ProofResult, ProvedBounds, ProvedPoint

__all__ = ["InterpreterMismatchError", "Proof", "prove", "prove_law"]

_SHOWN = 400
_LARGEST_JSON = 1 << 53
_LARGEST_END = 1000
_TINY = Decimal("1e-300")  # below it a float is coarse, or 0
_NOT_SHOWN = {"disjoint": "not shown"}
Verdict = Literal["proved", "refuted", "undecided"]
NOT_COVERED = (
    "the coins: they are taken as uniform and independent; their real source is not looked at",
    "Python itself, and the machine: its arithmetic and its libraries in C are taken as "
    "documented, its logarithms and exponentials as monotone",
    "time, memory and power: only the number of coins is counted",
    "other arguments, other versions of the program's files, compiled code, and what is done with "
    "the output",
)


class InterpreterMismatchError(DpauditError):
    """Python ran the program otherwise than the interpreter: nothing that was found holds."""


@dataclass(frozen=True)
class Proof:
    """A result, and what its certificate holds.

    Attributes:
        explorations: one; two for neighbours; one per value with coins of its own, and the rest.
        calls: the arguments of the call that each is of.
        returned: for values with coins of their own: what is returned, a `Token` for each value.
        shows: what the laws show, as `certificate_of` takes it.
    """

    result: ProofResult
    explorations: tuple[Exploration, ...] = field(repr=False)
    calls: tuple[tuple[Any, ...], ...] = ()
    returned: tuple[Any, ...] | None = None
    shows: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class _Found:
    verdict: Verdict
    reason: str
    fields: dict[str, Any]
    shows: Mapping[str, Any] = field(default_factory=dict)


def prove_law(
    function: Callable[..., Any],
    *args: Any,
    coins: str = "",
    residual: Fraction | float = DEFAULT_RESIDUAL,
    time_limit: float | None = None,
    **kwargs: Any,
) -> ExactLaw:
    """The exact law of ``function(*args, **kwargs)`` over its coins, from its source.

    ``coins`` names generators with hidden state that count as perfect coins: "random", "numpy", or
    a parameter in which a generator is to be passed (it is then made here).

    Formal guarantee: see :class:`~dpaudit.prove.exploration.law.ExactLaw`, for perfect coins and
    the text of the program.

    >>> import random, dpaudit
    >>> law = dpaudit.prove_law(random.SystemRandom().randint, 1, 6)
    >>> law.mass[3], law.residual
    (Fraction(1, 6), Fraction(0, 1))

    Raises:
        RefusedProgramError: the program uses something that is not a function of its coins, with a
            probability above ``residual``.
    """
    found = explore(
        function,
        args,
        kwargs,
        coins=coins,
        residual=Fraction(residual),
        time_limit=time_limit,
        progress=None,
    )
    if found.refusals and found.law.residual > residual:
        raise RefusedProgramError(found.refusals[0].reason)
    return found.law


def prove(
    function: Callable[..., Any],
    *,
    program: str,
    claim: str | None = None,
    neighbours: tuple[Any, Any] | None = None,
    claim_epsilon: str | None = None,
    claim_delta: Fraction = Fraction(0),
    options: ProofOptions,
    progress: Progress | None = None,
) -> Proof:
    """Decide a claim about a program.

    Raises:
        RefusedProgramError: the program cannot be followed.
        UsageError: no claim, or one that does not fit.
        InterpreterMismatchError: a replay in Python contradicts what was found.
    """
    begun = time.monotonic()
    calls: list[tuple[Any, ...]] = [options.args]
    if neighbours is not None:
        if claim_epsilon is None:
            raise UsageError("claim_epsilon: needed with neighbours; e.g. --claim-epsilon 1")
        calls = [(a, *options.args) for a in neighbours]
        explored = [_explore(function, args, options, progress) for args in calls]
        found = _privacy(function, calls, explored, claim_epsilon, claim_delta, options)
        found.fields["neighbours"] = tuple(one_line(repr(a), limit=200) for a in neighbours)
    else:
        if claim is None and not options.disjoint:
            raise UsageError(
                "claim: missing; give --claim, or --neighbours with --claim-epsilon, or --disjoint"
            )
        parsed = None if claim is None else ClaimedLaw.parse(claim)
        if options.disjoint:
            return _disjoint(function, program, parsed, options, progress, begun)
        assert parsed is not None  # noqa: S101
        explored = [_explore(function, options.args, options, progress)]
        found = _law(function, explored[0], parsed, options)
        found.fields["coin_count"] = coin_count(explored[0], information=options.coin_count)
    return _proof(program, found, explored, calls, claim or "", options, begun)


def _proof(
    program: str,
    found: _Found,
    explored: Sequence[Exploration],
    calls: Sequence[tuple[Any, ...]],
    claim: str,
    options: ProofOptions,
    begun: float,
) -> Proof:
    law = explored[0].law
    result = ProofResult(
        verdict=found.verdict,
        reason=found.reason + _not_followed(explored),
        program=program,
        arguments=_shown_arguments(options),
        coins=options.coins,
        claim=claim,
        law=_rows(law),
        outputs=len(law.mass),
        residual=_up(max(e.law.residual for e in explored)),
        states=sum(e.law.states for e in explored),
        seconds=time.monotonic() - begun,
        cannot_rule_out=NOT_COVERED,
        provenance=_provenance([e.graph for e in explored]),
        **found.fields,
    )
    return Proof(result, tuple(explored), tuple(calls), shows=found.shows)


def _not_followed(explored: Sequence[Exploration]) -> str:
    """Which branch could not be followed, if any; its probability is part of every bound."""
    found = sorted((r for e in explored for r in e.refusals), key=lambda r: -r.probability)
    if not found:
        return ""
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"; not followed, with probability at least {_at_least(found[0].probability)}: "
        f"{one_line(found[0].reason, limit=300)}{more}"
    )


def _rows(law: ExactLaw) -> tuple[tuple[str, float], ...]:
    return tuple((one_line(repr(x), limit=200), _down(p)) for x, p in _likeliest(law))


def _claimed(law: ExactLaw, claim: ClaimedLaw) -> tuple[ProvedBounds, ...]:
    return tuple(_bounds(claim.probability(x)) for x, _ in _likeliest(law))


def _likeliest(law: ExactLaw) -> list[tuple[Hashable, Fraction]]:
    return sorted(law.mass.items(), key=lambda item: -item[1])[:_SHOWN]


def _explore(
    function: Callable[..., Any],
    args: Sequence[Any],
    options: ProofOptions,
    progress: Progress | None,
) -> Exploration:
    return explore(
        function,
        tuple(args),
        options.kwargs,
        coins=options.coins,
        residual=options.residual,
        time_limit=options.time_limit,
        progress=progress,
    )


def _law(
    function: Callable[..., Any],
    explored: Exploration,
    claim: ClaimedLaw,
    options: ProofOptions,
) -> _Found:
    law = explored.law
    tolerance = _tolerance(options)
    far = distance(law, claim)
    bounds = far.total_variation
    fields: dict[str, Any] = {
        "tolerance": _up(tolerance),
        "total_variation": _bounds(bounds),
        "log_ratio": ProvedBounds(low=_down(far.log_ratio.lower), high=_up(far.log_ratio.upper)),
        "claimed": _claimed(law, claim),
    }
    between = f"between {_at_least(bounds.lower)} and {_at_most(bounds.upper)}"
    if bounds.lower > tolerance:
        output = far.event[0]
        claimed = claim.probability(output)
        says = (
            f"P({one_line(repr(output), limit=80)}) ≥ {_at_least(law.lower(output))}, but {claim} "
            f"gives it at most {_at_most(claimed.upper)}"
        )
        fields["counterexample"] = _counterexample(
            function, options.args, explored, output, says, options
        )
        return _Found("refuted", f"total variation to {claim} is {between}; {says}", fields)
    if bounds.upper <= tolerance:
        reason = f"total variation to {claim} is at most {_at_most(bounds.upper)}"
        return _Found("proved", reason, fields)
    return _Found(
        "undecided",
        f"total variation to {claim} is {between}, and {_digits(tolerance)} is the tolerance"
        + ("" if explored.finished else "; the time limit came first"),
        fields,
    )


def _tolerance(options: ProofOptions) -> Fraction:
    return 2 * options.residual if options.tolerance is None else options.tolerance


def _disjoint(
    function: Callable[..., Any],
    program: str,
    claim: ClaimedLaw | None,
    options: ProofOptions,
    progress: Progress | None,
    begun: float,
) -> Proof:
    """Decide whether the returned values have coins of their own, and each has the claimed law."""
    try:
        factors = factors_of(
            function,
            options.args,
            options.kwargs or {},
            coins=options.coins,
            residual=options.residual,
            time_limit=options.time_limit,
            progress=progress,
        )
    except NotShownError as error:
        explored = [_explore(function, options.args, options, progress)]
        found = _joint(function, explored[0], str(error), claim, options)
        said = "" if claim is None else str(claim)
        return _proof(program, found, explored, [options.args], said, options, begun)
    found = _factors(function, factors, claim, options)
    result = ProofResult(
        verdict=found.verdict,
        reason=found.reason,
        program=program,
        arguments=_shown_arguments(options),
        coins=options.coins,
        claim="" if claim is None else str(claim),
        law=_rows(factors.laws[0]),
        claimed=() if claim is None else _claimed(factors.laws[0], claim),
        outputs=len(factors.laws[0].mass),
        residual=_up(factors.residual),
        states=factors.states,
        seconds=time.monotonic() - begun,
        cannot_rule_out=NOT_COVERED,
        provenance=_provenance([factors.parts[0].graph]),
        **found.fields,
    )
    calls = (options.args,) * len(factors.parts)
    return Proof(result, factors.parts, calls, factors.returned)


def _factors(
    function: Callable[..., Any],
    factors: Factors,
    claim: ClaimedLaw | None,
    options: ProofOptions,
) -> _Found:
    says = f"{len(factors.laws)} values have coins of their own: their joint law is a product, up "
    says += f"to {_at_most(factors.residual)}"

    def shown(place: int, output: Hashable, why: str) -> Counterexample:
        return _counterexample_of_factors(function, factors, place, output, why, options)

    return _independent(factors.laws, says, claim, options, shown)


def _independent(
    laws: Sequence[ExactLaw],
    says: str,
    claim: ClaimedLaw | None,
    options: ProofOptions,
    counterexample: Callable[[int, Hashable, str], Counterexample],
) -> _Found:
    """Compare each of some independent values with the claimed law, if there is one."""
    fields: dict[str, Any] = {"disjoint": "shown"}
    if claim is None:
        return _Found("proved", says, fields)
    tolerance = _tolerance(options)
    far = [distance(law, claim) for law in laws]
    low = max(d.total_variation.lower for d in far)
    high = sum((d.total_variation.upper for d in far), Fraction(0))
    fields |= {
        "tolerance": _up(tolerance),
        "total_variation": ProvedBounds(low=_down(low), high=_up(high)),
    }
    if low > tolerance:
        place = next(i for i, d in enumerate(far) if d.total_variation.lower == low)
        output = far[place].event[0]
        why = (
            f"value {place + 1} is {one_line(repr(output), limit=80)} with probability ≥ "
            f"{_at_least(laws[place].lower(output))}, but {claim} gives it at most "
            f"{_at_most(claim.probability(output).upper)}"
        )
        fields["counterexample"] = counterexample(place, output, why)
        return _Found("refuted", f"{says}; {why}", fields)
    if high <= tolerance * len(laws):
        return _Found(
            "proved", f"{says}; total variation to {claim} is at most {_at_most(high)}", fields
        )
    return _Found("undecided", f"{says}; their laws are not decided", fields)


def _counterexample_of_factors(
    function: Callable[..., Any],
    factors: Factors,
    place: int,
    output: Hashable,
    says: str,
    options: ProofOptions,
) -> Counterexample:
    wanted = {factors.order[place]: output}
    coins: list[Coin] = []
    for i, graph in enumerate(part.graph for part in factors.parts):
        path = path_to(graph, wanted.get(i, graph.outputs[0]))
        assert path is not None  # noqa: S101
        coins += coins_of(graph, path)
    returned = replayed(function, options.args, coins, options)
    numbers = [v for v in returned if _is_number(v)] if isinstance(returned, tuple) else []
    if output not in numbers:
        raise InterpreterMismatchError(
            f"replay: Python returned {one_line(repr(returned), limit=80)}; please report this"
        )
    return _shown_counterexample(returned, coins, says)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Fraction))


def _joint(
    function: Callable[..., Any],
    explored: Exploration,
    why: str,
    claim: ClaimedLaw | None,
    options: ProofOptions,
) -> _Found:
    """What the joint law says where coins of their own could not be shown."""
    found = dependence(explored.law)
    why = f"coins of their own could not be shown ({one_line(why, limit=300)})"
    if found is None:
        return _Found("undecided", f"{why}, and there is no joint law of values", _NOT_SHOWN)
    shows = {"dependence": [str(found.apart.lower), str(found.apart.upper)]}
    if found.apart.lower > _tolerance(options):
        return replace(_dependent(function, explored, found, options), shows=shows)
    if found.apart.upper > _tolerance(options):
        return _Found("undecided", f"{why}, and dependence is not shown either", _NOT_SHOWN, shows)
    rows = list(explored.law.mass)

    def shown(place: int, output: Hashable, why: str) -> Counterexample:
        row = next(r for r in rows if isinstance(r, tuple) and r[place] == output)
        return _counterexample(function, options.args, explored, row, why, options)

    says = f"the joint law of {len(found.marginals)} values is the product of their laws, up to "
    says += _at_most(found.apart.upper)
    return replace(_independent(found.marginals, says, claim, options, shown), shows=shows)


def _dependent(
    function: Callable[..., Any], explored: Exploration, found: Dependence, options: ProofOptions
) -> _Found:
    row = found.row
    says = (
        f"the joint law differs from the product of its marginals by at least "
        f"{_at_least(found.apart.lower)} in total variation; {one_line(repr(row), limit=80)} has "
        f"probability ≥ {_at_least(explored.law.lower(row))}"
    )
    example = _counterexample(function, options.args, explored, row, says, options)
    says += _one_coin_apart(function, explored, row, options)
    return _Found(
        "refuted", says, {"disjoint": "refuted", "counterexample": replace(example, says=says)}
    )


def _one_coin_apart(
    function: Callable[..., Any], explored: Exploration, row: Hashable, options: ProofOptions
) -> str:
    tapes = []
    for output in [row, *list(explored.law.mass)[:20]]:
        path = path_to(explored.graph, output)
        if path is not None:
            tapes.append([(c.count, c.value) for c in coins_of(explored.graph, path)])
    kwargs = options.kwargs or {}
    with replays(function, options.args, kwargs, **_replaced(options)) as replay_one:

        def run(tape: Sequence[tuple[int, int]]) -> Hashable:
            try:
                return replay_one([Coin(*c) for c in tape])
            except ReplayMismatchError:
                return None

        found = one_coin_apart(run, tapes)
    if found is None:
        return ""
    before, after, first, second = found
    at = next(i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
    return (
        f"; Python returns {one_line(repr(first), limit=80)}, and with coin {at + 1} alone changed "
        f"from {before[at][1]} to {after[at][1]} (of {before[at][0]}) "
        f"{one_line(repr(second), limit=80)}"
    )


def _privacy(
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    explored: Sequence[Exploration],
    claim_epsilon: str,
    claim_delta: Fraction,
    options: ProofOptions,
) -> _Found:
    laws = explored[0].law, explored[1].law
    epsilon = Epsilon.parse(claim_epsilon)
    verdict = judge(*laws, epsilon=epsilon, delta=claim_delta)
    point = verdict.point
    epsilons = [Epsilon.of(Fraction(i, 4)) for i in range(21)]
    points = [point, *profile(*laws, epsilons)]
    least = epsilon_at(*laws, claim_delta)
    fields: dict[str, Any] = {
        "claim_epsilon": epsilon.text,
        "claim_delta": str(claim_delta),
        "epsilon": ProvedBounds(low=_down(least.lower), high=_up(least.upper)),
        "profile": tuple(
            ProvedPoint(epsilon=p.epsilon, delta=_bounds(p.delta), near=e.near)
            for p, e in zip(points, [epsilon, *epsilons], strict=True)
        ),
    }
    where = f"δ({epsilon.text}) is between {_at_least(point.delta.lower)} and "
    where += f"{_at_most(point.delta.upper)}; at δ = {_digits(claim_delta)} the least ε is between "
    where += f"{_at_least(least.lower)} and {_at_most(least.upper)}"
    certified = [*zip([epsilon, *epsilons], points, strict=True)]
    ends = _around(least)
    certified += zip(ends, profile(*laws, ends), strict=True)
    shows = {"profile": rationals((e, p.delta) for e, p in certified)}
    if verdict.status == "refuted":
        first = 0 if point.direction == "a" else 1
        output = point.event[0]
        says = (
            f"P({one_line(repr(output), limit=80)}) ≥ {_at_least(laws[first].lower(output))} "
            f"for one neighbour and ≤ {_at_most(laws[1 - first].upper(output))} for the other"
        )
        fields["counterexample"] = _counterexample(
            function, calls[first], explored[first], output, says, options
        )
        return _Found("refuted", f"{where}; {says}", fields, shows)
    return _Found(verdict.status, where, fields, shows)


def _around(least: EpsilonRange) -> list[Epsilon]:
    """The two ends of the least ε, rounded outwards to 9 digits behind the point."""
    below = math.floor(least.lower * 10**9) if least.lower < _LARGEST_END else 0
    above = math.ceil(least.upper * 10**9) if least.upper < _LARGEST_END else 0
    return [Epsilon.of(Fraction(x, 10**9)) for x in (below, above) if x > 0]


def _counterexample(
    function: Callable[..., Any],
    args: Sequence[Any],
    explored: Exploration,
    output: Hashable,
    says: str,
    options: ProofOptions,
) -> Counterexample:
    path = path_to(explored.graph, output)
    assert path is not None  # noqa: S101 (the output has mass)
    coins = coins_of(explored.graph, path)
    returned = replayed(function, args, coins, options)
    if returned != output:
        raise InterpreterMismatchError(
            f"replay: on the same coins Python returned {one_line(repr(returned), limit=80)}, the "
            f"interpreter {one_line(repr(output), limit=80)}; please report this program"
        )
    return _shown_counterexample(output, coins, says)


def _shown_counterexample(output: Hashable, coins: Sequence[Coin], says: str) -> Counterexample:
    return Counterexample(
        output=one_line(repr(output), limit=200),
        coins=tuple((_whole(c.count), _whole(c.value)) for c in coins),
        says=says,
    )


def replayed(
    function: Callable[..., Any], args: Sequence[Any], coins: Sequence[Coin], options: ProofOptions
) -> Hashable:
    """What Python itself returns on coins.

    Raises:
        InterpreterMismatchError: it asked for other coins.
    """
    kwargs = options.kwargs or {}
    try:
        return replay(function, args, kwargs, coins, **_replaced(options))
    except ReplayMismatchError as error:
        raise InterpreterMismatchError(
            f"replay: {error}; Python ran the program otherwise than the interpreter: please report"
        ) from error


def _replaced(options: ProofOptions) -> dict[str, Any]:
    """Which generators a replay replaces."""
    kinds = [c for c in options.coins.split(",") if c]
    return {
        "passed": [k for k in kinds if k not in {"random", "numpy", "secrets"}],
        "everywhere": bool({"random", "numpy"} & set(kinds)),
    }


def _whole(value: int) -> int | str:
    return value if value < _LARGEST_JSON else str(value)


def _down(value: Fraction | float) -> float:
    near = float(value)
    if isinstance(value, float) or Fraction(near) <= value:
        return near
    return math.nextafter(near, -math.inf)


def _up(value: Fraction | float) -> float:
    near = float(value)
    if isinstance(value, float) or Fraction(near) >= value:
        return near
    return math.nextafter(near, math.inf)


def _bounds(bounds: Bounds) -> ProvedBounds:
    return ProvedBounds(low=_down(bounds.lower), high=_up(bounds.upper))


def _at_least(value: Fraction | float) -> str:
    return _digits(value, ROUND_FLOOR)


def _at_most(value: Fraction | float) -> str:
    return _digits(value, ROUND_CEILING)


def _digits(value: Fraction | float, rounding: str = ROUND_HALF_EVEN) -> str:
    """Four digits, rounded exactly."""
    if math.isinf(value):
        return "inf"
    exact = Fraction(value)
    near = Context(prec=4, rounding=rounding).divide(exact.numerator, exact.denominator)
    return f"{float(near):.4g}" if not 0 < abs(near) < _TINY else f"{near:.4g}"


def _shown_arguments(options: ProofOptions) -> str:
    shown = [repr(a) for a in options.args]
    shown += [f"{k}={v!r}" for k, v in (options.kwargs or {}).items()]
    return one_line(", ".join(shown), limit=400)


def _provenance(graphs: Sequence[Graph]) -> Any:
    made = provenance.collect(seed="", plugins=())
    files: dict[str, AuditedFile] = {}
    for graph in graphs:
        for name, text in graph.machine.sources.texts.items():
            files[name] = AuditedFile(
                name=one_line(name, limit=400),
                sha256=graph.source_hashes[name],
                size=len(text.encode()),
                modified="",
            )
    return provenance.identified(made, by="", files=files.values())
