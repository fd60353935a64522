"""The same numbers wherever cells are done, and an outcome for every cell."""

import json
import math
import os
import signal
import threading
import time
from dataclasses import replace
from multiprocessing import resource_tracker

import pytest
import torch
from planted import SPEC, install

from dpaudit import registry
from dpaudit.errors import MessageError, StoreError, UsageError
from dpaudit.experiments import Store, load_spec, make_result, run_experiment
from dpaudit.experiments.placement import cluster, cores, place
from dpaudit.experiments.placement.work import (
    Here,
    answer,
    attempt,
    identity,
    parse,
    request,
    threads,
)
from dpaudit.render import write_report
from dpaudit.render.terminal import render_terminal
from dpaudit.report import describe
from dpaudit.types import CellResult


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A function from options of the planted attack (TOML lines) to a spec with it."""
    monkeypatch.syspath_prepend(str(install(tmp_path / "site")))
    registry._scan.cache_clear()

    def make(*lines, **replace):
        text = SPEC
        for old, new in replace.items():
            assert f"{old} = " in text
            text = text.replace(f"{old} = ", f"{old} = {new} #")
        (tmp_path / "planted.toml").write_text(text + "\n".join(lines) + "\n")
        return load_spec(str(tmp_path / "planted.toml"))

    yield make
    registry._scan.cache_clear()


@pytest.fixture(autouse=True)
def default_interrupts():
    """As in a new process: an earlier test may have left a library's handler of Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before or signal.default_int_handler)


def kept(folder):
    with Store.read(folder) as store:
        return store.results(), store.failures()


def rows(folder):
    with Store.read(folder) as store:
        return make_result(store.spec, store.results(), command="").rows


@pytest.mark.slow
def test_a_cell_does_not_depend_on_the_threads_around_it(planted):
    small, large = (planted(bins=n, trials=2).cells()[0] for n in (4096, 1 << 20))
    for cell in (small, large):
        outcomes, before = [], torch.get_num_threads()
        for number in (1, 2):
            torch.set_num_threads(number)
            outcomes.append(attempt(cell).outcome)
        torch.set_num_threads(before)
        assert outcomes[0] == outcomes[1]


