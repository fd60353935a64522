"""The JSON Schema of reports on disk, draft 2020-12, made from their types.

``python -m dpaudit.render.json_schema`` writes ``schemas/dpaudit-2.json`` into the package; a test
compares the two. Within a major version reports only gain keys: a consumer must accept unknown
ones.
"""

from __future__ import annotations

import inspect
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from dpaudit.report import Report

__all__ = ["schema_of", "schema_text"]

Schema = dict[str, Any]

_NAME = "schemas/dpaudit-2.json"
_WORDS = ["inf", "-inf", "nan"]
"""How ``to_dict`` writes floats that JSON has no number for."""


def schema_text() -> str:
    """The published JSON Schema, as text."""
    return files("dpaudit.render").joinpath(_NAME).read_text(encoding="utf-8")


def schema_of(cls: type = Report) -> Schema:
    """The schema of a report, or of another class that JSON is read into."""
    (reference,), known = msgspec.json.schema_components([cls], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:dpaudit:report:2",
        "title": "What dpaudit reports",
        "description": "result.json and results.json in a folder of --out. 'data' is the result "
        "itself, which --format json prints beside 'schema' and 'kind'. Reports of one major "
        "version only gain keys: accept unknown keys. Texts may come from a closed sampler: escape "
        "them.",
        **reference,
        "$defs": {name: _as_written(schema) for name, schema in known.items()},
    }


def _as_written(schema: Any) -> Any:
    """The schema with words for numbers, one-line descriptions, and no defaults."""
    if isinstance(schema, list):
        return [_as_written(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = ("words", "title", "default")
    made = {key: _as_written(value) for key, value in schema.items() if key not in left_out}
    if "properties" in schema:  # a property may have one of these names
        made["properties"] = {n: _as_written(value) for n, value in schema["properties"].items()}
    if isinstance(made.get("description"), str):
        made["description"] = inspect.cleandoc(made["description"]).partition("\n")[0]
    words = _WORDS if schema.get("type") == "number" and len(schema) == 1 else schema.get("words")
    return made if words is None else {"anyOf": [made, {"enum": words}]}


if __name__ == "__main__":
    place = Path(__file__).parent / _NAME
    place.write_text(json.dumps(schema_of(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
