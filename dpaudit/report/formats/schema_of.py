"""The JSON Schema of dpaudit's documents, made from the dataclasses in :mod:`dpaudit.types` that they are made of.

``python -m dpaudit.report.formats.schema_of`` writes it into the package; a test compares. Nothing else runs this.

Within a major version documents only gain keys. So a field with a default is optional in the schema (documents of before it
existed stay valid), one without is required, and a consumer must accept keys it does not know. What dpaudit itself writes
has all fields and no others: :func:`closed` makes the schema that says so.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dpaudit import types as results
from dpaudit.deployments.apple.model import Finding
from dpaudit.report.formats.json_schema import SCHEMA
from dpaudit.report.measurements import FORMATS

__all__ = ["closed", "schema_of"]

Schema = dict[str, Any]

_NUMBER: Schema = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]}
_AMOUNT: Schema = {"anyOf": [{"type": "number", "minimum": 0}, {"enum": ["inf", "nan"]}]}
_SHARE: Schema = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"enum": ["nan"]}]}
_LEVEL: Schema = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_OBJECT: Schema = {"type": "object"}
_TEXT: Schema = {"type": "string"}
_SHARED = {
    "number": _NUMBER | {"description": 'JSON has no word for infinite and undefined numbers: "inf", "-inf", "nan".'},
    "amount": _AMOUNT | {"description": "A number of at least 0, or infinite, or undefined."},
    "share": _SHARE | {"description": "A probability, or undefined."},
    "level": _LEVEL,
    "count": _COUNT,
}

_NARROWER: dict[str, str] = {
    **dict.fromkeys(("p", "p_adjusted", "confidence", "claim_delta", "success", "chance"), "share"),
    **dict.fromkeys(("found_low", "found_high"), "share"),
    **dict.fromkeys(("seconds", "claim_epsilon", "claim_mu", "l2_error", "l2_expected"), "amount"),
    **dict.fromkeys(("samples", "samples_requested", "dim", "seen_after", "trials", "successes"), "count"),
    "alpha": "level",
}  # fmt: skip
"""Fields by name, whose numbers have a range that the annotation does not say."""

_SOMETIMES = frozenset({"failures", "power", "caveats", "label", "format"})
"""Named keys that dpaudit leaves out where there is nothing to say."""

_DOCUMENT = Path(__file__).parent / "schemas" / "dpaudit-1.json"


def schema_of(*, audit: type = results.AuditResult, mechanism: type = results.MechanismResult) -> Schema:
    """The schema of every document, as published; ``audit`` and ``mechanism`` are the dataclasses of the two results."""
    known: dict[str, Schema] = {name: dict(shared) for name, shared in _SHARED.items()}
    for cls in (audit, mechanism, results.CellResult, results.CellFailure, results.AttackResult, results.EpsilonBounds,
                results.Provenance, results.PowerPoint, Finding):  # fmt: skip
        _define(cls, known)
    known |= _parts()
    forms = {
        "audit": _document("audit", {"result": _ref(audit.__name__)}),
        "mechanism": _document("mechanism", {"result": _ref(mechanism.__name__)}),
        **_experiments(),
        "deployment": _deployment(),
        "printed-audit": _printed(known[audit.__name__]),
        "printed-mechanism": _printed(known[mechanism.__name__]),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:dpaudit:report:1",
        "title": "What dpaudit reports",
        "description": "result.json and results.json in a folder of --out, and what --format json prints. Documents of one "
        "major version only gain keys: accept those that you do not know. Texts may come from a closed sampler: escape them.",
        "type": "object",
        "required": ["schema"],
        "properties": {"schema": {"const": SCHEMA}},
        "anyOf": [_ref(name) for name in forms],
        "$defs": known | forms,
    }


def closed(schema: Any) -> Any:
    """The same schema for what dpaudit writes today: every key that has a name is there, and no other."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(part) for key, part in schema.items() if key not in ("properties", "$defs")}
    for table in ("properties", "$defs"):
        if table in schema:
            inner[table] = {name: closed(part) for name, part in schema[table].items()}
    if "properties" in schema and "anyOf" not in schema:
        inner |= {"additionalProperties": False, "required": sorted(set(schema["properties"]) - _SOMETIMES)}
    return inner


def _define(cls: type, known: dict[str, Schema]) -> None:
    """Put the schema of a dataclass, and of those that it is made of, among ``known``."""
    if cls.__name__ in known:
        return
    known[cls.__name__] = {}  # holds the place while its parts are defined
    hints = typing.get_type_hints(cls)
    fields = [f for f in dataclasses.fields(cls) if f.metadata.get("document", True)]
    none = dataclasses.MISSING
    known[cls.__name__] = {
        "description": inspect.cleandoc(cls.__doc__ or "").partition("\n")[0],
        "type": "object",
        "required": [f.name for f in fields if f.default is none and f.default_factory is none],
        "properties": {f.name: _of(hints[f.name], known, narrower=_NARROWER.get(f.name)) for f in fields},
    }


