"""What a cell can measure, one kind a file.

Each has ``measure(cell, arm) -> dict`` of JSON-ready values, and may have ``summary(rows) -> str``: what a whole table of
them says, in a sentence.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpaudit.experiments.arm import Arm
    from dpaudit.experiments.spec import Cell

__all__ = ["MEASURES", "measure", "summary"]

MEASURES = ("attack", "error", "gain", "precision", "profile", "reconstruction", "timing", "which-bin")


def _module(kind: str) -> ModuleType:
    return importlib.import_module(f"dpaudit.experiments.measures.{kind.replace('-', '_')}")


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Run a cell's measurement (one of ``MEASURES``, or ``audit``)."""
    outcome: dict[str, Any] = _module(cell.kind).measure(cell, arm)
    return outcome


def summary(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """What a table of one kind says; empty where the kind has nothing to say or there are no rows."""
    says = getattr(_module(kind), "summary", None)
    return str(says(rows)) if says is not None and rows else ""
