"""The recipes of docs/scale.md, with local processes in place of Slurm and Kubernetes."""

import contextlib
import logging
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import command_line
import pytest
import yaml

from dpaudit.experiments import Store

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
SPEC = """
name = "gpm-fig5"
seed = 3
epsilon = [0.5, 1.0, 2.0]
delta = 1e-10
trials = 5
host = { name = "histogram", table = "uniform", bins = 16 }
source = [{ name = "gaussian" }]
attack = [{ name = "nearest-peak" }]
key = { beta = 1e-3, gamma = "2sqrtd" }
"""


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A folder with a small experiment of the recipes' name."""
    (tmp_path / "small.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words_of(script, folder, **environment):
    """What ``script`` calls dpaudit with, by a ``dpaudit`` that only writes that down."""
    stub = folder / "bin" / "dpaudit"
    stub.parent.mkdir(exist_ok=True)
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    env = {"PATH": f"{stub.parent}{os.pathsep}{os.environ['PATH']}", **environment}
    command = ["/bin/sh", "-ec", script]
    done = subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, check=True)
    return done.stdout.splitlines()


def run(words, folder):
    """The recipe's command on the small experiment, in this process."""
    said = ["small.toml" if word == "gpm-fig5" else word for word in words]
    said = [re.sub("^/results", str(folder), word) for word in said]
    told = command_line.here(*said)
    assert told.returncode == 0, told.stderr


def cells(folder):
    with Store.read(folder) as store:
        return len(store.results())


@pytest.mark.slow
def test_the_slurm_array(there):
    (script,) = blocks("sh")
    asked = re.search(r"^#SBATCH --array=1-(\d+)$", script, re.M)
    cpus = re.search(r"^#SBATCH --cpus-per-task=(\d+)$", script, re.M)
    for index in range(1, int(asked[1]) + 1):
        words = words_of(script, there, SLURM_ARRAY_TASK_ID=str(index), SLURM_CPUS_PER_TASK=cpus[1])
        assert words[:4] == ["run", "gpm-fig5", "--shard", f"{index}/{asked[1]}"]
        assert words[4:6] == ["--jobs", cpus[1]]
        run([*words[:4], *words[6:]], there)  # starting processes is not what is tested
    merge = re.search(r'--wrap "dpaudit (.*)"', PAGE)[1]
    run(words_of(f"dpaudit {merge}", there), there)
    assert cells(there / "runs" / "gpm-fig5") == 3


@pytest.mark.slow
def test_the_kubernetes_job(there):
    (text,) = blocks("yaml")
    job = yaml.safe_load(text)
    spec = job["spec"]
    assert (job["kind"], spec["completionMode"]) == ("Job", "Indexed")
    (container,) = spec["template"]["spec"]["containers"]
    assert container["command"] == ["/bin/sh", "-c"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    for index in range(spec["completions"]):
        words = words_of(container["args"][0], there, JOB_COMPLETION_INDEX=str(index))
        assert f"{index + 1}/{spec['completions']}" in words
        run(words, there)
    merge = re.search(r"`dpaudit (runs merge /results.*?)`", PAGE)[1]
    out, *parts = shlex.split(merge)[2:]
    found = sorted(there.glob(Path(parts[0]).name))
    assert len(found) == spec["completions"]
    run(["runs", "merge", out, *map(str, found)], there)
    assert cells(there / "gpm-fig5") == 3


@pytest.fixture(scope="module")
def local():
    """A cluster of one worker, a process of one thread."""
    distributed = pytest.importorskip("distributed")
    own = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, **own) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name"),
    [("dask_jobqueue", "SLURMCluster"), ("dask_kubernetes.operator", "KubeCluster")],
)
def test_the_dask_recipes(there, monkeypatch, local, module, name):
    asked = {}

    @contextlib.contextmanager
    def stand_in(**options):
        """As the recipe's cluster, but its only worker is local."""
        asked.update(options)
        scale = lambda jobs: asked.update(jobs=jobs)  # noqa: E731
        yield SimpleNamespace(scheduler_address=local.scheduler_address, scale=scale)

    made = types.ModuleType(module)
    setattr(made, name, stand_in)
    monkeypatch.setitem(sys.modules, module, made)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], made)
    (block,) = [b for b in blocks("text") if f"import {name}" in b]
    exec(block.replace('"gpm-fig5"', '"small.toml"'), {})
    assert cells(there / "runs" / "gpm-fig5") == 3
    threads = asked.get("cores") or int(asked["worker_command"][-1])
    assert (threads, asked.get("jobs") or asked["n_workers"]) == (1, 8)
