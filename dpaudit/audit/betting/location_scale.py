"""Bets on the mean and the scale of single values."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.interfaces import Block

__all__ = ["MeanBet", "ScaleBet", "log_mean", "log_scale_mixture"]

_PRIOR_STRENGTHS = (2.0, 200.0)  # shapes of the Gamma prior on the precision: far from 1, near 1
_PRIOR_MEANS = (0.3, 0.01)  # standard deviations of the normal prior on the mean, in units of σ


def log_mean(logs: npt.ArrayLike) -> float:
    """Logarithm of the mean of exp(logs): a mixture of martingales is one."""
    return float(scipy.special.logsumexp(np.asarray(logs))) - math.log(np.size(logs))


def log_scale_mixture(n: float, square: float) -> float:
    """Log of ∫ Π N(z_i; 0, 1/τ)/N(z_i; 0, 1) dG(τ) for n values with Σz² = ``square``, G Gamma with mean 1, two of them.

    Conjugate, hence exact: b^b/Γ(b) · Γ(b + n/2)/(b + square/2)^(b + n/2) · exp(square/2).
    """
    return log_mean(
        [
            b * math.log(b)
            - math.lgamma(b)
            + math.lgamma(b + n / 2)
            - (b + n / 2) * math.log(b + square / 2)
            + square / 2
            for b in _PRIOR_STRENGTHS
        ]
    )


class ScaleBet:
    """That all values are N(0, s²) with one unknown s against s = 1: the exact Bayes factor."""

    looks_at = "scale"

    def __init__(self) -> None:
        self._n = 0
        self._square = 0.0

    def update(self, block: Block) -> None:
        z = block.z.ravel()
        self._n += len(z)
        self._square += float(z @ z)

    @property
    def log_capital(self) -> float:
        return log_scale_mixture(self._n, self._square)

    @property
    def effect(self) -> str:
        return f"scale {math.sqrt(self._square / max(self._n, 1)):.5f} × claimed after {self._n:,} values"


class MeanBet:
    """That all values are N(m, 1) with one unknown m against m = 0: the exact Bayes factor, m ~ N(0, ρ²), two ρ."""

    looks_at = "mean"

    def __init__(self) -> None:
        self._n = 0
        self._sum = 0.0

    def update(self, block: Block) -> None:
        self._n += block.z.size
        self._sum += float(block.z.sum())

    @property
    def log_capital(self) -> float:
        return log_mean(
            [self._sum**2 / (2 * (self._n + rho**-2)) - math.log1p(self._n * rho**2) / 2 for rho in _PRIOR_MEANS]
        )

    @property
    def effect(self) -> str:
        return f"mean {self._sum / max(self._n, 1):+.2e} claimed standard deviations after {self._n:,} values"
