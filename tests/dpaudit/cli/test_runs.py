"""``dpaudit runs``: list, show, export."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dpaudit.cli.app import app
from dpaudit.cli.commands import runs
from dpaudit.codec import to_dict
from dpaudit.errors import DpauditError, MissingExtraError, StoreError, UsageError
from dpaudit.experiments import load_spec
from dpaudit.experiments.store import FILE, Store
from dpaudit.experiments.stored import flat_rows, open_run, typed_columns, write_csv
from dpaudit.types import CellFailure, CellResult

SPEC = """
name = "small"
seed = {seed}
epsilon = [0.5, 1.0]
delta = 1e-10
trials = 10
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
    interval = {"low": value - wide, "high": value + wide, "confidence": 0.95, "method": "m"}
    return {
        "attack": "nearest-peak", "trials": 10, "successes": round(10 * value), "success": value,
        "interval": interval, "chance": 0.5, "epsilon_lower_bound": "inf", "l2_error": 9.5,
        "l2_expected": 9.0, "details": {"picture": [1, 2]}, "sigma": 2.0, "dim": 64,
        "epsilon_key_holder": {"low": 0.5, "high": 0.5, "says": "exact"},
    } | more  # fmt: skip


def provenance(**more):
    plugin = {"kind": "sources", "name": "gaussian", "distribution": "other", "version": "1"}
    return {
        "seed": "1", "versions": {"dpaudit": "0.1.0", "numpy": "2.0"},
        "plugins": [plugin | {"sha256": "a" * 64}], "hardware": "h",
        "started": "2025-01-01T00:00:00", "source": "b" * 64,
    } | more  # fmt: skip


def make(folder, values=(0.5, 0.9), *, seed=1, failed=0, label="one", told=provenance, **more):
    """A run whose first cells succeed with ``values`` and ``failed`` of the rest fail."""
    folder.mkdir(parents=True)
    (folder / "small.toml").write_text(SPEC.format(seed=seed, label=label), encoding="utf-8")
    spec = load_spec(str(folder / "small.toml"))
    cells = spec.cells()
    with Store.open(
        folder, spec=to_dict(vars(spec)), command="dpaudit run small.toml", cells=len(cells)
    ) as store:
        for i, cell in enumerate(cells[: len(values) + failed]):
            known = {"cell": cell.id, "kind": "attack", "settings": cell.settings, "seconds": 1.0}
            known |= {"provenance": told()}
            if i < len(values):
                found = outcome(values[i], **more)
                store.add(CellResult(**known, outcome=found), position=i)
            else:
                trace = f"Traceback\n  {HOSTILE}"
                store.add(CellFailure(**known, error=HOSTILE, traceback=trace), position=i)
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
    picked = ("name", "done", "failed", "cells", "seconds", "running", "problem")
    assert [runs["whole"][k] for k in picked] == ["small", 2, 0, 2, 2.0, False, ""]
    assert [runs["b"][k] for k in picked] == ["small", 1, 1, 2, 2.0, False, ""]
    text = invoke("list", tmp_path)
    assert text.exit_code == 0
    assert "1 of 2, 1 failed" in text.stdout
    assert "unreadable" in text.stdout


def test_list_says_what_is_running(tmp_path):
    spec = make(tmp_path / "a") and Store.read(tmp_path / "a").spec
    with Store.open(tmp_path / "a", spec=spec, resume=True):
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
    assert document["result"]["rows"][0]["attacks"][0]["success"] == 0.5
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


# ---------------------------------------------------------------- export


@pytest.mark.slow
def test_exports_hold_the_rows_of_the_document(tmp_path):
    run = open_run(make(tmp_path / "a"))
    result = invoke("export", tmp_path / "a", "--to", tmp_path / "x.csv")
    assert (result.exit_code, "2 rows" in result.stdout) == (0, True)
    with (tmp_path / "x.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [
        (r["epsilon"], r["success"], r["success_low"], r["epsilon_lower_bound"]) for r in rows
    ] == [
        ("0.5", "0.5", "0.4", "inf"),
        ("1.0", "0.9", "0.8", "inf"),
    ]
    pandas = pytest.importorskip("pandas")
    frame = run.frame()
    written = pandas.read_csv(tmp_path / "x.csv").drop(columns="audit")  # which has no value
    pandas.testing.assert_frame_equal(written, frame.drop(columns="audit"), check_dtype=False)
    assert frame["successes"].dtype == "int64"
    assert frame["epsilon_lower_bound"].tolist() == [math.inf, math.inf]


