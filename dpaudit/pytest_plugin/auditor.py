"""The object behind the fixture ``dpaudit``: audits that pass, or fail with a usable message."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

from dpaudit.audit.mechanism.question import neighbours_text, question_of, with_pair_in
from dpaudit.audit.mechanism.run import audit_subject as audit_mechanism_subject
from dpaudit.audit.options import AuditOptions, ClaimOptions, DataOptions, MechanismOptions
from dpaudit.audit.result import AuditResult, MechanismResult, nothing_counted, nothing_drawn
from dpaudit.audit.run import audit_subject
from dpaudit.errors import DpauditError, SamplerError, UsageError
from dpaudit.options import command_of, from_keywords, parted
from dpaudit.render import headline, write_report
from dpaudit.render.parts import finding_text, safe
from dpaudit.report import Report, describe
from dpaudit.results.text import printable
from dpaudit.targets.callables import Subject, reproducible, subject

__all__ = ["RELEASES", "Auditor"]

RELEASES = 100_000
"""Releases that :meth:`Auditor.assert_private` draws at each neighbour, unless told otherwise."""

_MOST = 8  # findings that a message lists
_LONGEST = 20_000  # characters of a command

Named = str | Callable[..., Any]
Asked = TypeVar("Asked", AuditOptions, MechanismOptions)
R = TypeVar("R", bound=AuditResult | MechanismResult)


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
        self,
        sampler: Named,
        *,
        claim: str | None = None,
        in_process: bool | None = None,
        **options: Any,
    ) -> AuditResult:
        """Fail unless nothing contradicts ``claim``.

        A callable, ``in_process`` and the options are as for :func:`dpaudit.audit_sampler`: True
        keeps a module-level function in the test's process, False refuses what could only run
        there.

        Raises:
            AssertionError: a finding, or an inconclusive audit (the sampler died, did not respond,
                or returned too few values).
            UsageError: an unknown name, or an option that does not fit.
        """
        __tracebackhide__ = True
        return self._noise(sampler, claim, in_process, options, control=False).passed()

    def assert_finding(
        self,
        sampler: Named,
        *,
        claim: str | None = None,
        by: str | Sequence[str] = (),
        in_process: bool | None = None,
        **options: Any,
    ) -> AuditResult:
        """Fail unless the audit reports a finding on this known-bad control.

        All the tests named in ``by`` must report one; all values are then drawn, unless
        ``all_values=False``. A gate that catches nothing passes everything: a control shows that it
        still catches. No α is counted for it. Raises as :meth:`assert_no_finding`.
        """
        __tracebackhide__ = True
        options.setdefault("all_values", bool(by))
        audited = self._noise(sampler, claim, in_process, options, control=True)
        if audited.result.verdict == "inconclusive":
            raise audited.failure()
        findings = {t.name for t in audited.result.tests if t.finding}
        missing = [name for name in ([by] if isinstance(by, str) else by) if name not in findings]
        if not findings or missing:
            result, again, page = audited
            missing_tests = " and ".join(missing)
            raise AssertionError(
                missed_control(result, missing=missing_tests, again=again, page=page)
            )
        return audited.result

    def assert_private(
        self,
        mechanism: Named,
        *,
        attack: str | None = None,
        in_process: bool | None = None,
        **options: Any,
    ) -> MechanismResult:
        """Fail if releases at two ``neighbours`` violate the claim.

        It is (``epsilon``, ``delta``)-DP or ``mu``-GDP or both, or ``rho``, ``renyi``, ``curve``,
        ``f`` or ``dpsgd`` alone.

        A callable is ``f(value, n)`` → array (n,) or (n, k): ``n`` releases of a query result, a
        float or an array (m,), or ``f(value)``, one release. ``neighbours`` are two query results,
        ``(0, 1)`` or ``([0, 0], [1, 0])``, or text as on the command line; or two data sets, or
        ``"search"`` with a ``dataset``. ``samples`` releases are drawn at each. The other options
        are those of :func:`dpaudit.audit_mechanism` and :func:`dpaudit.audit_datasets`.

        Raises:
            AssertionError: more is shown than claimed, or the audit is inconclusive.
            UsageError: an unknown name, or an option that does not fit.
        """
        __tracebackhide__ = True
        data, claimed, how = parted(options, DataOptions, ClaimOptions, MechanismOptions)
        compared, claims = from_keywords(DataOptions, data), from_keywords(ClaimOptions, claimed)
        question = question_of(compared)
        if question is None:
            compared = DataOptions(neighbours=neighbours_text(compared.neighbours))
        else:
            compared = DataOptions(neighbours=question.shown)
        own = {"samples": RELEASES, "alpha": self._alpha, "seed": self._own_seed()}
        claim = claims.claim()
        return self._audit(
            mechanism,
            in_process,
            lambda: from_keywords(MechanismOptions, how, **own),
            lambda what, options: audit_mechanism_subject(
                what,
                claim=claim,
                neighbours=compared.neighbours if question is None else None,
                attack=attack,
                options=options,
                question=question,
            ),
            lambda name, reason, options: nothing_counted(
                name, reason, claim=claim, attack=attack or "", options=options
            ),
            lambda target, options: command_of(
                "mechanism", target, claim.options, compared, options, attack=attack
            ),
            about={"claim": claim.text},
            control=False,
        ).passed()

    def _noise(
        self,
        sampler: Named,
        claim: str | None,
        in_process: bool | None,
        options: Mapping[str, Any],
        *,
        control: bool,
    ) -> _Audited[AuditResult]:
        __tracebackhide__ = True
        parted(options, AuditOptions)
        own = {"samples": self._samples, "alpha": self._alpha, "seed": self._own_seed()}
        return self._audit(
            sampler,
            in_process,
            lambda: from_keywords(AuditOptions, options, **own),
            lambda what, options: audit_subject(what, claim=claim, options=options),
            lambda name, reason, options: nothing_drawn(
                name, reason, claim=claim or "its claim", options=options
            ),
            lambda target, options: command_of("audit", target, options, claim=claim),
            about={"claim": claim or "its claim"},
            control=control,
        )

    def _audit(
        self,
        audited: Named,
        in_process: bool | None,
        options_of: Callable[[], Asked],
        run: Callable[[Subject, Asked], R],
        nothing: Callable[[str, str, Asked], R],
        command: Callable[[str, Asked], str],
        *,
        about: Mapping[str, Any],
        control: bool,
    ) -> _Audited[R]:
        """Run one audit, keep its report, and record it for the session's summary."""
        __tracebackhide__ = True
        self._made += 1
        page = None
        try:
            options, what = options_of(), subject(audited, in_process=in_process)
            if what.target is None:
                again = shlex.join(["pytest", self._node])
                result = reproducible(run(what, options), what, again=again)
            else:
                again = what.command(command(what.target, options))
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
            report = describe(result)
            write_report(report, folder / "result.json", format="json")
            return result, write_report(report, folder / "report.html")
        except OSError as error:
            raise UsageError(
                f"dpaudit-out={self._out}: cannot be written ({error.strerror}); choose another"
            ) from None

    def _own_seed(self) -> str:
        """This audit's seed, unless another is given."""
        return self._digest()[:16]

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


