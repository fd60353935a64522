"""Likelihood ratio against nearest peak on the same releases."""

from __future__ import annotations

import math
from typing import Any

from dpaudit.experiments.arm import Arm
from dpaudit.experiments.measures.trials import batches, interval
from dpaudit.experiments.spec import Cell

__all__ = ["measure"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Success of both, and their paired difference with a 95 % normal interval (only discordant rounds count)."""
    trials = cell.settings["trials"]
    right = [0, 0]
    only = [0, 0]
    for batch in batches(arm, trials=trials, keys=cell.settings["keys"]):
        release = batch.release()
        hits = [
            batch.arm.attack({"name": name}).score(release, batch.pairs).argmax(1) == batch.truth
            for name in ("nearest-peak", "likelihood-ratio")
        ]
        right = [r + int(h.sum()) for r, h in zip(right, hits, strict=True)]
        only = [only[0] + int((hits[0] & ~hits[1]).sum()), only[1] + int((hits[1] & ~hits[0]).sum())]
    difference = (right[1] - right[0]) / trials
    spread = 1.96 * math.sqrt(max(sum(only) / trials - difference**2, 0.0) / trials)
    return {
        "nearest": interval(right[0], trials),
        "likelihood": interval(right[1], trials),
        "difference": {"value": difference, "low": difference - spread, "high": difference + spread},
        "discordant": sum(only),
        "worse": bool(difference + spread < 0),
    }
