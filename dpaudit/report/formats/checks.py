"""A document of any kind as a list of checks with outcomes, for JUnit and SARIF.

An audit's verdict is never lost: with a finding at least one check fails, and in an inconclusive
audit none passes. What an experiment's attacks achieve is its result, in a sentence, and not a
failed check. All texts are printable: no control character or lone surrogate comes through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dpaudit.deployments.apple.document import AppleDocument
from dpaudit.deployments.apple.model import Finding
from dpaudit.deployments.attribution.document import AttributionDocument
from dpaudit.deployments.census.document import CensusDocument
from dpaudit.documents import (
    AuditDocument,
    Column,
    DeterminismDocument,
    ExperimentDocument,
    MeasurementsDocument,
    MechanismDocument,
    ProofDocument,
)
from dpaudit.report import format as fmt
from dpaudit.report.attribution import attribution_sentence, attribution_title, not_excluded
from dpaudit.report.census import CANNOT_SEE, census_sentence, census_title
from dpaudit.report.deployment import deployment_sentence, deployment_title
from dpaudit.report.measurements import Row, reading
from dpaudit.report.mechanism import claim_text, claimed_pair, is_implied, mechanism_sentence
from dpaudit.report.proofs import (
    claimed_of_proof,
    determinism_sentence,
    proof_sentence,
    question_of,
    verdict_of_proof,
)
from dpaudit.report.reading import Document
from dpaudit.report.rows import exceeds_claim
from dpaudit.report.sentences import audit_sentence, experiment_sentence, measurements_sentence
from dpaudit.report.tables import blind_spots_table
from dpaudit.results.text import printable
from dpaudit.types import (
    AuditResult,
    CellFailure,
    CellResult,
    DeterminismResult,
    MechanismResult,
    ProofResult,
    TestResult,
    Verdict,
    to_dict,
)

__all__ = ["Check", "Checked", "Outcome", "checked"]

Outcome = Literal["pass", "finding", "advice", "undecided", "error"]
_TEST_FACTS = ("p", "p_adjusted", "statistic", "interval", "unit", "seen_after", "advisory")
_CLAIM = ("claim_epsilon", "claim_delta", "claim_mu", "stated")
_PROVED = ("total_variation", "log_ratio", "tolerance", "epsilon", "residual", "disjoint")
_BOUNDS = (*_CLAIM, "epsilon", "delta", "mu", "method", "attack")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: a test, an experiment's cell, a comparison with a published number, or a file.

    ``group`` says which of these; ``facts`` are JSON-ready numbers; ``undecided`` means that the
    audit reached no verdict, so that no finding means nothing.
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
    """A document's target and its claim, the verdict in a sentence, and the checks.

    ``blind_spots`` are what a pass does not exclude, one line each.
    """

    kind: str
    target: str
    title: str
    claim: str
    verdict: Verdict
    sentence: str
    checks: tuple[Check, ...]
    blind_spots: tuple[str, ...]
    facts: Mapping[str, Any]
    seconds: float | None
    command: str
    provenance: Mapping[str, Any]

    @property
    def version(self) -> str:
        """The version of dpaudit that made the document; empty if not stated."""
        versions = self.provenance.get("versions")
        named = versions.get("dpaudit") if isinstance(versions, Mapping) else None
        return printable(named or "", limit=60)


def checked(document: Document) -> Checked:
    """The checks of a document."""
    if isinstance(document, (AuditDocument, MechanismDocument)):
        return _audited(document.result)
    if isinstance(document, ProofDocument):
        return _proof(document.result)
    if isinstance(document, DeterminismDocument):
        return _determinism(document.result)
    if isinstance(document, AttributionDocument):
        return _attribution(document)
    if isinstance(document, CensusDocument):
        return _census(document)
    return _deployment(document) if isinstance(document, AppleDocument) else _experiment(document)


def _audited(result: AuditResult | MechanismResult) -> Checked:
    advice: Sequence[str] = ()
    names: tuple[str, ...]
    if isinstance(result, AuditResult):
        kind, target, claim = "audit", result.sampler, result.claim
        sentence, names = audit_sentence(result), ("dims", "sequential")
    else:
        kind, target = "mechanism", result.mechanism
        claim = claim_text(result) if is_implied(result) else claimed_pair(result)
        sentence, names, advice = mechanism_sentence(result), _BOUNDS, result.advice
    advised = [
        Check(group="advice", name="advice", outcome="advice", message=_text(a)) for a in advice
    ]
    target = _text(target or f"a {kind}", 400)
    names = ("samples", "samples_requested", "alpha", "sandbox", *names)
    checks = [_test(test, result.alpha, result.verdict) for test in result.tests]
    return Checked(
        kind=kind,
        target=target,
        title=f"Audit of {target}",
        claim=_text(claim, 400),
        verdict=result.verdict,
        sentence=sentence,
        checks=(*_with_verdict(checks, result.verdict, sentence), *advised),
        blind_spots=tuple(_blind_spots(result)),
        facts=_facts(result, names),
        seconds=fmt.number(result.seconds),
        command="",
        provenance=to_dict(result.provenance),
    )


def _facts(result: object, names: Sequence[str]) -> dict[str, Any]:
    """The fields that are not None, JSON-ready and printable."""
    return {
        name: _plain(to_dict(value))
        for name in names
        if (value := getattr(result, name)) is not None
    }


def _test(test: TestResult, alpha: float, verdict: Verdict) -> Check:
    p = fmt.number(test.p)
    outcome: Outcome
    if test.finding:
        outcome = "finding"
    elif test.advisory and (p is None or p <= alpha):
        outcome = "advice"
    else:
        outcome = "undecided" if verdict == "inconclusive" else "pass"
    return Check(
        group="tests",
        name=_text(test.name or "test", 200),
        outcome=outcome,
        looks_at=_text(test.looks_at, 400),
        message=_text(test.effect),
        reproduce=_text(test.reproduce),
        facts=_facts(test, _TEST_FACTS),
    )


def _with_verdict(checks: list[Check], verdict: Verdict, sentence: str) -> list[Check]:
    """The checks, preceded by the verdict if they do not show it."""
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


def _blind_spots(result: AuditResult | MechanismResult) -> Iterator[str]:
    """The flaw, the size up to which it is missed, and a sentence."""
    columns = blind_spots_table(result.cannot_rule_out)
    for flaw, size, words in zip(*(column.cells for column in columns[:3]), strict=True):
        yield f"{flaw} ({size}): {words}" if size != fmt.NOTHING else f"{flaw}: {words}"


def _experiment(document: ExperimentDocument | MeasurementsDocument) -> Checked:
    rows, failures = document.rows, document.failures
    misses: Sequence[Row] = ()
    checks = [*map(_failed, failures), *map(_cell, document.cells)]
    if isinstance(document, MeasurementsDocument):
        misses, sentence = document.misses, measurements_sentence(document)
        found = bool(misses)
        checks += [
            _published(row, document.columns)
            for row in document.rows
            if isinstance(row.get("agrees"), bool)
        ]
    else:
        sentence = experiment_sentence(document.rows, failures=failures)
        found = any(map(exceeds_claim, document.rows))
    verdict: Verdict = (
        "finding" if found else "inconclusive" if failures or not rows else "no-finding"
    )
    name = _text(document.name or document.kind, 200)
    return Checked(
        kind=document.kind,
        target=name,
        title=_text(document.title or name, 400),
        claim="",
        verdict=verdict,
        sentence=sentence,
        checks=tuple(checks or _with_verdict(checks, verdict, sentence)),
        blind_spots=(),
        facts={"rows": len(rows), "misses": len(misses), "failures": len(failures)},
        seconds=sum(check.seconds or 0.0 for check in checks),
        command=_text(document.command, 1000),
        provenance=document.provenance,
    )


def _cell(cell: CellResult) -> Check:
    return Check(
        group="cells", name=_cell_name(cell), outcome="pass", seconds=fmt.number(cell.seconds)
    )


def _failed(failure: CellFailure) -> Check:
    return Check(
        group="cells",
        name=_cell_name(failure),
        outcome="error",
        message=_text(failure.error or "the cell failed"),
        facts={"traceback": _text(failure.traceback, 20_000)},
        seconds=fmt.number(failure.seconds),
    )


def _cell_name(cell: CellResult | CellFailure) -> str:
    """The cell's kind, the names in its settings, and its unique id."""
    plugins = [cell.settings.get(kind) for kind in ("source", "mitigation", "attack")]
    labels = [plugin.get("label") for plugin in plugins if isinstance(plugin, Mapping)]
    grid = cell.settings.get("grid")
    axes = [f"{k}={fmt.setting(v)}" for k, v in grid.items()] if isinstance(grid, Mapping) else []
    words = ", ".join(_text(word, 80) for word in [*filter(None, labels), *axes])
    name = f"{_text(cell.kind or 'cell', 80)} {words}".strip()
    return f"{_text(name, 300)} ({_text(cell.cell, 40)})"


