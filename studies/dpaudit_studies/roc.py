"""ROC of scores of members and non-members: the curve, its area, hits at few false alarms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UsageError
from dpaudit.experiments.trials import interval

__all__ = ["area", "curve", "hits_at", "mean_interval"]

Array = npt.NDArray[np.float64]


def _sides(scores: npt.ArrayLike, member: npt.ArrayLike) -> tuple[Array, Array]:
    """Scores of members and of the others, each in ascending order.

    Raises:
        UsageError: one side is empty, or the two lists differ in length.
    """
    found, is_member = np.asarray(scores, np.float64), np.asarray(member, np.bool_)
    if found.shape != is_member.shape or not is_member.any() or is_member.all():
        raise UsageError(
            f"scores of {len(found)}, {is_member.sum()} of them members: needs some of each"
        )
    return np.sort(found[is_member]), np.sort(found[~is_member])


def area(scores: npt.ArrayLike, member: npt.ArrayLike) -> dict[str, float]:
    """P(a member scores higher than another), ties for one half, and a 95 % interval.

    This is the area under the curve. The interval is Clopper and Pearson's as though it came from
    min(members, others) independent pairs: the variance of the area is at most that of so many
    (Birnbaum and Klose 1957), so it errs on the wide side. Not claimed: a level where scores depend
    on each other, as those of one run do a little through its noise.

    Raises:
        UsageError: no members, or nothing else.
    """
    inside, outside = _sides(scores, member)
    below = np.searchsorted(outside, inside, "left") + np.searchsorted(outside, inside, "right")
    value = float(below.sum()) / (2 * len(inside) * len(outside))
    n = min(len(inside), len(outside))
    low, high = math.floor(value * n + 1e-9), math.ceil(value * n - 1e-9)
    return {"value": value, "low": interval(low, n)["low"], "high": interval(high, n)["high"]}


def hits_at(scores: npt.ArrayLike, member: npt.ArrayLike, *, alarms: float) -> dict[str, float]:
    """The share of members above all but a share ``alarms`` of the others, with a 95 % interval.

    The interval is for the threshold found; that the threshold itself comes from finitely many
    others is not in it.

    Raises:
        UsageError: no members, nothing else, or ``alarms`` outside [0, 1).
    """
    if not 0 <= alarms < 1:
        raise UsageError(f"alarms={alarms}: must lie in [0, 1)")
    inside, outside = _sides(scores, member)
    threshold = outside[len(outside) - 1 - math.floor(alarms * len(outside))]
    return interval(int((inside > threshold).sum()), len(inside))


def curve(scores: npt.ArrayLike, member: npt.ArrayLike) -> list[list[float]]:
    """The corners of the curve, [share of others, share of members], from [0, 0] to [1, 1].

    Raises:
        UsageError: no members, or nothing else.
    """
    inside, outside = _sides(scores, member)
    at = np.unique(np.concatenate([inside, outside]))[::-1]
    x = 1 - np.searchsorted(outside, at, "left") / len(outside)
    y = 1 - np.searchsorted(inside, at, "left") / len(inside)
    points = np.stack([np.concatenate([[0.0], x]), np.concatenate([[0.0], y])], 1)
    before, after = points[1:-1] - points[:-2], points[2:] - points[1:-1]
    corner = before[:, 0] * after[:, 1] != before[:, 1] * after[:, 0]
    kept: list[list[float]] = points[np.concatenate([[True], corner, [True]])].tolist()
    return kept


def mean_interval(values: Sequence[float]) -> dict[str, float]:
    """The mean of independent runs with Student's 95 % interval.

    Raises:
        UsageError: fewer than two runs.
    """
    if len(values) < 2:
        raise UsageError(f"runs={len(values)}: an interval over runs needs at least two")
    found = np.asarray(values, np.float64)
    reach = float(
        scipy.special.stdtrit(len(found) - 1, 0.975) * found.std(ddof=1) / math.sqrt(len(found))
    )
    mean = float(found.mean())
    return {"value": mean, "low": mean - reach, "high": mean + reach}
