"""Runs an ε audit of a mechanism on data sets: two that are given, or two that are found."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.datasets import json_text, records_of, summarise_dataset
from dpaudit.audit.mechanism.neighbour_search import SearchResult, SearchStart, search
from dpaudit.audit.mechanism.pair import audit_pair
from dpaudit.audit.mechanism.question import Question
from dpaudit.audit.mechanism.releases import EncodedReleases
from dpaudit.audit.options import MechanismOptions, Progress
from dpaudit.audit.result import MechanismResult
from dpaudit.errors import UsageError
from dpaudit.protocols import Session, Target
from dpaudit.randomness import KeyedStream
from dpaudit.results.text import one_line
from dpaudit.targets.callables import CallableTarget, Subject
from dpaudit.targets.endpoints.command import CommandTarget
from dpaudit.targets.endpoints.http import HttpsTarget, HttpTarget
from dpaudit.targets.endpoints.worker import PythonTarget

__all__ = ["audit_question", "dataset_mechanism"]

_SEARCHING = 0.4
"""Largest share of the time limit that the search may take."""
_KEPT_TEXT = 1 << 16
"""Longest data set, in characters of JSON, that a result keeps."""


def dataset_mechanism(subject: Subject, question: Question, *, options: MechanismOptions) -> Target:
    """The mechanism on data sets, not yet started.

    Raises:
        UsageError: a text that names none, or what it names, or an option, does not fit.
    """
    functions = {"features": question.features, "adversary": options.adversary}
    for option, value in functions.items():
        if subject.target is None and isinstance(value, str):
            raise UsageError(
                f"{option}={value}: {subject.name} runs in this process; pass the function itself"
            )
        if subject.target is not None and value is not None and not isinstance(value, str):
            raise UsageError(
                f"{option}: a function, but {subject.target} runs in a process of its own; write "
                "'MODULE:FUNCTION', or pass a callable with in_process=True"
            )
    how: dict[str, Any] = {"call": options.call, "calls": options.calls, **functions}
    how["sessions"] = options.sessions
    if subject.target is None:
        return CallableTarget(subject.called, name=subject.name, role="datasets", **how)
    name = subject.target
    kind, _, target = name.partition(":")
    if kind == "python":
        return PythonTarget.on_datasets(target, **how)
    if options.in_sessions:
        raise UsageError(
            f"{options.session_words[0]}: only python:MODULE:FUNCTION makes sessions, not "
            f"{one_line(name, limit=200)}; leave it out"
        )
    for option, value in (("call", options.call), ("features", question.features)):
        if value is not None:
            raise UsageError(f"{option}={value}: only python: has one; leave --{option} out")
    if kind == "command":
        return CommandTarget(target, role="datasets", columns=_columns(question))
    if kind in ("http", "https"):
        endpoint = HttpTarget if kind == "http" else HttpsTarget
        return endpoint(target, role="mechanism")
    raise UsageError(
        f"mechanism={one_line(name, limit=200)}: takes query results, not data sets; data sets go "
        "to python:MODULE:FUNCTION, command:'PROGRAM {dataset} {n}', http://HOST:PORT/PATH, or a "
        "callable of Python"
    )


def _columns(question: Question) -> list[str]:
    whole = [question.dataset] if question.pair is None else list(question.pair)
    rows = [row for dataset in whole if isinstance(dataset, list) for row in dataset]
    return list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))


def audit_question(
    mechanism: Session,
    question: Question,
    *,
    claim: PrivacyClaim,
    options: MechanismOptions,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at two data sets, which are looked for first where not given.

    The search has at most 40 % of the time limit; the pair that it ends with is judged on releases
    drawn afterwards. Formal guarantee: see :class:`~dpaudit.audit.result.MechanismResult`; it holds
    for
    the pair that was found, however many were tried.

    Raises:
        UsageError: options that do not fit.
        SamplerError: the mechanism failed at every pair, or at the one that was found.
    """
    started = time.monotonic()
    winner = None
    pair = question.pair
    if pair is None:
        winner = search(
            mechanism,
            SearchStart(records_of(question.dataset), question.adjacency, question.bounds),
            delta=claim.delta,
            samples=options.samples,
            deadline=started + _SEARCHING * options.time_limit,
            rng=KeyedStream.from_seed(options.seed).child("neighbours").numpy(),
            progress=search_progress(progress, "pairs of neighbours tried"),
        )
        pair = winner.pair
    seconds = options.time_limit - (time.monotonic() - started)
    encoded = EncodedReleases(mechanism, pair)
    result = audit_pair(
        encoded,
        neighbours=encoded.neighbours,
        claim=claim,
        options=dataclasses.replace(options, time_limit=max(seconds, 1e-3)),
        progress=progress,
    )
    result = dataclasses.replace(encoded.named(result), seconds=time.monotonic() - started)
    texts = [json_text(dataset) for dataset in pair]
    short = [summarise_dataset(dataset) for dataset in pair]
    details: dict[str, Any] = {"datasets": short}
    if sum(map(len, texts)) <= _KEPT_TEXT:
        details["pair"] = texts
        if all(isinstance(dataset, np.ndarray) for dataset in pair):
            details["shapes"] = [list(dataset.shape) for dataset in pair]
    result = dataclasses.replace(
        result,
        method="two data sets",
        details={**result.details, **details},
        advice=(
            f"First data set: {short[0]}. Second: {short[1]}.",
            *([_session_advice(options)] if options.in_sessions else []),
            *result.advice,
        ),
    )
    return result if winner is None else _describe_search(result, winner, question)


