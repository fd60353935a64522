"""What a normal statistic of known standard error would have seen nine times in ten."""

from __future__ import annotations

import scipy

__all__ = ["seen"]


def seen(standard_error: float, *, alpha: float, power: float = 0.9) -> float:
    """Smallest true effect that a two-sided normal test at level ``alpha`` finds with probability ``power``."""
    return float(-scipy.special.ndtri(alpha / 2) + scipy.special.ndtri(power)) * standard_error