@pytest.mark.slow
def test_an_export_that_cannot_be_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    make(tmp_path / "a")
    with pytest.raises(UsageError, match=r"must end with .csv"):
        raise invoke("export", tmp_path / "a", "--to", tmp_path / "x.xls").exception
    with pytest.raises(UsageError, match="cannot be written"):
        raise invoke("export", tmp_path / "a", "--to", tmp_path / "none" / "x.csv").exception
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="needs pandas"):
        open_run(tmp_path / "a").frame()
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_csv_runs_nothing_in_a_spreadsheet_and_numbers_stay(tmp_path):
    words = ["=1+1", "+a", "-raises", "@SUM(1)", "\t=1", " =1", "＝1", "-0.5", "-inf", "plain"]
    words.append("\udc80")
    write_csv({"=name": words, "x": [-1.5] * len(words)}, tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["'=name", "x"]
    assert [r[0] for r in rows[1:]] == [*(f"'{w}" for w in words[:7]), *words[7:10], "\\udc80"]
    assert {r[1] for r in rows[1:]} == {"-1.5"}


@pytest.mark.slow
def test_failed_cells_are_in_the_document_and_told_with_the_export(tmp_path):
    make(tmp_path / "a", (0.5,), failed=1)
    with Store.read(tmp_path / "a") as store:
        failures = to_dict(store.failures())
    assert open_run(tmp_path / "a").result["failures"] == failures
    assert [f["error"] for f in failures] == [HOSTILE]
    assert "Incomplete: 1 cell failed" in " ".join(invoke("show", tmp_path / "a").stdout.split())
    result = invoke("export", tmp_path / "a", "--to", tmp_path / "x.csv")
    assert "1 rows" in result.stdout
    assert "1 cells failed" in result.stderr
    assert "failures" not in open_run(make(tmp_path / "b")).result


@pytest.mark.slow
def test_people_are_shown_the_first_cells_and_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_MOST", 1)
    monkeypatch.setattr(runs, "_CELLS", 1)
    make(tmp_path / "a", (0.111, 0.999))
    result = invoke("show", tmp_path / "a")
    assert "The first 1 of 2 finished cells" in result.stdout
    assert ("11.1 %" in result.stdout, "99.9 %" in result.stdout) == (True, False)
    assert "export" in result.stderr
    whole = json.loads(invoke("show", tmp_path / "a", "--format", "json").stdout)
    assert (len(whole["result"]["rows"]), len(whole["result"]["cells"])) == (2, 2)
    failed = invoke("show", make(tmp_path / "b", (), failed=2), "--failed")
    assert (failed.stdout.count("Traceback"), "1 more failed cells" in failed.stderr) == (1, True)


def test_columns_have_one_type_each(tmp_path):
    rows = [
        {"a": 1, "b": "inf", "c": True, "d": "x", "e": [1, 2], "g": 1},
        {"a": 2, "b": 0.5, "c": None, "d": 3, "e": None, "g": 0.5},
    ]
    found = typed_columns(flat_rows({"kind": "measurements", "rows": rows}))
    assert found["a"] == [1, 2]
    assert found["b"] == [math.inf, 0.5]
    assert found["c"] == [True, None]
    assert found["d"] == ["x", "3"]
    assert found["e"] == ["[1, 2]", None]
    assert found["g"] == [1.0, 0.5]
    assert write_csv(found, tmp_path / "x.csv") == 2
    assert write_csv({}, tmp_path / "none.csv") == 0


def test_measured_intervals_become_columns_of_their_own():
    row = {"n": 1, "gain": {"value": 2.0, "low": 1.0, "high": 3.0}, "none": None}
    assert flat_rows({"kind": "measurements", "rows": [row]}) == [
        {"n": 1, "gain": 2.0, "gain_low": 1.0, "gain_high": 3.0, "none": None}
    ]


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
