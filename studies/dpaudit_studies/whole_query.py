"""How often the key holder reads the whole query out of one release, knowing nothing of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.errors import SpecError
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import batches, interval
from dpaudit.vectors.arrays import to_numpy

__all__ = ["MEASURE", "measure", "summary"]

_READER = "seed-reader"


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Share of releases from which all values are read, and of all values; wrong readings.

    One release per round, of a random one of two neighbours; the reader gets nothing else.
    """
    trials, right, values, wrong = cell.settings["trials"], 0, 0, 0
    if cell.settings["source"]["name"] != "seed-in-noise":
        raise SpecError("measure=whole-query: reads the source seed-in-noise only")
    for batch in batches(arm, trials=trials, keys=cell.settings["keys"]):
        reader: Any = batch.arm.attack({"name": _READER})
        found = reader.read(to_numpy(batch.release()))
        same = found.values == to_numpy(batch.query)
        right += int(same.all(1).sum())
        values += int(same.sum())
        wrong += int((found.found & ~same.all(1)).sum())
    return {
        "success": interval(right, trials),
        "values": values / (trials * arm.host.dim),
        "wrong": wrong,
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The cell with the fewest."""
    least = min(rows, key=lambda row: float(row["success"]["value"]))
    rounds = least["trials"]
    return (
        f"The whole query is read from at least {round(least['success']['value'] * rounds):,} of "
        f"{rounds:,} releases."
    )


MEASURE = Measure(run=measure, summary=summary)
