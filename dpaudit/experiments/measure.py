"""What a cell measures: one type, registered in the entry-point group ``dpaudit.measures``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpaudit import registry
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid
from dpaudit.types import PluginOrigin

__all__ = ["AUDIT", "Measure", "gathered", "measure_of", "summary"]

AUDIT = "audit"
"""The measure of an arm's ``[audit]``: a spec does not name it."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure, ``NAME = "package.module:MEASURE"`` in the group ``dpaudit.measures``.

    Attributes:
        run: ``(cell, arm) -> dict`` of JSON-ready values: one cell's outcome, a function of the
            cell's settings alone, except for times. ``arm`` is the cell's host, key, source and
            mitigation.
        grid: the types of ``[grid]``, checked when a spec is read and given by ``cell.grid``; None
            takes anything.
        needs_arm: False for a measure without host, source or key: its cells have ``[grid]``,
            ``trials`` and ``seed`` only, and ``arm`` is None.
        attacks_together: one cell has all the attacks of an arm, ``attacks``, so that these look at
            the same releases; otherwise each attack is a cell.
        on_devices: it can work on an accelerator; it reads ``cell.settings["device"]`` where that
            is not the CPU.
        gather: ``rows -> rows``: the table's rows, where one is made of several cells.
        summary: ``rows -> str``: one sentence about a whole table.
        origins: ``cell -> origins`` of the plug-ins that a measure without an arm loads itself.
    """

    run: Callable[..., Mapping[str, Any]]
    grid: type[Grid] | None = None
    needs_arm: bool = True
    attacks_together: bool = False
    on_devices: bool = False
    gather: Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]] | None = None
    summary: Callable[[Sequence[Mapping[str, Any]]], str] | None = None
    origins: Callable[[Cell], Sequence[PluginOrigin]] | None = None


def measure_of(kind: str) -> Measure:
    """The measure of that name.

    Raises:
        UnknownNameError: no such measure, with the nearest match.
        MissingExtraError: it needs an optional dependency.
    """
    found: Measure = registry.load("measures", kind)
    return found


def gathered(kind: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The rows of a measure's table: one per cell, unless it joins some."""
    gather = measure_of(kind).gather
    return list(rows) if gather is None else gather(rows)


def summary(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """What a table of one measure says; empty if there are no rows, or nothing to say."""
    says = measure_of(kind).summary
    return says(rows) if says is not None and rows else ""
