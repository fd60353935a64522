"""The recipes of docs/scale.md, with local processes in place of Slurm and Kubernetes."""

import contextlib
import logging
import re
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

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


def cells(folder):
    with Store.read(folder) as store:
        return len(store.results())


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
