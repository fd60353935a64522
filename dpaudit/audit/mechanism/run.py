"""The ε audit of a whole mechanism: plan what is compared, open it, judge releases, describe."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.attacks import Attack, NamedAttack, named_attack
from dpaudit.audit.mechanism.dataset_run import audit_question, dataset_mechanism
from dpaudit.audit.mechanism.one_run_audits import COUNTS, SCORES, audit_counts, audit_scores
from dpaudit.audit.mechanism.pair import audit_pair, run_probes
from dpaudit.audit.mechanism.question import (
    UNWRITTEN,
    Question,
    parse_neighbours,
    question_on_queries,
)
from dpaudit.audit.mechanism.request import MechanismRequest
from dpaudit.audit.mechanism.sequential import resumed
from dpaudit.audit.options import (
    MINIMUM_SAMPLES,
    ClaimOptions,
    DataOptions,
    MechanismOptions,
    Progress,
)
from dpaudit.audit.progress import notebook_bar
from dpaudit.audit.result import MechanismResult, with_command
from dpaudit.audit.run import result_in_process
from dpaudit.errors import NotNumbersError, SamplerOutputError, UsageError
from dpaudit.options import arguments_of, fields_of, keywords_of, takes
from dpaudit.protocols import Facts, ProbingAttack, Session, Target
from dpaudit.provenance import with_identity
from dpaudit.targets.callables import (
    SAME_PROCESS,
    CallableTarget,
    Subject,
    reproducible,
    same_search_path,
    subject,
)
from dpaudit.targets.identity import Identity, declared_law, identify
from dpaudit.targets.resolve import open_mechanism
from dpaudit.targets.sandbox.policy import joined

__all__ = [
    "MechanismPlan",
    "audit_datasets",
    "audit_mechanism",
    "audit_recorded",
    "audit_subject",
    "conclude",
    "judge_planned",
    "open_planned",
    "plan_audit",
    "run_mechanism_audit",
]

Vector = npt.NDArray[np.float64]
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
    **keywords: Any,
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
    count them in. With ``sequential`` they are the most: each release is bet on before it comes,
    and the audit stops as soon as it is certain (:mod:`dpaudit.audit.mechanism.sequential`);
    ``resume`` is a file that keeps what was drawn, to go on from. ``attack``,
    ``NAME[:option=value,…]``, says instead what to look at: a support
    attack has fixed events, counted in all releases; a learning attack learns from the first half;
    a probing attack brings the neighbours itself. For a callable of this process it may be the
    attack itself, an object. ``scores:FILE`` is a one-run audit
    (:func:`~dpaudit.audit.mechanism.one_run_audits.audit_scores`), which may make ``guesses``
    guesses, a number chosen beforehand; ``counts:TP,FN,FP,TN`` is one of an attack's counts
    (:func:`~dpaudit.audit.mechanism.one_run_audits.audit_counts`). Keywords come before
    ``options``. ``progress`` is as in :func:`~dpaudit.audit_sampler`.

    With ``calls`` above 1 the callable, called without arguments, makes a session, which is a
    function of the value: a release is what so many calls of a fresh session release, which may
    share what they keep, and the claim is that of one call
    (:meth:`~dpaudit.audit.claims.PrivacyClaim.repeated`), or with ``together`` that of all. With
    ``sessions`` above 1 it makes what they share, and calling that opens a session: they are called
    in turn, ``calls`` times each. An ``adversary``, a function of the answers so far
    (``MODULE:FUNCTION`` for ``python:``), chooses each next input: a session then is a function of
    the value and the input (:func:`~dpaudit.targets.functions.transcripts`).

    Formal guarantee: see :class:`~dpaudit.audit.result.MechanismResult`.

    Raises:
        UsageError: an unknown name, or a claim, neighbours, attack, α, time limit or sample size
            that does not fit.
        SamplerError: the mechanism died, did not respond, or released what is not a number.
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
    of_data = [f.name for f in fields_of(DataOptions) if f.name in keywords]
    if not of_data:
        keywords["neighbours"] = neighbours
        request = MechanismRequest.from_keywords(keywords, attack=attack, options=options)
        of_data = ["neighbours"] if request.question is not None else []
    if of_data:
        raise UsageError(
            f"{of_data[0]}: belongs to data sets, which dpaudit.audit_datasets compares"
        )
    with notebook_bar(progress, unit="releases") as bar:
        return audit_subject(subject(mechanism, in_process=in_process), request, progress=bar)


@takes(DataOptions, ClaimOptions, MechanismOptions)
def audit_datasets(
    mechanism: str | Callable[..., Any],
    *,
    in_process: bool | None = None,
    options: MechanismOptions | None = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> MechanismResult:
    """Audit a mechanism that takes data sets: at two neighbours, or at two that are looked for.

    ``neighbours`` are two lists of records, arrays or data frames, or ``"a.csv;b.csv"``. The
    callable is ``f(dataset, n)``, a list of ``n`` releases, or ``f(dataset)``, one; a release may
    be anything that :mod:`dpaudit.audit.mechanism.encoding` turns into numbers, or ``features``
    does, a function of one release (``MODULE:FUNCTION`` for ``python:``). With ``features``,
    ``neighbours`` may be query results too. With ``neighbours="search"`` two are looked for
    (:mod:`dpaudit.audit.mechanism.neighbour_search`), beginning with ``dataset``, also a file's
    path: neighbours by ``adjacency`` ``"add-remove"`` (one record more or less; the default) or
    ``"replace"`` (one record changed), within ``bounds``, ``{"age": (0, 120), "city": ["Bonn",
    "Graz"]}`` or ``(0, 1)``, or else just past what ``dataset`` has.

    All else, and the guarantee, are as in :func:`audit_mechanism`.

    Raises:
        UsageError: the neighbours are query results; otherwise as :func:`audit_mechanism`.
        SamplerError: as :func:`audit_mechanism`.
    """
    request = MechanismRequest.from_keywords(keywords, options=options)
    if request.question is None:
        raise UsageError(
            "neighbours: are not two data sets; dpaudit.audit_mechanism compares query results"
        )
    with notebook_bar(progress, unit="releases") as bar:
        return audit_subject(subject(mechanism, in_process=in_process), request, progress=bar)


def audit_subject(
    subject: Subject,
    request: MechanismRequest,
    *,
    identity: Identity | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit a whole mechanism where it can be called: in a process of its own or in this one.

    ``identity`` is what :func:`~dpaudit.targets.identity.identify` said of a target, if it was
    asked before. Errors are those of :func:`audit_mechanism`.
    """
    if subject.target is None:
        return _audit_planned(plan_audit(subject, request), progress)
    if isinstance(request.attack, NamedAttack):
        raise UsageError(
            f"attack={request.attack.text}: an object, but {subject.name} runs in a process of its "
            "own, which knows attacks by name; pass a callable with in_process=True, or register it"
        )
    with same_search_path() if subject.ours else contextlib.nullcontext():
        files, versions = identify(subject.target) if identity is None else identity
        request.claim.refuse_pure_gaussian(declared_law(subject.target), name=subject.target)
        if subject.target.startswith((SCORES, COUNTS)):
            result = audit_recorded(subject.target, request)
        else:
            result = _audit_planned(plan_audit(subject, request), progress)
    by = request.options.by
    provenance = with_identity(result.provenance, by=by, files=files, versions=versions)
    return reproducible(dataclasses.replace(result, provenance=provenance), subject)