def _published(row: Row, columns: Sequence[Column]) -> Check:
    """A measured number compared with the published one."""
    keys = [c.key for c in columns if c.format in ("setting", "text")]
    words = ", ".join(
        f"{_text(k, 60)}={_text(fmt.setting(row[k]), 60)}" for k in keys if row.get(k) is not None
    )
    values = [c.key for c in columns if isinstance(row.get(c.key), Mapping)]
    found = "; ".join(f"{_text(k, 60)} {_measured(row[k])}" for k in values)
    published = f"published {_text(fmt.setting(row.get('published')), 60)}"
    return Check(
        group="published",
        name=_text(words or "row", 300),
        outcome="pass" if row["agrees"] else "finding",
        looks_at="our number compared with the published one",
        message=f"{published}; measured {found}" if found else published,
        facts={"published": _plain(row.get("published"))},
    )


def _measured(cell: Row) -> str:
    value, low, high = reading(cell)
    return fmt.ranged(fmt.quantity(value), low, high)


def _of_files(findings: Sequence[Finding]) -> list[Check]:
    """One check per finding about a deployment's files."""
    return [
        Check(
            group="findings",
            name=_text(finding.where or "finding", 300),
            outcome="finding" if finding.serious else "advice",
            looks_at="the deployment's own files",
            message=_text(finding.message),
        )
        for finding in findings
    ]


