"""Experiments: grids of host × source × mitigation × attack in TOML, stored cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpaudit.experiments.measure import Cell
from dpaudit.experiments.spec import Spec
from dpaudit.experiments.spec_file import load_spec, spec_names
from dpaudit.experiments.store import Store
from dpaudit.experiments.stored import OpenRun, open_run
from dpaudit.experiments.table import make_result

if TYPE_CHECKING:
    from dpaudit.experiments.run import run_experiment

__all__ = [
    "Cell",
    "OpenRun",
    "Spec",
    "Store",
    "load_spec",
    "make_result",
    "open_run",
    "run_experiment",
    "spec_names",
]


def __getattr__(name: str) -> Any:
    if name == "run_experiment":  # needs torch, which reading a store does not
        from dpaudit.experiments.run import run_experiment

        return run_experiment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
