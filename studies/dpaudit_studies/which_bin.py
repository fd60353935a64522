"""Which bin lacks a record? All d candidates at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import torch

from dpaudit import registry
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import interval, tensor_batches

__all__ = ["MEASURE", "measure", "summary"]


class WhichBinGrid(Grid, frozen=True):
    """How many releases of one query there are."""

    releases: Annotated[int, msgspec.Meta(ge=1)]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Success at first guess and the missing bin's median rank, from releases of one query."""
    trials, repeats, d = cell.settings["trials"], cell.grid(WhichBinGrid).releases, arm.host.dim
    right, ranks = 0, []
    for batch in tensor_batches(arm, trials=trials, keys=cell.settings["keys"]):
        attack = registry.load("attacks", "which-bin")(key=batch.arm.held_key, sigma=arm.sigma)
        base = batch.pairs[0, 0]
        for i in range(len(batch.pairs)):
            query = batch.pairs[i, 1].expand(repeats, d)
            stream = batch.stream.child("round", i)
            release = arm.mitigation.release(query, batch.arm.source, stream=stream)
            score = attack.scores(release, base).sum(0)
            missing = int((batch.pairs[i, 0] - batch.pairs[i, 1]).argmax())
            rank = int((score > score[missing]).sum())
            ranks.append(rank)
            right += rank == 0
    return {
        "success": interval(right, trials),
        "rank": float(torch.tensor(ranks).float().median()) + 1,
        "chance": 1 / d,
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The best and the worst cell."""
    low, high = (pick(rows, key=lambda row: float(row["success"]["value"])) for pick in (min, max))
    return (
        "The right one of d bins is named at first guess in "
        f"{100 * low['success']['value']:.1f} % (β={low['beta']:g}, d={low['d']}) to "
        f"{100 * high['success']['value']:.1f} % of rounds (β={high['beta']:g}, d={high['d']})."
    )


MEASURE = Measure(run=measure, grid=WhichBinGrid, summary=summary)
