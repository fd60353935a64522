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
from dpaudit.audit.mechanism.attacks import Attack, NamedAttack, named_attack, own_attack
from dpaudit.audit.mechanism.dataset_run import audit_question, dataset_mechanism
from dpaudit.audit.mechanism.one_run_audits import COUNTS, SCORES, audit_counts, audit_scores
from dpaudit.audit.mechanism.pair import audit_pair, run_probes
from dpaudit.audit.mechanism.question import (
    UNWRITTEN,
    Question,
    neighbours_text,
    parse_neighbours,
    question_of,
    question_on_queries,
)
from dpaudit.audit.options import (
    MINIMUM_SAMPLES,
    ClaimOptions,
    DataOptions,
    MechanismOptions,
    Progress,
)
from dpaudit.audit.progress import notebook_bar
from dpaudit.audit.result import MechanismResult, with_command
from dpaudit.audit.run import seen_here
from dpaudit.errors import NotNumbersError, SamplerOutputError, UsageError
from dpaudit.options import fields_of, from_keywords, keywords_of, parted, takes, words_of
from dpaudit.protocols import Mechanism, ProbingAttack, RecordedMechanism
from dpaudit.provenance import identified
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
    "audit_datasets",
    "audit_mechanism",
    "audit_subject",
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
    options = from_keywords(MechanismOptions, how, options)
    with notebook_bar(progress, unit="releases") as shown:
        return audit_subject(
            subject(mechanism, in_process=in_process),
            claim=claim,
            neighbours=neighbours_text(neighbours),
            attack=attack if attack is None or isinstance(attack, str) else own_attack(attack),
            options=options,
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
    data, claimed, how = parted(given, DataOptions, ClaimOptions, MechanismOptions)
    claim = from_keywords(ClaimOptions, claimed).claim()
    question = question_of(from_keywords(DataOptions, data))
    if question is None:
        raise UsageError(
            "neighbours: are no two data sets; dpaudit.audit_mechanism compares query results"
        )
    with notebook_bar(progress, unit="releases") as shown:
        return audit_subject(
            subject(mechanism, in_process=in_process),
            claim=claim,
            options=from_keywords(MechanismOptions, how, options),
            question=question,
            progress=shown,
        )


def audit_subject(
    what: Subject,
    *,
    claim: PrivacyClaim,
    neighbours: str | None = None,
    attack: str | NamedAttack | None = None,
    options: MechanismOptions,
    question: Question | None = None,
    identity: Identity | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit a whole mechanism where it can be called: in a process of its own or in this one.

    What is compared is the ``question`` on data sets, or else ``neighbours``, query results, by
    ``attack``. ``identity`` is what :func:`~dpaudit.targets.identity.identify` said of a target,
    if it was asked before. Errors are those of :func:`audit_mechanism`.
    """
    audit = _Audit(what, claim, neighbours, attack, options, question, progress)
    if what.target is None:
        return audit.judged()
    if isinstance(attack, NamedAttack):
        raise UsageError(
            f"attack={attack.text}: an object, but {what.name} runs in a process of its own, which "
            "knows attacks by name; pass a callable with in_process=True, or register it"
        )
    with same_search_path() if what.ours else contextlib.nullcontext():
        identity = identify(what.target) if identity is None else identity
        claim.refuse_pure_gaussian(declared_law(what.target), name=what.target)
        recorded = what.target.startswith((SCORES, COUNTS))
        result = audit.of_scores(what.target) if recorded else audit.judged()
    files, versions = identity
    made = identified(result.provenance, by=options.by, files=files, versions=versions)
    return reproducible(dataclasses.replace(result, provenance=made), what)


@dataclasses.dataclass(frozen=True)
class _Audit:
    """One audit as it was asked for; see :func:`audit_subject`."""

    what: Subject
    claim: PrivacyClaim
    neighbours: str | None
    attack: str | NamedAttack | None
    options: MechanismOptions
    question: Question | None
    progress: Progress | None

    def judged(self) -> MechanismResult:
        """Plan, open, draw and judge, and say how to see it again.

        Where releases at two query results turn out to be no numbers, these are compared as data
        sets.
        """
        self._check_guesses()
        question, neighbours = self._planned(), self.neighbours
        claim = self.options.claimed(self.claim)
        if question is not None:
            return self._on_datasets(question, claim)
        try:
            return self._again_on_queries(self._on_queries(claim))
        except NotNumbersError:
            target = self.what.target
            only_numbers = target is not None and not target.startswith("python:")
            if neighbours is None or self.attack is not None or only_numbers:
                raise
            return self._on_datasets(
                question_on_queries(parse_neighbours(neighbours), neighbours), claim
            )

    def _check_guesses(self) -> None:
        if self.options.guesses is not None:
            raise UsageError(
                f"guesses={self.options.guesses}: belongs to a one-run audit of scores:FILE; "
                "leave --guesses out"
            )

    def _planned(self) -> Question | None:
        """The question; to sessions whose answers stay as they are, query results are data sets.

        Raises:
            UsageError: an attack on sessions, or no neighbours.
        """
        if self.question is not None or not self.options.transcript:
            return self.question
        sessions = " ".join(self.options.session_words)
        if self.attack is not None:
            raise UsageError(
                f"attack={self.attack}: sees one release of a query result, but with {sessions} it "
                "is the answers of sessions; leave one of them out"
            )
        if self.neighbours is None:
            raise UsageError(
                f"neighbours=None: with {sessions} two query results or data sets are compared; "
                "write e.g. --neighbours 0,1"
            )
        return question_on_queries(parse_neighbours(self.neighbours), self.neighbours)

    def _on_queries(self, claim: PrivacyClaim) -> MechanismResult:
        """Open the mechanism, draw releases at query results, and judge them."""
        options, neighbours, target = self.options, self.neighbours, self.what.target
        pair = None if neighbours is None else parse_neighbours(neighbours)
        how: dict[str, Any] = {"call": options.call, "calls": options.calls}
        named = self.attack
        opened: Any
        if target is None:
            opened = CallableTarget(self.what.called, name=self.what.name, role="mechanism", **how)
        else:
            named = named_attack(named, mechanism=target) if isinstance(named, str) else named
            opened = open_mechanism(target, seed=options.seed, neighbours=pair, **how)
            if not isinstance(opened, RecordedMechanism):
                _check_neighbours(pair, named, shown=str(neighbours), name=target)
        with joined() as sandbox, opened as mechanism:
            result = run_mechanism_audit(
                mechanism,
                claim=claim,
                neighbours=pair,
                attack=named,
                options=options,
                progress=self.progress,
            )
        return self._confined(result, sandbox.reached)

    def _on_datasets(self, question: Question, claim: PrivacyClaim) -> MechanismResult:
        """Open the mechanism, draw releases of data sets, judge them, and say how to repeat it."""
        opened = dataset_mechanism(self.what, question, options=self.options)
        with joined() as sandbox, opened as mechanism:
            result = audit_question(
                mechanism,
                question,
                attack=self.attack,
                claim=claim,
                options=self.options,
                progress=self.progress,
            )
        return self._again_on_datasets(self._confined(result, sandbox.reached), question)

    def _confined(self, result: MechanismResult, reached: str) -> MechanismResult:
        """The result with how a mechanism in a process of its own was confined."""
        return result if self.what.target is None else dataclasses.replace(result, sandbox=reached)

    def _again_on_queries(self, result: MechanismResult) -> MechanismResult:
        """The result with the command or call that reproduces its findings."""
        attack = self.attack.text if isinstance(self.attack, NamedAttack) else self.attack
        at = {"neighbours": self.neighbours, "attack": attack}
        given = {name: value for name, value in at.items() if value is not None}
        if self.what.target is not None:
            return self._repeated(result, [w for name in given for w in (f"--{name}", given[name])])
        keywords = [f"{name}={value!r}" for name, value in given.items()]
        again = [*keywords_of(self.claim.options), *keywords, *keywords_of(self.options)]
        return self._seen_here(result, f"dpaudit.audit_mechanism(…, {', '.join(again)})")

    def _again_on_datasets(self, result: MechanismResult, question: Question) -> MechanismResult:
        """The same; of a pair that no file holds, with advice to write it."""
        alpha, seed = self.options.alpha, self.options.seed
        if self.what.target is None:
            name = "audit_mechanism" if question.of_queries else "audit_datasets"
            return self._seen_here(result, f"dpaudit.{name}(…, neighbours=…, {alpha=})")
        words = question.words(result)
        if not words:
            return with_command(result, f"dpaudit.audit_datasets(…, {alpha=}, {seed=})")
        if question.unwritten(result) and any(test.finding for test in result.tests):
            result = dataclasses.replace(result, advice=(*result.advice, UNWRITTEN))
        return self._repeated(result, words)

    def _repeated(self, result: MechanismResult, words: Sequence[str] = ()) -> MechanismResult:
        """The result with the command of the whole audit, for one α."""
        claimed, again = words_of(self.claim.options), self.options.again
        line = ["dpaudit", "mechanism", str(self.what.target), *claimed, *words, *again]
        return with_command(result, shlex.join(line))

    def _seen_here(self, result: MechanismResult, again: str) -> MechanismResult:
        return seen_here(result, self.what, again=again, by=self.options.by, unseen=SAME_PROCESS)

    def of_scores(self, name: str) -> MechanismResult:
        """Audit recorded scores or counts, which have neither neighbours nor calls."""
        options = self.options
        if options.in_sessions:
            option = options.session_words[0].removeprefix("--")
            raise UsageError(
                f"{option}={getattr(options, option)}: recorded scores have no sessions; "
                f"leave --{option} out"
            )
        at = self.neighbours if self.question is None else self.question.shown
        for option, given in (("neighbours", at), ("attack", self.attack), ("call", options.call)):
            if given is not None:
                raise UsageError(
                    f"{option}={given}: recorded scores have none; leave --{option} out"
                )
        how: dict[str, Any] = {"claim": self.claim, "alpha": options.alpha, "seed": options.seed}
        if name.startswith(SCORES):
            path = name.removeprefix(SCORES)
            return self._repeated(audit_scores(path, guesses=options.guesses, **how))
        self._check_guesses()
        return self._repeated(audit_counts(name.removeprefix(COUNTS), **how))


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

    Otherwise as :func:`audit_mechanism`; see :func:`~dpaudit.audit.mechanism.pair.audit_pair` for
    the time limit. Recorded releases bring their neighbours and are audited as far as they go.
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
    if attack is not None and isinstance(attack.implementation, ProbingAttack):
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
    probing = attack is not None and isinstance(attack.implementation, ProbingAttack)
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