def _deployment(document: AppleDocument) -> Checked:
    checks = _of_files(document.findings)
    verdict, sentence = document.verdict, deployment_sentence(document)
    if verdict == "no-finding":  # advice alone does not show that anything passed
        checks.insert(0, Check(group="verdict", name="verdict", outcome="pass", message=sentence))
    return Checked(
        kind="deployment",
        target=document.system,
        title=deployment_title(document),
        claim="",
        verdict=verdict,
        sentence=sentence,
        checks=tuple(_with_verdict(checks, verdict, sentence)),
        blind_spots=(),
        facts={"ledger": _plain(to_dict(document.ledger.permitted))},
        seconds=None,
        command="",
        provenance=to_dict(document.provenance),
    )


def _attribution(document: AttributionDocument) -> Checked:
    checks = [_test(test, document.alpha, document.verdict) for test in document.tests]
    checks += _of_files(document.findings)
    sentence = attribution_sentence(document)
    return Checked(
        kind="attribution",
        target="attribution",
        title=_text(attribution_title(document), 400),
        claim="the laws of the Attribution Reporting API",
        verdict=document.verdict,
        sentence=sentence,
        checks=tuple(_with_verdict(checks, document.verdict, sentence)),
        blind_spots=tuple(not_excluded(document)),
        facts=_facts(document, ("alpha",)),
        seconds=fmt.number(document.seconds),
        command="",
        provenance=to_dict(document.provenance),
    )


def _census(document: CensusDocument) -> Checked:
    checks = [_test(test, document.alpha, document.verdict) for test in document.tests]
    sentence = census_sentence(document)
    return Checked(
        kind="census",
        target=_text(document.files[0] if document.files else "census", 400),
        title=_text(census_title(document), 400),
        claim="discrete Gaussian noise of the stated variances",
        verdict=document.verdict,
        sentence=sentence,
        checks=tuple(_with_verdict(checks, document.verdict, sentence)),
        blind_spots=(CANNOT_SEE,) if document.verdict == "no-finding" else (),
        facts=_facts(document, ("alpha", "levels")),
        seconds=fmt.number(document.seconds),
        command="",
        provenance=to_dict(document.provenance),
    )


def _proof(result: ProofResult) -> Checked:
    verdict, sentence = verdict_of_proof(result), proof_sentence(result)
    outcome: Outcome = "finding" if verdict == "finding" else "pass"
    found = result.counterexample
    check = Check(
        group="proof",
        name=question_of(result),
        outcome="undecided" if verdict == "inconclusive" else outcome,
        looks_at="the exact law of the program's text",
        message=_text(found.says if found else result.reason),
        reproduce=_text(result.provenance.command),
        facts=_facts(result, _PROVED),
    )
    return Checked(
        kind="proof",
        target=_text(result.program or "a program", 400),
        title=f"Proof about {_text(result.program or 'a program', 400)}",
        claim=_text(claimed_of_proof(result), 400),
        verdict=verdict,
        sentence=sentence,
        checks=tuple(_with_verdict([check], verdict, sentence)),
        blind_spots=tuple(_text(what, 600) for what in result.cannot_rule_out),
        facts=_facts(result, ("residual", "states", "outputs", "arguments", "certificate")),
        seconds=fmt.number(result.seconds),
        command=_text(result.provenance.command),
        provenance=to_dict(result.provenance),
    )


def _determinism(result: DeterminismResult) -> Checked:
    checks = [
        Check(
            group="coins",
            name=f"finding {i}",
            outcome="finding",
            looks_at="values as a function of chosen coins",
            message=_text(finding),
            reproduce=_text(result.provenance.command),
        )
        for i, finding in enumerate(result.findings, 1)
    ]
    sentence = determinism_sentence(result)
    target = _text(f"library:{result.library}:{result.symbol}", 400)
    return Checked(
        kind="determinism",
        target=target,
        title=f"Coins of {target}",
        claim="",
        verdict=result.verdict,
        sentence=sentence,
        checks=tuple(_with_verdict(checks, result.verdict, sentence)),
        blind_spots=tuple(_text(what, 600) for what in result.cannot_rule_out),
        facts=_facts(result, ("runs", "not_controlled")),
        seconds=fmt.number(result.seconds),
        command=_text(result.provenance.command),
        provenance=to_dict(result.provenance),
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
