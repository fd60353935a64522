"""Runs an ε audit of a mechanism named by the user, or of an opened one."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.epsilon.attacks import Attack, NamedAttack, named_attack, own_attack
from dpaudit.audit.epsilon.dataset_run import audit_question, on_datasets
from dpaudit.audit.epsilon.kept_pair import UNWRITTEN
from dpaudit.audit.epsilon.one_run_audits import COUNTS, SCORES, audit_counts, audit_scores
from dpaudit.audit.epsilon.pair import audit_pair, run_probes
from dpaudit.audit.epsilon.question import Question, any_release, question_of
from dpaudit.audit.notebook_bar import notebook_bar
from dpaudit.audit.options import (
    MINIMUM_SAMPLES,
    ClaimOptions,
    DataOptions,
    MechanismOptions,
    Progress,
    refuse_pure_gaussian,
)
from dpaudit.audit.result import MechanismResult
from dpaudit.errors import NotNumbersError, SamplerOutputError, UsageError
from dpaudit.options import fields_of, from_keywords, keywords_of, parted, takes, words_of
from dpaudit.protocols import Mechanism, ProbingAttack, RecordedMechanism
from dpaudit.provenance import identified
from dpaudit.results.arrays import read_npy
from dpaudit.samplers.callables import (
    SAME_PROCESS,
    CallableMechanism,
    CallableOnDatasets,
    Subject,
    reproducible,
    same_search_path,
    subject,
)
from dpaudit.samplers.identity import NOTHING, Identity, declared_law, identify
from dpaudit.samplers.resolve import open_mechanism
from dpaudit.samplers.sandbox.policy import joined

__all__ = [
    "audit_datasets",
    "audit_mechanism",
    "audit_named",
    "audit_subject",
    "neighbours_text",
    "parse_neighbours",
    "run_mechanism_audit",
]

Vector = npt.NDArray[np.float64]
Query = float | Sequence[float]
_HOW = "write two numbers as 0,1, two vectors as '0,0,0;1,0,0', or two files as a.npy;b.npy"
_LEAST_RECORDED = 1_172  # 1,000 and 5·√1,172
_REACH = "reach"
"""The attack that every audit without a named one also uses, if it is installed."""


@takes(ClaimOptions, MechanismOptions)
def audit_mechanism(
    mechanism: str | Callable[..., Any],
    *,
    neighbours: Any = None,
    attack: str | Attack | None = None,
    in_process: bool | None = None,
    options: MechanismOptions | None = None,
    progress: Progress | None = None,
    **given: Any,
) -> MechanismResult:
    """Audit a whole mechanism: one named as on the command line, or a Python callable.

    A name is ``numpy:laplace:scale=1``, ``python:MODULE:FUNCTION``, …. A callable is
    ``f(value, n)`` → array (n,) or (n, k), ``n`` releases of a query result, a float or an array
    (m,), or ``f(value)``, one release; ``call`` says which, if its parameters do not, with
    constants: ``call="f(value, epsilon=1.0)"``. Where it runs, and ``in_process``, are as in
    :func:`~dpaudit.audit_sampler`. ``neighbours`` are two query results, ``(0, 1)`` or
    ``([0, 0], [1, 0])``, or text (see :func:`parse_neighbours`); data sets are for
    :func:`audit_datasets`. The claim is (``epsilon``, ``delta``)-DP, or ``mu``-GDP, or both; or
    ``rho``-zCDP, or Rényi DP, ``renyi=(order, ε)``, or a ``curve`` of pairs (ε, δ), or ``f``, pairs
    of a type-I error and the least type-II error (both: pairs, or a .csv file of two columns), or
    ``dpsgd``, as in :func:`~dpaudit.audit_training`.

    ``samples`` releases are drawn at each of the two neighbours, half to learn events from, half to
    count them in. ``attack``, ``NAME[:option=value,…]``, says instead what to look at: a support
    attack has fixed events, counted in all releases; a learning attack learns from the first half;
    a probing attack brings the neighbours itself. For a callable of this process it may be the
    attack itself, an object. ``scores:FILE`` is a one-run audit
    (:func:`~dpaudit.audit.epsilon.one_run_audits.audit_scores`), which may make ``guesses``
    guesses, a number chosen beforehand; ``counts:TP,FN,FP,TN`` is one of an attack's counts
    (:func:`~dpaudit.audit.epsilon.one_run_audits.audit_counts`). Keywords come before ``options``.
    ``progress`` is as in :func:`~dpaudit.audit_sampler`.

    With ``calls`` above 1 the callable, called without arguments, makes a session, which is a
    function of the value: a release is what so many calls of a fresh session release, which may
    share what they keep, and the claim is that of one call
    (:meth:`~dpaudit.audit.claims.PrivacyClaim.repeated`), or with ``together`` that of all. With
    ``sessions`` above 1 it makes what they share, and calling that opens a session: they are called
    in turn, ``calls`` times each. An ``adversary``, a function of the answers so far
    (``MODULE:FUNCTION`` for ``python:``), chooses each next input: a session then is a function of
    the value and the input (:func:`~dpaudit.samplers.transcripts.transcripts`).

    Formal guarantee: see :class:`~dpaudit.audit.result.MechanismResult`.

    Raises:
        UsageError: an unknown name, or a claim, neighbours, attack, α, time limit or sample size
            that does not fit.
        SamplerError: the mechanism died, did not respond, or released something that is no number.
        DpauditError: the attack failed.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> audit_mechanism(
    ...     lambda value, n: value + np.round(rng.laplace(0, 0.5, n)),
    ...     neighbours=(0, 1),
    ...     epsilon=1,
    ...     samples=1e4,
    ...     seed=1,
    ... ).verdict
    'finding'
    """
    of_data = [f.name for f in fields_of(DataOptions) if f.name in given]
    if of_data or question_of(DataOptions(neighbours=neighbours)) is not None:
        raise UsageError(
            f"{(of_data or ['neighbours'])[0]}: belongs to data sets, which "
            "dpaudit.audit_datasets compares"
        )
    claimed, how = parted(given, ClaimOptions, MechanismOptions)
    claim = from_keywords(ClaimOptions, claimed).claim()
    asked = from_keywords(MechanismOptions, how, options)
    with notebook_bar(progress, unit="releases") as shown:
        return audit_subject(
            subject(mechanism, in_process=in_process),
            claim=claim,
            neighbours=neighbours_text(neighbours),
            attack=attack if attack is None or isinstance(attack, str) else own_attack(attack),
            options=asked,
            progress=shown,
        )


@takes(DataOptions, ClaimOptions, MechanismOptions)
def audit_datasets(
    mechanism: str | Callable[..., Any],
    *,
    in_process: bool | None = None,
    options: MechanismOptions | None = None,
    progress: Progress | None = None,
    **given: Any,
) -> MechanismResult:
    """Audit a mechanism that takes data sets: at two neighbours, or at two that are looked for.

    ``neighbours`` are two lists of records, arrays or data frames, or ``"a.csv;b.csv"``. The
    callable is ``f(dataset, n)``, a list of ``n`` releases, or ``f(dataset)``, one; a release may
    be anything that :mod:`dpaudit.audit.epsilon.encoding` turns into numbers, or ``features`` does,
    a function of one release (``MODULE:FUNCTION`` for ``python:``). With ``features``,
    ``neighbours`` may be query results too. With ``neighbours="search"`` two are looked for
    (:mod:`dpaudit.audit.epsilon.neighbour_search`), beginning with ``dataset``, also a file's path:
    neighbours by ``adjacency`` ``"add-remove"`` (one record more or less; the default) or
    ``"replace"`` (one record changed), within ``bounds``, ``{"age": (0, 120), "city": ["Bonn",
    "Graz"]}`` or ``(0, 1)``, or else just past what ``dataset`` has.

    All else, and the guarantee, are as in :func:`audit_mechanism`.

    Raises:
        UsageError: the neighbours are query results; otherwise as :func:`audit_mechanism`.
        SamplerError: as :func:`audit_mechanism`.
    """
    data, claimed, how = parted(given, DataOptions, ClaimOptions, MechanismOptions)
    claim = from_keywords(ClaimOptions, claimed).claim()
    asked = question_of(from_keywords(DataOptions, data))
    if asked is None:
        raise UsageError(
            "neighbours: are no two data sets; dpaudit.audit_mechanism compares query results"
        )
    with notebook_bar(progress, unit="releases") as shown:
        return audit_subject(
            subject(mechanism, in_process=in_process),
            claim=claim,
            neighbours=None,
            attack=None,
            options=from_keywords(MechanismOptions, how, options),
            asked=asked,
            progress=shown,
        )


def audit_subject(
    what: Subject,
    *,
    claim: PrivacyClaim,
    neighbours: str | None,
    attack: str | NamedAttack | None,
    options: MechanismOptions,
    asked: Question | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit a whole mechanism where it can be called: in a process of its own or in this one."""
    shown = attack.text if isinstance(attack, NamedAttack) else attack
    if what.target is not None:
        if attack is not None and not isinstance(attack, str):
            raise UsageError(
                f"attack={shown}: an object, but {what.name} runs in a process of its own, which "
                "knows attacks by name; pass a callable with in_process=True, or register it"
            )
        with same_search_path() if what.ours else contextlib.nullcontext():
            named = audit_named(
                what.target,
                claim=claim,
                neighbours=neighbours,
                attack=attack,
                options=options,
                asked=asked,
                progress=progress,
            )
        return reproducible(named, what)
    _check_guesses(options)
    asked = _asked(asked, neighbours, attack, options)
    if asked is not None:
        return _asked_here(what, asked, attack, claim=claim, options=options, progress=progress)
    pair = None if neighbours is None else parse_neighbours(neighbours)
    try:
        with CallableMechanism(
            what.called, name=what.name, call=options.call, calls=options.calls
        ) as mechanism:
            result = run_mechanism_audit(
                mechanism,
                claim=options.claimed(claim),
                neighbours=pair,
                attack=attack,
                options=options,
                progress=progress,
            )
    except NotNumbersError:
        if pair is None or attack is not None:
            raise
        asked = any_release(pair, str(neighbours))
        return _asked_here(what, asked, attack, claim=claim, options=options, progress=progress)
    at = {"neighbours": neighbours, "attack": shown}
    told = [f"{name}={value!r}" for name, value in at.items() if value is not None]
    again = ", ".join([*keywords_of(claim.options), *told, *keywords_of(options)])
    result = _identified(result, options, NOTHING)
    result = reproducible(result, what, again=f"dpaudit.audit_mechanism(…, {again})")
    if result.verdict != "no-finding":
        return result
    return dataclasses.replace(result, cannot_rule_out=(*result.cannot_rule_out, SAME_PROCESS))


