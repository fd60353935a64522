"""Writing the page and the JSON document.

The page needs no script: figures are static SVG, and the script only adds convenience (reading out
marks, sorting, copying). The page's Content-Security-Policy allows that one script, by its hash,
and nothing else that runs or loads.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpaudit.deployments.attribution.document import AttributionDocument
from dpaudit.deployments.census.document import CensusDocument
from dpaudit.documents import (
    AuditDocument,
    DeterminismDocument,
    ExperimentDocument,
    MeasurementsDocument,
    MechanismDocument,
    ProofDocument,
)
from dpaudit.report.badge import badge
from dpaudit.report.files import write_text
from dpaudit.report.glossary import Linker, glossary
from dpaudit.report.identity import made_facts
from dpaudit.report.pages import (
    attribution_page,
    audit_page,
    census_page,
    deployment_page,
    determinism_page,
    experiment_page,
    measurements_page,
    mechanism_page,
    proof_page,
)
from dpaudit.report.reading import Document, document_of
from dpaudit.report.template import get_template
from dpaudit.results.text import harmless, json_escaped
from dpaudit.types import Provenance, to_dict

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["render_report", "write_json", "write_report"]


def write_report(document: Document | Mapping[str, Any], path: Path) -> Path:
    """Write a document as one self-contained HTML file, atomically; returns ``path``.

    Raises:
        UsageError: as :func:`render_report`.
    """
    return write_text(render_report(document), path)


def write_json(document: Document, path: Path) -> Path:
    """Write a document as indented UTF-8 JSON, atomically; returns ``path``."""
    text = json.dumps(to_dict(document), indent=2, ensure_ascii=False, allow_nan=False)
    return write_text(json_escaped(text) + "\n", path)


def render_report(document: Document | Mapping[str, Any]) -> str:
    """The HTML of a document, the same bytes for the same document.

    Raises:
        UsageError: JSON values that are not a document of dpaudit, or measurements with a figure of
            an unknown key.
    """
    document = document_of(document)
    match document:
        case AuditDocument():
            context = audit_page(document.result)
        case MechanismDocument():
            context = mechanism_page(document.result)
        case ProofDocument():
            context = proof_page(document.result)
        case DeterminismDocument():
            context = determinism_page(document.result)
        case ExperimentDocument():
            context = experiment_page(document)
        case MeasurementsDocument():
            context = measurements_page(document)
        case AttributionDocument():
            context = attribution_page(document)
        case CensusDocument():
            context = census_page(document)
        case _:
            context = deployment_page(document)
    context["badge"] = badge(
        context["verdict"],
        context["sentence"],
        word=context.get("word", ""),
        sign=context.get("sign", ""),
    )
    script, digest = _script()
    context |= {
        "contents": [],
        "script": script,
        "script_hash": digest,
        "made": made_facts(_provenance(document)),
        "glossary": glossary(),
        "terms": Linker(),
    }
    page = get_template(f"{document.kind}.html.j2").render(context)
    return harmless(page, tabs=True)  # tabs are between the fields of a mark


def _provenance(document: Document) -> Provenance | Mapping[str, Any]:
    if isinstance(document, (AuditDocument, MechanismDocument, ProofDocument, DeterminismDocument)):
        return document.result.provenance
    return document.provenance


@cache
def _script() -> tuple[Markup, str]:
    """The page's script, and its SHA-256 for the page's Content-Security-Policy."""
    from importlib.resources import files

    from markupsafe import Markup

    text = files("dpaudit.report").joinpath("templates/page.js").read_text(encoding="utf-8")
    return Markup(text), base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()  # noqa: S704
