"""The published schema: it is what the dataclasses say, old documents fit it, broken ones do not."""

import copy
import dataclasses
import importlib.util
import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema.exceptions import best_match

from dpaudit.errors import UsageError
from dpaudit.report.formats import SCHEMA, read_document, schema_text, stamped
from dpaudit.report.formats.json_schema import KINDS
from dpaudit.report.formats.schema_of import closed, schema_of
from dpaudit.types import AuditResult, MechanismResult, to_dict

spec = importlib.util.spec_from_file_location("formats_made", Path(__file__).with_name("made.py"))
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)

PUBLISHED = json.loads(schema_text())
ANY = made.validator(PUBLISHED)
KIND = {name: made.validator(PUBLISHED, name) for name in (*KINDS, "printed-audit", "printed-mechanism")}
OURS = {name: made.validator(closed(PUBLISHED), name) for name in KIND}
RESULT = {"audit": AuditResult, "mechanism": MechanismResult}
QUICK = settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def fits(document, validators=KIND):
    error = best_match(validators[document["kind"]].iter_errors(document))
    assert error is None, f"{list(error.absolute_path)}: {error.message[:300]}"
    assert ANY.is_valid(document)


def test_the_published_schema_is_what_the_dataclasses_say():
    assert schema_of() == PUBLISHED, "python -m dpaudit.report.formats.schema_of writes it anew"


@pytest.mark.parametrize("kind", RESULT)
def test_a_new_field_fails_until_the_schema_knows_it(kind):
    cls = RESULT[kind]
    more = dataclasses.make_dataclass(
        cls.__name__, [("new", str, dataclasses.field(default=""))], bases=(cls,), frozen=True, kw_only=True
    )
    assert schema_of(**{kind: more}) != PUBLISHED
    document = stamped(made.every_kind()[f"{kind} finding"])
    result = document["result"] | {"new": ""}
    assert not OURS[kind].is_valid(document | {"result": result})
    fits(document | {"result": result})  # a consumer accepts what it does not know


def test_a_field_that_is_gone_or_became_another_type_fails():
    document = stamped(made.mechanism())
    for name in MechanismResult.__dataclass_fields__:
        less = {k: v for k, v in document["result"].items() if k != name}
        with_default = name in ("attack", "power", "details", "sandbox")
        assert KIND["mechanism"].is_valid(document | {"result": less}) == with_default, name
        assert not KIND["mechanism"].is_valid(document | {"result": document["result"] | {name: object}}), name


STORED = {p.parent.name: json.loads(p.read_bytes()) for p in sorted(made.ROOT.glob("docs/results/*/results.json"))}
REPORTS = [name for name, document in STORED.items() if "kind" in document]  # the others are benchmarks


@pytest.mark.parametrize("name", REPORTS)
def test_stored_documents_fit(name):
    document = STORED[name]
    assert len(REPORTS) >= 24
    fits(stamped(document))  # version 0 is version 1 without `schema`
    assert ANY.is_valid(document) == ("schema" in document)


@pytest.mark.parametrize(
    "document", json.loads((made.SCHEMAS / "reports-1.0.json").read_text(encoding="utf-8")), ids=lambda d: d["kind"]
)
def test_what_was_once_valid_stays_valid(document):
    fits(document)


def test_every_kind_is_among_those_of_1_0():
    first = json.loads((made.SCHEMAS / "reports-1.0.json").read_text(encoding="utf-8"))
    assert {document["kind"] for document in first} == set(KINDS)


@pytest.mark.parametrize("name", made.every_kind())
def test_documents_of_every_kind_fit(name):
    document = made.every_kind()[name]
    fits(stamped(document))


@QUICK
@given(made.reports())
def test_whatever_the_dataclasses_hold_fits_as_a_file_and_as_printed(document):
    document = json.loads(json.dumps(stamped(document), allow_nan=False))
    fits(document)
    fits(document, OURS)
    printed = stamped(document["result"])
    assert OURS[f"printed-{document['kind']}"].is_valid(printed)
    assert ANY.is_valid(printed)


@settings(QUICK, max_examples=30)
@given(made.reports(), st.data())
def test_a_mutation_does_not_fit(document, data):
    """One required key away, or one value of a type that nothing here has."""
    document = stamped(document)
    broken = copy.deepcopy(document)
    result = broken["result"]
    required = PUBLISHED["$defs"][RESULT[document["kind"]].__name__]["required"]
    name = data.draw(st.sampled_from(required))
    match data.draw(st.sampled_from(["missing", "type", "deep", "schema", "kind"])):
        case "missing":
            del result[name]
        case "type":
            result[name] = {"wrong": []} if not isinstance(result[name], dict) else [1]
        case "deep":
            result["provenance"]["seed"] = 7
        case "schema":
            broken["schema"] = "dpaudit-report/2"
        case "kind":
            broken["kind"] = "audits"
    assert KIND[document["kind"]].is_valid(document)
    assert not KIND[document["kind"]].is_valid(broken)
    assert not ANY.is_valid(broken)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 0),
        ("alpha", 1),
        ("alpha", "inf"),
        ("samples", -1),
        ("samples", 1.5),
        ("verdict", "pass"),
        ("seconds", -1),
    ],
)
def test_ranges(name, value):
    document = stamped(made.documents.audit("finding"))
    assert KIND["audit"].is_valid(document)
    assert not KIND["audit"].is_valid(document | {"result": document["result"] | {name: value}})


def test_p_values_are_probabilities():
    document = stamped(made.documents.audit("finding"))
    for p in (-0.1, 1.1, "inf", None):
        document["result"]["tests"][0]["p"] = p
        assert not KIND["audit"].is_valid(document)


def test_the_schema_names_no_host_but_json_schema_s_own():
    assert re.findall(r"https?://[^/\"]*", schema_text()) == ["https://json-schema.org"]
    assert PUBLISHED["properties"]["schema"]["const"] == SCHEMA


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a JSON document"),
        (b"\xff\xfe\x00", "not a JSON document"),
        (b"{", "not a JSON document"),
        (b'{"kind": "audit", "result": {"alpha": NaN}}', "NaN is no JSON number"),
        (b"[" * 100_000, "not a JSON document"),
        (b"[]", "a list, not a report"),
        (b"{}", "kind='None' is none of"),
        (b'{"kind": ["audit"]}', "is none of"),
        (b'{"kind": "audit"}', "an object 'result'"),
        (b'{"kind": "audit", "result": {}, "schema": "dpaudit-report/2"}', "this dpaudit reads 'dpaudit-report/1'"),
    ],
)
def test_what_is_no_report_is_told_from_one(tmp_path, content, says):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(says)) as raised:
        read_document(path)
    assert str(raised.value).startswith(f"file={path}: ")


def test_reading_gives_back_what_was_written(tmp_path):
    document = stamped(made.documents.audit("finding"))
    (tmp_path / "result.json").write_text(json.dumps(to_dict(document)))
    assert read_document(tmp_path / "result.json") == to_dict(document)
    with pytest.raises(UsageError, match="cannot be read"):
        read_document(tmp_path / "none.json")
