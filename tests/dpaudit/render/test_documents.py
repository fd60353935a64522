"""Reports on disk: the published schema, reading back, and what is no report of ours."""

from __future__ import annotations

import copy
import json
import math
import re

import msgspec
import pytest
from command_line import here
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from support import reports

from dpaudit.codec import to_dict
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.render import FORMATS, read_report, report_json, write_report, written
from dpaudit.render.documents import schema_of, schema_text
from dpaudit.report import SCHEMA, Axis, Chart, Column, Line, Mark, Report, Table, replace

QUICK = settings(suppress_health_check=list(HealthCheck))
WRONG = {"object": {}, "array": [], "string": "odd", "number": 7, "null": None}


def fits(document):
    error = best_match(reports.validator().iter_errors(document))
    assert error is None, f"{list(error.absolute_path)}: {error.message[:300]}"


def alternatives(schema):
    """The schemas that a value may fit, with references followed."""
    if "$ref" in schema:
        known = json.loads(schema_text())["$defs"]
        return alternatives(known[schema["$ref"].rsplit("/", 1)[1]])
    if "type" not in schema and "anyOf" in schema:
        return [found for part in schema["anyOf"] for found in alternatives(part)]
    return [schema]


def types_of(schema):
    """Of a schema: the JSON types of WRONG that it accepts; "7" may be read as a number."""
    words = {type(v).__name__ for v in schema.get("enum", ())}
    names = {"string" if w == "str" else "null" if w == "NoneType" else w for w in words}
    names |= {schema["type"]} if "type" in schema else set()
    return {"number" if n in ("integer", "number", "boolean") else n for n in names}


def spoiled(schema, value, path="$"):
    """(place, a wrong value) for each typed place of a document."""
    schemas = alternatives(schema)
    if schemas == [{}] or not all(map(types_of, schemas)):
        return
    allowed = set().union(*map(types_of, schemas))
    yield from ((path, wrong) for name, wrong in WRONG.items() if name not in allowed)
    for s in schemas:
        own = not isinstance(value, dict) or "type" not in value or (
            value["type"] in s.get("properties", {}).get("type", {}).get("enum", ())
        )  # fmt: skip
        if isinstance(value, dict) and own:
            for key, part in s.get("properties", {}).items():
                if key in value and key not in ("schema", "type"):
                    yield from spoiled(part, value[key], f"{path}.{key}")
        if isinstance(value, list) and value and isinstance(s.get("items"), dict):
            yield from spoiled(s["items"], value[0], f"{path}[0]")


def changed(document, path, wrong):
    """The document with ``wrong`` at the place."""
    made = copy.deepcopy(document)
    *steps, last = [int(s) if s.isdigit() else s for s in re.findall(r"[^.\[\]$]+", path)]
    at = made
    for step in steps:
        at = at[step]
    at[last] = wrong
    return made


def test_the_published_schema_is_what_the_types_say():
    known = json.loads(schema_text())
    Draft202012Validator.check_schema(known)
    assert schema_of() == known, "python -m dpaudit.render.documents writes it anew"
    assert re.findall(r"https?://[^/\"]*", schema_text()) == ["https://json-schema.org"]
    assert known["$id"].endswith(SCHEMA.rpartition("/")[2])


def test_a_new_field_fails_until_the_schema_knows_it_and_consumers_accept_it():
    more = msgspec.defstruct("Report", [("new", str, "")], bases=(Report,), kw_only=True)
    known = json.loads(schema_text())["$defs"]["Report"]
    assert schema_of(Report)["$defs"]["Report"] == known != schema_of(more)["$defs"]["Report"]
    fits(to_dict(reports.report()) | {"new": "", "later": {"a": 1}})


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("name", reports.EVERY)
def test_what_is_read_is_what_was_written(name, hostile, tmp_path):
    report = replace(reports.EVERY[name], seconds=float("nan"), data={"σ": "\x1b", "kind": "mine"})
    report = reports.hostile(report) if hostile else report
    path = write_report(report, tmp_path / "out" / "result.json", format="json")
    assert [p.name for p in path.parent.iterdir()] == ["result.json"]
    text = path.read_bytes().decode("utf-8")
    assert text.replace("\n", "").isprintable()
    assert hostile or "σ" in text
    document = json.loads(text, parse_constant=pytest.fail)
    assert document == to_dict(report)
    fits(document)
    read = read_report(path)
    whole = re.sub(r"\\ud[c-f][0-9a-f]{2}", "?", text)  # half a surrogate pair is none
    assert to_dict(read) == json.loads(whole)
    if not hostile:
        for name, (_, render) in FORMATS.items():
            assert render(read) == render(report), name


