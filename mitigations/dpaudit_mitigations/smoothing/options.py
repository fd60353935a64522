"""Options that smoothing and rounding share: numbers above 0, the smallest γ to defend against."""

from __future__ import annotations

import math

from dpaudit.errors import UsageError

__all__ = ["check_positive", "least_gamma"]


def check_positive(**values: float) -> None:
    """Raise a UsageError that names the value that is not a finite number above 0."""
    for name, value in values.items():
        if isinstance(value, (str, bool)) or not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value}: must be a finite number > 0")


def least_gamma(*, gamma_min: float | None, dim: int | None) -> float | None:
    """The smallest γ to defend against: as given, else 2√dim (continuous LWE is hard), or None.

    Raises:
        UsageError: the value used is not a finite number above 0.
    """
    if gamma_min is not None:
        check_positive(gamma_min=gamma_min)
        return float(gamma_min)
    if dim is not None:
        check_positive(dim=dim)
        return 2 * math.sqrt(dim)
    return None