def test_numbers_do_depend_on_threads_where_nothing_fixes_them():
    """What the test above is able to find."""
    values = torch.randn(1 << 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sums = []
    for number in (1, 2):
        with threads(number):
            sums.append(float(values.sum()))
    assert sums[0] != sums[1]


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_all_cores_give_the_numbers_of_one_and_outlive_a_cell_that_kills(
    planted, tmp_path, monkeypatch, large
):
    monkeypatch.setattr(cores, "_DEATHS", 2)
    deadly = [] if large else ['what = ["fine", "dies", "raises", "nan"]']
    size = {"bins": 1 << 20, "trials": 2, "epsilon": "[0.5, 1.0]"} if large else {}
    spec = planted(*deadly, **size)
    run_experiment(spec, out=tmp_path / "many", jobs=2)
    fine = planted(*(['what = ["fine", "raises", "nan"]'] if deadly else []), **size)
    run_experiment(fine, out=tmp_path / "one")
    (many, lost), (one, raised) = kept(tmp_path / "many"), kept(tmp_path / "one")
    assert [(r.cell, r.outcome) for r in many] == [(r.cell, r.outcome) for r in one]
    dead = [f for f in lost if f.settings["attack"].get("what") == "dies"]
    assert [f.error.partition(":")[0] for f in dead] == ["WorkerDiedError"] * (0 if large else 1)
    assert all("2 processes died at this cell" in f.error for f in dead)
    assert [(f.cell, f.error) for f in lost if f not in dead] == [(f.cell, f.error) for f in raised]


def test_failing_cells_are_kept_and_tried_again(planted, tmp_path):
    flag = tmp_path / "flag"
    what = ["raises", "exits", "interrupts", "memory", "unprintable", "fine", f"file:{flag}"]
    spec, told, done = planted(f"what = {what}"), [], []
    run_experiment(spec, out=tmp_path / "out", on_result=told.append, on_done=done.append)
    results, failures = kept(tmp_path / "out")
    assert [r.settings["attack"]["what"] for r in results] == ["fine"]
    names = ["ArithmeticError", "SystemExit", "KeyboardInterrupt", "MemoryError", "Mute", "OSError"]
    assert [f.error.partition(":")[0] for f in failures] == names
    assert failures[4].error == "Mute: <Mute that cannot be printed>"
    assert all("planted_attack.py" in f.traceback and "\n" not in f.error for f in failures)
    assert [isinstance(t, CellResult) for t in told] == [False] * 5 + [True, False]
    assert done == list(spec.cells())

    flag.touch()
    again = []
    run_experiment(spec, out=tmp_path / "out", resume=True, on_result=again.append)
    assert len(again) == 6
    assert [len(found) for found in kept(tmp_path / "out")] == [2, 5]


def test_a_slip_that_fails_everywhere_is_raised_and_not_recorded(planted, tmp_path):
    started, seconds = [], f"seconds = {[i / 1000 for i in range(12)]}"
    spec = planted('what = "slip"', seconds, trials=1)
    with pytest.raises(UsageError, match="what=slip"):
        run_experiment(spec, out=tmp_path / "out", on_start=started.append)
    assert len(started) == 8
    assert kept(tmp_path / "out") == ([], [])


def test_a_slip_beside_a_success_is_recorded(planted, tmp_path):
    run_experiment(planted('what = ["slip", "fine"]'), out=tmp_path / "out")
    results, failures = kept(tmp_path / "out")
    assert len(results) == 1
    assert [(f.error, f.traceback) for f in failures] == [
        ("UsageError: what=slip: must be something else", "")
    ]


@pytest.mark.slow
def test_nan_is_shown_and_not_stumbled_over(planted, tmp_path):
    run_experiment(planted('what = "nan"'), out=tmp_path / "out")
    (result,), _ = kept(tmp_path / "out")
    assert result.outcome["details"] == {"nan": "nan"}
    with Store.read(tmp_path / "out") as store:
        document = make_result(store.spec, store.results(), command="")
    (arm,), nan = document.rows, math.nan
    interval = replace(arm.attacks[0].interval, low=nan, high=nan)
    attack = replace(arm.attacks[0], success=nan, interval=interval)
    document = replace(document, rows=(replace(arm, l2_error=nan, attacks=(attack,)),))
    report = describe(document)
    render_terminal(report, width=100)
    write_report(report, tmp_path / "report.html")


@pytest.mark.slow
def test_outcomes_are_told_when_they_are_on_disk_and_a_few_cells_are_taken_ahead(planted, tmp_path):
    spec = planted(f"seconds = {[i / 1e5 for i in range(40)]}", trials=1)
    started, seen = [], []

    def on_done(cell):
        with Store.read(tmp_path / "out") as store:
            seen.append(cell.id in store.finished())

    run_experiment(spec, out=tmp_path / "out", on_start=started.append, on_done=on_done)
    assert seen == [True] * 40

    taken = []
    run = Here().run((taken.append(i) or (i, c)) for i, c in enumerate(spec.cells()))
    next(run)
    next(run)
    assert taken == [0, 1]


@pytest.mark.slow
def test_a_full_disk_loses_nothing_that_was_told(planted, tmp_path):
    spec = planted(f"seconds = {[0.02 + i / 1e5 for i in range(40)]}", trials=1)
    done = []

    def fill(store):
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages + 4}")

    with pytest.raises(StoreError, match=r"out=.*full.*--resume"):
        run_experiment(spec, out=tmp_path / "out", on_open=fill, on_done=done.append)
    results, _ = kept(tmp_path / "out")
    assert 0 < len(done) < 40
    assert {c.id for c in done} == {r.cell for r in results}
    run_experiment(spec, out=tmp_path / "out", resume=True)
    assert len(kept(tmp_path / "out")[0]) == 40


def test_places():
    for where, says in (
        *((where, "must be local") for where in ("udp://x", "")),
        ("localhost:8786", "tcp://host:8786"),
    ):
        with pytest.raises(UsageError, match=says):
            place(where)
    for jobs in (0, -1, "many", True, 1.5):
        with pytest.raises(UsageError, match="jobs="):
            place("local", jobs=jobs)
    with pytest.raises(UsageError, match="--jobs"):
        place("tcp://127.0.0.1:8786", jobs=2)
    with pytest.raises(UsageError, match=r"where=tls://127.0.0.1:9: .*distributed.comm.tls"):
        place("tls://127.0.0.1:9").__enter__()
    assert place("local", jobs="all").workers == cores.available()


