"""Answers a question about a program: proved, refuted with a counterexample, or undecided."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dpaudit import provenance
from dpaudit.errors import RefusedProgramError, UsageError
from dpaudit.results.text import one_line
from dpaudit.types import AuditedFile
from dpaudit_prove.decisions import (
    Decision,
    Program,
    decide_factors,
    decide_joint_law,
    decide_law,
    decide_privacy,
    likeliest_outputs,
)
from dpaudit_prove.exploration.engine import (
    DEFAULT_RESIDUAL,
    Exploration,
    Progress,
    ProofOptions,
    explore,
)
from dpaudit_prove.exploration.graph import Graph
from dpaudit_prove.exploration.law import ExactLaw
from dpaudit_prove.results import ProofResult
from dpaudit_prove.verdicts.claims import ClaimedLaw
from dpaudit_prove.verdicts.disjoint import Factors, NoDisjointCoinsError, coin_count, factors_of
from dpaudit_prove.verdicts.enclosures import at_least, down, up

__all__ = ["Proof", "prove", "prove_law"]

NOT_COVERED = (
    "the coins: they are taken as uniform and independent; their real source is not looked at",
    "Python itself, and the machine: its arithmetic and its libraries in C are taken as "
    "documented, its logarithms and exponentials as monotone",
    "time, memory and power: only the number of coins is counted",
    "other arguments, other versions of the program's files, compiled code, and what is done with "
    "the output",
)


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

    Formal guarantee: see :class:`~dpaudit_prove.exploration.law.ExactLaw`, for perfect coins and
    the text of the program.

    >>> import random
    >>> law = prove_law(random.SystemRandom().randint, 1, 6)
    >>> law.mass[3], law.residual
    (Fraction(1, 6), Fraction(0, 1))

    Raises:
        RefusedProgramError: the program uses something that is not a function of its coins, with a
            probability above ``residual``.
    """
    exploration = explore(
        function,
        args,
        kwargs,
        coins=coins,
        residual=Fraction(residual),
        time_limit=time_limit,
        progress=None,
    )
    if exploration.refusals and exploration.law.residual > residual:
        raise RefusedProgramError(exploration.refusals[0].reason)
    return exploration.law


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
        InterpreterMismatchError: a replay in Python contradicts the interpreter.
    """
    begun = time.monotonic()

    def explore_call(args: tuple[Any, ...]) -> Exploration:
        return explore(
            function,
            args,
            options.kwargs,
            coins=options.coins,
            residual=options.residual,
            time_limit=options.time_limit,
            progress=progress,
        )

    subject = Program(function, options)
    calls: list[tuple[Any, ...]] = [options.args]
    factors, claim_text = None, claim or ""
    if neighbours is not None:
        if claim_epsilon is None:
            raise UsageError("claim_epsilon: needed with neighbours; e.g. --claim-epsilon 1")
        calls = [(a, *options.args) for a in neighbours]
        explored = [explore_call(args) for args in calls]
        decision = decide_privacy(subject, calls, explored, claim_epsilon, claim_delta)
        decision.fields["neighbours"] = tuple(one_line(repr(a), limit=200) for a in neighbours)
    elif options.disjoint:
        parsed = None if claim is None else ClaimedLaw.parse(claim)
        claim_text = "" if parsed is None else str(parsed)
        try:
            factors = factors_of(function, options, progress)
            explored, calls = [*factors.parts], calls * len(factors.parts)
            decision = decide_factors(subject, factors, parsed)
        except NoDisjointCoinsError as error:
            explored = [explore_call(options.args)]
            decision = decide_joint_law(subject, explored[0], str(error), parsed)
    elif claim is None:
        raise UsageError(
            "claim: missing; give --claim, or --neighbours with --claim-epsilon, or --disjoint"
        )
    else:
        parsed = ClaimedLaw.parse(claim)
        explored = [explore_call(options.args)]
        decision = decide_law(subject, explored[0], parsed)
        decision.fields["coin_count"] = coin_count(explored[0], information=options.coin_count)
    result = _result(decision, explored, factors, program, claim_text, options)
    result = replace(result, seconds=time.monotonic() - begun)
    returned = factors.returned if factors else None
    return Proof(result, tuple(explored), tuple(calls), returned, decision.shows)


def _result(
    decision: Decision,
    explored: Sequence[Exploration],
    factors: Factors | None,
    program: str,
    claim: str,
    options: ProofOptions,
) -> ProofResult:
    """The result of a decision, without its duration."""
    law = factors.laws[0] if factors else explored[0].law
    refusal = _refusal_text(explored)
    return ProofResult(
        verdict=decision.verdict,
        reason=f"{decision.reason}{refusal and f'; not followed, {refusal}'}",
        refusal=refusal,
        program=program,
        arguments=_arguments_text(options),
        coins=options.coins,
        claim=claim,
        law=tuple((one_line(repr(x), limit=200), down(p)) for x, p in likeliest_outputs(law)),
        outputs=len(law.mass),
        residual=up(factors.residual if factors else max(e.law.residual for e in explored)),
        states=factors.states if factors else sum(e.law.states for e in explored),
        seconds=0.0,
        cannot_rule_out=NOT_COVERED,
        provenance=_provenance([e.graph for e in explored]),
        **decision.fields,
    )


def _refusal_text(explored: Sequence[Exploration]) -> str:
    """The branch that could not be followed, if any; its probability is part of every bound."""
    likeliest = sorted((r for e in explored for r in e.refusals), key=lambda r: -r.probability)
    if not likeliest:
        return ""
    more = f", and {len(likeliest) - 1} more" if len(likeliest) > 1 else ""
    return (
        f"with probability at least {at_least(likeliest[0].probability)}: "
        f"{one_line(likeliest[0].reason, limit=300)}{more}"
    )


def _arguments_text(options: ProofOptions) -> str:
    arguments = [repr(a) for a in options.args]
    arguments += [f"{k}={v!r}" for k, v in (options.kwargs or {}).items()]
    return one_line(", ".join(arguments), limit=400)


def _provenance(graphs: Sequence[Graph]) -> Any:
    collected = provenance.collect(seed="", plugins=())
    files: dict[str, AuditedFile] = {}
    for graph in graphs:
        for name, text in graph.machine.sources.texts.items():
            files[name] = AuditedFile(
                name=one_line(name, limit=400),
                sha256=graph.source_hashes[name],
                size=len(text.encode()),
                modified="",
            )
    return provenance.with_identity(collected, by="", files=files.values())
