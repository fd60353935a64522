"""Types of results, and the tree of errors."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit import errors, types
from dpaudit.errors import DpauditError, SamplerError, UsageError
from dpaudit.types import (
    BlindSpot,
    EpsilonBounds,
    Evidence,
    Interval,
    PluginOrigin,
    Provenance,
    Reference,
    TestResult,
    to_dict,
)

# ---------------------------------------------------------------- Reference


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("gaussian", "gaussian", {}),
        ("gaussian:", "gaussian", {}),
        (" gaussian : sigma = 2 ", "gaussian", {"sigma": 2}),
        ("pancake:sigma=2,key=lab/key.json", "pancake", {"sigma": 2, "key": "lab/key.json"}),
        ("x:a=1.5,b=1e-3,c=-7", "x", {"a": 1.5, "b": 1e-3, "c": -7}),
        ("x:a=true,b=False,c=yes", "x", {"a": True, "b": False, "c": "yes"}),
        ("x:allow-small=true", "x", {"allow_small": True}),
        ("x:url=http://h:1/a?b=c", "x", {"url": "http://h:1/a?b=c"}),
        ("x:a=", "x", {"a": ""}),
        ("x:a=inf", "x", {"a": math.inf}),
        ("x:a=1,,b=2,", "x", {"a": 1, "b": 2}),
    ],
)
def test_references_parse(text, name, options):
    ref = Reference.parse(text)
    assert (ref.name, dict(ref.options)) == (name, options)
    assert [type(v) for v in ref.options.values()] == [type(v) for v in options.values()]


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
option_names = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
texts = st.from_regex(r"[a-z/][a-z0-9./:=_-]{0,9}", fullmatch=True).filter(
    lambda s: s not in {"true", "false", "inf", "nan", "infinity"}
)
values = st.integers() | st.floats(allow_nan=False) | st.booleans() | texts


@given(names, st.dictionaries(option_names, values, max_size=4))
def test_references_survive_text(name, options):
    ref = Reference(name, options)
    again = Reference.parse(str(ref))
    assert again == ref
    assert [type(v) for v in again.options.values()] == [type(v) for v in options.values()]
    assert str(again) == str(ref)


@pytest.mark.parametrize("part", ["sigma", "=1", " ", "=", "sigma 1"])
def test_an_option_without_its_equals_sign_is_explained(part):
    with pytest.raises(UsageError) as caught:
        Reference.parse(f"gaussian:{part}")
    assert repr(part) in str(caught.value)
    assert "name=value, e.g. gaussian:sigma=1" in str(caught.value)


@pytest.mark.parametrize("text", ["x:a=1,a=2", "x:a-b=1,a_b=2", "x:a=1, a =1"])
def test_an_option_given_twice_is_refused(text):
    with pytest.raises(UsageError, match="given twice; keep one"):
        Reference.parse(text)


# ---------------------------------------------------------------- to_dict


def strict(value) -> str:
    """JSON as the standard has it: Python's own NaN and Infinity are refused."""
    return json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "word"), [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan")]
)
@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.float16])
def test_numbers_that_json_lacks_become_words(value, word, kind):
    bounds = to_dict(EpsilonBounds(low=0.0, high=kind(value), says="x"))
    assert bounds == {"low": 0.0, "high": word, "says": "x"}
    assert strict(bounds)


def test_numpy_values_become_plain_ones():
    out = to_dict(
        {
            "n": np.int64(3),
            "ok": np.bool_(True),
            "x": np.float32(0.5),
            "row": np.array([1.0, math.nan]),
        }
    )
    assert out == {"n": 3, "ok": True, "x": 0.5, "row": [1.0, "nan"]}
    assert [type(out[k]) for k in ("n", "ok", "x", "row")] == [int, bool, float, list]
    assert strict(out)


