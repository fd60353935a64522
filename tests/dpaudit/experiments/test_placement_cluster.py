"""A Dask cluster of two workers: the same table, killed workers, a scheduler that goes away."""

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from planted import SPEC, install

from dpaudit import registry
from dpaudit.errors import PeerError, UsageError
from dpaudit.experiments import Store, load_spec, make_result, run_experiment
from dpaudit.experiments.placement import cluster as clusters

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Two workers, each a process of one thread that knows the planted plug-in and has torch."""
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
    ):
        distributed.utils.get_mp_context()  # sets a list of its own of what to import first, once
        multiprocessing.set_forkserver_preload(
            ["distributed", "torch", "dpaudit.experiments.placement.work"]
        )
        patch.syspath_prepend(str(install(tmp_path_factory.mktemp("site"))))
        registry._scan.cache_clear()
        with distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster:
            yield cluster
    registry._scan.cache_clear()


def planted(folder, *lines):
    path = folder / "planted.toml"
    path.write_text(SPEC + "\n".join(lines) + "\n")
    return load_spec(str(path))


def rows(folder):
    with Store.read(folder) as store:
        return make_result(store.spec, store.results(), command="").rows


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(local, tmp_path, capfd):
    spec = planted(
        tmp_path, f"seconds = {[0.02 + i / 1000 for i in range(12)]}", 'what = ["fine", "raises"]'
    )
    done = []

    def kill(_):
        done.append(time.monotonic())
        if len(done) == 6:
            worker = next(iter(local.workers.values()))
            os.kill(worker.process.pid, signal.SIGKILL)

    run_experiment(spec, out=tmp_path / "many", where=local.scheduler_address, on_done=kill)
    run_experiment(spec, out=tmp_path / "one")
    assert len(done) == 24
    assert rows(tmp_path / "many") == rows(tmp_path / "one")
    with Store.read(tmp_path / "many") as many, Store.read(tmp_path / "one") as one:
        assert [(f.cell, f.error) for f in many.failures()] == [
            (f.cell, f.error) for f in one.failures()
        ]
        assert len(one.failures()) == 12
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_gpu_cells_go_to_gpu_workers_only(local):
    with (
        pytest.raises(UsageError, match='--resources "GPU=1"'),
        clusters.Cluster(local.scheduler_address, gpu=True),
    ):
        pass


@pytest.mark.slow
def test_gpu_cells_are_done_where_a_gpu_is_offered(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(install(tmp_path / "site")))
    registry._scan.cache_clear()

    def worker(**offers):
        options = {"nthreads": 1, "resources": offers, "dashboard_address": ":0"}
        return {"cls": distributed.Worker, "options": options}

    options = {"dashboard_address": "127.0.0.1:0", "port": 0}
    scheduler = {"cls": distributed.Scheduler, "options": options}
    workers = {"with": worker(GPU=1), "without": worker()}
    spec = planted(tmp_path, 'what = "where"', f"seconds = {[0.02 + i / 1000 for i in range(8)]}")
    with distributed.SpecCluster(workers, scheduler, silence_logs=logging.CRITICAL) as both:
        for gpu in (True, False):
            out = tmp_path / f"out{gpu}"
            run_experiment(spec, out=out, where=clusters.Cluster(both.scheduler_address, gpu=gpu))
            with Store.read(out) as store:
                names = {r.outcome["details"]["worker"] for r in store.results()}
            assert names == ({"with"} if gpu else {"with", "without"})
    registry._scan.cache_clear()


@pytest.mark.slow
def test_a_cluster_without_workers():
    with distributed.LocalCluster(
        n_workers=0, processes=False, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
    ) as empty:
        began = time.monotonic()
        with pytest.raises(UsageError, match=r"no workers after 0.5 s; .*dask worker inproc|tcp"):
            clusters.Cluster(empty.scheduler_address, wait=0.5).__enter__()
        assert time.monotonic() - began < 25


@pytest.mark.slow
def test_a_scheduler_that_dies_leaves_what_is_finished(tmp_path, monkeypatch):
    """The message says --resume; the next run has only the rest to do."""
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 4)
    monkeypatch.syspath_prepend(str(install(tmp_path / "site")))
    registry._scan.cache_clear()
    script = (
        "import sys, logging; from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    c = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol='tcp',\n"
        "                     dashboard_address='127.0.0.1:0')\n"
        "    print(c.scheduler_address, flush=True); sys.stdin.read()\n"
    )
    (tmp_path / "cluster.py").write_text(script)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "cluster.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        address = process.stdout.readline().strip()
        spec = planted(tmp_path, f"seconds = {[0.02 + i / 1000 for i in range(12)]}")
        done = []

        def kill(_):
            done.append(1)
            if len(done) == 3:
                process.kill()

        with pytest.raises(PeerError, match=r"where=tcp://.*finished cells are kept.*--resume"):
            run_experiment(spec, out=tmp_path / "out", where=address, on_done=kill)
    finally:
        process.kill()
        process.communicate()
    began = []
    run_experiment(spec, out=tmp_path / "out", resume=True, on_start=began.append)
    assert 0 < len(began) <= 9
    assert len(rows(tmp_path / "out")[0].attacks) == 12
    registry._scan.cache_clear()


@pytest.mark.slow
def test_a_cell_that_kills_its_workers_is_a_failure_and_the_others_are_done(local, tmp_path):
    spec = planted(tmp_path, 'what = ["fine", "dies", "nan"]')
    run_experiment(spec, out=tmp_path / "out", where=local.scheduler_address)
    with Store.read(tmp_path / "out") as store:
        assert [r.settings["attack"]["what"] for r in store.results()] == ["fine", "nan"]
        (failure,) = store.failures()
    assert failure.error.startswith("WorkersDiedError: 4 workers died with this cell")
    assert threading.active_count() < 50
