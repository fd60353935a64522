"""The JSON Schema of dpaudit's documents, draft 2020-12, made from their types.

``python -m dpaudit.report.formats.json_schema`` writes ``schemas/dpaudit-1.json`` into the package;
a test compares the two. Within a major version documents only gain keys. So a field with a default
is optional in the schema (older documents stay valid), one without is required, and a consumer must
accept unknown keys. What dpaudit itself writes has all fields and no others: :func:`closed` makes
that stricter schema.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from dpaudit.documents import SCHEMA
from dpaudit.report.reading import KINDS
from dpaudit.types import AuditResult, DeterminismResult, MechanismResult, ProofResult

__all__ = ["closed", "schema_of", "schema_text"]

Schema = dict[str, Any]

_NAME = "schemas/dpaudit-1.json"
_RESULTS = (AuditResult, MechanismResult, ProofResult, DeterminismResult)
_WORDS = ["inf", "-inf", "nan"]
"""How ``to_dict`` writes floats that JSON has no number for."""


def schema_text() -> str:
    """The published JSON Schema of all documents, as text."""
    return files("dpaudit.report.formats").joinpath(_NAME).read_text(encoding="utf-8")


def schema_of(*classes: type) -> Schema:
    """The schema of documents of these classes, by default of all documents and results."""
    documents = classes or (*KINDS.values(), *_RESULTS)
    references, known = msgspec.json.schema_components(documents, ref_template="#/$defs/{name}")
    made = {name: _as_written(schema) for name, schema in known.items()}
    for cls in _classes(*documents):
        for name, rule in _rules(cls).items():
            if rule is False:  # never part of a document
                del made[cls.__name__]["properties"][name]
    for name in {cls.__name__ for cls in KINDS.values()} & set(made):
        made[name]["required"] = ["schema", "kind", *made[name]["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:dpaudit:report:1",
        "title": "What dpaudit reports",
        "description": "result.json and results.json in a folder of --out, and the output of "
        "--format json. Documents of one major version only gain keys: accept unknown keys. Texts "
        "may come from a closed sampler: escape them.",
        "type": "object",
        "required": ["schema"],
        "properties": {"schema": {"const": SCHEMA}},
        "anyOf": list(references),
        "$defs": made,
    }


def closed() -> Schema:
    """The schema of what dpaudit writes today: all fields, and no others but ``in_documents``."""
    schema = schema_of()
    known: Schema = schema["$defs"]
    for cls in _classes(*KINDS.values(), *_RESULTS):
        own = known[cls.__name__]
        optional = {name for name, rule in _rules(cls).items() if rule == "if any"}
        if issubclass(cls, msgspec.Struct) and cls.__struct_config__.omit_defaults:
            optional = set(own["properties"]) - set(own["required"])
        also: Schema = {name: {} for name in getattr(cls, "in_documents", ())}
        also |= {"schema": {"const": SCHEMA}} if cls in _RESULTS else {}
        own |= {"properties": own["properties"] | also, "additionalProperties": False}
        own["required"] = sorted(set(own["properties"]) - optional - set(also))
    return schema


def _rules(cls: type) -> dict[str, bool | str]:
    """When each field of a dataclass is in documents, from its metadata."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return {field.name: field.metadata.get("document", True) for field in fields}


def _classes(*roots: type) -> list[type]:
    """The classes that documents are made of, each once."""
    found: dict[type, None] = {}

    def visit(kind: Any) -> None:
        cls = getattr(kind, "cls", None)
        if cls is not None and cls not in found:
            found[cls] = None
            for field in kind.fields:
                visit(field.type)
        for name in ("item_type", "item_types", "value_type", "types", "type"):
            inner = getattr(kind, name, ())
            for part in inner if isinstance(inner, tuple) else (inner,):
                visit(part)

    for root in roots:
        visit(msgspec.inspect.type_info(root))
    return list(found)


def _as_written(schema: Any) -> Any:
    """The schema with words for numbers, one-line descriptions, and no defaults."""
    if isinstance(schema, list):
        return [_as_written(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = ("words", "title", "default")
    made = {key: _as_written(value) for key, value in schema.items() if key not in left_out}
    # a consumer accepts unknown keys, even where dpaudit does not
    if made.get("additionalProperties") is False:
        del made["additionalProperties"]
    if "properties" in schema:  # a property may have one of these names
        made["properties"] = {n: _as_written(value) for n, value in schema["properties"].items()}
    if isinstance(made.get("description"), str):
        made["description"] = inspect.cleandoc(made["description"]).partition("\n")[0]
    words = _WORDS if schema.get("type") == "number" and len(schema) == 1 else schema.get("words")
    return made if words is None else {"anyOf": [made, {"enum": words}]}


if __name__ == "__main__":
    place = Path(__file__).parent / _NAME
    place.write_text(json.dumps(schema_of(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