def _session_advice(options: MechanismOptions) -> str:
    """What a release is, where sessions are called."""
    calls = f"{options.calls} call{'s' if options.calls > 1 else ''}"
    of = f"of {options.sessions} sessions at once" if options.sessions > 1 else "of one session"
    by = ", each asked by the adversary" if options.adversary is not None else ""
    claim = "all of them together" if options.together else "each call"
    return f"A release is the answers {of}, {calls} each{by}; the claim is about {claim}."


def search_progress(progress: Progress | None, unit: str) -> Progress | None:
    """The progress of a stage before the drawing, of so many ``unit``; None if it shows none."""
    stage: Callable[[str], Progress] | None = getattr(progress, "stage", None)
    return None if stage is None else stage(unit)


def _describe_search(
    result: MechanismResult, winner: SearchResult, question: Question
) -> MechanismResult:
    summary = (
        f"{winner.tried:,} pairs of neighbours ({question.adjacency}) were tried, with "
        f"{winner.releases:,} releases in all; this one, {winner.origin}, was the most "
        "promising and was judged on new releases."
    )
    advice = [one_line(summary, limit=600)]
    if winner.refused:
        advice.append(
            f"At {winner.refused:,} pairs the mechanism raised, first: {winner.error}. They were "
            "not audited; an error that depends on the data is a release too."
        )
    if winner.late:
        advice.append(
            f"The search ended early, after {winner.tried:,} of up to {winner.budget:,} pairs: its "
            "share of the time limit was used up."
        )
    if any("NaN" in text for text in result.details.get("pair", ())):
        advice.append(
            "A record is NaN: if the mechanism is never given one, state the possible values with "
            "--bounds."
        )
    details = {
        "search": {
            "adjacency": question.adjacency,
            "tried": winner.tried,
            "budget": winner.budget,
            "refused": winner.refused,
            "releases": winner.releases,
            "promise": winner.promise,
            "origin": one_line(winner.origin, limit=200),
        }
    }
    return dataclasses.replace(
        result,
        method=f"two data sets, found among {winner.tried:,} pairs",
        advice=(*result.advice[:1], *advice, *result.advice[1:]),
        details={**result.details, **details},
    )
