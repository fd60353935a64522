"""Each server's share of the noise, calibrated for the least number of honest servers that stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from dpaudit.accounting.distributed import discrete_gaussian_sum_bounds, skellam_bounds
from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.types import EpsilonBounds
from dpaudit.vectors.exact_integers import LARGEST_SCALE, draw_integers
from dpaudit.vectors.exact_law import IntegerLaw
from dpaudit_mitigations.secure_aggregation.skellam import LARGEST_SKELLAM_SCALE, draw_skellam

__all__ = ["Law", "NoiseShare", "finest_granularity", "least_honest"]

Law = Literal["discrete-gaussian", "skellam"]

_FINENESS: dict[Law, int] = {"discrete-gaussian": 24, "skellam": 12}


def least_honest(servers: int, *, dropouts: int, colluding: int, backdoored: int = 0) -> int:
    """Servers less dropouts, colluding and backdoored ones: those whose noise surely protects.

    Their noise is in the sum and unknown to others if the threshold is servers − dropouts: an
    aggregator may leave out as many as the threshold allows, and does not choose its helpers.

    Raises:
        UsageError: a negative number, or none is left.
    """
    for name, value in (
        ("dropouts", dropouts),
        ("colluding", colluding),
        ("backdoored", backdoored),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UsageError(f"{name}={value}: must be a whole number ≥ 0")
    left = servers - dropouts - colluding - backdoored
    if left < 1:
        raise UsageError(
            f"servers={servers}: less dropouts={dropouts}, colluding={colluding}, "
            f"backdoored={backdoored} leaves no honest noise; take more servers"
        )
    return left


def finest_granularity(law: Law, sigma: float) -> float:
    """The least power of two above σ·2^-25 (discrete Gaussian) or σ·2^-13 (Skellam).

    It is as fine as these samplers are used.

    Raises:
        UsageError: no such law, or sigma no finite number > 0.
    """
    _check(law, sigma)
    return math.ldexp(1.0, math.frexp(sigma)[1] - 1 - _FINENESS[law])


@dataclass(frozen=True, kw_only=True)
class NoiseShare:
    """One server's noise: whole steps of ``granularity``, of standard deviation ``sigma``.

    ``granularity`` and ``sigma`` are in the values' unit.

    ``discrete-gaussian``: exact (``dpaudit.vectors.exact_integers``); a sum of such shares is only
    nearly discrete Gaussian, and the accounting says how nearly. ``skellam``: within 2^-188
    (:mod:`.skellam`), and a sum of shares is Skellam again.

    Raises:
        UsageError: no such law, sigma not a finite number > 0, or a granularity too fine or too
            coarse for the sampler (half a step of standard deviation, at least).
    """

    law: Law
    sigma: float
    granularity: float

    def __post_init__(self) -> None:
        _check(self.law, self.sigma)
        most = LARGEST_SCALE if self.law == "discrete-gaussian" else LARGEST_SKELLAM_SCALE
        if not 0.5 <= self.scale <= most:
            raise UsageError(
                f"granularity={self.granularity}: {self.law} noise takes sigma/{most:g} to "
                f"2·sigma, sigma={self.sigma:g} here"
            )

    @classmethod
    def calibrated(cls, law: Law, *, sigma: float, honest: int, granularity: float) -> NoiseShare:
        """Shares of σ/√honest, so that ``honest`` of them have standard deviation ``sigma``."""
        return cls(law=law, sigma=sigma / math.sqrt(honest), granularity=granularity)

    @property
    def scale(self) -> float:
        """Standard deviation in steps."""
        return self.sigma / self.granularity

    def draw(self, count: int, *, stream: Stream) -> npt.NDArray[np.int64]:
        """``count`` steps of noise from the stream's next bytes, shape (count,)."""
        if self.law == "skellam":
            return draw_skellam(count, scale=self.scale, stream=stream)
        return draw_integers(count, IntegerLaw.gaussian(self.scale), stream=stream)

    def drawer(self, stream: Stream) -> Callable[[int], npt.NDArray[np.int64]]:
        """:meth:`draw` on one stream, as ``FixedPoint.encode`` wants it."""
        return lambda count: self.draw(count, stream=stream)

    def epsilon(self, delta: float, *, honest: int, sensitivity: float, dim: int) -> EpsilonBounds:
        """ε at ``delta`` of ``honest`` such shares together, against everybody else.

        ``sensitivity`` is in the values' unit. Values are rounded to the granularity first, which
        can move neighbours g√dim further apart; that is included.
        """
        far = sensitivity / self.granularity
        if self.law == "skellam":
            return skellam_bounds(
                delta, variance=honest * self.scale**2, sensitivity=far, dim=dim, rounded=True
            )
        return discrete_gaussian_sum_bounds(
            delta, scale=self.scale, parties=honest, sensitivity=far, dim=dim, rounded=True
        )


def _check(law: str, sigma: float) -> None:
    if law not in get_args(Law):
        raise UsageError(f"noise={law}: takes {' or '.join(get_args(Law))}")
    if isinstance(sigma, (str, bool)) or not 0 < sigma < math.inf:
        raise UsageError(f"sigma={sigma}: must be a finite number > 0")