def _asked(
    asked: Question | None, neighbours: str | None, attack: object, options: MechanismOptions
) -> Question | None:
    """``asked``; of sessions whose answers are kept as they are, query results too are data sets.

    Raises:
        UsageError: an attack, or no neighbours.
    """
    if asked is not None or not options.transcript:
        return asked
    told = " ".join(options.session_words)
    if attack is not None:
        raise UsageError(
            f"attack={attack}: sees one release of a query result, but with {told} it is the "
            "answers of sessions; leave one of them out"
        )
    if neighbours is None:
        raise UsageError(
            f"neighbours=None: with {told} two query results or data sets are compared; write "
            "e.g. --neighbours 0,1"
        )
    return any_release(parse_neighbours(neighbours), neighbours)


def _asked_here(
    what: Subject,
    asked: Question,
    attack: str | NamedAttack | None,
    *,
    claim: PrivacyClaim,
    options: MechanismOptions,
    progress: Progress | None,
) -> MechanismResult:
    """Audit a callable of this process at data sets."""
    features = asked.features
    if isinstance(features, str):
        raise UsageError(
            f"features={features}: {what.name} runs in this process; pass the function itself"
        )
    if isinstance(options.adversary, str):
        raise UsageError(
            f"adversary={options.adversary}: {what.name} runs in this process; pass the function "
            "itself"
        )
    together = options.claimed(claim)
    with CallableOnDatasets(
        what.called,
        name=what.name,
        call=options.call,
        features=features,
        calls=options.calls,
        sessions=options.sessions,
        adversary=options.adversary,
    ) as mechanism:
        result = audit_question(
            mechanism, asked, attack=attack, claim=together, options=options, progress=progress
        )
    name = "audit_mechanism" if asked.of_queries else "audit_datasets"
    again = f"dpaudit.{name}(…, neighbours=…, alpha={options.alpha!r})"
    result = reproducible(_identified(result, options, NOTHING), what, again=again)
    if result.verdict != "no-finding":
        return result
    return dataclasses.replace(result, cannot_rule_out=(*result.cannot_rule_out, SAME_PROCESS))