def test_a_reply_is_checked(planted):
    cell, other = planted('what = ["fine", "nan"]', "seconds = 0.0123456789012345678").cells()
    assert json.loads(request(cell))["cell"]["settings"] == cell.settings  # floats survive
    reply = answer(request(cell))
    assert parse(reply, cell).outcome == attempt(cell).outcome
    good = json.loads(reply)["done"]
    wrong = [
        *({"seconds": seconds} for seconds in ("1", True, float("nan"), -1)),
        {"outcome": []},
        {"provenance": 1},
    ]
    lost = {k: v for k, v in good.items() if k != "outcome"}
    bad = [{"failed": good}, {"done": lost}, *({"done": {**good, **change}} for change in wrong)]
    for text in (None, b"bytes", "not JSON", "[]", "{}", *map(json.dumps, bad)):
        with pytest.raises(MessageError, match="worker's answer"):
            parse(text, cell)
    with pytest.raises(MessageError, match="another cell"):
        parse(reply, other)
    asked = json.loads(request(cell))
    asked["identity"] = {**asked["identity"], "dpaudit": "0" * 64}
    with pytest.raises(UsageError, match="different sources of dpaudit"):
        parse(answer(json.dumps(asked)), cell)


def test_data_folders_go_along_where_the_worker_has_none(planted, monkeypatch):
    cell, seen = planted().cells()[0], []
    monkeypatch.setenv("DPAUDIT_DATA", "/runner")
    monkeypatch.delenv("DPAUDIT_CACHE", raising=False)
    asked = request(cell)
    monkeypatch.setattr(
        "dpaudit.experiments.placement.work.attempt",
        lambda cell: seen.append(os.environ.get("DPAUDIT_DATA")) or attempt(cell),
    )
    monkeypatch.delenv("DPAUDIT_DATA")
    answer(asked)
    assert "DPAUDIT_DATA" not in os.environ
    monkeypatch.setenv("DPAUDIT_DATA", "/worker")
    answer(asked)
    assert seen == ["/runner", "/worker"]


class Answering:
    """A Dask client, as far as the preflight knows one."""

    def __init__(self, *, answers=None, threads=1, resources=None):
        self.workers = {"tcp://w:1": {"nthreads": threads, "resources": resources or {}}}
        self.answers = {"tcp://w:1": answers or cluster.identity_text()}

    def scheduler_info(self, **_):
        return {"workers": self.workers}

    def run(self, *_, **__):
        return self.answers


def test_preflight_names_the_worker_and_the_remedy():
    cluster.check_workers(Answering(), "tcp://s:1", gpu=False)
    cluster.check_workers(Answering(resources={"GPU": 1}), "tcp://s:1", gpu=True)
    others = [{"version": "9.9"}, {"dpaudit_attacks": "0"}]
    lost = ModuleNotFoundError("x", name="dpaudit")
    for client, gpu, says in (
        (Answering(threads=4), False, "4 threads.*--nthreads 1"),
        (Answering(), True, '--resources "GPU=1"'),
        *(
            (Answering(answers=json.dumps(identity() | other)), False, f"worker tcp://w:1 .*{says}")
            for other, says in zip(others, ("has dpaudit 9.9", "dpaudit_attacks"), strict=True)
        ),
        (Answering(answers=lost), False, "worker tcp://w:1 has no module dpaudit"),
        (Answering(answers=ValueError("x")), False, "worker tcp://w:1 does not report"),
    ):
        with pytest.raises(UsageError, match=says):
            cluster.check_workers(client, "tcp://s:1", gpu=gpu)


@pytest.mark.slow
def test_a_scheduler_that_is_away(monkeypatch, capfd, tmp_path, planted):
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 1)
    began = time.monotonic()
    with pytest.raises(
        UsageError, match=r"where=tcp://127.0.0.1:9: no scheduler responds.*dask scheduler"
    ):
        run_experiment(planted(), out=tmp_path / "out", where="tcp://127.0.0.1:9")
    assert time.monotonic() - began < 25  # Dask itself waits 30 s
    assert not (tmp_path / "out").exists()  # the same command works once there is one
    assert capfd.readouterr() == ("", "")


def test_threads_that_watch_end_with_their_pool(planted, tmp_path):
    before = set(threading.enumerate())
    with cores.Cores(1) as placement:
        assert list(placement.run(iter(()))) == []
    assert set(threading.enumerate()) <= before  # others may end meanwhile: a cluster's


def test_no_process_starts_open_to_an_interrupt(monkeypatch):
    """The standard library's tracker of resources, in a process that has none yet, unblocks it."""
    tracker = resource_tracker.ResourceTracker()
    monkeypatch.setattr(resource_tracker, "ensure_running", tracker.ensure_running)
    try:
        with cores._ignore_interrupts():
            tracker.ensure_running()  # as loky does before it starts a process
            assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        tracker._stop()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_interrupt_waits_until_a_process_is_started():
    done, other = [], threading.Event()

    def start():
        with cores._ignore_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            done.append("started")

    thread = threading.Thread(target=other.wait)  # takes the signal that the main thread blocks
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        other.set()
        thread.join()
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