def _audit_planned(plan: MechanismPlan, progress: Progress | None) -> MechanismResult:
    """Open, draw and judge as planned.

    Where releases at two query results turn out to be no numbers, these are compared as data sets.
    """
    try:
        limit = plan.request.options.time_limit
        with joined() as sandbox, open_planned(plan).open(timeout=limit) as mechanism:
            result = judge_planned(plan, mechanism, progress=progress)
    except NotNumbersError:
        target, neighbours = plan.subject.target, plan.request.neighbours
        only_numbers = target is not None and not target.startswith("python:")
        final = plan.question is not None or plan.attack is not None or only_numbers
        if final or neighbours is None:
            raise
        question = question_on_queries(parse_neighbours(neighbours), neighbours)
        return _audit_planned(dataclasses.replace(plan, question=question), progress)
    return conclude(plan, result, sandbox=sandbox.reached)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismPlan:
    """What an audit of a mechanism compares, decided before it is opened or releases anything.

    ``claim`` is that of one release. Compared is the ``question`` on data sets, or else
    ``neighbours``, two query results (m,), which are None if a file or the ``attack`` brings them.
    """

    subject: Subject
    request: MechanismRequest
    claim: PrivacyClaim
    question: Question | None
    neighbours: tuple[Vector, Vector] | None
    attack: NamedAttack | None