def failure(result: AuditResult | MechanismResult, *, again: str, page: Path | None) -> str:
    """The message for a finding or an inconclusive audit, with the command and the report."""
    report = safe(describe(result))
    contradictions = report.findings
    lines = [_verdict(report, page), f"  audited: {_target(report)}"]
    lines += _pair(result)
    lines += [f"  {finding_text(c)}" for c in contradictions[:_MOST]]
    if len(contradictions) > _MOST:
        lines.append(f"  and {len(contradictions) - _MOST} more findings")
    lines.append(f"To see it again: {printable(again, limit=_LONGEST)}")
    lines += [f"What it means: dpaudit explain {c.topic}" for c in contradictions[:1]]
    return "\n".join([*lines, _report_line(page)])


def missed_control(
    result: AuditResult | MechanismResult, *, missing: str, again: str, page: Path | None
) -> str:
    """The message for a known-bad control that was not caught."""
    report = safe(describe(result))
    tests = [c for c in report.checks if c.group == "tests" and not c.facts.get("advisory")]
    by = f" by {printable(missing, limit=200)}" if missing else ""
    lines = [
        f"A known-bad control was not caught{by}. {_verdict(report, page)}",
        f"  audited: {_target(report)}",
        f"  nearest: {finding_text(tests[0])}" if tests else "  no test gave a result",
        "Raise samples=, or check that the control still has the flaw.",
        f"To see it again: {printable(again, limit=_LONGEST)}",
    ]
    return "\n".join([*lines, _report_line(page)])


def _verdict(report: Report, page: Path | None) -> str:
    """The verdict; ``page`` shows what a pass cannot exclude, if one was kept."""
    where = "in the result's cannot_rule_out" if page is None else "in the report"
    return headline(report, where=where)


def _target(report: Report) -> str:
    level = report.facts.get("sandbox")
    return report.subject + (f" (sandbox: {level})" if level else "")


def _pair(result: AuditResult | MechanismResult) -> list[str]:
    """The two data sets that were compared, in a few words each, and how they were found."""
    if isinstance(result, AuditResult) or "datasets" not in result.details:
        return []
    first, second = (printable(str(one), limit=200) for one in result.details["datasets"])
    lines = [f"  first data set: {first}", f"  second data set: {second}"]
    if searched := result.details.get("search"):
        lines.append(f"  found among {searched['tried']:,} pairs ({searched['adjacency']})")
    return lines


def _report_line(page: Path | None) -> str:
    return f"Report: {page or 'none was kept; --dpaudit-out DIR keeps one'}"
