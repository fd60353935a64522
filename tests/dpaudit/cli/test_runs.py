"""``dpaudit runs``: list, show, diff, export."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dpaudit.cli import runs_text
from dpaudit.cli.app import app
from dpaudit.errors import DpauditError, MissingExtraError, StoreError, UsageError
from dpaudit.experiments import load_spec
from dpaudit.experiments.export import flat_rows, flatten, typed, write_columns
from dpaudit.experiments.store import FILE, Store
from dpaudit.experiments.stored import open_run
from dpaudit.types import CellFailure, CellResult, to_dict

SPEC = """
name = "small"
seed = {seed}
epsilon = [0.5, 1.0]
delta = 1e-10
trials = 10
keep_trials = true
[host]
name = "histogram"
[[source]]
name = "gaussian"
[[attack]]
name = "nearest-peak"
label = "nearest {label}"
[key]
beta = 1e-3
gamma = "2sqrtd"
"""
HOSTILE = "evil\x1b]0;owned\x07 [bold]x[/bold] \u202egnp.exe"


def invoke(*args):
    result = CliRunner().invoke(app, ["runs", *map(str, args)])
    if result.exception is not None and not isinstance(
        result.exception, (SystemExit, DpauditError)
    ):
        raise result.exception
    return result


def outcome(value, *, wide=0.1, **more):
    return {
        "attack": "nearest-peak",
        "trials": 10,
        "successes": round(10 * value),
        "success": value,
        "interval": {"low": value - wide, "high": value + wide, "confidence": 0.95, "method": "m"},
        "chance": 0.5,
        "epsilon_lower_bound": "inf",
        "l2_error": 9.5,
        "l2_expected": 9.0,
        "details": {"picture": [1, 2]},
        "epsilon_key_holder": {"low": 0.5, "high": 0.5, "says": "exact"},
        "sigma": 2.0,
        "dim": 64,
        **more,
    }


def provenance(**more):
    plugin = {
        "kind": "sources",
        "name": "gaussian",
        "distribution": "other",
        "version": "1",
        "sha256": "a" * 64,
    }
    return {
        "seed": "1",
        "versions": {"dpaudit": "0.1.0", "numpy": "2.0"},
        "plugins": [plugin],
        "hardware": "h",
        "started": "2025-01-01T00:00:00",
        "source": "b" * 64,
        **more,
    }


def make(folder, values=(0.5, 0.9), *, seed=1, failed=0, label="one", told=provenance, **more):
    """A run whose first cells succeed with ``values`` and ``failed`` of the rest fail."""
    folder.mkdir(parents=True)
    (folder / "small.toml").write_text(SPEC.format(seed=seed, label=label), encoding="utf-8")
    spec = load_spec(str(folder / "small.toml"))
    cells = spec.cells()
    trials = {"truth": [0, 1], "guess": [0, 0], "score": [-0.5, math.nan]}
    with Store.create(
        folder, spec=to_dict(vars(spec)), command="dpaudit run small.toml", cells=len(cells)
    ) as store:
        for i, cell in enumerate(cells):
            known = {"cell": cell.id, "kind": "attack", "settings": cell.settings, "seconds": 1.0}
            if i < len(values):
                made = CellResult(
                    **known, outcome=outcome(values[i], **more), provenance=told(), trials=trials
                )
                store.add(made, position=i)
            elif i < len(values) + failed:
                store.add(
                    CellFailure(
                        **known,
                        error=HOSTILE,
                        traceback=f"Traceback\n  {HOSTILE}",
                        provenance=told(),
                    ),
                    position=i,
                )
    return folder


# ---------------------------------------------------------------- list


def test_list_shows_every_run_and_says_why_one_cannot_be_read(tmp_path):
    make(tmp_path / "a" / "whole")
    make(tmp_path / "b", (0.5,), failed=1)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / FILE).write_text("no database at all" * 500)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / FILE).touch()
    found = json.loads(invoke("list", tmp_path, "--format", "json").stdout)
    runs = {os.path.basename(r["folder"]): r for r in found}
    assert list(runs) == ["whole", "b", "begun", "broken"]
    assert "not a dpaudit store" in runs["broken"]["problem"]
    assert "holds no results yet" in runs["begun"]["problem"]
    picked = ("name", "done", "failed", "cells", "seconds", "running", "trials_kept", "problem")
    assert [runs["whole"][k] for k in picked] == ["small", 2, 0, 2, 2.0, False, 4, ""]
    assert [runs["b"][k] for k in picked] == ["small", 1, 1, 2, 2.0, False, 2, ""]
    text = invoke("list", tmp_path)
    assert text.exit_code == 0
    assert "1 of 2, 1 failed" in text.stdout
    assert "unreadable" in text.stdout


def test_list_says_what_is_running(tmp_path):
    spec = make(tmp_path / "a") and Store.read(tmp_path / "a").spec
    with Store.resume(tmp_path / "a", spec=spec):
        (run,) = json.loads(invoke("list", tmp_path, "--format", "json").stdout)
    assert run["running"]
    (run,) = json.loads(invoke("list", tmp_path, "--format", "json").stdout)
    assert not run["running"]


@pytest.mark.slow
def test_an_empty_folder_has_no_runs_and_a_missing_one_is_a_slip(tmp_path):
    assert "dpaudit run NAME makes one" in invoke("list", tmp_path).stdout
    assert json.loads(invoke("list", tmp_path, "--format", "json").stdout) == []
    with pytest.raises(UsageError, match="no such folder"):
        raise invoke("list", tmp_path / "none").exception


# ---------------------------------------------------------------- show


def test_show_is_the_table_with_what_failed(tmp_path):
    make(tmp_path / "a", (0.5,), failed=1)
    shown = invoke("show", tmp_path / "a")
    assert shown.exit_code == 0
    assert "1 of 2 cells done, 1 failed" in shown.stdout
    assert "nearest" in shown.stdout
    document = json.loads(invoke("show", tmp_path / "a", "--format", "json").stdout)
    assert document["document"]["rows"][0]["attacks"][0]["success"] == 0.5
    assert document["run"]["failed"] == 1
    assert document["invocations"][0]["command"] == "dpaudit run small.toml"
    assert [f["error"] for f in document["failures"]] == [HOSTILE]


@pytest.mark.parametrize("args", [("--failed",), (), ("--failed", "--format", "json")])
def test_what_a_stranger_said_does_not_steer_the_terminal(tmp_path, args):
    make(tmp_path / "a", (), failed=2, label=HOSTILE.translate({0x1B: 0x2E, 7: 0x2E}))
    shown = invoke("show", tmp_path / "a", *args).stdout
    assert "owned" in shown
    assert "[bold]" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


@pytest.mark.slow
def test_show_one_cell_by_the_beginning_of_its_id(tmp_path):
    make(tmp_path / "a")
    with Store.read(tmp_path / "a") as store:
        cell = store.results()[0].cell
    shown = invoke("show", tmp_path / "a", "--cell", cell[:6])
    assert f"Cell {cell}, attempt 1: done" in shown.stdout
    assert '"successes": 5' in shown.stdout
    assert "2 trials kept" in shown.stdout
    (attempt,) = json.loads(
        invoke("show", tmp_path / "a", "--cell", cell, "--format", "json").stdout
    )
    assert attempt["provenance"] == provenance()
    for wrong in ("zz", ""):
        with pytest.raises(UsageError, match="no attempt at such a cell"):
            raise invoke("show", tmp_path / "a", "--cell", wrong).exception


@pytest.mark.slow
def test_show_before_anything_is_done(tmp_path):
    make(tmp_path / "a", ())
    assert "No cell is done yet" in invoke("show", tmp_path / "a").stdout
    assert "No cell has failed" in invoke("show", tmp_path / "a", "--failed").stdout
    with pytest.raises(StoreError, match="holds no results"):
        raise invoke("show", tmp_path).exception


# ---------------------------------------------------------------- diff


def diff(*folders):
    result = invoke("diff", *folders, "--format", "json")
    return result.exit_code, json.loads(result.stdout)


def test_identical_runs_differ_in_nothing(tmp_path):
    code, found = diff(make(tmp_path / "a"), make(tmp_path / "b"))
    assert (code, found["agree"], found["same_spec"]) == (0, True, True)
    assert found["count"] == {"identical": 2, "overlapping": 0, "different": 0}
    assert found["circumstances"] == {}
    text = invoke("diff", tmp_path / "a", tmp_path / "b").stdout
    assert "All 2 cells are identical (the same experiment)." in text
    assert "Same seed, trials, versions, sources and hardware." in text


@pytest.mark.slow
def test_overlapping_intervals_agree_and_disjoint_ones_do_not(tmp_path):
    a = make(tmp_path / "a")
    code, found = diff(a, make(tmp_path / "b", (0.55, 0.9), seed=2))
    assert (
        code,
        found["same_spec"],
        found["count"]["overlapping"],
        found["count"]["identical"],
    ) == (0, False, 1, 1)
    code, found = diff(a, make(tmp_path / "c", (0.75, 0.9), seed=2))
    assert (code, found["count"]["different"]) == (1, 1)
    (change,) = [c for c in found["cells"][0]["changes"] if c["disjoint"]]
    assert change["name"] == "interval (interval)"
    text = invoke("diff", a, tmp_path / "c")
    assert text.exit_code == 1
    assert "1 of 2 cells differ" in text.stdout


@pytest.mark.slow
def test_a_verdict_decides_and_a_number_without_an_interval_must_be_equal(tmp_path):
    a = make(tmp_path / "a", verdict="finding")
    assert diff(a, make(tmp_path / "b", verdict="no-finding"))[0] == 1
    bare = {"interval": None, "success": 0.5}
    assert diff(make(tmp_path / "c", **bare), make(tmp_path / "d", **bare))[0] == 0
    assert diff(tmp_path / "c", make(tmp_path / "e", **bare, sigma=2.5))[0] == 1


def test_a_cell_that_one_of_two_equal_experiments_lacks_is_a_difference(tmp_path):
    code, found = diff(make(tmp_path / "a"), make(tmp_path / "b", (0.5,)))
    assert (code, len(found["only_a"]), len(found["only_b"])) == (1, 1, 0)
    code, found = diff(tmp_path / "a", make(tmp_path / "c", (0.5,), seed=2))
    assert code == 0


def test_what_has_nothing_in_common_cannot_be_compared(tmp_path):
    with pytest.raises(StoreError, match="no finished cell in common"):
        raise invoke("diff", make(tmp_path / "a"), make(tmp_path / "b", label="other")).exception


def test_other_circumstances_are_told_and_alone_are_no_difference(tmp_path):
    def elsewhere():
        told = provenance(hardware="other", versions={"dpaudit": "0.2.0", "numpy": "2.0"})
        told["plugins"][0]["sha256"] = "c" * 64
        return told

    code, found = diff(make(tmp_path / "a"), make(tmp_path / "b", told=elsewhere))
    assert code == 0
    assert found["circumstances"] == {
        "hardware": ["h", "other"],
        "version of dpaudit": ["0.1.0", "0.2.0"],
        "sources of sources gaussian (other)": ["a" * 64, "c" * 64],
    }


# ---------------------------------------------------------------- export


@pytest.mark.slow
def test_exports_hold_the_rows_of_the_document(tmp_path):
    run = open_run(make(tmp_path / "a"))
    for ending in ("csv", "json", "parquet"):
        result = invoke("export", tmp_path / "a", "--to", tmp_path / f"x.{ending}")
        assert (result.exit_code, "2 rows" in result.stdout) == (0, True)
    with (tmp_path / "x.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [
        (r["epsilon"], r["success"], r["success_low"], r["epsilon_lower_bound"]) for r in rows
    ] == [
        ("0.5", "0.5", "0.4", "inf"),
        ("1.0", "0.9", "0.8", "inf"),
    ]
    read = json.loads((tmp_path / "x.json").read_text())
    assert [r["successes"] for r in read] == [5, 9]
    assert read[0]["epsilon_lower_bound"] == "inf"
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(tmp_path / "x.parquet")
    pandas.testing.assert_frame_equal(frame, run.frame(), check_dtype=False)
    assert frame["successes"].dtype == "int64"
    assert frame["epsilon_lower_bound"].tolist() == [math.inf, math.inf]


def test_trials_are_exported_apart(tmp_path):
    pytest.importorskip("pandas")
    make(tmp_path / "a")
    assert (
        "4 trials"
        in invoke("export", tmp_path / "a", "--to", tmp_path / "t.csv", "--trials").stdout
    )
    rows = (tmp_path / "t.csv").read_text().splitlines()
    assert rows[0] == "cell,trial,truth,guess,score"
    assert rows[1].split(",")[1:] == ["0", "0", "0", "-0.5"]
    assert rows[2].split(",")[1:] == ["1", "1", "0", "nan"]
    frame = open_run(tmp_path / "a").trials_frame()
    assert frame.groupby("cell").apply(
        lambda t: (t.truth == t.guess).sum(), include_groups=False
    ).tolist() == [1, 1]
    with pytest.raises(UsageError, match="keep_trials = true"):
        raise invoke(
            "export", make(tmp_path / "b", ()), "--to", tmp_path / "t.csv", "--trials"
        ).exception


@pytest.mark.slow
def test_an_export_that_cannot_be_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    make(tmp_path / "a")
    with pytest.raises(UsageError, match=r"must end with .parquet, .csv, .json"):
        raise invoke("export", tmp_path / "a", "--to", tmp_path / "x.xls").exception
    with pytest.raises(UsageError, match="cannot be written"):
        raise invoke("export", tmp_path / "a", "--to", tmp_path / "none" / "x.csv").exception
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dpaudit\[parquet\]'"):
        raise invoke("export", tmp_path / "a", "--to", tmp_path / "x.parquet").exception
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="needs pandas"):
        open_run(tmp_path / "a").frame()
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_runs_own_document_is_no_target(tmp_path):
    make(tmp_path / "a")
    (tmp_path / "a" / "results.json").write_text("{}")
    with pytest.raises(UsageError, match=r"is the run's own document"):
        raise invoke("export", tmp_path / "a", "--to", tmp_path / "a" / "results.json").exception
    assert (tmp_path / "a" / "results.json").read_text() == "{}"
    assert invoke("export", tmp_path / "a", "--to", tmp_path / "results.json").exit_code == 0


def test_a_csv_runs_nothing_in_a_spreadsheet_and_numbers_stay(tmp_path):
    words = [
        "=1+1",
        "+a",
        "-raises",
        "@SUM(1)",
        "\t=1",
        " =1",
        "＝1",
        "-0.5",
        "-inf",
        "plain",
        "\udc80",
    ]
    write_columns({"=name": words, "x": [-1.5] * len(words)}, tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["'=name", "x"]
    assert [r[0] for r in rows[1:]] == [*(f"'{w}" for w in words[:7]), *words[7:10], "\\udc80"]
    assert {r[1] for r in rows[1:]} == {"-1.5"}
    for ending in ("json", "parquet"):
        assert write_columns({"x": ["\udc80"]}, tmp_path / f"x.{ending}") == 1


@pytest.mark.slow
def test_failed_cells_are_in_the_document_and_told_with_the_export(tmp_path):
    make(tmp_path / "a", (0.5,), failed=1)
    with Store.read(tmp_path / "a") as store:
        failures = to_dict(store.failures())
    assert open_run(tmp_path / "a").document["failures"] == failures
    assert [f["error"] for f in failures] == [HOSTILE]
    assert "Incomplete: 1 cell failed" in " ".join(invoke("show", tmp_path / "a").stdout.split())
    result = invoke("export", tmp_path / "a", "--to", tmp_path / "x.csv")
    assert "1 rows" in result.stdout
    assert "1 cells failed" in result.stderr
    assert "failures" not in open_run(make(tmp_path / "b")).document


@pytest.mark.slow
def test_people_are_shown_the_first_cells_and_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(runs_text, "_MOST", 1)
    monkeypatch.setattr(runs_text, "_CELLS", 1)
    make(tmp_path / "a", (0.111, 0.999))
    result = invoke("show", tmp_path / "a")
    assert "The first 1 of 2 finished cells" in result.stdout
    assert ("11.1 %" in result.stdout, "99.9 %" in result.stdout) == (True, False)
    assert "export" in result.stderr
    whole = json.loads(invoke("show", tmp_path / "a", "--format", "json").stdout)
    assert (len(whole["document"]["rows"]), len(whole["document"]["cells"])) == (2, 2)
    failed = invoke("show", make(tmp_path / "b", (), failed=2), "--failed")
    assert (failed.stdout.count("Traceback"), "1 more failed cells" in failed.stderr) == (1, True)


def test_a_difference_says_which_cells_failed_and_that_a_run_has_none(tmp_path):
    whole = make(tmp_path / "a")
    found = json.loads(
        invoke("diff", whole, make(tmp_path / "b", (0.5,), failed=1), "--format", "json").stdout
    )
    assert [label.endswith("; failed in B") for label in found["only_a"]] == [True]
    none = make(tmp_path / "none", (), failed=2)
    with pytest.raises(StoreError, match=f"{none} has none"):
        raise invoke("diff", whole, none).exception


def test_columns_have_one_type_each(tmp_path):
    rows = [
        {"a": 1, "b": "inf", "c": True, "d": "x", "e": [1, 2], "f": 2**70, "g": 1},
        {"a": 2, "b": 0.5, "c": None, "d": 3, "e": None, "f": 1, "g": 0.5},
    ]
    found = typed([flatten(r) for r in rows])
    assert found["a"] == [1, 2]
    assert found["b"] == [math.inf, 0.5]
    assert found["c"] == [True, None]
    assert found["d"] == ["x", "3"]
    assert found["e"] == ["[1, 2]", None]
    assert found["f"] == [float(2**70), 1.0]
    assert typed([{"x": 10**400}, {"x": 0.5}])["x"] == [str(10**400), "0.5"]  # beyond any float
    assert found["g"] == [1.0, 0.5]
    assert write_columns(found, tmp_path / "x.parquet") == 2
    assert write_columns({}, tmp_path / "x.json") == 0
    assert json.loads((tmp_path / "x.json").read_text()) == []


def test_measured_intervals_become_columns_of_their_own():
    row = {"n": 1, "gain": {"value": 2.0, "low": 1.0, "high": 3.0}, "none": None}
    assert flat_rows({"kind": "measurements", "rows": [row]}) == [
        {"n": 1, "gain": 2.0, "gain_low": 1.0, "gain_high": 3.0, "none": None}
    ]


def test_a_run_in_a_notebook_is_a_table_that_no_label_can_script(tmp_path):
    make(tmp_path / "a", attack="<script>alert(1)</script>")
    page = open_run(tmp_path / "a")._repr_html_()
    assert "<table>" in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.slow
def test_runs_list_imports_neither_torch_nor_pandas(tmp_path):
    make(tmp_path / "a")
    code = (
        "import sys; sys.argv = ['dpaudit', 'runs', 'list', sys.argv[1]]\n"
        "from dpaudit.cli.app import app\n"
        "app(standalone_mode=False)\n"
        "print('loaded', *sorted({'torch', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].strip() == "loaded", done.stderr
    assert "small" in done.stdout
