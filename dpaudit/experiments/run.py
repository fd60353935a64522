"""Running an experiment: cell by cell, each result on disk before the next begins."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import torch

from dpaudit.errors import UsageError
from dpaudit.experiments.arm import build_arm
from dpaudit.experiments.measures import ALONE, measure, origins
from dpaudit.experiments.spec import Cell, Spec
from dpaudit.experiments.store import Store
from dpaudit.experiments.threads import LARGE, threads
from dpaudit.provenance import collect
from dpaudit.types import CellResult, to_dict

__all__ = ["run_cell", "run_experiment"]

OnCell = Callable[[Cell], None]


def run_experiment(
    spec: Spec,
    *,
    out: Path,
    resume: bool = False,
    on_start: OnCell | None = None,
    on_done: OnCell | None = None,
) -> Path:
    """Run every cell of ``spec`` that ``out`` does not hold yet; return ``out``.

    Formal guarantee: a cell's numbers depend on the spec's seed and the cell's settings only, so a run that was killed
    and resumed gives the same results as one that was not (times apart).

    Raises:
        StoreError: ``out`` holds another run, or this one and ``resume`` is False.
        UsageError: the spec's device is not there.
    """
    _check_device(spec.device)
    described = to_dict(dataclasses.asdict(spec))
    open_store = Store.resume if resume else Store.create
    with open_store(out, spec=described) as store:
        done = store.finished()
        for position, cell in enumerate(spec.cells()):
            if cell.id not in done:
                if on_start is not None:
                    on_start(cell)
                store.add(run_cell(cell), position=position)
            if on_done is not None:
                on_done(cell)
    return out


def _check_device(device: str) -> None:
    if device != "cpu" and not torch.cuda.is_available():
        raise UsageError(f"device={device}: torch {torch.__version__} sees no CUDA device here; leave --device out")


def run_cell(cell: Cell) -> CellResult:
    """Run one cell and return its result, without storing it."""
    began = time.monotonic()
    settings = cell.settings
    arm = None if cell.kind in ALONE else build_arm(settings, cell=cell.id)
    with threads(1 if arm is None or arm.host.dim < LARGE else torch.get_num_threads()):
        outcome = measure(cell, arm)
    if arm is not None:
        if cell.kind in ("attack", "audit"):
            outcome["epsilon_key_holder"] = arm.mitigation.epsilon(arm.source, settings["delta"], host=arm.host)
        outcome["sigma"] = arm.sigma
        outcome["dim"] = arm.host.dim
        if arm.key is not None:
            outcome["key"] = {"beta": arm.key.beta, "gamma": arm.key.gamma, "fingerprint": arm.key.fingerprint}
    return CellResult(
        cell=cell.id,
        kind=cell.kind,
        settings=to_dict(settings),
        outcome=to_dict(outcome),
        seconds=time.monotonic() - began,
        provenance=to_dict(collect(seed=settings["seed"], plugins=origins(cell) if arm is None else arm.origins)),
    )
