"""How many unknown counts the key holder reads out of a release, the others known."""

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
from dpaudit.experiments.trials import interval

__all__ = ["MEASURE", "measure", "summary"]

_COUNTS = 1000


class ReconstructionGrid(Grid, frozen=True):
    """How many counts in 0…999 are sought."""

    unknown: Annotated[int, msgspec.Meta(ge=1)]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Share of rounds in which all ``[grid] unknown`` counts in 0…999 are found; bits needed.

    One release per round; which bins are unknown, and their counts, are drawn afresh.
    """
    trials, unknown, d = (
        cell.settings["trials"],
        cell.grid(ReconstructionGrid).unknown,
        arm.host.dim,
    )
    reader = registry.load("attacks", "phase-reader")(key=arm.held_key, sigma=arm.sigma)
    right = trusted = wrongly = 0
    needed = available = 0.0
    for i in range(trials):
        stream = arm.stream.child("round", i)
        rng = stream.child("table").numpy()
        known = torch.from_numpy(rng.integers(0, _COUNTS, d)).double()
        index = torch.from_numpy(rng.choice(d, unknown, replace=False))
        release = arm.mitigation.release(known[None], arm.source, stream=stream)
        found = reader.reconstruct_counts(release, known, index, bound=_COUNTS)
        hit = bool((torch.as_tensor(found.counts).double() == known[index]).all())
        right += hit
        trusted += found.trusted
        wrongly += found.trusted and not hit
        needed, available = found.bits_needed, found.bits_available
    return {
        "success": interval(right, trials),
        "trusted": interval(trusted, trials),
        "wrongly_trusted": wrongly,
        "bits_needed": needed,
        "bits_available": available,
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How often the attack was sure, and wrong."""
    sure = sum(round(row["trusted"]["value"] * row["trials"]) for row in rows)
    wrong = sum(row["wrongly_trusted"] for row in rows)
    rounds = sum(row["trials"] for row in rows)
    return (
        f"In {sure:,} of {rounds:,} rounds the attack was sure of all counts, "
        f"and wrong in {wrong} of those."
    )


MEASURE = Measure(run=measure, grid=ReconstructionGrid, summary=summary)
