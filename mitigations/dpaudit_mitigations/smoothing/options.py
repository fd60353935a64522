"""What smoothing and rounding share of their options: numbers above 0, and the smallest γ to defend against."""

from __future__ import annotations

import math

from dpaudit.errors import UsageError

__all__ = ["check_positive", "least_gamma"]


def check_positive(**values: float) -> None:
    """Raise a UsageError for a value that is not a finite number above 0, by its name."""
    for name, value in values.items():
        if isinstance(value, (str, bool)) or not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value}: must be a finite number > 0")


def least_gamma(*, gamma_min: float | None, dim: int | None) -> float | None:
    """The smallest γ to defend against: as given, or 2√dim (where continuous LWE is hard), or None without either.

    Raises:
        UsageError: the one that counts is not a finite number above 0.
    """
    if gamma_min is not None:
        check_positive(gamma_min=gamma_min)
        return float(gamma_min)
    if dim is not None:
        check_positive(dim=dim)
        return 2 * math.sqrt(dim)
    return None
