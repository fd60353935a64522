"""What a cell can measure, one kind a file.

Each has ``measure(cell, arm) -> dict`` of JSON-ready values, and may have ``summary(rows) -> str``: what a whole table of
them says, in a sentence; and ``gather(rows) -> rows``: the table's rows, where one is made of several cells.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpaudit.experiments.arm import Arm
    from dpaudit.experiments.spec import Cell
    from dpaudit.types import PluginOrigin

__all__ = ["ALONE", "BY_TRIAL", "MEASURES", "ON_DEVICES", "TOGETHER", "gathered", "measure", "origins", "summary"]

ALONE = (
    "calibration",
    "controls",
    "dpsgd-bits",
    "dpsgd-training",
    "gradient-attack",
    "gradient-size",
    "keyless",
    "libraries",
    "pool-defences",
    "pool-inference",
    "power",
    "sketch-utility",
    "zoo",
)
"""Kinds that need no host, source or key: their cells have ``[grid]``, ``trials`` and ``seed`` only, ``arm`` is None."""
ON_DEVICES = ("dpsgd-training", "gradient-attack", "gradient-size")
"""Kinds that can work on an accelerator: they read ``cell.settings["device"]`` where it is not the CPU."""
TOGETHER = ("defences",)
"""Kinds whose cells have all the attacks of an arm, ``attacks``, so that these look at the same releases."""
BY_TRIAL = ("attack",)
"""Kinds that can give each trial's record, ``each_trial``, where ``cell.settings`` has ``keep_trials``."""
MEASURES = (
    "attack",
    "defences",
    "error",
    "gain",
    "precision",
    "profile",
    "reconstruction",
    "timing",
    "which-bin",
    *ALONE,
)


def _module(kind: str) -> ModuleType:
    return importlib.import_module(f"dpaudit.experiments.measures.{kind.replace('-', '_')}")


def measure(cell: Cell, arm: Arm | None) -> dict[str, Any]:
    """Run a cell's measurement (one of ``MEASURES``, or ``audit``); ``arm`` is None for those in ``ALONE``."""
    outcome: dict[str, Any] = _module(cell.kind).measure(cell, arm)
    return outcome


def origins(cell: Cell) -> tuple[PluginOrigin, ...]:
    """Where the plug-ins came from that a kind in ``ALONE`` loads itself (its ``origins(cell)``, where it has one)."""
    says = getattr(_module(cell.kind), "origins", None)
    return () if says is None else tuple(says(cell))


def gathered(kind: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The rows of a kind's table: one a cell, unless the kind joins some."""
    gather = getattr(_module(kind), "gather", None)
    return list(rows if gather is None else gather(rows))


def summary(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """What a table of one kind says; empty where the kind has nothing to say or there are no rows."""
    says = getattr(_module(kind), "summary", None)
    return str(says(rows)) if says is not None and rows else ""
