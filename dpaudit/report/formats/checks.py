"""A document of any kind as a list of checks with outcomes: what JUnit and SARIF know of it.

The verdict of an audit is never lost: a finding is at least one check that failed, and where it is inconclusive none passed.
What an experiment's attacks achieve is its result, in a sentence, and no failure of a check.
All texts are printable: whatever a sampler calls itself, no control character or lone surrogate comes through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dpaudit.errors import UsageError
from dpaudit.report import format as fmt
from dpaudit.report.deployment import deployment_sentence, deployment_title, deployment_verdict, listed, part
from dpaudit.report.formats.json_schema import KINDS
from dpaudit.report.mechanism import mechanism_sentence
from dpaudit.report.rows import above_chance, attacks_of
from dpaudit.report.sentences import audit_sentence, experiment_sentence, failures_of, measurements_sentence
from dpaudit.report.tables import blind_spots_table
from dpaudit.results.text import printable

__all__ = ["Check", "Checked", "Outcome", "checked"]

Outcome = Literal["pass", "finding", "advice", "undecided", "error"]
_VERDICTS = {"finding": "finding", "no-finding": "no-finding"}
_TEST_FACTS = ("p", "p_adjusted", "statistic", "interval", "unit", "seen_after", "advisory")
_BOUNDS = ("claim_epsilon", "claim_delta", "claim_mu", "epsilon", "delta", "mu", "method", "attack")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at: a test, an experiment's cell, a number beside the published one, an odd file.

    ``group`` says which of these; ``facts`` are JSON-ready numbers; ``undecided`` means that the audit came to no verdict,
    so that not having found anything says nothing.
    """

    group: str
    name: str
    outcome: Outcome
    looks_at: str = ""
    message: str = ""
    reproduce: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a document says: of what (``target``, as ``claim`` says it is), the verdict in a sentence, and the checks.

    ``blind_spots`` are what a pass does not exclude, a line each.
    """

    kind: str
    target: str
    title: str
    claim: str
    verdict: str
    sentence: str
    checks: tuple[Check, ...]
    blind_spots: tuple[str, ...]
    facts: Mapping[str, Any]
    seconds: float | None
    command: str
    provenance: Mapping[str, Any]


def checked(document: Mapping[str, Any]) -> Checked:
    """The checks of a document.

    Raises:
        UsageError: the document is of none of the kinds known here.
    """
    match document.get("kind"):
        case "audit" | "mechanism" if isinstance(document.get("result"), Mapping):
            return _audited(document["kind"], document["result"])
        case "experiment" | "measurements":
            return _experiment(document)
        case "deployment":
            return _deployment(document)
        case kind:
            raise UsageError(f"kind={printable(kind, limit=60)!r}: it must be one of {', '.join(KINDS)}")


def _audited(kind: str, result: Mapping[str, Any]) -> Checked:
    verdict = _VERDICTS.get(str(result.get("verdict")), "inconclusive")
    sentence = (audit_sentence if kind == "audit" else mechanism_sentence)(result)
    target = _text(result.get("sampler" if kind == "audit" else "mechanism") or f"a {kind}", 400)
    names = (
        "samples",
        "samples_requested",
        "alpha",
        "sandbox",
        *(_BOUNDS if kind == "mechanism" else ("dims", "sequential")),
    )
    told = [
        Check(group="advice", name="advice", outcome="advice", message=_text(a)) for a in result.get("advice") or ()
    ]
    checks = [_test(test, result.get("alpha"), verdict) for test in listed(result.get("tests"))]
    return Checked(
        kind=kind,
        target=target,
        title=f"Audit of {target}",
        claim=_text(result.get("claim") or _epsilon_claim(result), 400),
        verdict=verdict,
        sentence=sentence,
        checks=(*_with_verdict(checks, verdict, sentence), *told),
        blind_spots=tuple(_blind_spots(result)),
        facts={name: _plain(result[name]) for name in names if result.get(name) is not None},
        seconds=fmt.number(result.get("seconds")),
        command="",
        provenance=part(result, "provenance"),
    )


def _epsilon_claim(result: Mapping[str, Any]) -> str:
    epsilon, delta = (fmt.number(result.get(f"claim_{name}")) for name in ("epsilon", "delta"))
    return "" if epsilon is None else f"({fmt.quantity(epsilon)}, {fmt.quantity(delta)})-DP"


def _test(test: Mapping[str, Any], alpha: object, verdict: str) -> Check:
    p, level = fmt.number(test.get("p")), fmt.number(alpha)
    outcome: Outcome
    if test.get("finding"):
        outcome = "finding"
    elif test.get("advisory") and (p is None or level is None or p <= level):
        outcome = "advice"
    else:
        outcome = "undecided" if verdict == "inconclusive" else "pass"
    return Check(
        group="tests",
        name=_text(test.get("name") or "test", 200),
        outcome=outcome,
        looks_at=_text(test.get("looks_at") or "", 400),
        message=_text(test.get("effect") or ""),
        reproduce=_text(test.get("reproduce") or ""),
        facts={name: _plain(test[name]) for name in _TEST_FACTS if test.get(name) is not None},
    )


def _with_verdict(checks: list[Check], verdict: str, sentence: str) -> list[Check]:
    """The checks, and where they would not show the verdict, the verdict as one more."""
    outcomes = {check.outcome for check in checks}
    said: Outcome
    match verdict:
        case "inconclusive":
            said = "error"
        case "finding" if "finding" not in outcomes:
            said = "finding"
        case "no-finding" if not outcomes:
            said = "pass"
        case _:
            return checks
    return [Check(group="verdict", name="verdict", outcome=said, message=sentence), *checks]


def _blind_spots(result: Mapping[str, Any]) -> Iterator[str]:
    """Flaw, the size up to which it is missed, and that in words."""
    columns = blind_spots_table({"cannot_rule_out": listed(result.get("cannot_rule_out"))})
    for flaw, size, words in zip(*(column.cells for column in columns[:3]), strict=True):
        yield f"{flaw} ({size}): {words}" if size != fmt.NOTHING else f"{flaw}: {words}"


def _experiment(document: Mapping[str, Any]) -> Checked:
    measured = document["kind"] == "measurements"
    rows, misses, failures = listed(document.get("rows")), listed(document.get("misses")), failures_of(document)
    found = bool(misses) if measured else any(above_chance(a) for row in rows for a in attacks_of(row))
    verdict = "finding" if found else "inconclusive" if failures or not rows else "no-finding"
    sentence = measurements_sentence(document) if measured else experiment_sentence(rows, failures=failures)
    checks = [
        *(_failed(failure) for failure in failures),
        *(_cell(cell) for cell in listed(document.get("cells"))),
        *(_published(row, listed(document.get("columns"))) for row in rows if isinstance(row.get("agrees"), bool)),
    ]
    name = _text(document.get("name") or document["kind"], 200)
    return Checked(
        kind=str(document["kind"]),
        target=name,
        title=_text(document.get("title") or name, 400),
        claim="",
        verdict=verdict,
        sentence=sentence,
        checks=tuple(checks or _with_verdict(checks, verdict, sentence)),
        blind_spots=(),
        facts={"rows": len(rows), "misses": len(misses), "failures": len(failures)},
        seconds=sum(check.seconds or 0.0 for check in checks),
        command=_text(document.get("command") or "", 1000),
        provenance=part(document, "provenance"),
    )


def _cell(cell: Mapping[str, Any]) -> Check:
    return Check(group="cells", name=_cell_name(cell), outcome="pass", seconds=fmt.number(cell.get("seconds")))


def _failed(failure: Mapping[str, Any]) -> Check:
    return Check(
        group="cells",
        name=_cell_name(failure),
        outcome="error",
        message=_text(failure.get("error") or "the cell failed"),
        facts={"traceback": _text(failure.get("traceback") or "", 20_000)},
        seconds=fmt.number(failure.get("seconds")),
    )


def _cell_name(cell: Mapping[str, Any]) -> str:
    """The kind, what its settings call it, and the cell's own name, which tells it from all others."""
    settings = part(cell, "settings")
    labels = [
        settings[k].get("label") for k in ("source", "mitigation", "attack") if isinstance(settings.get(k), Mapping)
    ]
    grid = [f"{k}={fmt.setting(v)}" for k, v in part(settings, "grid").items()]
    words = ", ".join(_text(word, 80) for word in [*filter(None, labels), *grid])
    name = f"{_text(cell.get('kind') or 'cell', 80)} {words}".strip()
    return f"{_text(name, 300)} ({_text(cell.get('cell') or '', 40)})"


