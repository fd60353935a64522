"""Run logs: the relay that isolates loggers from the run, JSON lines, and MLflow (a fake)."""

from __future__ import annotations

import importlib
import json
import sys
import threading
import types
from types import SimpleNamespace

import pytest

from dpaudit.errors import MissingExtraError, UnknownNameError, UsageError
from dpaudit.experiments import loggers
from dpaudit.experiments.loggers import Relay, open_loggers
from dpaudit.experiments.loggers.jsonl import JsonLines
from dpaudit.testing import check_run_logger
from dpaudit.types import CellFailure, CellResult, RunStart

RUN = RunStart(
    name="n",
    title="t",
    run_id="r" * 32,
    folder=".",
    command="c",
    spec={"name": "n", "epsilon": [1.0]},
    cells=2,
)


def result(cell="a", **outcome):
    origin = {"seed": "1", "versions": {"python": "3"}, "plugins": [], "hardware": "h"}
    origin |= {"started": "2025"}
    settings = {"grid": {"x": 1}, "seed": "1", "trials": 5}
    return CellResult(
        cell=cell, kind="zoo", settings=settings, outcome=outcome, seconds=1.0, provenance=origin
    )


def failure(cell="a"):
    r = result(cell)
    known = {"kind": r.kind, "settings": r.settings, "provenance": r.provenance}
    return CellFailure(cell=cell, error="E: no", traceback="", seconds=1.0, **known)


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


def test_what_a_logger_raises_cannot_drive_the_terminal_or_kill_its_thread():
    def hostile():
        raise RuntimeError("\x1b[31mred\u202e")

    def unspeakable():
        raise Unspeakable

    mute = "Unspeakable: <Unspeakable that cannot be printed>"
    for at, words in ((hostile, "RuntimeError: �[31mred�"), (unspeakable, mute)):
        troubles, logger = [], Listener("start", at)
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


CELLS = [("result", "a"), ("failure", "b"), ("result", "c")]
WHOLE = [("start", None), *CELLS, ("end", None), ("close", None)]


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
    def die():
        raise error

    logger, troubles = Listener(when, die), []
    follow(logger, troubles)
    assert len(troubles) == 1
    assert f"log=l: failed at {when} ({type(error).__name__}" in troubles[0]
    assert "in the store; the run is not affected" in troubles[0]
    heard = [what for what, _ in logger.heard]
    assert heard[-1] == "close"
    assert heard == ["start", "result", "failure", "result", "end", "close"][
        : heard.index(when) + 1
    ] + ["close"] * (when != "close")


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
        info = SimpleNamespace(
            run_id=f"run{len(self.store[experiment])}", run_name=run_name, status="RUNNING"
        )
        made = SimpleNamespace(
            info=info, data=SimpleNamespace(tags=dict(tags), params={}, metrics={}), artifacts=[]
        )
        self.store[experiment][info.run_id] = made
        return made

    def _run(self, number):
        return next(runs[number] for runs in self.store.values() if number in runs)

    def search_runs(self, experiments, where, *, max_results, page_token):
        tag, _, value = where.removeprefix("tags.`").partition("` = ")
        found = [
            r
            for r in self.store[experiments[0]].values()
            if r.data.tags.get(tag) == value.strip("'")
        ]
        page = found[int(page_token or 0) :][:2]

        class Page(list):
            token = str(int(page_token or 0) + 2) if int(page_token or 0) + 2 < len(found) else None

        return Page(page)

    def update_run(self, run, *, status):
        self._run(run).info.status = status

    set_terminated = update_run

    def log_batch(self, run, metrics=(), params=(), tags=()):
        assert len(params) <= 100
        assert len(tags) <= 100
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
    for name in ("results.json", "report.html"):
        (tmp_path / name).touch()
    check_run_logger(lambda: mlflow(uri="http://x", experiment="e"), folder=str(tmp_path))
    (parent, *children) = FakeClient.store["e"].values()
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics == {"cells_done": 3.0, "cells_failed": 0.0}
    assert [path.rpartition("/")[2] for path in parent.artifacts] == [
        "results.json",
        "report.html",
    ] * 2
    assert [c.info.status for c in children] == ["FINISHED"] * 3
    assert len({c.data.tags["dpaudit.cell"] for c in children}) == 3
    assert {c.data.tags["mlflow.parentRunId"] for c in children} == {parent.info.run_id}
    for child in children:
        assert child.data.metrics["success"] == 0.5
        assert (child.data.metrics["success_low"], child.data.metrics["success_high"]) == (0.4, 0.6)
        assert "gain" not in child.data.metrics
        assert child.data.tags["outcome.gain"] == "inf"
        assert child.data.params["grid_x"] == "1.5"
        assert child.data.tags["version.python"] == "3"


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
