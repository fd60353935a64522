"""The object behind the fixture ``dpaudit``: audits that pass, or fail with a message that a person can act on."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

from dpaudit.api import document_of
from dpaudit.audit.options import AuditOptions, MechanismOptions, PrivacyClaim
from dpaudit.errors import DpauditError, SamplerError, UsageError
from dpaudit.pytest_plugin.audits import command, mechanism_result, noise_result, reproducible
from dpaudit.pytest_plugin.callables import Subject, subject
from dpaudit.pytest_plugin.messages import failure, nothing_found
from dpaudit.report import write_json, write_report
from dpaudit.results.text import printable
from dpaudit.types import AuditResult, MechanismResult

__all__ = ["RELEASES", "Auditor", "NoiseOptions"]

RELEASES = 100_000
"""Releases that :meth:`Auditor.assert_private` draws at each neighbour, unless told otherwise."""

Named = str | Callable[..., Any]
Vector = float | Sequence[float]
Asked = TypeVar("Asked", AuditOptions, MechanismOptions)


class NoiseOptions(TypedDict, total=False):
    """Options of an audit of noise, those of :func:`dpaudit.audit_sampler`; ``samples`` counts single values.

    ``in_process`` is for callables: True keeps a module-level function in the test's process, False refuses what could
    only run there.
    """

    dim: int | None
    samples: float | None
    alpha: float | None
    seed: int | str | None
    time_limit: float | None
    tests: Sequence[str] | None
    mitigation: str | None
    in_process: bool | None


class _Audited(NamedTuple):
    """What came out: the result (None where the sampler failed), as a document, the command, the page."""

    result: Any
    document: Mapping[str, Any]
    again: str
    page: Path | None

    @property
    def verdict(self) -> str:
        return str(self.document["verdict"])

    def failure(self) -> AssertionError:
        return AssertionError(failure(self.document, again=self.again, page=self.page))


class Auditor:
    """Audits made by one test. A finding or an inconclusive audit raises ``AssertionError``; a pass returns the result.

    A ``sampler`` or ``mechanism`` is a target as on the command line, or a callable. A module-level function runs in a
    process of its own behind the samplers' limits, so monkeypatches of the test's process do not reach it. A closure, a
    lambda, a bound method or an object is called in the test's process: without limits on memory, with a time limit that
    interrupts no call, and with no second process to compare.

    Every audit has a fixed seed, from the test's node id and the audit's number in the test: registered sources give the
    same values in every run. Other samplers do not: an honest one fails with probability at most ``alpha`` a run.
    Not claimed: that what passes is honest; the result's ``cannot_rule_out`` says what it may still hide, a keyed
    backdoor above all.
    """

    def __init__(
        self, *, node: str, samples: int, alpha: float, out: Path | None, record: Callable[[dict[str, Any]], None]
    ) -> None:
        """``node`` is the test's id; ``record`` is told of each audit, in JSON-ready words."""
        self._node, self._samples, self._alpha, self._out, self._record = node, samples, alpha, out, record
        self._made = 0

    def assert_no_finding(
        self, sampler: Named, *, claim: str | None = None, **options: Unpack[NoiseOptions]
    ) -> AuditResult:
        """Fail unless nothing contradicts ``claim``; a callable is ``f(n, d)`` → array (n, d), or ``f(size=(n, d))``.

        Raises:
            AssertionError: a finding, or an inconclusive audit (the sampler died, did not respond, or gave too little).
            UsageError: an unknown name, or an option that does not fit.
        """
        __tracebackhide__ = True
        audited = self._noise(sampler, claim=claim, control=False, **options)
        if audited.verdict != "no-finding":
            raise audited.failure()
        result: AuditResult = audited.result
        return result

    def assert_finding(
        self,
        sampler: Named,
        *,
        claim: str | None = None,
        by: str | Sequence[str] = (),
        **options: Unpack[NoiseOptions],
    ) -> AuditResult:
        """Fail unless this known-bad control is found out, by all the tests named in ``by``, if any.

        A gate that catches nothing passes everything: a control shows that it still catches. No α is counted for it.
        Raises as :meth:`assert_no_finding`.
        """
        __tracebackhide__ = True
        audited = self._noise(sampler, claim=claim, control=True, **options)
        if audited.verdict == "inconclusive":
            raise audited.failure()
        found = {t["name"] for t in audited.document["tests"] if t["finding"]}
        missing = [name for name in ([by] if isinstance(by, str) else by) if name not in found]
        if not found or missing:
            raise AssertionError(
                nothing_found(audited.document, wanted=" and ".join(missing), again=audited.again, page=audited.page)
            )
        result: AuditResult = audited.result
        return result

    def assert_private(
        self,
        mechanism: Named,
        *,
        neighbours: str | tuple[Vector, Vector] | None = None,
        epsilon: float,
        delta: float = 0.0,
        mu: float | None = None,
        attack: str | None = None,
        samples: float = RELEASES,
        alpha: float | None = None,
        seed: int | str | None = None,
        time_limit: float = 600.0,
        real_numbers: bool = False,
        in_process: bool | None = None,
    ) -> MechanismResult:
        """Fail if releases at two ``neighbours`` show more than (``epsilon``, ``delta``), or than ``mu``-Gaussian DP.

        A callable is ``f(value, n)`` → array (n,) or (n, k): ``n`` releases of a query result, a float or an array (m,).
        ``neighbours`` are two query results, ``(0, 1)`` or ``([0, 0], [1, 0])``, or text as on the command line.
        ``samples`` releases are drawn at each. The rest is as in :func:`dpaudit.audit_mechanism`.

        Raises:
            AssertionError: more is shown than claimed, or the audit is inconclusive.
            UsageError: an unknown name, or an option that does not fit.
        """
        __tracebackhide__ = True
        pair = neighbours if neighbours is None or isinstance(neighbours, str) else _text(neighbours)
        used = self._seed(seed)
        claim = {"claim_epsilon": epsilon, "claim_delta": delta, "claim_mu": mu}

        def options() -> MechanismOptions:
            return MechanismOptions(
                samples=_whole(samples),
                alpha=self._alpha if alpha is None else alpha,
                seed=used,
                time_limit=time_limit,
                real_numbers=real_numbers,
            )

        def run(what: Subject, options: MechanismOptions) -> MechanismResult:
            claimed = PrivacyClaim(epsilon, delta, mu)
            return mechanism_result(what, claim=claimed, neighbours=pair, attack=attack, options=options)

        audited = self._audit(
            "mechanism",
            mechanism,
            in_process,
            options,
            run,
            words={"neighbours": pair, **claim, "attack": attack},
            about={"claim_epsilon": epsilon, "claim_delta": delta},
            control=False,
        )
        if audited.verdict != "no-finding":
            raise audited.failure()
        result: MechanismResult = audited.result
        return result

    def _noise(self, sampler: Named, *, claim: str | None, control: bool, **options: Unpack[NoiseOptions]) -> _Audited:
        __tracebackhide__ = True
        if unknown := set(options) - set(NoiseOptions.__annotations__):
            raise UsageError(f"{min(unknown)}: no such option; there are: {', '.join(NoiseOptions.__annotations__)}")
        tests, alpha, samples = options.get("tests"), options.get("alpha"), options.get("samples")
        seed = self._seed(options.get("seed"))

        def asked() -> AuditOptions:
            return AuditOptions(
                dim=options.get("dim"),
                samples=self._samples if samples is None else _whole(samples),
                alpha=self._alpha if alpha is None else alpha,
                seed=seed,
                time_limit=options.get("time_limit"),
                tests=None if tests is None else (tests,) if isinstance(tests, str) else tuple(tests),
                mitigation=options.get("mitigation"),
            )

        return self._audit(
            "audit",
            sampler,
            options.get("in_process"),
            asked,
            lambda what, options: noise_result(what, claim=claim, options=options),
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
        run: Callable[[Subject, Asked], Any],
        *,
        words: Mapping[str, Any],
        about: Mapping[str, Any],
        control: bool,
    ) -> _Audited:
        """Run one audit, keep its report, and tell the session of it."""
        __tracebackhide__ = True
        self._made += 1
        result, page = None, None
        try:
            options, what = asked(), subject(given, in_process=in_process)
            again = command(kind, what, options, **words) if what.target else shlex.join(["pytest", self._node])
            result = reproducible(run(what, options), what, again=again)
        except SamplerError as error:
            name = "sampler" if kind == "audit" else kind
            document: dict[str, Any] = {
                "verdict": "inconclusive",
                "reason": str(error),
                name: what.name,
                **about,
                "tests": [],
            }
        except DpauditError as error:
            raise type(error)(str(error)) from None
        else:
            whole = document_of(result)
            document, page = whole["result"], self._write(whole)
        shown: dict[str, Any] = {
            name: printable(document.get(name), limit=200) for name in ("sampler", "mechanism") if name in document
        }
        self._record({**shown, **about, "verdict": document["verdict"], "alpha": options.alpha, "control": control})
        first = next((t["reproduce"] for t in document["tests"] if t["finding"] and t["reproduce"]), again)
        return _Audited(result, document, first, page)

    def _write(self, page: Mapping[str, Any]) -> Path | None:
        if self._out is None:
            return None
        digest = hashlib.sha256(f"{self._node}#{self._made}".encode()).hexdigest()[:8]
        folder = self._out / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', self._node)[-80:].strip('-.')}-{digest}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(page, folder / "result.json")
            return write_report(page, folder / "report.html")
        except OSError as error:
            raise UsageError(f"dpaudit-out={self._out}: cannot be written ({error.strerror}); choose another") from None

    def _seed(self, given: int | str | None) -> str:
        """The test's own, one for each of its audits."""
        return (
            str(given) if given is not None else hashlib.sha256(f"{self._node}#{self._made}".encode()).hexdigest()[:16]
        )


def _whole(samples: float) -> int:
    if not (1 <= samples <= 1e15) or samples != int(samples):
        raise UsageError(f"samples={samples}: must be a whole number, e.g. 1e6")
    return int(samples)


def _text(neighbours: tuple[Vector, Vector]) -> str:
    """Two query results as the command line takes them, to the last digit."""
    try:
        rows = [[float(x) for x in (v if hasattr(v, "__iter__") else [v])] for v in neighbours]
    except (TypeError, ValueError):
        raise UsageError(f"neighbours={neighbours!r}: write two numbers or two vectors, e.g. (0, 1)") from None
    return ";".join(",".join(f"{x!r}" for x in row) for row in rows)
