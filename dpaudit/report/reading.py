"""Reads a document that dpaudit wrote, from a file or JSON values, and refuses anything else.

Pages, tables and other formats take the typed documents and need not check them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpaudit.deployments.apple.document import AppleDocument
from dpaudit.deployments.attribution.document import AttributionDocument
from dpaudit.deployments.census.document import CensusDocument
from dpaudit.documents import (
    SCHEMA,
    AuditDocument,
    DeterminismDocument,
    ExperimentDocument,
    MeasurementsDocument,
    MechanismDocument,
    ProofDocument,
    convert_value,
)
from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError, read_json, read_plain
from dpaudit.results.text import printable

__all__ = ["KINDS", "Document", "document_of", "read_document"]

Document = (
    AuditDocument
    | MechanismDocument
    | ProofDocument
    | DeterminismDocument
    | ExperimentDocument
    | MeasurementsDocument
    | AppleDocument
    | AttributionDocument
    | CensusDocument
)

KINDS: Mapping[str, type[Document]] = {
    "audit": AuditDocument,
    "mechanism": MechanismDocument,
    "experiment": ExperimentDocument,
    "measurements": MeasurementsDocument,
    "deployment": AppleDocument,
    "attribution": AttributionDocument,
    "census": CensusDocument,
    "proof": ProofDocument,
    "determinism": DeterminismDocument,
}
_MOST_BYTES = 1 << 28


def document_of(value: Document | Mapping[str, Any]) -> Document:
    """The typed document of JSON values; a typed document is returned unchanged.

    Raises:
        UsageError: another major version, an unknown kind, or not as dpaudit writes it; the message
            says where.
    """
    if not isinstance(value, Mapping):
        return value
    schema, kind = value.get("schema", SCHEMA), value.get("kind")
    if schema != SCHEMA:
        raise UsageError(
            f"schema={printable(schema, limit=60)!r}: this dpaudit reads {SCHEMA!r} and documents "
            "without 'schema'; use the dpaudit that wrote it"
        )
    if not isinstance(kind, str) or kind not in KINDS:
        raise UsageError(
            f"kind={printable(kind, limit=60)!r}: not a report of dpaudit; "
            f"must be one of {', '.join(KINDS)}"
        )
    try:
        return convert_value(value, KINDS[kind])
    except RefusedError as error:
        raise UsageError(
            f"not as dpaudit writes it ({printable(error, limit=200)}); repeat the audit or run, "
            "or compare it with the schema: dpaudit report --schema"
        ) from error


def read_document(path: Path) -> Document:
    """Read a document that dpaudit wrote into ``--out`` (``result.json``, ``results.json``).

    Raises:
        UsageError: the file cannot be read, is not JSON, or is refused by :func:`document_of`.
    """
    try:
        value = read_json(read_plain(path, limit=_MOST_BYTES))
    except RefusedError as error:
        raise UsageError(
            f"file={path}: not a JSON document ({printable(error, limit=200)}); "
            "repeat the audit or run that wrote it"
        ) from error
    if not isinstance(value, dict):
        raise UsageError(
            f"file={path}: a {type(value).__name__}, not a report; "
            "a report is a JSON object with 'kind'"
        )
    try:
        return document_of(value)
    except UsageError as error:
        raise UsageError(f"file={path}: {error}") from error
