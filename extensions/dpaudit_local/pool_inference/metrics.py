"""How well the adversary does.

Precision against null rate, its area, calibration, and who is at risk. Users are ranked by
confidence; a null rate is the share of users, the least confident ones, about whom nothing is said.
``Outcome`` is one adversary's game: everything here is a function of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.stats import clopper_pearson

__all__ = ["NULL_RATES", "Outcome"]

Floats = npt.NDArray[np.float64]

NULL_RATES: Floats = np.arange(101) / 100
_Z = 1.959963984540054


@dataclass(frozen=True, eq=False)
class Outcome:
    """The adversary's answer for each user: arrays of one length, one entry per user."""

    confidence: Floats
    """The posterior probability of the pool named."""
    correct: npt.NDArray[np.bool_]
    """Whether it is the preferred one."""
    gamma: Floats
    delta: Floats
    pools: int
    """k."""

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            UsageError: no users, arrays of different lengths, or a confidence outside [0, 1].
        """
        shape = self.confidence.shape
        if (
            len(shape) != 1
            or not shape[0]
            or any(a.shape != shape for a in (self.correct, self.gamma, self.delta))
        ):
            raise UsageError(
                f"confidence of shape {shape}: needs four arrays of one length, at least 1"
            )
        if not ((self.confidence >= 0) & (self.confidence <= 1 + 1e-9)).all():
            raise UsageError("confidence: must lie in [0, 1]")

    @cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        """Users, most confident first."""
        return np.argsort(-self.confidence, kind="stable")

    @cached_property
    def _tie_starts(self) -> npt.NDArray[np.int64]:
        """The start of each group of equally confident users in that order."""
        ranked = self.confidence[self._order]
        return np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))

    def _mean_of_ties(self, values: Floats) -> Floats:
        """Each one's mean over the equally confident: its expectation in random order."""
        sizes = np.diff(self._tie_starts, append=len(values))
        shared: Floats = np.repeat(np.add.reduceat(values, self._tie_starts) / sizes, sizes)
        return shared

    @cached_property
    def _ranked_correct(self) -> Floats:
        """Whether each was right, most confident first, shared among equals."""
        return self._mean_of_ties(self.correct[self._order].astype(np.float64))

    def precision_at(self, null_rates: npt.ArrayLike) -> Floats:
        """Share of right answers among the ⌊(1−null)·N⌋ most confident users; NaN if none."""
        n = len(self._ranked_correct)
        sizes = np.floor((1 - np.asarray(null_rates, np.float64)) * n + 1e-9).astype(np.int64)
        right = np.concatenate([[0.0], np.cumsum(self._ranked_correct)])
        with np.errstate(invalid="ignore"):
            precision: Floats = np.where(sizes > 0, right[sizes] / sizes, np.nan)
        return precision

    def curve(self) -> list[list[float]]:
        """[null rate, precision] at 0, 0.01 … 1; the last precision stays without users."""
        precision = self.precision_at(NULL_RATES)
        last = precision[np.flatnonzero(np.isfinite(precision))[-1]]
        pairs: list[list[float]] = np.stack(
            [NULL_RATES, np.where(np.isfinite(precision), precision, last)], 1
        ).tolist()
        return pairs

    def auc_pn(self) -> float:
        """Area under :meth:`curve` by the trapezium rule: AUC-PN as the paper's authors have it."""
        return float(np.trapezoid([y for _, y in self.curve()], dx=0.01))

    def exact_auc_pn(self) -> float:
        """Mean over users of the precision among those at least as confident: all thresholds."""
        ranks = np.arange(1, len(self._ranked_correct) + 1)
        return float((np.cumsum(self._ranked_correct) / ranks).mean())

    def standard_error(self) -> float:
        """The standard error of AUC-PN over the choice of users, by the delta method.

        With r(s) the chance to be right at the share s of ranks, the area is ∫ r(s)·(−ln s) ds, and
        a user at rank u moves it by −c·ln u − ∫_u^1 r(s)/s ds + ∫ r − area over N, c being whether
        the user is named right. What all users share (the setting's popularity, the adversary's
        estimate of it, hash functions) is not in it.
        """
        n = len(self._ranked_correct)
        ranks = np.arange(1, n + 1)
        weight = self._mean_of_ties(np.cumsum((1 / ranks)[::-1])[::-1])  # −ln u
        below = self._mean_of_ties(np.cumsum((self._ranked_correct / ranks)[::-1])[::-1])
        influence = self.correct[self._order] * weight - below
        return float(influence.std() / math.sqrt(n))

    def area(self) -> dict[str, float]:
        """AUC-PN with its 95 % interval (normal, over the choice of users), as reports read it."""
        value, reach = self.auc_pn(), _Z * self.standard_error()
        return {"value": value, "low": max(0.0, value - reach), "high": min(1.0, value + reach)}

    def calibration(self, bins: int = 20) -> list[dict[str, float]]:
        """Success among users of like confidence, in ``bins`` of equal width over [1/k, 1].

        Empty bins are left out. Each has ``confidence`` (its mean), ``users``, and ``success`` with
        its Clopper-Pearson ends ``low`` and ``high`` (95 % per bin).
        """
        low = 1 / self.pools
        place = np.clip(((self.confidence - low) / (1 - low) * bins).astype(np.int64), 0, bins - 1)
        users = np.bincount(place, minlength=bins)
        right = np.bincount(place, self.correct, bins)
        mean = np.bincount(place, self.confidence, bins) / np.maximum(users, 1)
        filled = []
        for i in np.flatnonzero(users):
            ends = clopper_pearson(int(right[i]), int(users[i]))
            filled.append({"confidence": float(mean[i]), "users": int(users[i]),
                          "success": float(right[i] / users[i]),
                          "low": ends.low, "high": ends.high})  # fmt: skip
        return filled

    def calibration_error(self, bins: int = 20) -> float:
        """The expected calibration error.

        |success − mean confidence| of each bin, weighted by its users. Even a perfect confidence
        has some, of the order of √(bins/N), by chance.
        """
        some = self.calibration(bins)
        return sum(b["users"] * abs(b["success"] - b["confidence"]) for b in some) / len(
            self.correct
        )

    def behaviour_map(self, bins: int = 10) -> list[list[float]]:
        """[γ, δ, precision] in the middle of each nonempty cell of (0, 1] × (1/k, 1]."""
        low = 1 / self.pools
        across = np.clip((self.gamma * bins).astype(np.int64), 0, bins - 1)
        down = np.clip(((self.delta - low) / (1 - low) * bins).astype(np.int64), 0, bins - 1)
        place = across * bins + down
        users = np.bincount(place, minlength=bins * bins)
        right = np.bincount(place, self.correct, bins * bins)
        return [
            [
                (i // bins + 0.5) / bins,
                low + (1 - low) * (i % bins + 0.5) / bins,
                float(right[i] / users[i]),
            ]
            for i in np.flatnonzero(users).tolist()
        ]

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        n, right = len(self.correct), int(self.correct.sum())
        ends = clopper_pearson(right, n)
        top = self.precision_at([0.9])[0]
        return {
            "users": n,
            "auc_pn": self.area(),
            "auc_pn_exact": self.exact_auc_pn(),
            "precision": {"value": right / n, "low": ends.low, "high": ends.high},
            "precision_top_tenth": None if math.isnan(top) else float(top),
            "calibration_error": self.calibration_error(),
            "curve": self.curve(),
            "calibration": self.calibration(),
            "behaviour": self.behaviour_map(),
        }
