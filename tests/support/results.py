"""Results of every kind for the tests, as their owners make them, and their reports."""

from __future__ import annotations

import dataclasses
from typing import Any

from dpaudit.audit.result import AuditResult, MechanismResult
from dpaudit.codec import convert_value
from dpaudit.experiments.results import AttackResult, ExperimentResult, MeasurementsResult
from dpaudit.report import Report, describe
from dpaudit_deployments.attribution.result import AttributionResult
from dpaudit_deployments.census.result import CensusResult
from dpaudit_local.apple.audit import AppleResult
from dpaudit_prove.results import DeterminismResult, ProofResult
from support import attribution, census, deployments, documents, measured, mechanisms, proofs

KINDS: dict[str, Any] = {
    cls.kind: cls
    for cls in (
        AppleResult, AttackResult, AttributionResult, AuditResult, CensusResult, DeterminismResult,
        ExperimentResult, MeasurementsResult, MechanismResult, ProofResult,
    )
}  # fmt: skip


def failed_experiment() -> dict[str, Any]:
    failure = {
        "cell": "b-2", "kind": "attack", "settings": {"source": {"label": "pancake"}},
        "error": "ValueError: no",
        "traceback": "Traceback …\nValueError: no", "seconds": 0.1, "provenance": {},
    }  # fmt: skip
    return documents.experiment() | {"failures": [failure]}


EVERY_KIND = (
    "experiment", "failed", "measurements", "deployment", *proofs.EVERY_KIND,
    *(f"{kind} {verdict}" for kind in ("audit", "mechanism", "attribution", "census")
      for verdict in ("no-finding", "finding", "inconclusive")),
)  # fmt: skip


def of_kind(name: str) -> dict[str, Any]:
    """The JSON value of a result, with its ``kind``."""
    kind, _, verdict = name.partition(" ")
    makers: dict[str, Any] = {
        "experiment": documents.experiment,
        "failed": failed_experiment,
        "measurements": measured.grid,
        "deployment": deployments.result,
        "attribution": lambda: attribution.result(verdict),
        "census": lambda: census.result(verdict),
        "audit": lambda: documents.audit(verdict),
        "mechanism": lambda: mechanisms.low_bits(verdict),
        "proof": lambda: proofs.proof(verdict),
        "determinism": lambda: proofs.determinism(verdict),
    }
    made: dict[str, Any] = makers[kind]()
    return made


def typed(value: dict[str, Any], **changes: Any) -> Any:
    """A result from its JSON value, with ``changes`` to its fields."""
    result = convert_value(value, KINDS[value["kind"]])
    return dataclasses.replace(result, **changes)


def reported(value: dict[str, Any] | str) -> Report:
    """The report of a result, from its JSON value or its name in ``EVERY_KIND``."""
    return describe(typed(of_kind(value) if isinstance(value, str) else value))
