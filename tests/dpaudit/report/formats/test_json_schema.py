"""The published schema: it is what the dataclasses say, old documents fit it, broken ones do not."""

import copy
import dataclasses
import json
import re

import pytest
from dpaudit.report.formats.schema_of import schema_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from support import formats as made

from dpaudit.errors import UsageError
from dpaudit.report.formats import SCHEMA, read_document, schema_text, stamped
from dpaudit.report.formats.json_schema import KINDS
from dpaudit.types import AuditResult, MechanismResult, to_dict

RESULT = {"audit": AuditResult, "mechanism": MechanismResult}
QUICK = settings(suppress_health_check=list(HealthCheck))


def published():
    return json.loads(schema_text())


def fits(document, **exactly):
    error = best_match(made.validator(document["kind"], **exactly).iter_errors(document))
    assert error is None, f"{list(error.absolute_path)}: {error.message[:300]}"
    assert exactly or made.validator().is_valid(document)


def test_the_schemas_are_schemas():
    for exactly in (False, True):
        Draft202012Validator.check_schema(made.validator(exactly=exactly).schema)
    Draft202012Validator.check_schema(made.sarif().schema)


def test_the_published_schema_is_what_the_dataclasses_say():
    assert schema_of() == published(), "python -m dpaudit.report.formats.schema_of writes it anew"


@pytest.mark.parametrize("kind", RESULT)
def test_a_new_field_fails_until_the_schema_knows_it(kind):
    cls = RESULT[kind]
    more = dataclasses.make_dataclass(
        cls.__name__, [("new", str, dataclasses.field(default=""))], bases=(cls,), frozen=True, kw_only=True
    )
    assert schema_of(**{kind: more}) != published()
    document = stamped(made.of_kind(f"{kind} finding"))
    result = document["result"] | {"new": ""}
    assert not made.validator(kind, exactly=True).is_valid(document | {"result": result})
    fits(document | {"result": result})  # a consumer accepts what it does not know


def test_a_field_that_is_gone_or_became_another_type_fails():
    document = stamped(made.mechanism())
    for name in MechanismResult.__dataclass_fields__:
        less = {k: v for k, v in document["result"].items() if k != name}
        with_default = name in ("attack", "power", "details", "sandbox")
        assert made.validator("mechanism").is_valid(document | {"result": less}) == with_default, name
        assert not made.validator("mechanism").is_valid(document | {"result": document["result"] | {name: object}}), (
            name
        )


def test_stored_documents_fit():
    stored = {p.parent.name: json.loads(p.read_bytes()) for p in sorted(made.ROOT.glob("docs/results/*/results.json"))}
    reports = {name: document for name, document in stored.items() if "kind" in document}  # others are benchmarks
    assert len(reports) >= 24
    for name, document in reports.items():
        fits(stamped(document))  # version 0 is version 1 without `schema`
        assert "schema" in document or not made.validator().is_valid(document), name


def test_what_was_once_valid_stays_valid():
    first = json.loads((made.SCHEMAS / "reports-1.0.json").read_text(encoding="utf-8"))
    assert {document["kind"] for document in first} == set(KINDS)
    for document in first:
        fits(document)


@pytest.mark.parametrize("name", made.EVERY_KIND)
def test_documents_of_every_kind_fit(name):
    document = made.of_kind(name)
    fits(stamped(document))


@QUICK
@given(made.reports())
def test_whatever_the_dataclasses_hold_fits_as_a_file_and_as_printed(document):
    document = json.loads(json.dumps(stamped(document), allow_nan=False))
    fits(document)
    fits(document, exactly=True)
    printed = stamped(document["result"])
    assert made.validator(f"printed-{document['kind']}", exactly=True).is_valid(printed)
    assert made.validator().is_valid(printed)


@QUICK
@given(made.reports(), st.data())
def test_a_mutation_does_not_fit(document, data):
    """One required key away, or one value of a type that nothing here has."""
    document = stamped(document)
    broken = copy.deepcopy(document)
    result = broken["result"]
    required = published()["$defs"][RESULT[document["kind"]].__name__]["required"]
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
    assert made.validator(document["kind"]).is_valid(document)
    assert not made.validator(document["kind"]).is_valid(broken)
    assert not made.validator().is_valid(broken)


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
    assert made.validator("audit").is_valid(document)
    assert not made.validator("audit").is_valid(document | {"result": document["result"] | {name: value}})


def test_p_values_are_probabilities():
    document = stamped(made.documents.audit("finding"))
    for p in (-0.1, 1.1, "inf", None):
        document["result"]["tests"][0]["p"] = p
        assert not made.validator("audit").is_valid(document)


def test_the_schema_names_no_host_but_json_schema_s_own():
    assert re.findall(r"https?://[^/\"]*", schema_text()) == ["https://json-schema.org"]
    assert published()["properties"]["schema"]["const"] == SCHEMA


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
