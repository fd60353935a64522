"""The measure ``keyless``: finds what it should, counts what it should not, and says so."""

import pytest

from dpaudit.experiments.cell import Cell
from dpaudit.experiments.spec_file import load_spec
from dpaudit.studies import keyless

pytest.importorskip("fpylll")


def cell(**options):
    case = {"name": "lattice", "d": 12, "rows": 4000, **options}
    return Cell("keyless", {"grid": {"case": case}, "seed": "1", "trials": 2})


def test_an_easy_specimen_is_found_and_a_hopeless_one_is_not():
    easy = keyless.measure(cell(beta=0.05, block=30, seconds=60), None)
    assert easy["found"]["value"] == 1
    assert easy["cosine"] > 0.99
    assert easy["wrong"] == 0
    hopeless = keyless.measure(cell(beta=1.0, block=20, seconds=5), None)
    assert hopeless["found"]["value"] == 0
    assert hopeless["wrong"] == 0
    said = keyless.summary([easy, hopeless])
    assert "wrong directions confirmed: 0" in said


@pytest.mark.parametrize("name", ["keyless", "keyless-far"])
def test_the_specs_hold_the_recipe_and_what_lies_beyond(name):
    cases = [
        (c.settings["grid"]["case"]["d"], c.settings["grid"]["case"]["beta"])
        for c in load_spec(name).cells()
    ]
    wanted = {
        "keyless": {(12, 0.1), (16, 0.1), (32, 0.01), (48, 0.01), (24, 0.1)},
        "keyless-far": {(48, 1e-3), (64, 1e-3), (48, 1e-5), (64, 0.01), (96, 1e-4)},
    }[name]
    assert wanted <= set(cases)
