"""One point of a grid, and what it measures: a type in the entry-point group ``dpaudit.measures``.

A cell has a name and the key of its random streams.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dpaudit import registry
from dpaudit.experiments.grid import G, Grid, read_grid, written
from dpaudit.randomness import KeyedStream
from dpaudit.types import PluginOrigin

__all__ = [
    "AUDIT",
    "Cell",
    "Measure",
    "gather_rows",
    "grouped",
    "measure_of",
    "plugin_options",
    "summary",
]

Row = TypeVar("Row")

AUDIT = "audit"
"""The measure of an arm's ``[audit]``: a spec does not name it."""
_LONG = 100


@dataclass(frozen=True)
class Cell:
    """One point of the grid; ``id`` is a hash of its settings and of nothing else."""

    kind: str
    settings: Mapping[str, Any]

    @property
    def written(self) -> dict[str, Any]:
        """The settings as in ids, stores and reports: every value in ``grid`` in one word."""
        if not self.settings.get("grid"):
            return dict(self.settings)
        return {
            **self.settings,
            "grid": {name: written(value) for name, value in self.settings["grid"].items()},
        }

    @property
    def id(self) -> str:
        text = json.dumps({"kind": self.kind, **self.written}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def stream(self) -> KeyedStream:
        """The cell's own randomness, from its spec's seed and its id."""
        return KeyedStream.from_seed(self.settings["seed"]).child("cell", self.id)

    @property
    def label(self) -> str:
        """Which arm this is, for people."""
        settings = self.written
        if "source" not in settings:
            points = ", ".join(f"{k} {v}" for k, v in settings["grid"].items())
            return points if len(points) <= _LONG else f"{points[:_LONG]}…"
        arm = f"{settings['source']['label']} + {settings['mitigation']['label']}"
        attack = settings["attack"]["label"] if "attack" in settings else self.kind
        tables = (settings[table].items() for table in ("key", "grid", "host"))
        axes = ", ".join(
            f"{k} {v}" for k, v in itertools.chain.from_iterable(tables) if k != "name"
        )
        return f"{arm}: {attack}" + (
            f" ({axes})" if self.kind not in ("audit", "attack") or settings["grid"] else ""
        )

    def grid(self, of: type[G]) -> G:
        """``[grid]`` with a measure's types.

        Raises:
            SpecError: a value that the measure does not take.
        """
        return read_grid(self.settings["grid"], of)


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
    measure: Measure = registry.load("measures", kind)
    return measure


def gather_rows(kind: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The rows of a measure's table: one per cell, unless it joins some."""
    gather = measure_of(kind).gather
    return list(rows) if gather is None else gather(rows)


def grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[list[Row]]:
    """The rows by ``key``, groups in the order of their first rows."""
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def summary(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """One sentence about a measure's table; empty without rows or without a summary."""
    summarise = measure_of(kind).summary
    return summarise(rows) if summarise is not None and rows else ""


def plugin_options(table: Mapping[str, Any]) -> dict[str, Any]:
    """A plug-in's own options in its table of the spec."""
    return {
        k: v for k, v in table.items() if k not in ("name", "label") and not isinstance(v, Mapping)
    }
