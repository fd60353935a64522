"""The measure ``keyless``: finds what it should, counts what it should not, and says so."""

import pytest

from dpaudit.experiments.spec import Cell, load_spec
from dpaudit.studies import keyless

pytest.importorskip("fpylll")


def cell(case):
    return Cell("keyless", {"grid": {"case": case}, "seed": "1", "trials": 2})


def test_an_easy_specimen_is_found_and_a_hopeless_one_is_not():
    easy = keyless.measure(cell("lattice:d=12,beta=0.05,rows=4000,block=30,seconds=60"), None)
    assert easy["found"]["value"] == 1
    assert easy["cosine"] > 0.99
    assert easy["wrong"] == 0
    hopeless = keyless.measure(cell("lattice:d=12,beta=1.0,rows=4000,block=20,seconds=5"), None)
    assert hopeless["found"]["value"] == 0
    assert hopeless["wrong"] == 0
    said = keyless.summary([easy, hopeless])
    assert "wrong directions confirmed: 0" in said


@pytest.mark.parametrize("name", ["keyless", "keyless-far"])
def test_the_specs_hold_the_recipe_and_what_lies_beyond(name):
    cases = [c.settings["grid"]["case"] for c in load_spec(name).cells()]
    wanted = {
        "keyless": ["d=12,beta=0.1", "d=16,beta=0.1", "d=32,beta=0.01", "d=48,beta=0.01", "d=24,beta=0.1"],
        "keyless-far": ["d=48,beta=1e-3", "d=64,beta=1e-3", "d=48,beta=1e-5", "d=64,beta=0.01", "d=96,beta=1e-4"],
    }[name]
    for part in wanted:
        assert any(part + "," in case for case in cases), part
