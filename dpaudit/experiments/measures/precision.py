"""What the released type leaves of the pancake's phase."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dpaudit.experiments.arm import Arm
from dpaudit.experiments.measures.trials import batches, interval
from dpaudit.experiments.spec import Cell

__all__ = ["measure"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Root mean square error of the phase at release, in peak spacings, beside the pancake's own width, and the success.

    ``[grid] dtype`` is float64, float32, bfloat16 or integers: query plus noise is rounded to it before the attack.
    """
    trials = cell.settings["trials"]
    kind = cell.settings["grid"]["dtype"]
    square, right = 0.0, 0
    for batch in batches(arm, trials=trials, keys=cell.settings["keys"]):
        exact = batch.release()
        rounded = exact.round() if kind == "integers" else exact.to(getattr(torch, kind)).double()
        source = batch.arm.source
        w = (
            torch.from_numpy(np.array(batch.arm.key.direction))
            if batch.arm.key is not None
            else torch.zeros(arm.host.dim)
        )
        square += float(((rounded - exact) @ w / getattr(source, "spacing", 1.0)).square().sum())
        attack = batch.arm.attack({"name": "likelihood-ratio"})
        right += int((attack.score(rounded, batch.pairs).argmax(1) == batch.truth).sum())
    source = arm.source
    return {
        "phase_error": (square / trials) ** 0.5,
        "phase_width": getattr(source, "width", 0.0) / getattr(source, "spacing", 1.0),
        "success": interval(right, trials),
    }
