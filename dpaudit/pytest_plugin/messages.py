"""What a failed assertion says: the verdict in a sentence, what was found, how to see it again."""

from __future__ import annotations

from pathlib import Path

from dpaudit.report import audit_sentence, mechanism_sentence, p_value
from dpaudit.report.sentences import sandbox_level
from dpaudit.report.tables import sorted_tests
from dpaudit.results.text import printable
from dpaudit.types import AuditResult, MechanismResult, TestResult

__all__ = ["failure", "nothing_found", "sentence"]

_MOST = 8


def sentence(result: AuditResult | MechanismResult) -> str:
    """The verdict of either kind of audit."""
    return audit_sentence(result) if isinstance(result, AuditResult) else mechanism_sentence(result)


def failure(result: AuditResult | MechanismResult, *, again: str, page: Path | None) -> str:
    """A finding, or an inconclusive audit, in lines for a person: the command, the report."""
    found = [t for t in sorted_tests(result.tests) if t.finding]
    lines = [_above(sentence(result)), f"  audited: {_audited(result)}"]
    lines += [f"  {_line(t)}" for t in found[:_MOST]]
    if len(found) > _MOST:
        lines.append(f"  and {len(found) - _MOST} more findings")
    lines.append(f"To see it again: {printable(again)}")
    return "\n".join([*lines, _kept(page)])


def nothing_found(result: AuditResult | MechanismResult, *, wanted: str, again: str, page: Path | None) -> str:
    """A known-bad control that was not caught."""
    tests = [t for t in sorted_tests(result.tests) if not t.advisory]
    nearest = f"  nearest: {_line(tests[0])}" if tests else "  no test said anything"
    return "\n".join(
        [
            f"A known-bad control was not caught{f' by {printable(wanted, limit=200)}' if wanted else ''}. "
            f"{_above(sentence(result))}",
            f"  audited: {_audited(result)}",
            nearest,
            "Raise samples=, or look whether the flaw is still in it.",
            f"To see it again: {printable(again)}",
            _kept(page),
        ]
    )


def _above(text: str) -> str:
    """The report's sentence points below itself; here nothing is below."""
    return text.replace("what this cannot exclude is below", "a pass excludes less than it seems, see the report")


def _audited(result: AuditResult | MechanismResult) -> str:
    level = sandbox_level(result)
    target = printable(result.sampler if isinstance(result, AuditResult) else result.mechanism, limit=200)
    return f"{target} (sandbox: {level})" if level else target


def _line(test: TestResult) -> str:
    effect = printable(test.effect, limit=400)
    p = f"(adjusted p {p_value(test.p_adjusted)})"
    return " ".join(filter(None, (f"{printable(test.name, limit=100)}:", effect, p)))


def _kept(page: Path | None) -> str:
    return f"Report: {page}" if page is not None else "Report: none was kept; --dpaudit-out DIR keeps one"
