"""studies/dpaudit_studies/evidence/shares.py: what other shares of α would find."""

from pathlib import Path

import pytest

from dpaudit_studies.evidence import shares as shares_of_alpha

ROOT = Path(__file__).resolve().parents[2]


def test_shares_add_up_and_find_what_they_can():
    tables = [{"a": 0.006, "b": 1.0}, {"a": 1.0, "b": 0.003}, {"a": 0.5, "b": 0.0099}]
    shares = shares_of_alpha.best(tables, ["a", "b"])
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["a"] == pytest.approx(0.65)
    assert [shares_of_alpha.is_found(p, shares) for p in tables] == [True, True, False]
    equal = shares_of_alpha.equal(["a", "b"])
    assert [shares_of_alpha.is_found(p, equal) for p in tables] == [
        False,
        True,
        False,
    ]


def test_each_specimen_is_judged_by_shares_that_it_did_not_choose():
    tables = {"gross": {"a": 1e-9, "b": 1.0}, "small": {"a": 1.0, "b": 0.008}, "right": {"a": 0.9}}
    tables["right"] |= {"b": 0.4}
    expected = {"gross": "found", "small": "borderline", "right": "passed"}
    same, fitted, judged, larger, *missed = shares_of_alpha.summary(tables, expected)
    assert same.startswith("equal (as the battery has): 1 of 2 flawed (1 of 1 found, 0 of 1 border")
    assert fitted.startswith("best for these specimens: 2 of 2 flawed")
    assert judged.startswith("best for all but the one judged: 1 of 2 flawed")
    assert all(line.endswith("0 of 1 right ones accused") for line in (same, fitted, judged))
    assert larger.endswith(": none")
    assert missed == ["missed: small (borderline); b would need 0.8 of α"]


def test_kept_p_values_are_not_drawn_again(tmp_path, monkeypatch):
    drawn = []
    audit, kept = shares_of_alpha.audit, tmp_path / "kept"

    def p_values(name, samples):
        drawn.append(name)
        return {"a": samples / 1e6}

    monkeypatch.setitem(audit.__globals__, "p_values", p_values)
    first = audit(["x", "y"], 1000, kept)
    assert audit(["x", "y", "z"], 1000, kept) == first | {"z": {"a": 0.001}}
    assert drawn == ["x", "y", "z"]
    assert audit(["x"], 2000, kept) == {"x": {"a": 0.002}}
