"""How noise becomes a release: fl(fl(value + noise) / divisor) in one number type, and which noise that leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit_attacks.floating_point.reach import Reach

__all__ = ["Addition"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Addition:
    """Value and noise are added in ``dtype``, then divided by ``divisor`` (itself rounded to ``dtype``) if it is not 1."""

    dtype: np.dtype[Any]
    divisor: float = 1.0

    def rounded(self, value: Floats) -> npt.NDArray[Any]:
        """``value`` in the release's number type.

        Raises:
            UsageError: it is too large for that.
        """
        with np.errstate(over="ignore"):
            found = value.astype(self.dtype)
        if not np.isfinite(found).all():
            raise UsageError(f"value: above the largest {self.dtype} number; choose another dtype")
        return found

    def noise(self, releases: npt.NDArray[Any], values: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        """Centre and half-width of an interval with all noise that may have led from ``values`` to ``releases``."""
        sums = releases.astype(np.float64)
        with np.errstate(all="ignore"):  # sums of subnormals are exact
            half = np.spacing(np.abs(releases)).astype(np.float64) / 2
            if self.divisor != 1.0:
                sums = sums * float(self.dtype.type(self.divisor))
                half = half * float(self.dtype.type(self.divisor)) + np.spacing(np.abs(sums).astype(self.dtype))
            return sums - values.astype(np.float64), half

    def reachable(self, releases: npt.NDArray[Any], values: npt.NDArray[Any]) -> Bools:
        """Whether any float at all leads from ``values`` to ``releases``, number by number."""
        reach = Reach(dtype=self.dtype.name, divisor=self.divisor)
        found = reach.feasible(releases.astype(np.float64).reshape(1, -1), values.astype(np.float64).ravel())
        return found.reshape(releases.shape)
