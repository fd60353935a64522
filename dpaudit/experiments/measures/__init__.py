"""What a cell can measure, one kind a file. Each has ``measure(cell, arm) -> dict`` of JSON-ready values."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpaudit.experiments.arm import Arm
    from dpaudit.experiments.spec import Cell

__all__ = ["MEASURES", "measure"]

MEASURES = ("attack", "error", "gain", "precision", "profile", "reconstruction", "timing", "which-bin")


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Run a cell's measurement (one of ``MEASURES``, or ``audit``)."""
    module = importlib.import_module(f"dpaudit.experiments.measures.{cell.kind.replace('-', '_')}")
    outcome: dict[str, Any] = module.measure(cell, arm)
    return outcome
