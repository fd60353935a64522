"""Sampling time of the pancake against plain Gaussian noise: one process, in turn, same allocation and scaling."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dpaudit.experiments.arm import Arm
from dpaudit.experiments.spec import Cell
from dpaudit.noise.gaussian import Gaussian

__all__ = ["measure", "summary"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Median seconds of each, of ``torch.Tensor.normal_``, and the median of the pairwise ratios with its quartiles."""
    d, trials = arm.host.dim, cell.settings["trials"]
    dtype = getattr(torch, cell.settings["grid"].get("dtype", "float64"))
    plain = Gaussian(sigma=arm.sigma)
    seconds: dict[str, list[float]] = {"gaussian": [], "pancake": [], "torch": []}
    for i in range(trials + 2):
        for name in ("gaussian", "pancake", "torch"):
            stream = arm.stream.child(name, i)
            began = time.perf_counter()
            if name == "torch":
                torch.empty((1, d), dtype=dtype).normal_(0, arm.sigma)
            else:
                source = plain if name == "gaussian" else arm.source
                source.sample(1, d, stream=stream, dtype=dtype)
            if i >= 2:  # the first two warm up
                seconds[name].append(time.perf_counter() - began)
    ratio = [p / g for p, g in zip(seconds["pancake"], seconds["gaussian"], strict=True)]
    low, middle, high = statistics.quantiles(ratio, n=4)
    return {
        **{name: statistics.median(values) for name, values in seconds.items()},
        "ratio": {"value": middle, "low": low, "high": high},
        "against_torch": statistics.median(p / t for p, t in zip(seconds["pancake"], seconds["torch"], strict=True)),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The range of the ratios."""
    ratio = [row["ratio"]["value"] for row in rows]
    return f"The pancake takes {min(ratio):.2f} to {max(ratio):.2f} times as long as Gaussian noise (medians)."
