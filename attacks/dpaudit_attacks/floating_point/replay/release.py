"""How noise becomes a release, fl(fl(value + noise) / divisor), and which noise it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import UnitSupport
from dpaudit_attacks.floating_point.reach import Reach

__all__ = ["Addition", "Sector", "sector"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Addition:
    """Value plus noise in ``dtype``, divided by ``divisor`` (as ``dtype``) if it is not 1."""

    dtype: np.dtype[Any]
    divisor: float = 1.0

    def rounded(self, value: Floats) -> npt.NDArray[Any]:
        """``value`` in the release's number type.

        Raises:
            UsageError: it is too large for that.
        """
        with np.errstate(over="ignore"):
            narrow = value.astype(self.dtype)
        if not np.isfinite(narrow).all():
            raise UsageError(f"value: above the largest {self.dtype} number; choose another dtype")
        return narrow

    def noise(self, releases: npt.NDArray[Any], values: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        """Centre and half-width of an interval of all noise that may lead to ``releases``."""
        sums = releases.astype(np.float64)
        with np.errstate(all="ignore"):  # sums of subnormals are exact
            half = np.spacing(np.abs(releases)).astype(np.float64) / 2
            if self.divisor != 1.0:
                sums = sums * float(self.dtype.type(self.divisor))
                half = half * float(self.dtype.type(self.divisor)) + np.spacing(
                    np.abs(sums).astype(self.dtype)
                )
            return sums - values.astype(np.float64), half

    def reachable(self, releases: npt.NDArray[Any], values: npt.NDArray[Any]) -> Bools:
        """Whether any float at all leads from ``values`` to ``releases``, number by number."""
        reach = Reach(dtype=self.dtype.name, divisor=self.divisor)
        support = UnitSupport(values.astype(np.float64).ravel())
        scores = reach.score(releases.astype(np.float64).reshape(1, -1), support)
        return np.asarray(scores == 0).reshape(releases.shape)


_EXPECTED = 50.0
"""A box with more grid points expected is not searched: 1 such box in e^50 would be empty."""


@dataclass(frozen=True)
class Sector:
    """Polar noise (n,): ``low`` ≤ radius ≤ ``high``, |angle − true angle| ≤ ``spread``."""

    first: Floats
    second: Floats
    radius: Floats
    low: Floats
    high: Floats
    spread: Floats
    wide: npt.NDArray[np.bool_]
    """Not worth a search: certainly too many grid points, or the box comes near the origin."""


def sector(centre: Floats, half: Floats, *, scale: float, rounding: float, pairs: float) -> Sector:
    """The sector around boxes ``centre`` ± ``half``, both (2, n).

    The boxes hold noise made as ``scale``·(r·cos, r·sin). ``rounding`` is the unit roundoff of the
    sampler's arithmetic; ``pairs`` the number of pairs of uniforms. The sampler is taken to be
    right within 8 roundings in the radius (in float32, where all 2^24 were tried: √(−2·ln u) is
    within 3, cos² + sin² within 2, two products within 2) and within 3 in the angle, besides what
    rounding the angle itself costs.
    """
    with np.errstate(over="ignore", under="ignore"):
        (a, b), (p, q) = centre / scale, half / scale
    with np.errstate(all="ignore"):  # what comes out as NaN counts as wide
        radius = np.hypot(a, b)
        density = np.exp(-radius * radius / 2) / (2 * np.pi) * pairs
        wide = ~((p + q) * 8 < radius) | ~(4 * p * q * density <= _EXPECTED)
        along, across = np.abs(a) / radius, np.abs(b) / radius
        square = p * p + q * q
        reach = (along * p + across * q + square / radius) * (1 + 1e-6)
        spread = ((across * p + along * q) / radius + 2 * square / (radius * radius)) * (1 + 1e-6)
        slack = 8 * rounding + 2.0**-51
        low, high = np.maximum(radius - reach, 0.0) * (1 - slack), (radius + reach) * (1 + slack)
    return Sector(
        first=a,
        second=b,
        radius=radius,
        low=low,
        high=high,
        spread=spread + 3 * rounding,
        wide=wide,
    )
