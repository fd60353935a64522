"""What the released type leaves of the pancake's phase."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from dpaudit.accounting import peak_spacing, peak_width
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import interval, tensor_batches

__all__ = ["MEASURE", "measure", "summary"]


class PrecisionGrid(Grid, frozen=True):
    """Query plus noise is rounded to ``dtype`` before the attack."""

    dtype: Literal["float64", "float32", "bfloat16", "integers"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """What rounding a release does to its phase along the key, and to the key holder's success.

    ``[grid] dtype`` is float64, float32, bfloat16 or integers: query plus noise is rounded to it
    before the attack. All in peak spacings: ``phase_error`` is the root mean square that rounding
    adds to what float64 released; ``phase_spread`` the root mean square distance from the nearest
    pancake (0.289 if nothing is left of them), to be compared with ``phase_width``.
    """
    trials = cell.settings["trials"]
    kind = cell.grid(PrecisionGrid).dtype
    law = {"sigma": arm.sigma, "beta": arm.held_key.beta, "gamma": arm.held_key.gamma}
    spacing = peak_spacing(**law)
    added = spread = 0.0
    right = 0
    for batch in tensor_batches(arm, trials=trials, keys=cell.settings["keys"]):
        exact = batch.release()
        rounded = exact.round() if kind == "integers" else exact.to(getattr(torch, kind)).double()
        w = torch.from_numpy(np.array(batch.arm.held_key.direction))
        added += float(((rounded - exact) @ w / spacing).square().sum())
        phase = (rounded - batch.query) @ w / spacing
        spread += float((phase - phase.round()).square().sum())
        attack = batch.arm.attack({"name": "likelihood-ratio"})
        right += int((attack.score(rounded, batch.pairs).argmax(1) == batch.truth).sum())
    return {
        "phase_error": math.sqrt(added / trials),
        "phase_spread": math.sqrt(spread / trials),
        "phase_width": peak_width(**law) / spacing,
        "success": interval(right, trials),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The key holder's best success, by released type."""
    best: dict[str, float] = {}
    for row in rows:
        best[row["dtype"]] = max(best.get(row["dtype"], 0.0), float(row["success"]["value"]))
    left = ", ".join(f"{name} {100 * value:.0f} %" for name, value in best.items())
    return f"The key holder's best success by released type (guessing: 50 %): {left}."


MEASURE = Measure(run=measure, grid=PrecisionGrid, summary=summary)
