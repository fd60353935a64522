"""The published schema: it is what the types say, old documents fit it, broken ones do not."""

import copy
import dataclasses
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from support import formats as made

from dpaudit.documents import SCHEMA
from dpaudit.report import document_of
from dpaudit.report.formats.json_schema import schema_of, schema_text
from dpaudit.report.reading import KINDS
from dpaudit.types import AuditResult, MechanismResult, to_dict

RESULT = {"audit": AuditResult, "mechanism": MechanismResult}
QUICK = settings(suppress_health_check=list(HealthCheck))


def published():
    return json.loads(schema_text())


def written(name):
    return to_dict(made.typed(name))


def fits(document, **exactly):
    error = best_match(made.validator(KINDS[document["kind"]], **exactly).iter_errors(document))
    assert error is None, f"{list(error.absolute_path)}: {error.message[:300]}"
    assert exactly or made.validator().is_valid(document)


def holds(more, value):
    """Whether nothing of ``value`` is gone or another, but for defaults."""
    if isinstance(value, dict):
        return all(
            holds(more[k], v) if k in more else v in ([], False, "line") for k, v in value.items()
        )
    if isinstance(value, list):
        return len(more) == len(value) and all(map(holds, more, value))
    return more == value


@pytest.mark.slow
def test_the_schemas_are_schemas():
    for exactly in (False, True):
        Draft202012Validator.check_schema(made.validator(exactly=exactly).schema)
    Draft202012Validator.check_schema(made.sarif().schema)


def test_the_published_schema_is_what_the_types_say():
    assert schema_of() == published(), "python -m dpaudit.report.formats.json_schema writes it anew"


@pytest.mark.parametrize("kind", RESULT)
def test_a_new_field_fails_until_the_schema_knows_it(kind):
    cls = RESULT[kind]
    more = dataclasses.make_dataclass(
        cls.__name__,
        [("new", str, dataclasses.field(default=""))],
        bases=(cls,),
        frozen=True,
        kw_only=True,
    )
    known = published()["$defs"][cls.__name__]
    assert schema_of(cls)["$defs"][cls.__name__] == known != schema_of(more)["$defs"][cls.__name__]
    document = written(f"{kind} finding")
    fits(document, exactly=True)
    result = document["result"] | {"new": ""}
    assert not made.validator(KINDS[kind], exactly=True).is_valid(document | {"result": result})
    fits(document | {"result": result})  # a consumer accepts what it does not know


def test_a_field_that_is_gone_or_became_another_type_fails():
    document, valid = written("mechanism finding"), made.validator(KINDS["mechanism"]).is_valid
    for name in MechanismResult.__dataclass_fields__:
        less = {k: v for k, v in document["result"].items() if k != name}
        with_default = name in ("attack", "power", "details", "sandbox", "stated")
        assert valid(document | {"result": less}) == with_default, name
        assert not valid(document | {"result": document["result"] | {name: object}}), name


@pytest.mark.slow
def test_stored_documents_fit():
    stored = {
        p.parent.name: json.loads(p.read_bytes())
        for p in sorted(made.ROOT.glob("docs/results/*/results.json"))
    }
    # others are benchmarks
    reports = {name: document for name, document in stored.items() if "kind" in document}
    assert len(reports) >= 24
    for name, document in reports.items():
        fits({"schema": SCHEMA} | document)  # version 0 is version 1 without `schema`
        fits(to_dict(document_of(document)))
        assert "schema" in document or not made.validator().is_valid(document), name


def test_what_was_once_valid_stays_valid():
    first = json.loads((made.SCHEMAS / "reports-1.0.json").read_text(encoding="utf-8"))
    assert {document["kind"] for document in first} == set(KINDS)
    for document in first:
        fits(document)
        assert holds(to_dict(document_of(document)), document)


@pytest.mark.parametrize("name", made.EVERY_KIND)
def test_documents_of_every_kind_fit(name):
    fits(written(name))


@pytest.mark.parametrize("kind", KINDS)
@QUICK
@given(st.data())
def test_whatever_the_types_hold_fits_as_a_file_and_as_printed_and_is_read_again(kind, data):
    document = json.loads(json.dumps(to_dict(data.draw(made.random(KINDS[kind]))), allow_nan=False))
    fits(document)
    fits(document, exactly=True)
    assert to_dict(document_of(document)) == document
    if kind in RESULT:
        printed = {"schema": SCHEMA} | document["result"]
        assert made.validator(RESULT[kind], exactly=True).is_valid(printed)
        assert made.validator().is_valid(printed)
        del printed["schema"]
        assert not made.validator().is_valid(printed)


@pytest.mark.parametrize("kind", RESULT)
@QUICK
@given(st.data())
def test_a_mutation_does_not_fit(kind, data):
    """One required key away, or one value of a type that nothing here has."""
    document = to_dict(data.draw(made.random(KINDS[kind])))
    broken = copy.deepcopy(document)
    result = broken["result"]
    required = published()["$defs"][RESULT[kind].__name__]["required"]
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
    assert made.validator(KINDS[kind]).is_valid(document)
    assert not made.validator(KINDS[kind]).is_valid(broken)
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
    document = written("audit finding")
    assert made.validator(KINDS["audit"]).is_valid(document)
    assert not made.validator(KINDS["audit"]).is_valid(
        document | {"result": document["result"] | {name: value}}
    )


def test_p_values_are_probabilities():
    document = written("audit finding")
    for p in (-0.1, 1.1, "inf", None):
        document["result"]["tests"][0]["p"] = p
        assert not made.validator(KINDS["audit"]).is_valid(document)


def test_the_schema_names_no_host_but_json_schema_s_own():
    assert re.findall(r"https?://[^/\"]*", schema_text()) == ["https://json-schema.org"]
    assert published()["properties"]["schema"]["const"] == SCHEMA