def _refuse_sessions(options: MechanismOptions, of: str) -> None:
    if options.in_sessions:
        option = options.session_words[0].removeprefix("--")
        value = getattr(options, option)
        raise UsageError(f"{option}={value}: {of} have no sessions; leave --{option} out")


def _check_guesses(options: MechanismOptions) -> None:
    if options.guesses is not None:
        raise UsageError(
            f"guesses={options.guesses}: belongs to a one-run audit of scores:FILE; "
            "leave --guesses out"
        )


def neighbours_text(neighbours: str | tuple[Query, Query] | None) -> str | None:
    """Two query results as the command line takes them, to the last digit.

    Raises:
        UsageError: they are not two numbers or two vectors.
    """
    if neighbours is None or isinstance(neighbours, str):
        return neighbours
    try:
        rows = [[float(x) for x in (v if hasattr(v, "__iter__") else [v])] for v in neighbours]
    except (TypeError, ValueError):
        raise UsageError(
            f"neighbours={neighbours!r}: write two numbers or two vectors, e.g. (0, 1)"
        ) from None
    return ";".join(",".join(f"{x!r}" for x in row) for row in rows)


def audit_named(
    name: str,
    *,
    claim: PrivacyClaim,
    neighbours: str | None = None,
    attack: str | None = None,
    options: MechanismOptions,
    asked: Question | None = None,
    what: Identity | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Open a mechanism by its name, audit it, close it; errors as in :func:`audit_mechanism`.

    ``what`` is what :func:`~dpaudit.samplers.identity.identify` said, if it was asked before.
    """
    alpha, seed, guesses = options.alpha, options.seed, options.guesses
    what = identify(name) if what is None else what
    words = ["dpaudit", "mechanism", name, *words_of(claim.options)]
    refuse_pure_gaussian(declared_law(name), claim, name=name)
    if name.startswith((SCORES, COUNTS)):
        _refuse_sessions(options, "recorded scores")
        for option, given in (
            ("neighbours", neighbours if asked is None else asked.shown),
            ("attack", attack),
            ("call", options.call),
        ):
            if given is not None:
                raise UsageError(
                    f"{option}={given}: recorded scores have none; leave --{option} out"
                )
        if name.startswith(SCORES):
            path = name.removeprefix(SCORES)
            result = audit_scores(path, claim=claim, alpha=alpha, seed=seed, guesses=guesses)
        else:
            _check_guesses(options)
            result = audit_counts(name.removeprefix(COUNTS), claim=claim, alpha=alpha, seed=seed)
        result = _identified(result, options, what)
        return _reproducible(result, [*words, *options.again])
    _check_guesses(options)
    asked = _asked(asked, neighbours, attack, options)
    if asked is not None:
        together = options.claimed(claim)
        with joined() as sandbox, on_datasets(name, asked, options=options) as mechanism:
            result = audit_question(
                mechanism, asked, attack=attack, claim=together, options=options, progress=progress
            )
        result = dataclasses.replace(_identified(result, options, what), sandbox=sandbox.reached)
        told = asked.words(result)
        if not told:
            return _reproducible(result, f"dpaudit.audit_datasets(…, {alpha=}, {seed=})")
        if asked.unwritten(result) and any(test.finding for test in result.tests):
            result = dataclasses.replace(result, advice=(*result.advice, UNWRITTEN))
        return _reproducible(result, [*words, *told, *options.again])
    named = None if attack is None else named_attack(attack, mechanism=name)
    pair = None if neighbours is None else parse_neighbours(neighbours)
    together = options.claimed(claim)
    closed = open_mechanism(
        name, seed=seed, call=options.call, calls=options.calls, neighbours=pair
    )
    if not isinstance(closed, RecordedMechanism):
        _check_neighbours(pair, named, shown=str(neighbours), name=name)
    try:
        with joined() as sandbox, closed as mechanism:
            result = run_mechanism_audit(
                mechanism,
                claim=together,
                neighbours=pair,
                attack=named,
                options=options,
                progress=progress,
            )
    except NotNumbersError:
        if pair is None or not name.startswith("python:") or attack is not None:
            raise
        asked = any_release(pair, str(neighbours))
        return audit_named(
            name, claim=claim, options=options, asked=asked, what=what, progress=progress
        )
    result = dataclasses.replace(_identified(result, options, what), sandbox=sandbox.reached)
    words += [*_option("--neighbours", neighbours), *_option("--attack", attack)]
    return _reproducible(result, [*words, *options.again])


def _identified(
    result: MechanismResult, options: MechanismOptions, what: Identity
) -> MechanismResult:
    made = identified(result.provenance, by=options.by, files=what.files, versions=what.versions)
    return dataclasses.replace(result, provenance=made)


def _option(name: str, value: object) -> list[str]:
    return [] if value is None else [name, str(value)]


def _reproducible(result: MechanismResult, words: list[str] | str) -> MechanismResult:
    """The result with the command that reproduces its findings: the whole audit, for one α."""
    command = words if isinstance(words, str) else shlex.join(words)
    tests = tuple(
        dataclasses.replace(t, reproduce=command) if t.finding else t for t in result.tests
    )
    return dataclasses.replace(result, tests=tests)


def run_mechanism_audit(
    mechanism: Mechanism,
    *,
    claim: PrivacyClaim,
    neighbours: tuple[Vector, Vector] | None,
    attack: str | NamedAttack | None = None,
    options: MechanismOptions,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at ``neighbours``, two query results (m,), or at an attack's own.

    Otherwise as :func:`audit_mechanism`; see :func:`~dpaudit.audit.epsilon.pair.audit_pair` for the
    time limit. Recorded releases bring their neighbours and are audited as far as they go.
    """
    named = named_attack(attack, mechanism=mechanism.name) if isinstance(attack, str) else attack
    if isinstance(mechanism, RecordedMechanism):
        neighbours, options = mechanism.neighbours, _as_recorded(mechanism, named, options)
    _check_neighbours(neighbours, named, shown=str(neighbours), name=mechanism.name)
    reach = _reach() if named is None or neighbours is None else None
    if neighbours is not None:
        return audit_pair(
            mechanism,
            neighbours=neighbours,
            claim=claim,
            options=options,
            attack=named,
            reach=reach,
            progress=progress,
        )
    assert named is not None  # noqa: S101 checked above
    return run_probes(
        mechanism, attack=named, claim=claim, options=options, reach=reach, progress=progress
    )


def _as_recorded(
    mechanism: RecordedMechanism, attack: NamedAttack | None, options: MechanismOptions
) -> MechanismOptions:
    """The options with as many releases as are recorded, less what a fair coin may ask for more.

    Which neighbour is released next is a matter of a coin: with N recorded at each, N − 5·√N asked
    for need more than N with probability below 1e-10.

    Raises:
        UsageError: an attack that chooses neighbours, or one at all if the query results are not
            known.
        SamplerOutputError: fewer are recorded than an audit needs.
    """
    if attack is not None and isinstance(attack.does, ProbingAttack):
        raise UsageError(
            f"attack={attack.text}: chooses neighbours itself, and {mechanism.name} has releases "
            "at two only; leave --attack out"
        )
    if attack is not None and not mechanism.named:
        raise UsageError(
            f"attack={attack.text}: needs the query results that {mechanism.name} was recorded at; "
            "write them as --neighbours 0,1"
        )
    most = int(mechanism.available - 5 * math.sqrt(mechanism.available))
    if most < MINIMUM_SAMPLES:
        raise SamplerOutputError(
            f"{mechanism.name} has {mechanism.available} releases at one neighbour; an audit needs "
            f"{_LEAST_RECORDED}, record more"
        )
    return dataclasses.replace(options, samples=min(options.samples, most))


def _check_neighbours(pair: object, attack: NamedAttack | None, *, shown: str, name: str) -> None:
    probing = attack is not None and isinstance(attack.does, ProbingAttack)
    if probing and pair is not None and attack is not None:
        raise UsageError(
            f"neighbours={shown}: {attack.text} brings its own; leave --neighbours out"
        )
    if not probing and pair is None:
        raise UsageError(
            f"neighbours=None: {name} is compared at two query results; write e.g. --neighbours 0,1"
        )


def _reach() -> NamedAttack | None:
    return named_attack(_REACH) if _REACH in registry.plugins("attacks") else None


def parse_neighbours(text: str) -> tuple[Vector, Vector]:
    """Two query results of equal length (m,): ``0,1``, ``0,0,0;1,0,0``, or ``a.npy;b.npy``.

    A semicolon divides the two, commas the coordinates; without a semicolon, a comma divides two
    numbers (or files).

    Raises:
        UsageError: not two, different lengths, not finite numbers, or equal to each other.

    >>> parse_neighbours("0,1")
    (array([0.]), array([1.]))
    """
    parts = text.split(";") if ";" in text else text.split(",")
    if len(parts) != 2:
        raise UsageError(f"neighbours={text}: {len(parts)} were given, wanted two; {_HOW}")
    first, second = (_vector(part.strip(), text) for part in parts)
    if len(first) != len(second):
        raise UsageError(
            f"neighbours={text}: lengths {len(first)} and {len(second)} differ; {_HOW}"
        )
    if np.array_equal(first, second):
        raise UsageError(
            f"neighbours={text}: they are equal (as float64), so nothing could tell them apart; "
            f"{_HOW}"
        )
    return first, second


def _vector(part: str, text: str) -> Vector:
    try:
        if part.endswith(".npy"):
            vector = np.atleast_1d(read_npy(Path(part), name="neighbours").astype(np.float64))
        else:
            vector = np.array([float(x) for x in part.split(",")])
    except UsageError:
        raise
    except ValueError:
        raise UsageError(f"neighbours={text}: {part!r} is no list of numbers; {_HOW}") from None
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise UsageError(f"neighbours={text}: {part!r} must be one row of finite numbers; {_HOW}")
    return vector
