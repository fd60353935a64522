"""A bet on correlation between values near each other."""

from __future__ import annotations

import numpy as np

from dpaudit.audit.betting.location_scale import log_mean
from dpaudit.interfaces import Block

__all__ = ["LagBet"]

_LAGS = (1, 2, 3, 4, 8, 16)
_PRIOR = 0.03  # standard deviation of the regression coefficient


class LagBet:
    """That z_t has mean ρ·z_(t−lag) in draw order or by row, with unknown ρ, against 0; one bet a lag, mean of all.

    Π N(z_t; ρ z_(t−lag), 1)/N(z_t; 0, 1) = exp(ρ·C − ρ²V/2) with C = Σ z_t z_(t−lag), V = Σ z²_(t−lag) is a martingale;
    its mixture over ρ ~ N(0, s²) is exact. Pairs lie within one block.
    """

    looks_at = "correlation across values and rows"

    def __init__(self) -> None:
        names = [*(f"lag {lag}" for lag in _LAGS), "next row"]
        self._cross = dict.fromkeys(names, 0.0)
        self._past = dict.fromkeys(names, 0.0)

    def update(self, block: Block) -> None:
        z = block.z.ravel()
        for name, lag in (*((f"lag {lag}", lag) for lag in _LAGS), ("next row", block.z.shape[1])):
            if len(z) > lag:
                self._cross[name] += float(z[lag:] @ z[:-lag])
                self._past[name] += float(z[:-lag] @ z[:-lag])

    @property
    def log_capital(self) -> float:
        c, v = np.array(list(self._cross.values())), np.array(list(self._past.values()))
        scaled = _PRIOR**2 * v
        return log_mean(_PRIOR**2 * c * c / (2 * (1 + scaled)) - np.log1p(scaled) / 2)

    @property
    def effect(self) -> str:
        worst = max(self._cross, key=lambda name: abs(self._cross[name]) / max(self._past[name], 1.0) ** 0.5)
        return f"strongest: {worst}, correlation {self._cross[worst] / max(self._past[worst], 1.0):+.2e}"
