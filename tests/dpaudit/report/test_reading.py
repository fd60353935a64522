"""Reading documents: what is not a document of dpaudit is refused, with the place."""

from __future__ import annotations

import copy
import json
import re

import pytest
from command_line import here
from support import formats as made

from dpaudit.errors import UsageError
from dpaudit.report import document_of, read_document, render_report, write_report
from dpaudit.report.formats.json_schema import schema_of
from dpaudit.report.reading import KINDS
from dpaudit.types import to_dict

SCHEMA = schema_of()
WRONG = {"object": {}, "array": [], "string": "odd", "number": 7, "null": None}


def alternatives(schema):
    """The schemas that a value may fit, with references followed."""
    if "$ref" in schema:
        return alternatives(SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]])
    if "type" not in schema and "anyOf" in schema:
        return [found for part in schema["anyOf"] for found in alternatives(part)]
    return [schema]


def types_of(schema):
    names = {type(v).__name__ for v in schema.get("enum", ())} | {schema.get("type", "enum")}
    return {
        "number"
        if name in ("integer", "number", "boolean")
        else "string"
        if name == "str"
        else name
        for name in names
    }


def spoiled(schema, value, path="$"):
    """(place, value, a key to remove or None, a wrong value) per typed place of a document."""
    schemas = alternatives(schema)
    allowed = set().union(*map(types_of, schemas))
    if all("enum" in s for s in schemas):
        allowed.discard("string")  # a word of few: any other is wrong
    if {"string", "enum"} & allowed or schemas != [{}]:
        yield from ((path, None, wrong) for name, wrong in WRONG.items() if name not in allowed)
    for s in schemas:
        if isinstance(value, dict) and s.get("type") == "object":
            for key in s.get("required", ()):
                if key not in ("schema", "kind"):
                    yield path, key, None
            for key, part in s.get("properties", {}).items():
                if key in value and key != "schema":
                    yield from spoiled(part, value[key], f"{path}.{key}")
        if isinstance(value, list) and value and isinstance(s.get("items"), dict):
            yield from spoiled(s["items"], value[0], f"{path}[0]")


def changed(document, path, key, wrong):
    """The document without ``key`` at the place, or with ``wrong`` there."""
    made = copy.deepcopy(document)
    steps = [int(s) if s.isdigit() else s for s in re.findall(r"[^.\[\]$]+", path)]
    steps += [] if key is None else [key]
    at = made
    for step in steps[:-1]:
        at = at[step]
    if key is None:
        at[steps[-1]] = wrong
    else:
        del at[steps[-1]]
    return made


@pytest.mark.parametrize("name", made.EVERY_KIND)
def test_whatever_is_missing_or_of_another_type_is_refused_and_named(name):
    document = made.of_kind(name)
    whole = to_dict(document_of(document))
    cls = KINDS[document["kind"]].__name__
    places = [
        (path, key, wrong)
        for path, key, wrong in spoiled({"$ref": f"#/$defs/{cls}"}, whole)
        if (path != "$" or key) and not (wrong == 7 and path.endswith(("created", "updated")))
    ]  # seconds are a time
    assert len(places) > 50
    assert any("provenance" in path for path, _, _ in places)
    for path, key, wrong in places:
        with pytest.raises(UsageError) as refused:
            document_of(changed(whole, path, key, wrong))
        said = str(refused.value)
        assert (f"`{key}`" if key else path) in said or path in ("$.kind",), (
            path,
            key,
            wrong,
            said,
        )
        assert key is None or path == "$" or f"`{path}`" in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a JSON document"),
        (b"\xff\xfe\x00", "not a JSON document"),
        (b"{", "not a JSON document"),
        (b'{"kind": "audit", "result": {"alpha": NaN}}', "NaN is no JSON number"),
        (b"[" * 100_000, "not a JSON document"),
        (b"[]", "a list, not a report"),
        (b"{}", "kind='None': not a report of dpaudit"),
        (b'{"kind": "poem"}', "kind='poem'"),
        (
            b'{"kind": ["audit"]}',
            "one of audit, mechanism, experiment, measurements, deployment, attribution, census,",
        ),
        (b'{"kind": "audit"}', "missing required field `result`"),
        (
            b'{"kind": "audit", "result": {}, "schema": "dpaudit-report/2"}',
            "this dpaudit reads 'dpaudit-report/1'",
        ),
        (b'{"kind": "audit", "result": {}, "schema": 1}', "this dpaudit reads 'dpaudit-report/1'"),
    ],
)
def test_what_is_no_report_is_told_from_one(tmp_path, content, says):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(says)) as raised:
        read_document(path)
    assert str(raised.value).startswith(f"file={path}: ")
    done = here("report", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_document(tmp_path / "none.json")


@pytest.mark.parametrize("name", made.EVERY_KIND)
def test_what_is_read_is_what_was_written(name, tmp_path):
    document = made.typed(name)
    path = tmp_path / "result.json"
    path.write_text(json.dumps(to_dict(document)))
    assert to_dict(read_document(path)) == to_dict(document)
    more = json.loads(path.read_text()) | {"later": {"a": 1}}
    assert to_dict(document_of(more)) == to_dict(document)  # documents gain keys
    assert document_of(document) is document


def test_the_page_takes_documents_and_their_json_values_and_nothing_else(tmp_path):
    document = made.of_kind("audit finding")
    assert render_report(document) == render_report(document_of(document))
    with pytest.raises(UsageError, match="half a surrogate pair"):
        render_report({"kind": "audit", "result": {"\ud800": 1}})
    with pytest.raises(UsageError, match="kind="):
        write_report({"kind": "x"}, tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []
