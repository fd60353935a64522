"""The MLflow logger and MLflow itself, in the environment of ``make envs``."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

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
