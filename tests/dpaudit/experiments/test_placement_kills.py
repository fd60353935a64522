"""kill -9 at random moments, of the runner or a worker; --resume continues and loses nothing.

A nursery process has everything imported and forks runners, so that a round takes a second and not
ten.
"""

import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

from dpaudit.experiments import Store, load_spec, make_result, run_experiment

CELLS = 24
SPEC = """
name = "killed"
seed = 3
epsilon = [0.5, 0.75, 1.0, 1.25, 1.5, 1.75]
delta = 1e-10
trials = 3000
host = { name = "histogram", table = "uniform", bins = 1024 }
key = { beta = [1e-4, 1e-2], gamma = "2sqrtd" }
source = [{ name = "gaussian" }, { name = "pancake" }]
attack = [{ name = "nearest-peak" }]
"""
NURSERY = """
import json, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
import dpaudit.experiments, dpaudit.cli.app, dpaudit.cli.commands.run, distributed, loky
from dpaudit import registry
for kind in ("hosts", "sources", "mitigations", "attacks"):
    registry.plugins(kind)
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "wait" in asked:
        print(os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        os.setsid()
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(log, number)
        sys.argv = ["dpaudit", *asked["run"]]
        from dpaudit.cli import main
        try:
            main()
        except SystemExit as end:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(end.code or 0)
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(0)
    print(pid, flush=True)
"""


class Nursery:
    """Runners by fork."""

    def __init__(self, folder):
        self.log = folder / "log"
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "ready"

    def _read(self):
        return self.process.stdout.readline().strip()

    def _ask(self, **what):
        print(json.dumps(what), file=self.process.stdin, flush=True)
        return int(self._read())

    def run(self, *args):
        return self._ask(run=list(map(str, args)), log=str(self.log))

    def wait(self, pid):
        return self._ask(wait=pid)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


def running(pid):
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def loky_workers(pid):
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.Error):  # one that ends as we look
                if "loky.backend.popen_loky_posix" in child.cmdline():
                    found.append(child.pid)
    return found


def finished(folder):
    with Store.read(folder) as store:
        return {r.cell: (r.seconds, r.outcome) for r in store.results()}


def rows(folder):
    with Store.read(folder) as store:
        return make_result(store.spec, store.results(), command="").rows


def kept(out, before, code):
    """What is finished in ``out`` after a run that ended with ``code``: nothing lost or redone."""
    if (out / "results.sqlite").exists() and code in (-9, 0, 3):
        young = code == -9 and not before  # killed before the store was whole
        with contextlib.suppress(Exception) if young else contextlib.nullcontext():
            now = finished(out)
            assert {k: now[k] for k in before} == before
            return now
    return before


def rounds(number, *, seed, tmp_path, where=None, jobs="2", workers=None, longest=4.0):
    """Kill so often; how many of each kind, and how many runs finished and were compared."""
    (tmp_path / "killed.toml").write_text(SPEC)
    run_experiment(load_spec(str(tmp_path / "killed.toml")), out=tmp_path / "whole")
    want = rows(tmp_path / "whole")
    nursery, chance = Nursery(tmp_path), random.Random(seed)
    options = ["--where", where] if where else ["--jobs", jobs]
    counts = {"runner": 0, "worker": 0, "finished": 0}
    before, children = {}, set()
    try:
        while counts["runner"] + counts["worker"] < number or counts["finished"] == 0:
            out = tmp_path / f"out{counts['finished']}"
            pid = nursery.run("run", tmp_path / "killed.toml", "--out", out, "--resume", *options)
            while True:
                find = workers or (lambda pid=pid: loky_workers(pid))
                worker = (where is not None or jobs != "1") and chance.random() < 0.5
                while worker and not find() and running(pid):
                    time.sleep(0.02)
                until = time.monotonic() + chance.uniform(0.1, longest)
                while time.monotonic() < until and running(pid):
                    time.sleep(0.02)
                if not running(pid):
                    break
                children |= set(loky_workers(pid))
                if counts["runner"] + counts["worker"] >= number:
                    continue
                victims = find() if worker else []
                victim = chance.choice(victims) if victims else pid
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    counts["runner" if victim == pid else "worker"] += 1
                if victim == pid:
                    break
            code = nursery.wait(pid)
            before = kept(out, before, code)
            if code == 0:
                assert rows(out) == want
                counts["finished"] += 1
                before = {}
            else:
                # 3: a cell that was there at too many deaths
                assert code in (-9, 3), nursery.log.read_text()
        limit = time.monotonic() + 15
        while any(map(running, children)) and time.monotonic() < limit:
            time.sleep(0.1)
        assert not any(map(running, children)), "orphans"
        assert where or jobs == "1" or children, "no workers were seen"
    finally:
        nursery.close()
    return counts


def on_cluster(number, *, seed, tmp_path, **options):
    distributed = pytest.importorskip("distributed")
    import dask

    # a killed worker that is not back after this long is given up for good, by default 15 s
    forever = dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    local = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    )
    with forever, local:

        def workers():
            """Those that the scheduler knows: killed while it starts, one never is."""
            return [
                w.process.pid
                for w in local.workers.values()
                if w.worker_address in local.scheduler.workers and w.process and w.process.pid
            ]

        return rounds(
            number,
            seed=seed,
            tmp_path=tmp_path,
            where=local.scheduler_address,
            workers=workers,
            **options,
        )


@pytest.mark.slow
def test_four_kills_of_a_runner_on_one_core(tmp_path):
    counts = rounds(4, seed=1, tmp_path=tmp_path, jobs="1", longest=1.0)
    assert counts["runner"] >= 4


@pytest.mark.slow
def test_interrupted(tmp_path):
    """Ctrl-C reaches the whole group: workers ignore it; the runner stops them and says so."""
    (tmp_path / "killed.toml").write_text(SPEC.replace("3000", "30000"))
    out, nursery = tmp_path / "out", Nursery(tmp_path)
    try:
        for until in (lambda pid: loky_workers(pid), lambda pid: out.exists() and finished(out)):
            pid = nursery.run(
                "run", tmp_path / "killed.toml", "--out", out, "--resume", "--jobs", "2"
            )
            limit = time.monotonic() + 120
            while not (reached := until(pid)) and time.monotonic() < limit:
                time.sleep(0.05)
            assert reached
            workers = loky_workers(pid)
            os.killpg(pid, signal.SIGINT)
            assert nursery.wait(pid) == 130
            said = nursery.log.read_text()
            assert f"cells are on disk in {out}; this resumes it:\ndpaudit run " in said
            assert f"--jobs 2 --out {out} --resume\n" in said
            assert "Traceback" not in said
            assert not any(map(running, workers))
        assert 0 < len(finished(out)) < CELLS
    finally:
        nursery.close()


@pytest.mark.slow
def test_four_kills_on_a_cluster(tmp_path):
    counts = on_cluster(4, seed=1, tmp_path=tmp_path, longest=1.5)
    assert counts["runner"] + counts["worker"] >= 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("place", ["cluster", "cores"])
def test_a_hundred_kills(tmp_path, place):
    """Two hundred in all, about half of them workers."""
    counts = (on_cluster if place == "cluster" else rounds)(
        100, seed=2, tmp_path=tmp_path, longest=6.0
    )
    print(place, counts)
    assert counts["runner"] >= 20
    assert counts["worker"] >= 20
