"""Run logs: the relay that isolates loggers from the run, JSON lines, and MLflow."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpaudit.errors import MissingExtraError, UnknownNameError, UsageError
from dpaudit.experiments import loggers
from dpaudit.experiments.loggers import Relay, open_loggers
from dpaudit.experiments.loggers.jsonl import JsonLines
from dpaudit.testing import check_run_logger
from dpaudit.types import CellFailure, CellResult, RunStart

RUN = RunStart(
    name="n", title="t", run_id="r" * 32, folder=".", command="c", spec={"name": "n"}, cells=2
)


KNOWN = {"kind": "zoo", "settings": {"grid": {"x": 1}, "seed": "1", "trials": 5}, "seconds": 1.0}
KNOWN["provenance"] = {
    "seed": "1", "versions": {"python": "3"}, "plugins": [], "hardware": "h", "started": "2025",
}  # fmt: skip


def result(cell="a"):
    return CellResult(cell=cell, outcome={}, **KNOWN)


def failure(cell="a"):
    return CellFailure(cell=cell, error="E: no", traceback="", **KNOWN)


class Listener:
    """A logger that notes what it hears, and does ``at`` when it hears ``when``."""

    def __init__(self, when="", at=lambda: None):
        self.heard, self._when, self._at = [], when, at

    def _hear(self, what, about=None):
        self.heard.append((what, getattr(about, "cell", None)))
        if what == self._when:
            self._at()

    def start(self, run):
        self._hear("start")

    def result(self, cell):
        self._hear("result", cell)

    def failure(self, cell):
        self._hear("failure", cell)

    def end(self, document):
        self._hear("end")

    def close(self):
        self._hear("close")


def follow(logger, troubles):
    with Relay({"l": logger}, trouble=troubles.append) as loggers:
        loggers.start(RUN)
        for cell in (result("a"), failure("b"), result("c")):
            loggers.outcome(cell)
        loggers.end({})


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError


def raising(error):
    def die():
        raise error

    return die


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("\x1b[31mred\u202e"), "RuntimeError: �[31mred�"),
        (Unspeakable(), "Unspeakable: <Unspeakable that cannot be printed>"),
    ],
)
def test_what_a_logger_raises_cannot_drive_the_terminal_or_kill_its_thread(error, words):
    troubles, logger = [], Listener("start", raising(error))
    follow(logger, troubles)
    assert [words in t for t in troubles] == [True]
    assert logger.heard == [("start", None), ("close", None)]


def test_half_a_line_of_a_killed_run_stays_by_itself(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "start"}\n{"event": "res')
    follow(JsonLines(path=str(path)), [])
    lines = path.read_text().splitlines()
    assert lines[1] == '{"event": "res'
    events = [json.loads(line)["event"] for line in lines[2:]]
    assert events == ["start", "result", "failure", "result", "end"]


WHOLE = [
    ("start", None), ("result", "a"), ("failure", "b"), ("result", "c"), ("end", None),
    ("close", None),
]  # fmt: skip


def test_a_logger_hears_all_in_order_in_a_thread_of_its_own():
    threads, troubles = [], []
    logger = Listener("result", lambda: threads.append(threading.current_thread()))
    follow(logger, troubles)
    assert logger.heard == WHOLE
    assert troubles == []
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("when", ["start", "result", "end", "close"])
@pytest.mark.parametrize("error", [ValueError("bad\nluck"), SystemExit(3)], ids=["error", "exit"])
def test_a_logger_that_dies_is_told_of_once_and_no_more(when, error):
    logger, troubles = Listener(when, raising(error)), []
    follow(logger, troubles)
    assert len(troubles) == 1
    assert f"log=l: failed at {when} ({type(error).__name__}" in troubles[0]
    heard = [what for what, _ in logger.heard]
    every = ["start", "result", "failure", "result", "end", "close"]
    assert heard == every[: every.index(when) + 1] + ["close"] * (when != "close")


def test_a_logger_that_hangs_is_left_behind(monkeypatch):
    monkeypatch.setattr(loggers, "PATIENCE", 0.05)
    free, troubles = threading.Event(), []
    follow(Listener("result", free.wait), troubles)
    assert len(troubles) == 1
    assert "was left behind" in troubles[0]
    free.set()


def test_a_run_that_does_not_come_to_its_end_ends_no_log():
    logger, troubles = Listener(), []
    with Relay({"l": logger}, trouble=troubles.append) as loggers:
        loggers.start(RUN)
    assert logger.heard == [("start", None), ("close", None)]


def test_wrong_references_are_refused_before_the_run():
    for wrong, error in (
        (["jsonl"], UsageError),
        (["jsonl:file=x"], UnknownNameError),
        (["jsonlines:path=x"], UnknownNameError),
        (["jsonl:path=x", "jsonl:path=x"], UsageError),
    ):
        with pytest.raises(error):
            open_loggers(wrong, trouble=print)


# ---------------------------------------------------------------- JSON lines


def test_json_lines_conform_and_append(tmp_path):
    path = tmp_path / "logs" / "run.jsonl"
    check_run_logger(lambda: JsonLines(path=str(path)), folder=str(tmp_path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    events = [line["event"] for line in lines]
    first, second = ["start", "failure", "result"], ["start", "result", "result", "end"]
    assert events == [*first, *second, "start", "end"]
    assert [line["earlier"] for line in lines if line["event"] == "start"] == [0, 1, 3]
    assert {line["run"] for line in lines} == {"0" * 32}
    assert lines[2]["outcome"]["gain"] == "inf"


# ---------------------------------------------------------------- MLflow, without MLflow


class FakeClient:
    """What the logger uses of ``MlflowClient``, as strict as a server about names and lengths."""

    store: dict = {}  # noqa: RUF012 (shared, as a server's is)

    def __init__(self, tracking_uri):
        if tracking_uri == "nonsense":
            raise sys.modules["mlflow.exceptions"].MlflowException("no such scheme")

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=name) if name in self.store else None

    def create_experiment(self, name):
        self.store[name] = {}
        return name

    def create_run(self, experiment, *, run_name, tags):
        assert all(isinstance(v, str) and len(v) <= 500 for v in tags.values())
        number = f"run{len(self.store[experiment])}"
        info = SimpleNamespace(run_id=number, run_name=run_name, status="RUNNING")
        data = SimpleNamespace(tags=dict(tags), params={}, metrics={})
        made = SimpleNamespace(info=info, data=data, artifacts=[])
        self.store[experiment][number] = made
        return made

    def _run(self, number):
        return next(runs[number] for runs in self.store.values() if number in runs)

    def search_runs(self, experiments, where, *, max_results, page_token):
        tag, _, value = where.removeprefix("tags.`").partition("` = ")
        runs = self.store[experiments[0]].values()
        found = [r for r in runs if r.data.tags.get(tag) == value.strip("'")]
        after = int(page_token or 0) + 2
        page = type("Page", (list,), {"token": str(after) if after < len(found) else None})
        return page(found[after - 2 : after])

    def update_run(self, run, *, status):
        self._run(run).info.status = status

    set_terminated = update_run

    def log_batch(self, run, metrics=(), params=(), tags=()):
        assert max(len(params), len(tags)) <= 100
        data = self._run(run).data
        for key, value in params:
            assert data.params.setdefault(key, value) == value
            assert len(value) <= 500
        data.metrics.update((k, v) for k, v, *_ in metrics)
        data.tags.update(tags)
        for key in (*data.params, *data.metrics):
            assert all(c.isalnum() or c in "_-. /" for c in key)

    def log_artifact(self, run, path):
        self._run(run).artifacts.append(path)


@pytest.fixture
def mlflow(monkeypatch):
    modules = {
        name: types.ModuleType(name)
        for name in ("mlflow", "mlflow.entities", "mlflow.exceptions", "mlflow.tracking")
    }
    for name in ("Metric", "Param", "RunTag"):
        setattr(modules["mlflow.entities"], name, lambda *values: values)
    modules["mlflow.tracking"].MlflowClient = FakeClient
    modules["mlflow.exceptions"].MlflowException = type("MlflowException", (Exception,), {})
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(FakeClient, "store", {})
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    monkeypatch.delitem(sys.modules, "dpaudit.experiments.loggers.mlflow", raising=False)
    yield importlib.import_module("dpaudit.experiments.loggers.mlflow").Mlflow
    sys.modules.pop("dpaudit.experiments.loggers.mlflow", None)


def test_mlflow_conforms_and_a_resumed_run_goes_on_in_the_same_runs(mlflow, tmp_path):
    pages = ["results.json", "report.html"]
    for name in pages:
        (tmp_path / name).touch()
    check_run_logger(lambda: mlflow(uri="http://x", experiment="e"), folder=str(tmp_path))
    (parent, *children) = FakeClient.store["e"].values()
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics == {"cells_done": 3.0, "cells_failed": 0.0}
    assert [path.rpartition("/")[2] for path in parent.artifacts] == pages * 2
    assert len({c.data.tags["dpaudit.cell"] for c in children}) == len(children) == 3
    for child in children:
        data = child.data
        assert child.info.status == "FINISHED"
        assert data.metrics.items() >= {"success": 0.5, "success_low": 0.4}.items()
        assert data.metrics["success_high"] == 0.6
        assert "gain" not in data.metrics
        assert data.params["grid_x"] == "1.5"
        tags = {"outcome.gain": "inf", "version.python": "3"}
        assert data.tags.items() >= (tags | {"mlflow.parentRunId": parent.info.run_id}).items()


def test_mlflow_that_dies_mid_run_says_killed_and_one_that_cannot_be_used_is_refused(mlflow):
    logger = mlflow(uri="http://x")
    logger.start(RUN)
    logger.failure(failure())
    logger.close()
    assert [r.info.status for r in FakeClient.store["dpaudit"].values()] == ["KILLED", "FAILED"]
    with pytest.raises(UsageError, match="uri=nonsense"):
        mlflow(uri="nonsense")


def test_without_mlflow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.delitem(sys.modules, "dpaudit.experiments.loggers.mlflow", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'dpaudit\[mlflow\]'"):
        open_loggers(["mlflow:uri=http://x"], trouble=print)


# ---------------------------- MLflow itself, in the environment of ``make envs``

REPOSITORY = Path(__file__).parents[3]
PYTHON = REPOSITORY / os.environ.get("DPAUDIT_ENVS", ".envs") / "mlflow" / "bin" / "python"
CODE = """
import json, sys
from dpaudit.experiments.loggers.mlflow import Mlflow
from dpaudit.testing import check_run_logger
from mlflow.tracking import MlflowClient
uri, folder = sys.argv[1:]
check_run_logger(lambda: Mlflow(uri=uri, experiment="an experiment"), folder=folder)
client = MlflowClient(uri)
experiment = client.get_experiment_by_name("an experiment")
told = [
    {"status": r.info.status, "metrics": r.data.metrics, "params": r.data.params,
     "tags": r.data.tags}
    | {"artifacts": sorted(a.path for a in client.list_artifacts(r.info.run_id))}
    for r in client.search_runs([experiment.experiment_id])
]
print(json.dumps(told))
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="make envs makes the environment with MLflow")
def test_mlflow_has_a_run_a_cell_below_one_parent(tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("results.json", "report.html"):
        (tmp_path / "run" / name).write_text("{}")
    path = os.pathsep.join(str(REPOSITORY / part) for part in (".", "attacks", "mitigations"))
    done = subprocess.run(
        [PYTHON, "-c", CODE, f"file:{tmp_path}/mlruns", tmp_path / "run"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "MLFLOW_ALLOW_FILE_STORE": "true"},
    )
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)
    (parent,) = [r for r in runs if "dpaudit.run" in r["tags"]]
    children = [r for r in runs if r is not parent]
    assert parent["artifacts"] == ["report.html", "results.json"]
    assert [r["status"] for r in runs] == ["FINISHED"] * 4
    assert len({r["tags"]["dpaudit.cell"] for r in children}) == 3
    assert {(r["metrics"]["success"], r["metrics"]["success_low"]) for r in children} == {
        (0.5, 0.4)
    }
