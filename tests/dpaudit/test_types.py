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
from dpaudit.audit.result import AuditResult
from dpaudit.codec import to_dict
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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *((part, f"'{part}'") for part in ("sigma", "=1", " ", "=", "sigma 1")),
        *((twice, "given twice") for twice in ("a=1,a=2", "a-b=1,a_b=2", "a=1, a =1")),
    ],
)
def test_options_that_cannot_be_read_are_refused(options, says):
    with pytest.raises(UsageError, match=says):
        Reference.parse(f"gaussian:{options}")


# ---------------------------------------------------------------- to_dict


def strict(value) -> str:
    """JSON as the standard has it: Python's own NaN and Infinity are refused."""
    return json.dumps(value, allow_nan=False)


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.float16])
def test_numbers_that_json_lacks_become_words_and_numpys_plain(kind):
    row = np.array([1.0, math.nan, -math.inf], kind)
    out = to_dict({"n": np.int64(3), "ok": np.bool_(True), "x": kind(0.5), "row": row})
    assert out == {"n": 3, "ok": True, "x": 0.5, "row": [1.0, "nan", "-inf"]}
    assert [type(out[k]) for k in ("n", "ok", "x", "row")] == [int, bool, float, list]
    assert to_dict(EpsilonBounds(low=0.0, high=kind(math.inf), says="x"))["high"] == "inf"
    assert strict(out)


def test_nested_results_become_json():
    plugin = PluginOrigin(kind="tests", name="moments", distribution="dpaudit", version="0.1")
    known = {"versions": {"dpaudit": "0.1"}, "hardware": "cpu", "started": "2025"}
    provenance = Provenance(seed="7", plugins=(plugin,), **known)
    spot = BlindSpot(test="moments", flaw="scale", size=None, unit="%", says="never")
    evidence = Evidence(p=0.5, statistic=-math.inf, effect="none", blind_spots=(spot,))
    interval = Interval(low=0, high=1, confidence=0.9, method="m")
    out = to_dict({"evidence": evidence, "provenance": provenance, 1: [interval]})
    assert json.loads(strict(out)) == out
    assert out["evidence"]["statistic"] == "-inf"
    assert out["evidence"]["blind_spots"][0]["size"] is None
    assert out["provenance"]["plugins"] == [dataclasses.asdict(plugin)]
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

RESULTS = [v for n in types.__all__ if dataclasses.is_dataclass(v := getattr(types, n))]


@pytest.mark.parametrize("cls", RESULTS, ids=lambda c: c.__name__)
def test_results_are_frozen(cls):
    assert cls.__dataclass_params__.frozen


def test_every_error_is_ours_exported_and_has_an_exit_code():
    ours = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, Exception)}
    assert ours == set(errors.__all__)
    undecided = dict.fromkeys((SamplerError, errors.ProtocolError, errors.RefusedProgramError), 3)
    codes = {errors.CheatingError: 1, UsageError: 2, **undecided}
    for cls in (getattr(errors, name) for name in ours):
        assert issubclass(cls, DpauditError)
        code = next((code for base, code in codes.items() if issubclass(cls, base)), 4)
        assert cls.exit_code == code


# ---------------------------------------------------------------- repr


def test_a_result_is_one_line_and_advice_does_not_count_in_it():
    looks = {"statistic": 9.0, "looks_at": "tails", "effect": "3 values\n\x1b[31mred", "parts": {}}
    far = TestResult(name="tails", p=1e-9, p_adjusted=2e-8, finding=True, **looks)
    assert repr(far).startswith("<TestResult: tails, finding, adjusted p 2e-08, 3 values")
    assert "\n" not in repr(far)
    assert "\x1b" not in repr(far)
    near = dataclasses.replace(far, name="nearer", p_adjusted=1e-300, advisory=True)
    blank = {f.name: None for f in dataclasses.fields(AuditResult)}
    known = {"verdict": "finding", "sampler": "x", "samples": 20_000, "tests": (far, near)}
    assert "smallest adjusted p 2e-08 (tails)" in repr(AuditResult(**{**blank, **known}))
