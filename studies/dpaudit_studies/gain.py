"""Likelihood ratio against nearest peak on the same releases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.experiments.arm import Arm
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import interval, tensor_batches

__all__ = ["MEASURE", "measure", "summary"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Success of both, and their paired difference with a 95 % normal interval.

    Only discordant rounds count.
    """
    trials = cell.settings["trials"]
    right = [0, 0]
    only = [0, 0]
    for batch in tensor_batches(arm, trials=trials, keys=cell.settings["keys"]):
        release = batch.release()
        hits = [
            batch.arm.attack({"name": name}).score(release, batch.pairs).argmax(1) == batch.truth
            for name in ("nearest-peak", "likelihood-ratio")
        ]
        right = [r + int(h.sum()) for r, h in zip(right, hits, strict=True)]
        only = [
            only[0] + int((hits[0] & ~hits[1]).sum()),
            only[1] + int((hits[1] & ~hits[0]).sum()),
        ]
    difference = (right[1] - right[0]) / trials
    spread = 1.96 * math.sqrt(max(sum(only) / trials - difference**2, 0.0) / trials)
    low, high = difference - spread, difference + spread
    return {
        "nearest": interval(right[0], trials),
        "likelihood": interval(right[1], trials),
        "difference": {"value": difference, "low": low, "high": high},
        "discordant": sum(only),
        "worse": bool(high < 0),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How often the likelihood ratio is better or worse, and by how much at best."""
    better = sum(row["difference"]["low"] > 0 for row in rows)
    worse = sum(bool(row["worse"]) for row in rows)
    best = max(rows, key=lambda row: float(row["difference"]["value"]))
    gain, where = (
        100 * best["difference"]["value"],
        f"d={best['d']}, β={best['beta']:g}, γ={best['gamma']:.4g}",
    )
    return (
        f"The likelihood ratio is better than the nearest peak in {better} and worse in {worse} of "
        f"{len(rows)} cells (95 %, paired); its largest gain is {gain:.1f} points, "
        f"at {where}, ε={best['epsilon']:g}."
    )


MEASURE = Measure(run=measure, summary=summary)
