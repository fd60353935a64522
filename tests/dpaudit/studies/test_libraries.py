"""The table of libraries: cases as in its experiments, rows as the audit found, absence noted."""

import shlex
import subprocess
import sys

import pytest

from dpaudit.errors import UnknownNameError
from dpaudit.experiments import load_spec
from dpaudit.experiments.cell import Cell
from dpaudit.studies.libraries import CASES, case, controls, generators, private, specimens
from dpaudit.studies.libraries import measure as libraries


def line(name, **grid):
    grid = {"case": name, "samples": 2_000, "alpha": 0.01, **grid}
    cell = Cell("libraries", {"grid": grid, "seed": "tests", "trials": 1})
    return libraries.measure(cell, None)


def test_the_experiments_name_all_cases():
    named = {
        spec: {cell.settings["grid"]["case"] for cell in load_spec(spec).cells()}
        for spec in ("libraries", "floating-point", "controls")
    }
    assert named["libraries"] == {c.name for group in (generators, private) for c in group.CASES}
    assert named["floating-point"] == {c.name for c in specimens.CASES}
    assert named["controls"] <= set(CASES)
    assert sum(len(group.CASES) for group in (generators, private, specimens)) == len(CASES)
    assert {c.library for c in private.CASES} >= {
        "opacus", "opendp", "python-dp", "pipeline-dp", "diffprivlib", "diffprivlib-old",
        "tmlt-core",
    }  # fmt: skip
    with pytest.raises(UnknownNameError, match="did you mean"):
        case("numpy:norml reach")


def test_noise_added_in_floating_point_is_broken_and_says_how_to_see_it_again():
    row = line("numpy:laplace reach")
    assert row["verdict"] == "broken"
    assert row["library"].startswith("numpy 2")
    assert 0.38 < row["p0"] < 0.48
    assert row["p1"] == 0
    assert row["epsilon"] > 4
    assert 0.55 < row["success"]["low"] < row["success"]["value"] < 0.66
    assert (
        "dpaudit mechanism numpy:laplace --neighbours '0,1' --claim-epsilon 1 --attack reach"
        in row["reproduce"]
    )


@pytest.mark.slow
def test_our_own_sound_noise_is_not():
    row = line("secure-gaussian:sigma=1 reach")
    assert row["verdict"] == "not broken"
    assert row["p0"] == row["p1"] == 0
    assert row["failed"] is None


def test_a_library_that_is_absent_is_a_line_that_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("DPAUDIT_ENVS", str(tmp_path))
    row = line("tmlt-core:laplace:scale=1 reach")
    assert row["verdict"] == "not installed"
    assert "make envs" in row["failed"]
    assert "Not installed: tmlt-core" in libraries.summary([row])
    grid = {"case": "tmlt-core:laplace:scale=1 reach", "samples": 1_000, "alpha": 0.05}
    told = controls.measure(Cell("controls", {"grid": grid, "seed": "t", "trials": 1}), None)
    assert "make envs" in told["failed"]
    assert controls.summary([told]) == "No control could be run."


@pytest.mark.slow
def test_controls_count_what_exceeds_the_claim():
    cell = {
        "grid": {"case": "discrete-laplace:scale=10 reach", "samples": 1_000, "alpha": 0.05},
        "seed": "t",
        "trials": 3,
    }
    row = controls.measure(Cell("controls", cell), None)
    assert row["repeats"] == 3
    assert row["exceeded"] == 0
    assert "3 of 3" in controls.summary([row])
    broken = controls.measure(
        Cell("controls", {**cell, "grid": {**cell["grid"], "case": "numpy:laplace reach"}}), None
    )
    assert broken["exceeded"] == 3
    assert broken["within"]["value"] == 0


def test_the_summary_counts_mechanisms_not_lines():
    names = ("library", "mechanism", "promise", "verdict", "failed")
    told = (
        ("a 1", "m:x=1", "DP", "broken", None),
        ("a 1", "m:x=2", "DP", "not broken", None),
        ("b 2", "n", "DP", "leaks by its time", None),
        ("c 3", "o", "none", "broken", None),
        ("d", "p", "DP", "failed", "why"),
    )
    rows = [dict(zip(names, row, strict=True)) for row in told]
    text = libraries.summary(rows)
    assert "Of 2 mechanisms that promise differential privacy 1 broke: a 1 m." in text
    assert "By their time leaked: b 2 n." in text
    assert "Of 1 attacks on noise that promises nothing 1 succeeded." in text
    assert "Failed: d p" in text


@pytest.mark.slow
def test_the_command_of_a_line_works():
    words = shlex.split(
        case("numpy:laplace reach").command.replace("--samples 20000", "--samples 2000")
    )
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "reach" in done.stdout
