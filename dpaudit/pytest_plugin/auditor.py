"""The object behind the fixture ``dpaudit``: audits that pass, or fail with a usable message."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from dpaudit.audit.mechanism.question import with_pair_in
from dpaudit.audit.mechanism.request import MechanismRequest
from dpaudit.audit.mechanism.run import audit_subject as audit_mechanism_subject
from dpaudit.audit.options import AuditOptions
from dpaudit.audit.request import AuditRequest, Failure, NoiseRequest
from dpaudit.audit.result import AuditResult, MechanismResult
from dpaudit.audit.run import audit_subject
from dpaudit.errors import DpauditError, SamplerError, UsageError
from dpaudit.options import from_keywords
from dpaudit.render import headline, write_report
from dpaudit.render.parts import finding_text, safe
from dpaudit.report import Report, describe
from dpaudit.results.text import printable
from dpaudit.targets.callables import reproducible, subject

if TYPE_CHECKING:
    from dpaudit.audit.replay.request import ReplayResult

__all__ = ["RELEASES", "Auditor"]

RELEASES = 100_000
"""Releases that :meth:`Auditor.assert_private` draws at each neighbour, unless told otherwise."""

_MOST = 8  # findings that a message lists
_LONGEST = 20_000  # characters of a command

Named = str | Callable[..., Any]
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
        self._audits = 0

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
        return self._audit_noise(sampler, claim, in_process, options, control=False).require_pass()

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
        audited = self._audit_noise(sampler, claim, in_process, options, control=True)
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
        own: dict[str, Any] = {"samples": RELEASES, "alpha": self._alpha, "seed": self._own_seed()}
        return self._audit(
            mechanism,
            in_process,
            lambda: MechanismRequest.from_keywords(options, attack=attack, **own),
            audit_mechanism_subject,
            control=False,
        ).require_pass()

    def assert_private_flow(self, pipeline: Named, data: Any, **options: Any) -> ReplayResult:
        """Fail if ``pipeline`` shows its data with its noise frozen (:func:`dpaudit.replay`).

        Raises:
            AssertionError: a finding, or an inconclusive replay.
            UsageError: no function that another process can import, or an unknown option.
        """
        __tracebackhide__ = True
        from dpaudit.audit.replay.run import replay  # not at the top: few tests replay

        own: dict[str, Any] = {"alpha": self._alpha, "seed": self._own_seed()}
        result = replay(pipeline, data, **{**own, **options})
        if result.verdict != "no-finding":
            found = [f"{d.line or d.at}: {d.says}" for d in result.findings]
            text = "\n  ".join([describe(result).headline, *found])
            raise AssertionError(printable(text))
        return result

    def _audit_noise(
        self,
        sampler: Named,
        claim: str | None,
        in_process: bool | None,
        options: Mapping[str, Any],
        *,
        control: bool,
    ) -> _Audit[AuditResult]:
        __tracebackhide__ = True
        own = {"samples": self._samples, "alpha": self._alpha, "seed": self._own_seed()}
        return self._audit(
            sampler,
            in_process,
            lambda: NoiseRequest(claim=claim, options=from_keywords(AuditOptions, options, **own)),
            audit_subject,
            control=control,
        )

    def _audit(
        self,
        audited: Named,
        in_process: bool | None,
        request_of: Callable[[], AuditRequest[R]],
        audit: Callable[..., R],
        *,
        control: bool,
    ) -> _Audit[R]:
        """Run one audit, keep its report, and record it for the session's summary."""
        __tracebackhide__ = True
        self._audits += 1
        page = None
        try:
            request, target = request_of(), subject(audited, in_process=in_process)
            if target.target is None:
                again = shlex.join(["pytest", self._node])
                result = reproducible(audit(target, request), target, again=again)
            else:
                again = target.command(request.command(target.target))
                result = audit(target, request)
        except SamplerError as error:
            result = request.inconclusive(Failure(name=target.name, reason=str(error)))
        except DpauditError as error:
            raise type(error)(str(error)) from None
        else:
            result, page = self._write(result)
        kind = "sampler" if isinstance(result, AuditResult) else "mechanism"
        self._record(
            {
                kind: printable(getattr(result, kind), limit=200),
                "claim": request.claim_text,
                "verdict": result.verdict,
                "alpha": request.options.alpha,
                "control": control,
            }
        )
        first = next((t.reproduce for t in result.tests if t.finding and t.reproduce), again)
        return _Audit(result, first, page)

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
        return hashlib.sha256(f"{self._node}#{self._audits}".encode()).hexdigest()


class _Audit(NamedTuple, Generic[R]):
    """The result, the command that shows it again, and its page, if one was kept."""

    result: R
    again: str
    page: Path | None

    def require_pass(self) -> R:
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
