"""What the pancake keeps of privacy towards its key holder: exact, between the paper's bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.accounting import (
    pancake_epsilon,
    pancake_epsilon_lower,
    pancake_epsilon_upper,
    peak_spacing,
)
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.measure import Measure

__all__ = ["MEASURE", "measure", "summary"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """ε at δ and its bounds, for a pair at distance Δ.

    The pair's fraction along the key is 1/4, or as near as Δ allows. ``lower`` is Theorem 4.2
    at that fraction, ``upper`` Theorem 4.4; ``exact`` the integrated profile with its error.
    """
    key = arm.held_key
    law = {"sigma": arm.sigma, "beta": key.beta, "gamma": key.gamma}
    delta, reach = cell.settings["delta"], arm.host.sensitivity
    spacing = peak_spacing(**law)
    along = min(0.25 * spacing, reach)
    exact = pancake_epsilon(
        delta, **law, along=along, across=math.sqrt(max(reach * reach - along * along, 0.0))
    )
    low, high = exact.value - exact.error, exact.value + exact.error
    shape = {"beta": key.beta, "gamma": key.gamma}
    return {
        "fraction": along / spacing,
        "lower": pancake_epsilon_lower(delta, **shape, fraction=along / spacing),
        "exact": {"value": exact.value, "low": low, "high": high},
        "upper": pancake_epsilon_upper(delta, **law, sensitivity=reach),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether the exact value lies between the paper's bounds."""
    inside = sum(r["lower"] <= r["exact"]["high"] and r["exact"]["low"] <= r["upper"] for r in rows)
    return f"The exact ε lies between the paper's bounds in {inside} of {len(rows)} cells."


MEASURE = Measure(run=measure, summary=summary)
