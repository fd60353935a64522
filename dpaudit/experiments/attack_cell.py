"""How often an attack names the right one of two neighbouring databases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpaudit.codec import to_dict
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.results import AttackResult
from dpaudit.experiments.trials import batches
from dpaudit.stats import clopper_pearson, epsilon_lower_bound
from dpaudit.vectors.arrays import to_numpy

__all__ = ["MEASURE", "measure"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """An :class:`~dpaudit.experiments.results.AttackResult`, JSON-ready."""
    trials, d = cell.settings["trials"], arm.host.dim
    counts = [[0, 0], [0, 0]]  # [truth][guess]
    error = 0.0
    details: Mapping[str, Any] = {}
    for batch in batches(arm, trials=trials, keys=cell.settings["keys"]):
        attack = batch.arm.attack(cell.settings["attack"])
        release = batch.release()
        guess = to_numpy(attack.score(release, batch.pairs)).argmax(1)
        truth = to_numpy(batch.truth)
        for b in (0, 1):
            for g in (0, 1):
                counts[b][g] += int(((truth == b) & (guess == g)).sum())
        error += float(np.linalg.norm(to_numpy(release - batch.query), axis=1).sum())
        if batch.first:
            details = attack.evidence(release, batch.pairs, batch.truth)
    successes = counts[0][0] + counts[1][1]
    outcome: dict[str, Any] = to_dict(
        AttackResult(
            attack=cell.settings["attack"]["label"],
            trials=trials,
            successes=successes,
            success=successes / trials,
            interval=clopper_pearson(successes, trials),
            chance=0.5,
            epsilon_lower_bound=_epsilon(counts, cell.settings["delta"]),
            l2_error=error / trials,
            l2_expected=arm.mitigation.scale(arm.sigma) * math.sqrt(d),
            details=details,
        )
    )
    if arm.keyless(cell.settings["attack"]):
        outcome["keyless"] = True
    return outcome


def _epsilon(counts: list[list[int]], delta: float) -> float:
    """Empirical lower bound at 95 % from the event that the attack says "the neighbour"."""
    if not (sum(counts[0]) and sum(counts[1])):
        return 0.0
    return epsilon_lower_bound(
        counts[1][1], sum(counts[1]), counts[0][1], sum(counts[0]), delta=delta
    )


MEASURE = Measure(run=measure)
