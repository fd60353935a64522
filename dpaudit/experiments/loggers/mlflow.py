"""A run in MLflow: a parent run, and a child run for each cell."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from dpaudit.errors import UsageError
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.export import flatten, typed
from dpaudit.types import CellFailure, CellResult, RunStart

__all__ = ["Mlflow"]

_LONGEST = 500  # characters of a parameter or tag; what every MLflow server takes
_MOST = 100  # parameters or tags in one call
_PAGE = 1000
_OTHER = re.compile(r"[^\w\-. /]")


class Mlflow:
    """``mlflow:uri=http://server:5000[,experiment=dpaudit]``.

    The parent run has the spec's parameters and, at the end, ``results.json`` and ``report.html``;
    each cell is a nested run with its settings as parameters and its numbers as metrics
    (``success`` with ``success_low`` and ``success_high``), so that MLflow's table and plots
    compare cells. Provenance (versions, hashes, hardware, seed) and values that are not finite are
    tags. A resumed run continues in the same runs, found by the tag ``dpaudit.run``, and passes on
    what was missing there. A server that does not respond is given up after some 10 seconds per
    call, unless MLflow's own ``MLFLOW_HTTP_REQUEST_TIMEOUT`` and
    ``MLFLOW_HTTP_REQUEST_MAX_RETRIES`` say otherwise.
    """

    def __init__(self, *, uri: str, experiment: str = "dpaudit") -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        try:
            self._client = MlflowClient(tracking_uri=str(uri))
        except MlflowException as error:  # an unknown scheme or store; no server was asked yet
            raise UsageError(
                f"uri={uri}: MLflow cannot use it ({error}); give its server's address"
            ) from error
        self._name = str(experiment)
        self._experiment = self._parent = self._folder = ""
        self._children: dict[str, tuple[str, str]] = {}  # cell: MLflow's run, status
        self._ended = False

    def start(self, run: RunStart) -> None:
        """Find or make the experiment and the parent run; pass on earlier cells that it lacks."""
        found = self._client.get_experiment_by_name(self._name)
        self._experiment = (
            self._client.create_experiment(self._name) if found is None else found.experiment_id
        )
        self._folder = run.folder
        ours = self._tagged("dpaudit.run", run.run_id) if run.run_id else []
        if ours:
            self._parent = ours[0].info.run_id
            self._client.update_run(self._parent, status="RUNNING")
        else:
            about = {
                "dpaudit.run": run.run_id,
                "dpaudit.command": run.command,
                "dpaudit.title": run.title,
            }
            made = self._client.create_run(self._experiment, run_name=run.name, tags=_short(about))
            self._parent = made.info.run_id
            texts = ("name", "title", "story", "columns", "figures")
            told = {k: v for k, v in flatten(run.spec).items() if k not in texts}
            self._log(self._parent, params={**told, "cells": run.cells})
        for child in self._tagged("mlflow.parentRunId", self._parent):
            cell = child.data.tags.get("dpaudit.cell", "")
            self._children[cell] = (child.info.run_id, child.info.status)
        for result in run.earlier:
            if self._children.get(result.cell, ("", ""))[1] != "FINISHED":
                self.result(result)

    def _tagged(self, tag: str, value: str) -> list[Any]:
        found: list[Any] = []
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment], f"tags.`{tag}` = '{value}'", max_results=_PAGE, page_token=token
            )
            found += page
            token = page.token
            if not token:
                return found

    def result(self, cell: CellResult) -> None:
        """A finished child run."""
        run = self._child(cell)
        nested = ("details", "provenance", "tests")
        columns = typed([flatten({k: v for k, v in cell.outcome.items() if k not in nested})])
        numbers = {k: v[0] for k, v in columns.items() if isinstance(v[0], (bool, int, float))}
        metrics = {k: float(v) for k, v in numbers.items() if math.isfinite(v)}
        rest = {k: v[0] for k, v in columns.items() if k not in metrics and v[0] is not None}
        words = {f"outcome.{k}": v for k, v in rest.items()}
        self._log(run, metrics={**metrics, "seconds": cell.seconds}, tags=words)
        self._client.set_terminated(run, status="FINISHED")
        self._children[cell.cell] = (run, "FINISHED")

    def failure(self, cell: CellFailure) -> None:
        """A failed child run, with the error as a tag."""
        run = self._child(cell)
        self._log(run, tags={"dpaudit.error": cell.error})
        self._client.set_terminated(run, status="FAILED")
        self._children[cell.cell] = (run, "FAILED")

    def _child(self, cell: CellResult | CellFailure) -> str:
        known = self._children.get(cell.cell)
        if known is not None:
            # a run that died may have left it without
            self._log(known[0], params=flatten(cell.settings))
            return known[0]
        about = {
            "mlflow.parentRunId": self._parent,
            "dpaudit.cell": cell.cell,
            "dpaudit.kind": cell.kind,
        }
        label = Cell(cell.kind, cell.settings).label[:250]
        made = self._client.create_run(
            self._experiment, run_name=label, tags=_short({**about, **_facts(cell.provenance)})
        )
        run: str = made.info.run_id
        self._children[cell.cell] = (run, "RUNNING")
        self._log(run, params=flatten(cell.settings))
        return run

    def end(self, document: Mapping[str, Any]) -> None:
        """The parent's summary and artifacts."""
        statuses = [status for _, status in self._children.values()]
        counts = {
            "cells_done": statuses.count("FINISHED"),
            "cells_failed": statuses.count("FAILED"),
        }
        told = {
            "dpaudit.summary": document.get("summary") or "",
            **_facts(document.get("provenance", {})),
        }
        self._log(self._parent, metrics={k: float(v) for k, v in counts.items()}, tags=told)
        for name in ("results.json", "report.html"):
            if (Path(self._folder) / name).is_file():
                self._client.log_artifact(self._parent, str(Path(self._folder) / name))
        self._client.set_terminated(self._parent, status="FINISHED")
        self._ended = True

    def close(self) -> None:
        """Mark a run that did not end as KILLED in MLflow, until it is resumed."""
        if self._parent and not self._ended:
            self._client.set_terminated(self._parent, status="KILLED")

    def _log(
        self,
        run: str,
        *,
        metrics: Mapping[str, float] | None = None,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> None:
        numbers = _short(metrics or {}, words=False)
        measured = [Metric(key, value, 0, 0) for key, value in numbers.items()]
        settings = [Param(key, value) for key, value in _short(params or {}).items()]
        words = [RunTag(key, value) for key, value in _short(tags or {}).items()]
        for batch in _batches(measured):
            self._client.log_batch(run, metrics=batch)
        for batch in _batches(settings):
            self._client.log_batch(run, params=batch)
        for batch in _batches(words):
            self._client.log_batch(run, tags=batch)


def _facts(provenance: Mapping[str, Any]) -> dict[str, Any]:
    names = ("seed", "hardware", "source", "started")
    facts = {f"dpaudit.{k}": provenance[k] for k in names if provenance.get(k)}
    facts |= {f"version.{k}": version for k, version in provenance.get("versions", {}).items()}
    for p in provenance.get("plugins", ()):
        facts[f"plugin.{p['kind']}.{p['name']}"] = (
            f"{p['distribution']} {p['version']} {p.get('sha256', '')}".strip()
        )
    return facts


def _short(values: Mapping[str, Any], *, words: bool = True) -> dict[str, Any]:
    return {
        _OTHER.sub("_", str(k))[:250]: str(v)[:_LONGEST] if words else v for k, v in values.items()
    }


def _batches(entities: list[Any]) -> Iterable[list[Any]]:
    return (entities[i : i + _MOST] for i in range(0, len(entities), _MOST))
