"""`dpaudit deployment apple` on untrusted files: a finding or an error, never a crash."""

from __future__ import annotations

import itertools
import json
import plistlib
import random
import shutil
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpaudit.cli.app import app
from dpaudit.errors import DpauditError
from dpaudit_local.apple.configuration import FILES

DATA = Path(__file__).parents[2] / "data" / "apple"
KEYNAMES, PROPERTIES, _, BUDGETS = FILES
EMOJI = "com.apple.keyboard.Emoji.en_US.EmojiKeyboard"
SKETCH = "CountMedianSketch"


def apple(config, *args):
    """Run the command: its exit code and its document (None after an error)."""
    result = CliRunner().invoke(
        app, ["deployment", "apple", "--config", str(config), *map(str, args), "--format", "json"]
    )
    error = result.exception
    if isinstance(error, DpauditError):
        assert str(error)
        return error.exit_code, None
    assert error is None or isinstance(error, SystemExit), repr(error)
    document = json.loads(result.stdout) if result.exit_code in (0, 1) else None
    if document is not None:
        assert (
            (result.exit_code == 1)
            == any(f["serious"] for f in document["findings"])
            == (document["verdict"] == "finding")
        )
    return result.exit_code, document


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(DATA / "10.12.3", tmp_path / "config")


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "budget.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA synchronous = OFF;" + (DATA / "database.sql").read_text())
    return path


def rewrite(folder, name, entry, **fields):
    """One entry of one of the files, by any of its names, with other fields."""
    entries = plistlib.loads((folder / name).read_bytes())
    (found,) = [e for e in entries if entry in e.values()]
    found.update(fields)
    (folder / name).write_bytes(plistlib.dumps(entries, fmt=plistlib.FMT_BINARY))


def reports_in(folder, *reports, names=None):
    folder.mkdir()
    for i, one in enumerate(reports):
        name = names[i] if names else f"DifferentialPrivacy_2017-05-{i + 1:02}-120000_mac.dpsub"
        (folder / name).write_text(json.dumps(one))
    return folder


def report(records, *, key=EMOJI, algorithm="OneBitHistogram", parameters=None):
    parameters = {"epsilon": 1, "p": 5000} if parameters is None else parameters
    one = {"key": key, "algorithm": algorithm, "parameters": parameters, "records": records}
    return {"version": 11, "segments": [one]}


@pytest.mark.parametrize("field", ["SessionAmount", "SessionSeconds"])
@pytest.mark.parametrize("value", [0, 2**62, 1e-310, 1e300])
def test_budget_numbers(folder, tmp_path, field, value):
    rewrite(folder, BUDGETS, "com.apple.keyboard.Emoji", **{field: value})
    reports = reports_in(tmp_path / "reports", *(report(["1,-1"]) for _ in range(3)))
    code, document = apple(folder, "--reports", reports, "--days", 3660)
    assert code in (0, 1)
    assert document["ledger"]["days"] == 3660


def test_hostile_names_in_every_place(folder, tmp_path):
    name = "<script>alert(1)</script>\x1b[2J\x9b2J\u202e{{ 7*7 }}[red]\n"
    rewrite(folder, KEYNAMES, EMOJI, KeyName=name)
    rewrite(folder, PROPERTIES, "NewWords", BudgetKeyName=name, PrivatizationAlgorithm=name)
    rewrite(folder, BUDGETS, "com.apple.health", BudgetName=name)
    reports = reports_in(
        tmp_path / "reports",
        report(["1,-1", name], key="<b>key</b>"),
        names=["<i>2017-05-01-120000.dpsub"],
    )
    options = ["--config", folder, "--reports", reports, "--against", DATA / "10.12.1"]
    options += ["--out", tmp_path / "out"]
    result = CliRunner().invoke(app, ["deployment", "apple", *map(str, options)])
    assert result.exit_code in (0, 1)
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for tag in ("<script>alert", "<b>", "<i>2017"):  # the page has one script, its own
        assert tag not in html
    for text in (html, result.output):
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)


