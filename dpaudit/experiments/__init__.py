"""Experiments: a grid of host × source × mitigation × attack as TOML, run cell by cell, each cell stored as it ends."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpaudit.experiments.cell import Cell
from dpaudit.experiments.spec import Spec
from dpaudit.experiments.spec_file import load_spec, spec_names
from dpaudit.experiments.store import Store

if TYPE_CHECKING:
    from dpaudit.experiments.opened import OpenRun, open_run
    from dpaudit.experiments.run import run_experiment
    from dpaudit.experiments.table import make_document

__all__ = [
    "Cell",
    "OpenRun",
    "Spec",
    "Store",
    "load_spec",
    "make_document",
    "open_run",
    "run_experiment",
    "spec_names",
]


_LATE = {"OpenRun": "opened", "make_document": "table", "open_run": "opened", "run_experiment": "run"}
"""Names that need torch or scipy, by their module: who only looks at stores waits for neither."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(f"dpaudit.experiments.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
