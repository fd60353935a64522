"""Reports on disk: written whole or not at all, read back within bounds; and their JSON Schema.

``python -m dpaudit.render.documents`` writes the schema, draft 2020-12, made from the types of
reports, as ``schemas/dpaudit-2.json`` into the package; a test compares the two. Within a major
version reports only gain keys: a consumer must accept unknown ones.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from dpaudit.codec import to_dict
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.render.junit import junit_xml
from dpaudit.render.page import render_page
from dpaudit.render.sarif import sarif_json
from dpaudit.report import SCHEMA, Report
from dpaudit.results.files import write_file
from dpaudit.results.foreign import RefusedError, read_json, read_plain
from dpaudit.results.text import json_escaped, printable

__all__ = [
    "FORMATS",
    "read_report",
    "report_json",
    "schema_of",
    "schema_text",
    "write_report",
    "written",
]

Schema = dict[str, Any]

_NAME = "schemas/dpaudit-2.json"
_WORDS = ["inf", "-inf", "nan"]
"""How ``to_dict`` writes floats that JSON has no number for."""


def schema_text() -> str:
    """The published JSON Schema, as text."""
    return files("dpaudit.render").joinpath(_NAME).read_text(encoding="utf-8")


def schema_of(cls: type = Report) -> Schema:
    """The schema of a report, or of another class that JSON is read into."""
    (reference,), components = msgspec.json.schema_components([cls], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:dpaudit:report:2",
        "title": "What dpaudit reports",
        "description": "result.json and results.json in a folder of --out. 'data' is the result "
        "itself, which --format json prints beside 'schema' and 'kind'. Reports of one major "
        "version only gain keys: accept unknown keys. Texts may come from a closed sampler: escape "
        "them.",
        **reference,
        "$defs": {name: _as_written(schema) for name, schema in components.items()},
    }


def _as_written(schema: Any) -> Any:
    """The schema with words for numbers, one-line descriptions, and no defaults."""
    if isinstance(schema, list):
        return [_as_written(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = ("words", "title", "default")
    document = {key: _as_written(value) for key, value in schema.items() if key not in left_out}
    if "properties" in schema:  # a property may have one of these names
        document["properties"] = {
            n: _as_written(value) for n, value in schema["properties"].items()
        }
    if isinstance(document.get("description"), str):
        document["description"] = inspect.cleandoc(document["description"]).partition("\n")[0]
    literals = (
        _WORDS if schema.get("type") == "number" and len(schema) == 1 else schema.get("words")
    )
    return document if literals is None else {"anyOf": [document, {"enum": literals}]}


_MOST_BYTES = 1 << 28


def report_json(report: Report) -> str:
    """The report as indented JSON in UTF-8; infinite and undefined numbers are words."""
    text = json.dumps(to_dict(report), indent=2, ensure_ascii=False, allow_nan=False)
    return json_escaped(text) + "\n"


FORMATS: Mapping[str, tuple[str, Callable[[Report], str]]] = {
    "html": ("report.html", render_page),
    "json": ("result.json", report_json),
    "junit": ("report.junit.xml", junit_xml),
    "sarif": ("report.sarif", sarif_json),
}
"""The file and the renderer of each format."""

_OURS = re.compile(rb'<testsuites name="dpaudit"|"driver": \{\s*"name": "dpaudit"')


def write_report(report: Report, path: Path, *, format: str = "html") -> Path:  # noqa: A002
    """Write a report in one of :data:`FORMATS`, atomically; makes the folder, returns ``path``.

    Raises:
        UnknownNameError: no such format.
        OSError: the file cannot be written; the old one stands as it was.
    """
    if format not in FORMATS:
        raise UnknownNameError(f"format={format!r}: must be one of {', '.join(FORMATS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_file(path, FORMATS[format][1](report))


def written(folder: Path) -> list[str]:
    """The formats beyond page and JSON that dpaudit has written into ``folder``."""
    also = (name for name in FORMATS if name not in ("html", "json"))
    return [name for name in also if _ours(folder / FORMATS[name][0])]


def _ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _OURS.search(file.read(2000)) is not None
    except OSError:
        return False


def read_report(path: Path) -> Report:
    """Read a report that dpaudit wrote into ``--out``.

    Raises:
        UsageError: the file cannot be read, is not JSON, has another schema, or is not as dpaudit
            writes it; the message says where.
    """
    try:
        value: Any = read_json(read_plain(path, limit=_MOST_BYTES))
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
    if value.get("schema") != SCHEMA:
        raise UsageError(
            f"file={path}: schema={printable(value.get('schema'), limit=60)!r}: this dpaudit reads "
            f"{SCHEMA!r}; repeat the audit or run that wrote it"
        )
    try:
        return msgspec.convert(value, Report, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise UsageError(
            f"file={path}: not as dpaudit writes it ({printable(error, limit=200)}); repeat the "
            "audit or run, or compare it with the schema: dpaudit report --schema"
        ) from error


if __name__ == "__main__":
    place = Path(__file__).parent / _NAME
    place.write_text(json.dumps(schema_of(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
