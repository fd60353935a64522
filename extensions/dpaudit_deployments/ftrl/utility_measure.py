"""DP-FTRL runs on images: accuracy at equal ε and δ, by the factorisation of the noise."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import SpecError
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import interval
from dpaudit_deployments.ftrl.host import DpFtrl

__all__ = ["MEASURE", "FtrlGrid", "gather", "measure", "summary"]

_SETTING = ("factorisation", "epsilon", "source", "mitigation")


class FtrlGrid(Grid, frozen=True):
    """``run`` numbers a repetition, with noise of its own."""

    run: int


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """One whole training of the host dp-ftrl, and what its noise is.

    ``multiplier`` is σ over the clipping norm; ``root_error`` the root mean squared error of a
    prefix sum of updates, over the clipping norm; ``spent`` the ε of the Gaussian mechanism that
    the run is, from σ and the sensitivity.

    Raises:
        SpecError: another host.
    """
    host = arm.host
    if not isinstance(host, DpFtrl):
        raise SpecError("measure=dp-ftrl: needs the host dp-ftrl")
    sigma = arm.mitigation.scale(arm.sigma)
    done = host.train(arm.source, arm.mitigation, stream=arm.stream.child("run"))
    accuracy = host.accuracy(done.weights)
    return {
        "factorisation": cell.settings["host"].get("label", host.factors.name),
        "correct": accuracy.correct,
        "tested": accuracy.total,
        "steps": host.steps,
        "clients": host.clients,
        "participations": host.participations,
        "separation": host.separation,
        "sensitivity": host.strategy_sensitivity,
        "exact": host.exact,
        "multiplier": sigma / host.clip,
        "root_error": sigma / host.clip * host.factors.mean_error**0.5,
        "spent": gaussian_epsilon(
            cell.settings["delta"], sigma=arm.sigma, sensitivity=host.sensitivity
        ),
    }


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per setting: the mean of its runs, with the interval of as many test images.

    The runs share the images, so the interval is that of one run.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row.get(name)) for name in _SETTING), []).append(row)
    return [
        {
            **some[0],
            "accuracy": interval(
                round(statistics.mean(row["correct"] for row in some)), some[0]["tested"]
            ),
            "by_run": " ".join(f"{100 * row['correct'] / row['tested']:.1f}" for row in some),
            "runs": len(some),
        }
        for some in groups.values()
    ]


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The best and the worst setting."""
    best, worst = (f(rows, key=lambda row: row["accuracy"]["value"]) for f in (max, min))
    return " to ".join(
        f"{100 * row['accuracy']['value']:.1f} % ({row['factorisation']}, ε = {row['epsilon']:g})"
        for row in (worst, best)
    )


MEASURE = Measure(run=measure, grid=FtrlGrid, gather=gather, summary=summary)
