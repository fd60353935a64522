"""The JSON document: the name of its schema, the published schema itself, and reading a document back.

The schema is JSON Schema, draft 2020-12; ``schemas/dpaudit-1.json`` is made by :mod:`dpaudit.report.formats.schema_of`.
Reading checks what is needed to say clearly why a file is no report; it is not a validation against the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError, read_json, read_plain
from dpaudit.results.text import printable

__all__ = ["KINDS", "SCHEMA", "read_document", "schema_text", "stamped"]

SCHEMA = "dpaudit-report/1"
"""What ``schema`` says in every document: the name and the major version. Documents of before have no ``schema``."""

KINDS = ("audit", "mechanism", "experiment", "measurements", "deployment")
_MOST_BYTES = 1 << 28
_WITH_RESULT = ("audit", "mechanism")


def schema_text() -> str:
    """The published JSON Schema of all documents, as text."""
    return files("dpaudit.report.formats").joinpath("schemas/dpaudit-1.json").read_text(encoding="utf-8")


def stamped(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with ``schema`` as its first key."""
    return {"schema": SCHEMA, **{k: v for k, v in document.items() if k != "schema"}}


def read_document(path: Path) -> dict[str, Any]:
    """A document that dpaudit wrote, as ``--out`` leaves it (``result.json``, ``results.json``).

    Raises:
        UsageError: the file cannot be read, is not JSON, is no report, or is of another major version of the schema.
    """
    try:
        document = read_json(read_plain(path, limit=_MOST_BYTES))
    except RefusedError as error:
        raise UsageError(
            f"file={path}: not a JSON document ({printable(error, limit=200)}); repeat the audit or run that wrote it"
        ) from error
    if not isinstance(document, dict):
        raise UsageError(
            f"file={path}: a {type(document).__name__}, not a report; a report is a JSON object with 'kind'"
        )
    schema, kind = document.get("schema", SCHEMA), document.get("kind")
    if schema != SCHEMA:
        raise UsageError(
            f"file={path}: schema={printable(schema, limit=60)!r}, and this dpaudit reads {SCHEMA!r} and documents without "
            "'schema'; use the dpaudit that wrote it"
        )
    if kind not in KINDS:
        raise UsageError(
            f"file={path}: kind={printable(kind, limit=60)!r} is none of {', '.join(KINDS)}; not a report of dpaudit"
        )
    if kind in _WITH_RESULT and not isinstance(document.get("result"), dict):
        raise UsageError(
            f"file={path}: a document of kind {kind!r} has an object 'result'; repeat the audit that wrote it"
        )
    return document
