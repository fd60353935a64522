"""The object behind the fixture ``dpaudit``: audits that pass, or fail with a usable message."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack, cast

from dpaudit.audit.commands import command_line
from dpaudit.audit.epsilon.kept_pair import with_pair_in
from dpaudit.audit.epsilon.question import question_of
from dpaudit.audit.epsilon.run import audit_subject as audit_mechanism_subject
from dpaudit.audit.epsilon.run import neighbours_text
from dpaudit.audit.nothing import nothing_counted, nothing_drawn
from dpaudit.audit.options import AuditOptions, MechanismOptions, PrivacyClaim, count_of
from dpaudit.audit.run import audit_subject
from dpaudit.audit.stated_claims import Table
from dpaudit.documents import of_result
from dpaudit.errors import DpauditError, SamplerError, UsageError
from dpaudit.explanations import topic_of
from dpaudit.report import (
    audit_sentence,
    mechanism_sentence,
    p_value,
    write_json,
    write_report,
)
from dpaudit.report.sentences import sandbox_level
from dpaudit.report.tables import sorted_tests
from dpaudit.results.text import printable
from dpaudit.samplers.callables import Subject, reproducible, subject
from dpaudit.types import AuditResult, MechanismResult, TestResult

__all__ = ["RELEASES", "Auditor", "NoiseOptions"]

RELEASES = 100_000
"""Releases that :meth:`Auditor.assert_private` draws at each neighbour, unless told otherwise."""

_MOST = 8  # findings that a message lists
_LONGEST = 20_000  # characters of a command

Named = str | Callable[..., Any]
Asked = TypeVar("Asked", AuditOptions, MechanismOptions)
R = TypeVar("R", bound=AuditResult | MechanismResult)


class NoiseOptions(TypedDict, total=False):
    """Options of an audit of noise, those of :func:`dpaudit.audit_sampler`.

    ``samples`` counts single values. ``all_values`` draws all of them even after a finding is
    certain. ``in_process`` is for callables: True keeps a module-level function in the test's
    process, False refuses what could only run there.
    """

    dim: int | None
    samples: float | None
    alpha: float | None
    seed: int | str | None
    time_limit: float | None
    tests: Sequence[str] | None
    allow_predictable: bool
    all_values: bool
    mitigation: str | None
    call: str | None
    in_process: bool | None


class Auditor:
    """The audits of one test: a pass returns the result, anything else raises ``AssertionError``.

    A ``sampler`` or ``mechanism`` is a target as on the command line, or a callable. A module-level
    function runs in a process of its own behind the samplers' limits, so monkeypatches of the
    test's process do not reach it. A closure, a lambda, a bound method or an object is called in
    the test's process: without limits on memory, with a time limit that interrupts no call, and
    with no second process to compare.

    Every audit has a fixed seed, from the test's node id and the audit's number in the test:
    registered sources give the same values in every run. Other samplers do not: an honest one fails
    with probability at most ``alpha`` per run. Not claimed: that what passes is honest; the
    result's ``cannot_rule_out`` says what it may still hide, a keyed backdoor above all.
    """

    def __init__(
        self,
        *,
        node: str,
        samples: int,
        alpha: float,
        out: Path | None,
        record: Callable[[dict[str, Any]], None],
    ) -> None:
        """``node`` is the test's id; ``record`` gets each audit as a JSON-ready dictionary."""
        self._node, self._samples, self._alpha = node, samples, alpha
        self._out, self._record = out, record
        self._made = 0

    def assert_no_finding(
        self, sampler: Named, *, claim: str | None = None, **options: Unpack[NoiseOptions]
    ) -> AuditResult:
        """Fail unless nothing contradicts ``claim``.

        A callable is as for :func:`dpaudit.audit_sampler`.

        Raises:
            AssertionError: a finding, or an inconclusive audit (the sampler died, did not respond,
                or returned too few values).
            UsageError: an unknown name, or an option that does not fit.
        """
        __tracebackhide__ = True
        return self._noise(sampler, claim=claim, control=False, **options).passed()

    def assert_finding(
        self,
        sampler: Named,
        *,
        claim: str | None = None,
        by: str | Sequence[str] = (),
        **options: Unpack[NoiseOptions],
    ) -> AuditResult:
        """Fail unless the audit reports a finding on this known-bad control.

        All the tests named in ``by`` must report one; all values are then drawn, unless
        ``all_values=False``. A gate that catches nothing passes everything: a control shows that it
        still catches. No α is counted for it. Raises as :meth:`assert_no_finding`.
        """
        __tracebackhide__ = True
        options.setdefault("all_values", bool(by))
        audited = self._noise(sampler, claim=claim, control=True, **options)
        if audited.result.verdict == "inconclusive":
            raise audited.failure()
        found = {t.name for t in audited.result.tests if t.finding}
        missing = [name for name in ([by] if isinstance(by, str) else by) if name not in found]
        if not found or missing:
            result, again, page = audited
            wanted = " and ".join(missing)
            raise AssertionError(nothing_found(result, wanted=wanted, again=again, page=page))
        return audited.result

    def assert_private(
        self,
        mechanism: Named,
        *,
        neighbours: Any = None,
        epsilon: float | None = None,
        delta: float = 0.0,
        mu: float | None = None,
        rho: float | None = None,
        renyi: tuple[float, float] | str | None = None,
        curve: Table | None = None,
        f: Table | None = None,
        attack: str | None = None,
        samples: float = RELEASES,
        alpha: float | None = None,
        seed: int | str | None = None,
        time_limit: float = 600.0,
        real_numbers: bool = False,
        call: str | None = None,
        calls: int = 1,
        sessions: int = 1,
        adversary: str | Callable[[list[Any]], Any] | None = None,
        together: bool = False,
        in_process: bool | None = None,
        dataset: Any = None,
        adjacency: str | None = None,
        bounds: Any = None,
        features: str | Callable[[Any], Any] | None = None,
    ) -> MechanismResult:
        """Fail if releases at two ``neighbours`` violate the claim.

        It is (``epsilon``, ``delta``)-DP or ``mu``-GDP or both, or ``rho``, ``renyi``, ``curve`` or
        ``f`` alone.

        A callable is ``f(value, n)`` → array (n,) or (n, k): ``n`` releases of a query result, a
        float or an array (m,), or ``f(value)``, one release. ``neighbours`` are two query results,
        ``(0, 1)`` or ``([0, 0], [1, 0])``, or text as on the command line; or two data sets, or
        ``"search"`` with a ``dataset``. ``samples`` releases are drawn at each. The rest is as in
        :func:`dpaudit.audit_mechanism`.

        Raises:
            AssertionError: more is shown than claimed, or the audit is inconclusive.
            UsageError: an unknown name, or an option that does not fit.
        """
        __tracebackhide__ = True
        asked = question_of(
            neighbours, dataset, adjacency=adjacency, bounds=bounds, features=features
        )
        pair = neighbours_text(neighbours) if asked is None else None
        used = self._seed(seed)

        def claim() -> PrivacyClaim:
            return PrivacyClaim.of(epsilon, delta, mu, rho=rho, renyi=renyi, curve=curve, f=f)

        about = {"claim_epsilon": epsilon, "claim_delta": delta}
        if any(one is not None for one in (rho, renyi, curve, f)):
            about = claim().options

        def options() -> MechanismOptions:
            return MechanismOptions(
                samples=count_of(samples, what="releases", example="2e5"),
                alpha=self._alpha if alpha is None else alpha,
                seed=used,
                time_limit=time_limit,
                real_numbers=real_numbers,
                call=call,
                calls=calls,
                sessions=sessions,
                adversary=adversary,
                together=together,
            )

        return self._audit(
            "mechanism",
            mechanism,
            in_process,
            options,
            lambda what, options: audit_mechanism_subject(
                what, claim=claim(), neighbours=pair, attack=attack, options=options, asked=asked
            ),
            lambda name, reason, options: nothing_counted(
                name, reason, claim=claim(), attack=attack or "", options=options
            ),
            words={
                "neighbours": pair if asked is None else asked.shown,
                **about,
                "claim_mu": mu,
                "attack": attack,
            },
            about=about,
            control=False,
        ).passed()

    def _noise(
        self, sampler: Named, *, claim: str | None, control: bool, **options: Unpack[NoiseOptions]
    ) -> _Audited[AuditResult]:
        __tracebackhide__ = True
        known = NoiseOptions.__annotations__
        if unknown := set(options) - set(known):
            raise UsageError(f"{min(unknown)}: no such option; there are: {', '.join(known)}")
        tests, alpha, samples = options.get("tests"), options.get("alpha"), options.get("samples")
        tests = (tests,) if isinstance(tests, str) else tests
        seed = self._seed(options.get("seed"))

        def asked() -> AuditOptions:
            return AuditOptions(
                dim=options.get("dim"),
                samples=self._samples
                if samples is None
                else count_of(samples, what="values", example="1e6"),
                alpha=self._alpha if alpha is None else alpha,
                seed=seed,
                time_limit=options.get("time_limit"),
                tests=None if tests is None else tuple(tests),
                allow_predictable=options.get("allow_predictable", False),
                all_values=options.get("all_values", False),
                mitigation=options.get("mitigation"),
                call=options.get("call"),
            )

        return self._audit(
            "audit",
            sampler,
            options.get("in_process"),
            asked,
            lambda what, options: audit_subject(what, claim=claim, options=options),
            lambda name, reason, options: nothing_drawn(
                name, reason, claim=claim or "its claim", options=options
            ),
            words={"claim": claim},
            about={"claim": claim or "its claim"},
            control=control,
        )

    def _audit(
        self,
        kind: str,
        given: Named,
        in_process: bool | None,
        asked: Callable[[], Asked],
        run: Callable[[Subject, Asked], R],
        nothing: Callable[[str, str, Asked], R],
        *,
        words: Mapping[str, Any],
        about: Mapping[str, Any],
        control: bool,
    ) -> _Audited[R]:
        """Run one audit, keep its report, and record it for the session's summary."""
        __tracebackhide__ = True
        self._made += 1
        page = None
        try:
            options, what = asked(), subject(given, in_process=in_process)
            if what.target is None:
                again = shlex.join(["pytest", self._node])
                result = reproducible(run(what, options), what, again=again)
            else:
                again = what.command(command_line(kind, what.target, options, **words))
                result = run(what, options)
        except SamplerError as error:
            result = nothing(what.name, str(error), options)
        except DpauditError as error:
            raise type(error)(str(error)) from None
        else:
            result, page = self._write(result)
        named = "sampler" if isinstance(result, AuditResult) else "mechanism"
        shown = {named: printable(getattr(result, named), limit=200), **about}
        judged = {"verdict": result.verdict, "alpha": options.alpha, "control": control}
        self._record(shown | judged)
        first = next((t.reproduce for t in result.tests if t.finding and t.reproduce), again)
        return _Audited(result, first, page)

    def _write(self, result: R) -> tuple[R, Path | None]:
        """The report, if one is kept, and ``result`` with the files that its commands name."""
        if self._out is None:
            return result, None
        node = re.sub(r"[^A-Za-z0-9_.-]+", "-", self._node)[-80:].strip("-.")
        folder = self._out / f"{node}-{self._digest()[:8]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if isinstance(result, MechanismResult) and "search" in result.details:
                result = cast("R", with_pair_in(result, folder))
            page = of_result(result)
            write_json(page, folder / "result.json")
            return result, write_report(page, folder / "report.html")
        except OSError as error:
            raise UsageError(
                f"dpaudit-out={self._out}: cannot be written ({error.strerror}); choose another"
            ) from None

    def _seed(self, given: int | str | None) -> str:
        """``given``, or one of this audit's own."""
        return self._digest()[:16] if given is None else str(given)

    def _digest(self) -> str:
        return hashlib.sha256(f"{self._node}#{self._made}".encode()).hexdigest()


