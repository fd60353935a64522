"""L2 error of a release: plain Gaussian, pancake, expectation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpaudit.experiments.arm import Arm
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.measure import Measure
from dpaudit.noise.gaussian import Gaussian
from dpaudit_studies.printed import beside_printed

__all__ = ["MEASURE", "measure"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Mean L2 norm of each noise over ``trials`` draws, with 95 % intervals; σ√d; printed value."""
    trials, d = cell.settings["trials"], arm.host.dim
    out: dict[str, Any] = {"expected": arm.sigma * math.sqrt(d)}
    for name, source in (("gaussian", Gaussian(sigma=arm.sigma)), ("pancake", arm.source)):
        drawn = (source.sample(1, d, stream=arm.stream.child(name, i)) for i in range(trials))
        norms = np.array([np.linalg.norm(one) for one in drawn])
        spread = 1.96 * float(norms.std(ddof=1)) / math.sqrt(trials)
        mean = float(norms.mean())
        out[name] = {"value": mean, "low": mean - spread, "high": mean + spread}
    out["off"] = 100 * (out["pancake"]["value"] / out["expected"] - 1)
    setting = {"d": d, "epsilon": cell.settings["epsilon"], "pancake": out["pancake"]}
    return out | beside_printed("table4", setting, trials=trials)


MEASURE = Measure(run=measure)