def test_nested_results_become_json():
    provenance = Provenance(
        seed="7",
        versions={"dpaudit": "0.1"},
        plugins=(
            PluginOrigin(kind="tests", name="moments", distribution="dpaudit", version="0.1"),
        ),
        hardware="cpu",
        started="2025",
    )
    spot = BlindSpot(test="moments", flaw="scale", size=None, unit="%", says="never")
    evidence = Evidence(
        p=0.5, statistic=-math.inf, effect="none", parts={"a": math.nan}, blind_spots=(spot,)
    )
    out = to_dict(
        {
            "evidence": evidence,
            "provenance": provenance,
            1: [Interval(low=0, high=1, confidence=0.9, method="m")],
        }
    )
    assert json.loads(strict(out)) == out
    assert out["evidence"]["parts"] == {"a": "nan"}
    assert out["evidence"]["statistic"] == "-inf"
    assert out["evidence"]["blind_spots"][0]["size"] is None
    assert out["provenance"]["plugins"] == [
        {
            "kind": "tests",
            "name": "moments",
            "distribution": "dpaudit",
            "version": "0.1",
            "sha256": "",
        }
    ]
    assert out["1"][0]["confidence"] == 0.9


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    )
)
def test_anything_plain_becomes_strict_json_and_stays_so(value):
    out = to_dict(value)
    assert json.loads(strict(out)) == out
    assert to_dict(out) == out


# ---------------------------------------------------------------- frozen words, tree of errors

RESULTS = [getattr(types, n) for n in types.__all__ if isinstance(getattr(types, n), type)]


@pytest.mark.parametrize("cls", RESULTS, ids=lambda c: c.__name__)
def test_results_are_frozen(cls):
    assert cls.__dataclass_params__.frozen
    blank = {f.name: None for f in dataclasses.fields(cls)}
    result = cls(**blank)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(result, next(iter(blank)), 1)


def test_the_result_called_test_is_not_collected():
    assert TestResult.__test__ is False


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_ours_exported_drawn_and_has_an_exit_code(name):
    cls = getattr(errors, name)
    assert issubclass(cls, DpauditError)
    assert name in errors.__doc__
    # the first that fits
    undecided = dict.fromkeys((SamplerError, errors.ProtocolError, errors.RefusedProgramError), 3)
    codes = {errors.CheatingError: 1, UsageError: 2, **undecided}
    assert cls.exit_code == next((code for base, code in codes.items() if issubclass(cls, base)), 4)


def test_no_error_is_left_out():
    ours = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, Exception)}
    assert ours == set(errors.__all__)


def test_usage_errors_are_value_errors():
    assert issubclass(UsageError, ValueError)
    assert not issubclass(SamplerError, ValueError)


# ---------------------------------------------------------------- repr


def _a_test(**more):
    return TestResult(
        **{
            "name": "tails",
            "p": 1e-9,
            "p_adjusted": 2e-8,
            "statistic": 9.0,
            "looks_at": "tails",
            "effect": "3 values above 9\n\x1b[31mred",
            "finding": True,
            "parts": {},
        }
        | more
    )


def test_every_result_is_one_line():
    spot = BlindSpot(test="tails", flaw="cut tails", size=0.125, unit="σ", says="…")
    assert repr(spot) == "<BlindSpot: cut tails, up to 0.125 σ, tails>"
    assert repr(dataclasses.replace(spot, size=None, test="")) == "<BlindSpot: cut tails, any size>"
    shown = repr(_a_test())
    assert shown.startswith("<TestResult: tails, finding, adjusted p 2e-08, 3 values above 9")
    assert "\n" not in shown
    assert "\x1b" not in shown
    advisory = repr(_a_test(finding=False, advisory=True, effect=""))
    assert advisory == "<TestResult: tails, advisory, adjusted p 2e-08>"
    evidence = Evidence(p=0.5, statistic=1.0, effect="none", details={"long": [1] * 1000})
    assert repr(evidence) == "<Evidence: p 0.5, none>"
    audit = types.AuditResult(
        verdict="finding",
        reason="",
        sampler="python:./x.py:f",
        claim="gaussian:sigma=1",
        alpha=0.01,
        tests=(_a_test(), _a_test(name="nearer", p_adjusted=1e-300, advisory=True)),
        samples=20_000,
        samples_requested=20_000,
        dims=(8,),
        seconds=1.0,
        cannot_rule_out=(spot,) * 50,
        provenance=Provenance(
            seed="1", versions={"dpaudit": "0.1"}, plugins=(), hardware="", started="2026-01-01"
        ),
    )
    assert repr(audit) == (
        "<AuditResult: finding, python:./x.py:f, gaussian:sigma=1, 20,000 values, "
        "smallest adjusted p 2e-08 (tails)>"
    )
    assert repr(audit.provenance) == "<Provenance: seed 1, dpaudit 0.1, 2026-01-01>"