def _of(hint: Any, known: dict[str, Schema], *, narrower: str | None = None) -> Schema:
    """The schema of values of a type, as ``to_dict`` writes them."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        _define(hint, known)
        return _ref(hint.__name__)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(part, known, narrower=narrower) for part in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple and arguments[-1] is not Ellipsis:
        parts = [_of(part, known) for part in arguments]
        return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
    if origin in (tuple, list, Sequence):
        return {"type": "array", "items": _of(arguments[0], known)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _of(arguments[1], known)}
    simple: dict[Any, Schema] = {str: _TEXT, bool: {"type": "boolean"}, type(None): {"type": "null"}, Any: {}}
    if hint in (int, float):
        return _ref(narrower) if narrower else {"type": "integer"} if hint is int else _ref("number")
    if hint not in simple:
        raise TypeError(f"hint={hint!r}: not a type that a document is made of; say here how to_dict writes it")
    return dict(simple[hint])


def _parts() -> dict[str, Schema]:
    """What experiments have that is no dataclass: their rows and columns."""
    attack = {"properties": {"attack": _TEXT, "trials": _ref("count"), "successes": _ref("count"),
              "success": _ref("share"), "interval": _ref("Interval"), "chance": _ref("share"),
              "epsilon_lower_bound": _ref("number"), "details": _OBJECT}}  # fmt: skip
    arm = {
        "label": _TEXT,
        "source": _TEXT,
        "mitigation": _TEXT,
        "settings": _OBJECT,
        "audit": _maybe(_OBJECT),
        "attacks": {"type": "array", "items": _object(attack["properties"], required=("attack", "success", "trials"))},
        "epsilon_claimed": _ref("number"),
        "epsilon_key_holder": _ref("EpsilonBounds"),
        "l2_error": _maybe(_ref("amount")),
        "l2_expected": _maybe(_ref("amount")),
    }
    column = {"key": _TEXT, "label": _TEXT, "format": {"enum": list(FORMATS)}}
    return {
        "arm": _object(arm, required=("source", "mitigation", "settings", "attacks")),
        "column": _object(column, required=("key",)),
        "figure": _OBJECT | {"description": "How the page draws it: title, x, y, and what else dpaudit.report reads."},
        "row": _OBJECT | {"description": "Values by the keys of the columns: a plain value, or value, low and high."},
    }


def _experiments() -> dict[str, Schema]:
    told: Schema = {
        "name": _TEXT,
        "title": _TEXT,
        "story": _TEXT,
        "command": _TEXT,
        "cells": _list("CellResult"),
        "provenance": {"anyOf": [_ref("Provenance"), {"type": "object", "maxProperties": 0}]},
    }
    later: Schema = {"failures": _list("CellFailure")}
    measured: Schema = {
        "columns": _list("column"),
        "rows": _list("row"),
        "misses": _list("row"),
        "figures": _list("figure"),
        "summary": _TEXT,
    }
    map_only: Schema = {"power": _list("PowerPoint"), "caveats": {"type": "array", "items": _TEXT}}
    return {
        "experiment": _document("experiment", told | {"rows": _list("arm")}, optional=later),
        "measurements": _document("measurements", told | measured, optional=later | map_only),
    }


def _deployment() -> Schema:
    verdicts = {"enum": ["no-finding", "finding", "inconclusive"]}
    sides: Schema = {"configuration": _OBJECT, "ledger": _OBJECT, "provenance": _ref("Provenance")}
    maybe: Schema = {name: _maybe(_OBJECT) for name in ("against", "database", "observed")}
    lists: Schema = {"differences": _maybe(_list("row")), "shown": _list("row"), "findings": _list("Finding")}
    return _document("deployment", {"system": _TEXT, "verdict": verdicts} | sides | maybe | lists)


def _document(kind: str, properties: Schema, *, optional: Mapping[str, Schema] | None = None) -> Schema:
    """A document as it lies in a folder; its optional keys are those that not every one of its kind has."""
    every = {"schema": {"const": SCHEMA}, "kind": {"const": kind}, **properties}
    return _object(every | dict(optional or {}), required=tuple(every))


def _printed(result: Schema) -> Schema:
    """A result as ``--format json`` prints it: the same fields, without the wrapping."""
    return result | {
        "description": "As --format json prints it: the result itself.",
        "required": ["schema", *result["required"]],
        "properties": {"schema": {"const": SCHEMA}, **result["properties"]},
    }


def _object(properties: Schema, *, required: Sequence[str] = ()) -> Schema:
    return {"type": "object", "required": list(required), "properties": dict(properties)}


def _list(name: str) -> Schema:
    return {"type": "array", "items": _ref(name)}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


if __name__ == "__main__":
    _DOCUMENT.write_text(json.dumps(schema_of(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
