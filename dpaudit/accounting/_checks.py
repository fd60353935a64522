"""Argument checks, the root finder and the optional library that the accounting shares."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import scipy

from dpaudit.errors import MissingExtraError, UsageError

__all__ = [
    "below_one",
    "bisect",
    "least_epsilon",
    "number",
    "pld_modules",
    "positive",
    "probability",
]


def positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value}: must be a finite number > 0")


def probability(delta: float) -> None:
    if not 0 < delta < 1:
        raise UsageError(f"delta={delta}: must lie strictly between 0 and 1")


def below_one(delta: float) -> None:
    if not 0 <= delta < 1:
        raise UsageError(f"delta={delta}: must lie in [0, 1)")


def bisect(f: Callable[[float], float], low: float, high: float) -> float:
    return float(scipy.optimize.brentq(f, low, high, xtol=1e-15, rtol=8.9e-16, maxiter=500))


def least_epsilon(profile: Callable[[float], float], delta: float, high: float) -> float:
    """The least ε ≥ 0 with profile(ε) ≤ δ; at ``high`` that is so."""
    if profile(0.0) <= delta:
        return 0.0
    return bisect(
        lambda e: math.log(max(profile(e), 1e-320)) - math.log(delta),
        0.0,
        high * (1 + 1e-9) + 1e-12,
    )


def number(**values: float) -> None:
    """Refuse what is not a finite number."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise UsageError(f"{name}={value}: must be a finite number")


def pld_modules(argument: str, *names: str) -> tuple[ModuleType, ...]:
    """Modules of ``dp_accounting.pld``; without it an error with what was ``argument``."""
    try:
        return tuple(import_module(f"dp_accounting.pld.{name}") for name in names)
    except ImportError as error:
        raise MissingExtraError(
            f"{argument}: dp-accounting is not installed; pip install 'dpaudit[accounting]'"
        ) from error