@QUICK
@given(st.data())
def test_whatever_the_types_hold_fits_and_is_read_again(data):
    document = json.loads(report_json(data.draw(reports.random(Report))))
    fits(document)
    assert to_dict(msgspec.convert(document, Report, strict=False)) == document


def test_what_was_once_valid_stays_valid(tmp_path):
    first = json.loads((reports.SCHEMAS / "reports-2.0.json").read_text(encoding="utf-8"))
    assert len(first) == len(reports.EVERY)
    for document in first:
        fits(document)
        path = tmp_path / "result.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        more = json.loads(report_json(read_report(path)))
        assert holds(more, document)


def holds(more, value):
    """Whether nothing of ``value`` is gone or another."""
    if isinstance(value, dict):
        return all(k in more and holds(more[k], v) for k, v in value.items())
    if isinstance(value, list):
        return len(more) == len(value) and all(map(holds, more, value))
    return more == value


@pytest.mark.parametrize("name", ["finding", "no-finding", "measurements"])
def test_whatever_is_missing_or_of_another_type_is_refused_and_named(name, tmp_path):
    whole, path = to_dict(reports.EVERY[name]), tmp_path / "result.json"
    schema = json.loads(schema_text())
    places = list(spoiled({"$ref": schema["$ref"]}, whole))
    assert len(places) > 100
    for place, wrong in places[:: 1 + len(places) // 400]:
        if place == "$":
            continue
        broken = changed(whole, place, wrong)
        assert not reports.validator().is_valid(broken), (place, wrong)
        path.write_text(json.dumps(broken))
        with pytest.raises(UsageError, match=re.escape(f"`{place}`")):
            read_report(path)
    for key in schema["$defs"]["Report"]["required"]:
        path.write_text(json.dumps({k: v for k, v in whole.items() if k != key}))
        with pytest.raises(UsageError, match=f"`{key}`"):
            read_report(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a JSON document"),
        (b"\xff\xfe\x00", "not a JSON document"),
        (b"{", "not a JSON document"),
        (b'{"schema": "dpaudit-report/2", "seconds": NaN}', "NaN is no JSON number"),
        (b"[" * 100_000, "not a JSON document"),
        (b"[]", "a list, not a report"),
        (b"{}", "this dpaudit reads 'dpaudit-report/2'"),
        (b'{"schema": 1}', "this dpaudit reads 'dpaudit-report/2'"),
        (b'{"kind": "audit", "result": {}, "schema": "dpaudit-report/1"}', "dpaudit-report/1"),
        (b'{"schema": "dpaudit-report/3\\u001b[2J"}', "dpaudit-report/3"),
        (b'{"schema": "dpaudit-report/2"}', "missing required field `kind`"),
        (b'{"schema": "dpaudit-report/2", "kind": []}', "`$.kind`"),
        (b'{"schema": "dpaudit-report/2", "facts": {"\\ud800": 1}}', "dpaudit report --schema"),
    ],
)
def test_what_is_no_report_is_refused_in_one_sentence(tmp_path, content, says):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(says)) as raised:
        read_report(path)
    assert str(raised.value).startswith(f"file={path}: ")
    done = here("report", tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert says in done.stderr
    assert "\x1b" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("cls", "fields"),
    [
        (Table, {"columns": (Column("a", ("1",)), Column("b", ())), "caption": "c"}),
        (Axis, {"low": 2.0, "high": 1.0}),
        (Axis, {"log": True, "low": 0.0}),
        (Axis, {"ticks": ((math.inf, "a"), (1.0, "a"))}),
        (Line, {"at": math.nan}),
        (Mark, {"x": 0.0, "y": 0.0, "width": math.inf}),
        (Chart, dict.fromkeys(("title", "caption", "alt"), "") | {
            "kind": "plot", "panels": (), "x": Axis(), "y": Axis(), "columns": 0}),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_no_part_of_a_report(cls, fields):
    with pytest.raises(ValueError, match=r"one length|goes up|positive|finite|side by side"):
        cls(**fields)


def test_what_cannot_be_read_or_written(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_report(tmp_path / "none.json")
    with pytest.raises(UnknownNameError, match="format='pdf'"):
        write_report(reports.report(), tmp_path / "r.pdf", format="pdf")
    assert list(tmp_path.iterdir()) == []


def test_other_programs_files_are_not_ours(tmp_path):
    names = ["junit", "sarif"]
    for name in names:
        write_report(reports.report(), tmp_path / FORMATS[name][0], format=name)
    assert written(tmp_path) == names
    for name in names:
        (tmp_path / FORMATS[name][0]).write_text("mine")
    assert written(tmp_path) == []