class _Audited(NamedTuple, Generic[R]):
    """The result, the command that shows it again, and its page, if one was kept."""

    result: R
    again: str
    page: Path | None

    def passed(self) -> R:
        __tracebackhide__ = True
        if self.result.verdict != "no-finding":
            raise self.failure()
        return self.result

    def failure(self) -> AssertionError:
        return AssertionError(failure(self.result, again=self.again, page=self.page))


def sentence(result: AuditResult | MechanismResult, *, page: Path | None = None) -> str:
    """The verdict of either kind of audit; ``page`` shows what a pass cannot exclude, if kept."""
    rest = "in the result's cannot_rule_out" if page is None else "in the report"
    if isinstance(result, AuditResult):
        return audit_sentence(result, rest=rest)
    return mechanism_sentence(result, rest=rest)


def failure(result: AuditResult | MechanismResult, *, again: str, page: Path | None) -> str:
    """The message for a finding or an inconclusive audit, with the command and the report."""
    found = [t for t in sorted_tests(result.tests) if t.finding]
    lines = [sentence(result, page=page), f"  audited: {_target(result)}"]
    lines += _pair(result)
    lines += [f"  {_line(t)}" for t in found[:_MOST]]
    if len(found) > _MOST:
        lines.append(f"  and {len(found) - _MOST} more findings")
    lines.append(f"To see it again: {printable(again, limit=_LONGEST)}")
    lines += [f"What it means: dpaudit explain {topic_of(t.name)}" for t in found[:1]]
    return "\n".join([*lines, _kept(page)])


def nothing_found(
    result: AuditResult | MechanismResult, *, wanted: str, again: str, page: Path | None
) -> str:
    """The message for a known-bad control that was not caught."""
    tests = [t for t in sorted_tests(result.tests) if not t.advisory]
    nearest = f"  nearest: {_line(tests[0])}" if tests else "  no test gave a result"
    by = f" by {printable(wanted, limit=200)}" if wanted else ""
    return "\n".join(
        [
            f"A known-bad control was not caught{by}. {sentence(result, page=page)}",
            f"  audited: {_target(result)}",
            nearest,
            "Raise samples=, or check that the control still has the flaw.",
            f"To see it again: {printable(again, limit=_LONGEST)}",
            _kept(page),
        ]
    )


def _target(result: AuditResult | MechanismResult) -> str:
    level = sandbox_level(result)
    name = result.sampler if isinstance(result, AuditResult) else result.mechanism
    return printable(name, limit=200) + (f" (sandbox: {level})" if level else "")


def _pair(result: AuditResult | MechanismResult) -> list[str]:
    """The two data sets that were compared, in a few words each, and how they were found."""
    if isinstance(result, AuditResult) or "datasets" not in result.details:
        return []
    first, second = (printable(str(one), limit=200) for one in result.details["datasets"])
    lines = [f"  first data set: {first}", f"  second data set: {second}"]
    if searched := result.details.get("search"):
        lines.append(f"  found among {searched['tried']:,} pairs ({searched['adjacency']})")
    return lines


def _line(test: TestResult) -> str:
    effect = printable(test.effect, limit=400)
    p = f"(adjusted p {p_value(test.p_adjusted)})"
    return " ".join(filter(None, (f"{printable(test.name, limit=100)}:", effect, p)))


def _kept(page: Path | None) -> str:
    return f"Report: {page or 'none was kept; --dpaudit-out DIR keeps one'}"
