"""How often an attack shows more ε than a sound mechanism claims, which its bounds limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dpaudit.audit.epsilon import (
    MechanismOptions,
    PrivacyClaim,
    parse_neighbours,
    run_mechanism_audit,
)
from dpaudit.errors import MissingExtraError
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import interval
from dpaudit.samplers.resolve import open_mechanism
from dpaudit_studies.libraries import case

__all__ = ["MEASURE", "measure", "summary"]


class ControlsGrid(Grid, frozen=True):
    """A case by its name, and ``samples`` releases at each neighbour."""

    case: str
    samples: int
    alpha: float


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """``trials`` audits of a case (:class:`ControlsGrid`).

    Counted are those whose lower bound for ε is at most the claim. One process of the mechanism
    serves all, so the audits are of one running sampler. A library that is not installed has a row
    that says so.
    """
    del arm
    grid, trials = cell.grid(ControlsGrid), cell.settings["trials"]
    subject = case(grid.case)
    assert subject.neighbours is not None  # noqa: S101 (a control's case names its values)
    about = {"library": subject.library, "mechanism": subject.mechanism, "attack": subject.attack}
    bounds = []
    try:
        with open_mechanism(
            subject.mechanism, seed=f"{cell.settings['seed']}/{cell.id}"
        ) as mechanism:
            for i in range(trials):
                result = run_mechanism_audit(
                    mechanism,
                    neighbours=parse_neighbours(subject.neighbours),
                    claim=PrivacyClaim(subject.epsilon, subject.delta),
                    attack=subject.attack,
                    options=MechanismOptions(
                        samples=grid.samples,
                        alpha=grid.alpha,
                        seed=f"{cell.settings['seed']}/{cell.id}/{i}",
                    ),
                )
                bounds.append(result.epsilon.low if result.epsilon is not None else 0.0)
    except MissingExtraError as error:
        return {**about, "failed": str(error)}
    within = sum(bound <= subject.epsilon for bound in bounds)
    return {
        **about,
        "epsilon_claimed": subject.epsilon,
        "delta_claimed": subject.delta,
        "repeats": trials,
        "within": interval(within, trials),
        "exceeded": trials - within,
        "largest": max(bounds),
        "median": median(bounds),
        "failed": None,
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """In how many repeats, of all, no more than the claim was shown; and the worst control."""
    ran = [row for row in rows if row["failed"] is None]
    if not ran:
        return "No control could be run."
    repeats, over = sum(row["repeats"] for row in ran), sum(row["exceeded"] for row in ran)
    worst = max(ran, key=lambda row: row["exceeded"] / row["repeats"])
    return (
        f"In {repeats - over:,} of {repeats:,} audits of sound mechanisms no more ε was shown than "
        f"they claim; worst: {worst['mechanism']} by {worst['attack']}, "
        f"{worst['repeats'] - worst['exceeded']} of {worst['repeats']}."
    )


MEASURE = Measure(run=measure, grid=ControlsGrid, needs_arm=False, summary=summary)
