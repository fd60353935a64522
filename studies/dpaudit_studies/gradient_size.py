"""A batch's mean gradient without clipping, and its change by one record.

See arXiv 2509.23834, Table 3.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dpaudit.experiments.measure import Measure
from dpaudit.experiments.published import published_value
from dpaudit.experiments.threads import threads, threads_for
from dpaudit.randomness import KeyedStream
from dpaudit.training.plain_training import RECIPES
from dpaudit.training.weights import PUBLISHED, checkpoint_file
from dpaudit_studies.gradient_attack import HOST, HostGrid, accuracy, host, published_name

if TYPE_CHECKING:
    from dpaudit.experiments.cell import Cell

__all__ = ["MEASURE", "gather", "measure", "summary"]

_KEPT = ("d", "accuracy", "converged", "published_as", "note")
_SIZES = ("l2_mean", "l2_median", "l2_diff_mean", "l2_diff_median")


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """Norms of one batch's mean gradient and of its change by each of ``trials`` replaced records.

    ``[grid]`` has the options of the host ``dpsgd-gradient`` and ``block``, a number: the batch and
    an untrained network's weights are its own. For a large network that has not been trained there
    is a note that says how to, instead of numbers.

    Raises:
        SpecError: an axis that is not known, or of a wrong type.
        UsageError: an option that the host does not take, data that is not there, more pairs than
            records.
    """
    del arm
    grid = cell.grid(HostGrid)
    model, weights = grid.model, grid.phase
    found: dict[str, Any] = {
        "converged": weights != "untrained",
        "published_as": published_name(model),
        "squares": [],
        "changes": [],
        "note": None,
    }
    if weights == "trained" and not _at_hand(model):
        return found | {
            "note": f"not trained yet: dpaudit train {model} --device cuda, "
            "then run this again with another --out"
        }
    query = host(cell, grid)
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    with threads(threads_for(query.dim)):
        block = query.block(
            cell.settings["trials"], stream=stream.child("records"), clips=(math.inf,)
        )
        found["squares"] = [float(block.query(math.inf).square().sum())]
        for some in block.exchanges():
            sizes = torch.linalg.vector_norm(some.changes(math.inf), dim=1)
            found["changes"] += sizes.square().tolist()
    return found | {"d": query.dim, "accuracy": accuracy(query)}


def _at_hand(model: str) -> bool:
    return (
        model not in RECIPES
        or model in PUBLISHED
        or RECIPES[model].quick
        or checkpoint_file(model).exists()
    )


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each network, from cells of one block each, with the authors' log and table.

    Means and medians are of squares, and their roots are shown, as in the published table.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in HOST), []).append(row)
    return [_joined(members) for members in groups.values()]


def _joined(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = members[0]
    squares = [x for row in members for x in row["squares"]]
    changes = [x for row in members for x in row["changes"]]
    sizes = [
        math.sqrt(statistic(values)) if values else None
        for values in (squares, changes)
        for statistic in (statistics.fmean, statistics.median)
    ]
    on = {"published_as": "model", "converged": "pretrained"}
    joined = {
        **{name: first[name] for name in (*HOST, *_KEPT) if name in first},
        "batches": len(squares),
        "trials": len(changes),
        **dict(zip(_SIZES, sizes, strict=True)),
    }
    theirs = {
        f"published_{name}": published_value({"file": "gm", "on": on, "value": name}, joined)
        for name in _SIZES
    }
    table = {"file": "printed-table3", "on": on}
    printed = {
        f"printed_{name}": published_value({**table, "value": name}, joined)
        for name in ("l2", "l2_diff")
    }
    ours, published = joined["l2_diff_median"], theirs["published_l2_diff_median"]
    return {
        **joined,
        **theirs,
        **printed,
        "ratio": ours / published if ours is not None and published else None,
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How far the median changes are from the published ones, and what has not been trained."""
    ratios = {
        f"{row['weights']} {row['model']}": row["ratio"] for row in rows if row["ratio"] is not None
    }
    said = ", ".join(f"{ratio:.2g} for {name}" for name, ratio in ratios.items())
    missing = [row["model"] for row in rows if row["note"]]
    text = (
        f"Median change of a batch's gradient by one record, over the published one: {said}."
        if said
        else ""
    )
    return text + (f" Not trained here: {', '.join(missing)}." if missing else "")


MEASURE = Measure(
    run=measure, grid=HostGrid, needs_arm=False, on_devices=True, gather=gather, summary=summary
)
