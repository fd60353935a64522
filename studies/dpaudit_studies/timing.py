"""Sampling time of the pancake compared with plain Gaussian noise, in turn in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch

from dpaudit.experiments.arm import Arm
from dpaudit.experiments.measure import Cell, Grid, Measure
from dpaudit.noise.gaussian import Gaussian
from dpaudit.protocols import Array, NoiseSource, Stream

__all__ = ["MEASURE", "WARM_UP", "in_turn", "measure", "ratio", "summary"]

WARM_UP = 3


class TimingGrid(Grid, frozen=True):
    """The type that noise is drawn in."""

    dtype: Literal["float64", "float32"] = "float64"


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Median seconds of each and of ``Tensor.normal_``, and of pairwise ratios with quartiles."""
    d, trials = arm.host.dim, cell.settings["trials"]
    dtype = getattr(torch, cell.grid(TimingGrid).dtype)
    streams = [arm.stream.child(i) for i in range(trials + WARM_UP)]
    ours = {"gaussian": Gaussian(sigma=arm.sigma), "pancake": arm.source}
    draws = {name: partial(_draw, source, d, dtype, streams) for name, source in ours.items()}
    seconds = in_turn(draws, repeats=trials)
    # on its own: a third draw in the turn would push ours out of the caches
    seconds |= in_turn(
        {"torch": lambda _: torch.empty((1, d), dtype=dtype).normal_(0, arm.sigma)}, repeats=trials
    )
    return {
        **{name: statistics.median(values) for name, values in seconds.items()},
        "ratio": ratio(seconds["pancake"], seconds["gaussian"]),
        "against_torch": statistics.median(seconds["pancake"])
        / statistics.median(seconds["torch"]),
    }


def _draw(
    source: NoiseSource, d: int, dtype: torch.dtype, streams: Sequence[Stream], i: int
) -> Array:
    return source.sample(1, d, stream=streams[i], dtype=dtype)


def in_turn(
    draws: Mapping[str, Callable[[int], object]],
    *,
    repeats: int,
    settle: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of each of ``draws``, called in turn ``repeats`` times by number, after a warm-up.

    ``settle`` is called before the clock starts and before it stops (a GPU's synchronisation).
    """
    seconds: dict[str, list[float]] = {name: [] for name in draws}
    for i in range(repeats + WARM_UP):
        for name, draw in draws.items():
            settle()
            began = time.perf_counter()
            draw(i)
            settle()
            if i >= WARM_UP:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Median of the pairwise ratios, with its quartiles as the interval."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"value": middle, "low": low, "high": high}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The range of the ratios."""
    ratios = [row["ratio"]["value"] for row in rows]
    return (
        f"The pancake takes {min(ratios):.2f} to {max(ratios):.2f} times as long as "
        "Gaussian noise (medians)."
    )


MEASURE = Measure(run=measure, grid=TimingGrid, summary=summary)