def _published(row: Mapping[str, Any], columns: list[Mapping[str, Any]]) -> Check:
    """A measured number beside the published one."""
    keys = [str(c.get("key")) for c in columns if c.get("format") in ("setting", "text")]
    words = ", ".join(f"{_text(k, 60)}={_text(fmt.setting(row[k]), 60)}" for k in keys if row.get(k) is not None)
    values = [str(c.get("key")) for c in columns if isinstance(row.get(str(c.get("key"))), Mapping)]
    found = "; ".join(f"{_text(k, 60)} {_measured(row[k])}" for k in values)
    beside = f"published {_text(fmt.setting(row.get('published')), 60)}"
    return Check(
        group="published",
        name=_text(words or "row", 300),
        outcome="pass" if row["agrees"] else "finding",
        looks_at="our number beside the published one",
        message=f"{beside}; measured {found}" if found else beside,
        facts={"published": _plain(row.get("published"))},
    )


def _measured(value: Mapping[str, Any]) -> str:
    low, high = fmt.number(value.get("low")), fmt.number(value.get("high"))
    return fmt.ranged(fmt.quantity(value.get("value")), low, high)


def _deployment(document: Mapping[str, Any]) -> Checked:
    findings = listed(document.get("findings"))
    checks = [
        Check(
            group="findings",
            name=_text(finding.get("where") or "finding", 300),
            outcome="finding" if finding.get("serious") else "advice",
            looks_at="the deployment's own files",
            message=_text(finding.get("message") or ""),
        )
        for finding in findings
    ]
    verdict = deployment_verdict(document)
    sentence = deployment_sentence(document)
    if verdict == "no-finding":  # advice alone is no test that passed
        checks.insert(0, Check(group="verdict", name="verdict", outcome="pass", message=sentence))
    return Checked(
        kind="deployment",
        target=_text(document.get("system") or "deployment", 100),
        title=deployment_title(document),
        claim="",
        verdict=verdict,
        sentence=sentence,
        checks=tuple(_with_verdict(checks, verdict, sentence)),
        blind_spots=(),
        facts={"ledger": _plain(part(document, "ledger").get("permitted"))} if part(document, "ledger") else {},
        seconds=None,
        command="",
        provenance=part(document, "provenance"),
    )


def _text(value: object, limit: int = 2000) -> str:
    return printable(value, limit=limit)


def _plain(value: object) -> Any:
    """A JSON value whose texts are printable; numbers that JSON does not have become words."""
    if isinstance(value, Mapping):
        return {_text(k, 100): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and fmt.number(value) not in (None, float("inf"), float("-inf")):
        return value
    return value if value is None or isinstance(value, (bool, int)) else _text(value)