def plan_audit(subject: Subject, request: MechanismRequest) -> MechanismPlan:
    """Plan what is compared; to sessions whose answers stay as they are, queries are data sets.

    Raises:
        UsageError: options that do not go together, or neighbours or an attack that do not fit.
    """
    request = dataclasses.replace(request, options=resumed(request.options))
    options, question, attack = request.options, request.question, request.attack
    _check_guesses(options)
    pair = None if request.neighbours is None else parse_neighbours(request.neighbours)
    if question is None and options.transcript:
        sessions = " ".join(options.session_words)
        if attack is not None:
            raise UsageError(
                f"attack={request.attack_text}: sees one release of a query result, but with "
                f"{sessions} it is the answers of sessions; leave one of them out"
            )
        if pair is None or request.neighbours is None:
            raise UsageError(
                f"neighbours=None: with {sessions} two query results or data sets are compared; "
                "write e.g. --neighbours 0,1"
            )
        question = question_on_queries(pair, request.neighbours)
    if question is not None and attack is not None:
        raise UsageError(
            "attack: computes with query results, and data sets have none; leave --attack out"
        )
    if isinstance(attack, str):
        attack = named_attack(attack, mechanism=subject.target or subject.name)
    return MechanismPlan(
        subject=subject,
        request=request,
        claim=options.claimed(request.claim),
        question=question,
        neighbours=pair,
        attack=attack,
    )


def _check_guesses(options: MechanismOptions) -> None:
    if options.guesses is not None:
        raise UsageError(
            f"guesses={options.guesses}: belongs to a one-run audit of scores:FILE; "
            "leave --guesses out"
        )


def open_planned(plan: MechanismPlan) -> Target:
    """The mechanism as planned, not yet started.

    Raises:
        UsageError: it takes other neighbours, or an option does not fit.
    """
    subject, options = plan.subject, plan.request.options
    if plan.question is not None:
        return dataset_mechanism(subject, plan.question, options=options)
    how: dict[str, Any] = {"call": options.call, "calls": options.calls}
    if subject.target is None:
        return CallableTarget(subject.called, name=subject.name, role="mechanism", **how)
    target = open_mechanism(subject.target, seed=options.seed, neighbours=plan.neighbours, **how)
    if target.facts.neighbours is None:
        text = str(plan.request.neighbours)
        _check_neighbours(plan.neighbours, plan.attack, text=text, name=subject.target)
    return target


def judge_planned(
    plan: MechanismPlan, mechanism: Session, *, progress: Progress | None = None
) -> MechanismResult:
    """Draw releases of an opened mechanism as planned, and judge them.

    Raises:
        UsageError: an option or an attack that does not fit such releases.
        SamplerError: the mechanism failed.
    """
    options = plan.request.options
    if plan.question is not None:
        return audit_question(
            mechanism, plan.question, claim=plan.claim, options=options, progress=progress
        )
    return run_mechanism_audit(
        mechanism,
        claim=plan.claim,
        neighbours=plan.neighbours,
        attack=plan.attack,
        options=options,
        progress=progress,
    )


def conclude(plan: MechanismPlan, result: MechanismResult, *, sandbox: str) -> MechanismResult:
    """The result with the command or call that reproduces its findings, and its ``sandbox``.

    Of a pair of data sets that no file holds, with advice to write it.
    """
    request, question = plan.request, plan.question
    options = request.options
    if plan.subject.target is None:
        return result_in_process(
            result, plan.subject, again=_call(plan), by=options.by, unseen=SAME_PROCESS
        )
    result = dataclasses.replace(result, sandbox=sandbox)
    if question is None:
        compared = {"neighbours": request.neighbours, "attack": request.attack_text}
        texts = [text for k, v in compared.items() if v is not None for text in (f"--{k}", v)]
        return _with_command(result, plan.subject.target, request, texts)
    texts = question.repeat_options(result)
    if not texts:
        alpha, seed = options.alpha, options.seed
        return with_command(result, f"dpaudit.audit_datasets(…, {alpha=}, {seed=})")
    if question.names_unwritten_files(result) and any(test.finding for test in result.tests):
        result = dataclasses.replace(result, advice=(*result.advice, UNWRITTEN))
    return _with_command(result, plan.subject.target, request, texts)


def _call(plan: MechanismPlan) -> str:
    """The call of Python that repeats an audit of a callable of this process."""
    request, question = plan.request, plan.question
    if question is not None:
        name = "audit_mechanism" if question.of_queries else "audit_datasets"
        return f"dpaudit.{name}(…, neighbours=…, alpha={request.options.alpha!r})"
    compared = {"neighbours": request.neighbours, "attack": request.attack_text}
    keywords = [f"{name}={value!r}" for name, value in compared.items() if value is not None]
    again = [*keywords_of(request.claim.options), *keywords, *keywords_of(request.options)]
    return f"dpaudit.audit_mechanism(…, {', '.join(again)})"