@pytest.mark.slow
def test_parameters_that_are_none(tmp_path):
    texts = []
    for name, value in itertools.product(
        ("m", "k", "p", "epsilon"), (0, -1, 1.5, "256", True, None, 2**40, 1e30, [], {})
    ):
        sketch, signs = {"epsilon": 2, "k": 64, "m": 256}, {"epsilon": 1, "k": 4, "m": 4}
        bits = {"epsilon": 1, "p": 5000}
        for records, algorithm, parameters in (
            (["1," + "0" * 64], SKETCH, sketch),
            (["1,1,+1"] * 3, f"Hadamard{SKETCH}", signs),
            (["1,+1"], "OneBitHistogram", bits),
        ):
            parameters |= {name: value}
            texts.append(report(records, algorithm=algorithm, parameters=parameters))
    names = [f"{i}.dpsub" for i in range(len(texts))]
    reports = reports_in(tmp_path / "reports", *texts, names=names)
    code, document = apple(DATA / "10.12.3", "--reports", reports)
    assert code in (0, 1)
    assert document["observed"]["reports"] + document["observed"]["unread"] == len(texts) == 120


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_reports(tmp_path):
    parameters = {"epsilon": 1, "k": 64, "m": 8192}
    sketch = report(["1," + "80" * 1024] * 40, algorithm=SKETCH, parameters=parameters)
    peaks = []
    for many in (3, 20):
        names = [f"{i}.dpsub" for i in range(many)]
        reports = reports_in(tmp_path / str(many), *[sketch] * many, names=names)
        tracemalloc.start()
        apple(DATA / "10.12.3", "--reports", reports)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 4e6


def test_many_kinds_of_records(tmp_path):
    kinds = [report(["1,-1"], key=f"key {i}")["segments"][0] for i in range(100)]
    reports = reports_in(tmp_path / "reports", {"version": 1, "segments": kinds})
    out = tmp_path / "out"
    _, document = apple(DATA / "10.12.3", "--reports", reports, "--out", out)
    assert len(document["shown"]) == 100
    assert (out / "report.html").stat().st_size < 3e6


@pytest.mark.parametrize("name", ["0001-01-01-000000.dpsub", "9999-12-31-235959.dpsub"])
def test_odd_dates(tmp_path, database, name):
    names = [name, "DifferentialPrivacy_2017-05-01-120000_mac.dpsub"]
    texts = report(["1,-1"]), report(["1,-1"] * 50)
    reports = reports_in(tmp_path / "reports", *texts, names=names)
    options = ["--reports", reports, "--database", database, "--out", tmp_path / "out"]
    code, document = apple(DATA / "10.12.3", *options)
    assert code == 1
    assert document["observed"]["reports"] + document["observed"]["unread"] == 2


def contents(folder):
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    "seed", [None, *range(4), *(pytest.param(i, marks=pytest.mark.slow) for i in range(4, 12))]
)
def test_bytes_at_random_and_nothing_is_changed(folder, tmp_path, database, seed):
    """Some bytes of every file replaced; of none without a seed."""
    rng = random.Random(seed)
    reports = shutil.copytree(DATA / "reports", tmp_path / "reports")
    victims = [*(folder / name for name in FILES), *sorted(reports.iterdir()), database]
    for path in rng.sample(victims, 0 if seed is None else 3):
        data = bytearray(path.read_bytes())
        for _ in range(rng.choice((1, 5, 50))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
    before = contents(tmp_path)
    options = ["--database", database, "--reports", reports, "--against", DATA / "10.12.1"]
    code, _ = apple(folder, *options, "--out", tmp_path.parent / f"out {seed}")
    assert code in ((1,) if seed is None else (0, 1, 2))
    assert contents(tmp_path) == before