def _with_command(
    result: MechanismResult, target: str, request: MechanismRequest, compared: Sequence[str] = ()
) -> MechanismResult:
    """The result with the command of the whole audit, for one α."""
    claim, again = arguments_of(request.claim.options), request.options.again
    return with_command(
        result, shlex.join(["dpaudit", "mechanism", target, *claim, *compared, *again])
    )


def audit_recorded(target: str, request: MechanismRequest) -> MechanismResult:
    """Audit recorded scores or counts, which have neither neighbours nor calls.

    Raises:
        UsageError: an option that they do not have, or a file that cannot be read.
    """
    options, question = request.options, request.question
    if options.in_sessions:
        option = options.session_words[0].removeprefix("--")
        raise UsageError(
            f"{option}={getattr(options, option)}: recorded scores have no sessions; "
            f"leave --{option} out"
        )
    neighbours = request.neighbours if question is None else question.text
    unused = {"neighbours": neighbours, "attack": request.attack, "call": options.call}
    for option, value in unused.items():
        if value is not None:
            raise UsageError(f"{option}={value}: recorded scores have none; leave --{option} out")
    how: dict[str, Any] = {"claim": request.claim, "alpha": options.alpha, "seed": options.seed}
    if target.startswith(SCORES):
        result = audit_scores(target.removeprefix(SCORES), guesses=options.guesses, **how)
    else:
        _check_guesses(options)
        result = audit_counts(target.removeprefix(COUNTS), **how)
    return _with_command(result, target, request)


def run_mechanism_audit(
    mechanism: Session,
    *,
    claim: PrivacyClaim,
    neighbours: tuple[Vector, Vector] | None,
    attack: str | NamedAttack | None = None,
    options: MechanismOptions,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at ``neighbours``, two query results (m,), or at an attack's own.

    Otherwise as :func:`audit_mechanism`; see :func:`~dpaudit.audit.mechanism.pair.audit_pair` for
    the time limit. Recorded releases bring their neighbours and are audited as far as they go.
    """
    named = named_attack(attack, mechanism=mechanism.name) if isinstance(attack, str) else attack
    facts = mechanism.facts
    if facts.neighbours is not None:
        neighbours, options = facts.neighbours, _as_recorded(mechanism.name, facts, named, options)
    _check_neighbours(neighbours, named, text=str(neighbours), name=mechanism.name)
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
    name: str, facts: Facts, attack: NamedAttack | None, options: MechanismOptions
) -> MechanismOptions:
    """The options with as many releases as are recorded, less what a fair coin may ask for more.

    Which neighbour is released next is a matter of a coin: with N recorded at each, N − 5·√N asked
    for need more than N with probability below 1e-10.

    Raises:
        UsageError: an attack that chooses neighbours, or one at all if the query results are not
            known.
        SamplerOutputError: fewer are recorded than an audit needs.
    """
    if attack is not None and isinstance(attack.implementation, ProbingAttack):
        raise UsageError(
            f"attack={attack.text}: chooses neighbours itself, and {name} has releases "
            "at only two; leave --attack out"
        )
    if attack is not None and facts.neighbours is not None and not facts.neighbours[0].size:
        raise UsageError(
            f"attack={attack.text}: needs the query results that {name} was recorded at; "
            "write them as --neighbours 0,1"
        )
    available = facts.available or 0
    most = int(available - 5 * math.sqrt(available))
    if most < MINIMUM_SAMPLES:
        raise SamplerOutputError(
            f"{name} has {available} releases at one neighbour; an audit needs "
            f"{_LEAST_RECORDED}, record more"
        )
    return dataclasses.replace(options, samples=min(options.samples, most))


def _check_neighbours(pair: object, attack: NamedAttack | None, *, text: str, name: str) -> None:
    probing = attack is not None and isinstance(attack.implementation, ProbingAttack)
    if probing and pair is not None and attack is not None:
        raise UsageError(f"neighbours={text}: {attack.text} brings its own; leave --neighbours out")
    if not probing and pair is None:
        raise UsageError(
            f"neighbours=None: {name} is compared at two query results; write e.g. --neighbours 0,1"
        )


def _reach() -> NamedAttack | None:
    return named_attack(_REACH) if _REACH in registry.plugins("attacks") else None
