"""``diffprivlib:MECH``: IBM's mechanisms, with the names and options of ``diffprivlib.mechanisms``.

They release one number at a time, 8 to 20 µs each, so ask for 1e6 values rather than 1e7.
diffprivlib 0.6.6 needs scikit-learn below 1.8. Those with bounds do not add noise to a value, but
release one near it.

``sum``, ``mean`` and ``count_nonzero`` are those of ``diffprivlib.tools``, 100 µs per release: the
value is the data set, ``lower`` and ``upper`` are the bounds on each number.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpaudit.targets.adapters.base import (
    Aggregate,
    Each,
    Library,
    LibraryMechanism,
    Option,
    Release,
    law,
)

__all__ = ["LIBRARY"]

_PURE: dict[str, Option | None] = {"epsilon": None, "sensitivity": 1.0}
_APPROXIMATE: dict[str, Option | None] = {"epsilon": None, "delta": None, "sensitivity": 1.0}
_EITHER: dict[str, Option | None] = {"epsilon": None, "delta": 0.0, "sensitivity": 1.0}
_WHOLE: dict[str, Option | None] = {"epsilon": None, "sensitivity": 1}
_BOUNDS: dict[str, Option | None] = {"lower": None, "upper": None}


def _laplace(*, epsilon: float, delta: float, sensitivity: float) -> str:
    """Holohan, Leith and Mason 2015, as the class says: (ε, δ) is spent like ε − ln(1 − δ)."""
    return law("laplace:scale", sensitivity / (epsilon - math.log1p(-delta)))


def _gaussian(*, epsilon: float, delta: float, sensitivity: float) -> str:
    """Dwork and Roth 2014, theorem A.1."""
    return law("gaussian:sigma", math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon)


def _analytic(*, epsilon: float, delta: float, sensitivity: float) -> str:
    """Balle and Wang 2018, algorithm 1."""
    from dpaudit.accounting import gaussian_sigma  # imports scipy; listing adapters does not

    return law("gaussian:sigma", gaussian_sigma(epsilon, delta, sensitivity=sensitivity))


def _geometric(*, epsilon: float, sensitivity: float) -> str:
    return law("discrete-laplace:scale", sensitivity / epsilon)


def _one(
    name: str,
    options: Mapping[str, Option | None],
    *,
    claim: Callable[..., str] | None = None,
    whole: bool = False,
) -> tuple[str, LibraryMechanism]:
    def make(mechanisms: Any, **options: Any) -> Release:
        return Each(getattr(mechanisms, name)(**options).randomise, whole=whole)

    return name, LibraryMechanism(
        make, options=options, claim=claim, told="lower" not in options, whole=whole
    )


def _tool(name: str, options: Mapping[str, Option | None]) -> tuple[str, LibraryMechanism]:
    def make(_: Any, *, epsilon: float, **bounds: float) -> Release:
        library = importlib.import_module("diffprivlib")
        tool = getattr(importlib.import_module("diffprivlib.tools"), name)
        keywords = {"bounds": (bounds["lower"], bounds["upper"])} if bounds else {}

        def release(data: Any) -> Any:  # a new accountant each: the default one would sum them up
            return tool(data, epsilon=epsilon, accountant=library.BudgetAccountant(), **keywords)

        return Aggregate(release, np.array)

    return name, LibraryMechanism(make, options=options, data=True)


LIBRARY = Library(
    name="diffprivlib",
    module="diffprivlib.mechanisms",
    install="pip install 'dpaudit[diffprivlib]'",
    distribution="diffprivlib",
    tested="0.6.6",
    table=dict(
        [
            _one("Laplace", _EITHER, claim=_laplace),
            _one("Gaussian", _APPROXIMATE, claim=_gaussian),
            _one("GaussianAnalytic", _APPROXIMATE, claim=_analytic),
            _one("GaussianDiscrete", {**_APPROXIMATE, "sensitivity": 1}, whole=True),
            _one("Geometric", _WHOLE, claim=_geometric, whole=True),
            _one("Staircase", _PURE),
            _one("Uniform", {"delta": None, "sensitivity": 1.0}),
            _one("Snapping", {**_PURE, **_BOUNDS}),
            _one("LaplaceTruncated", {**_EITHER, **_BOUNDS}),
            _one("LaplaceFolded", {**_EITHER, **_BOUNDS}),
            _one("LaplaceBoundedDomain", {**_EITHER, **_BOUNDS}),
            _one("LaplaceBoundedNoise", _APPROXIMATE),
            _one("GeometricTruncated", {**_WHOLE, **_BOUNDS}, whole=True),
            _one("GeometricFolded", {**_WHOLE, **_BOUNDS}, whole=True),
            _tool("sum", {"epsilon": None, **_BOUNDS}),
            _tool("mean", {"epsilon": None, **_BOUNDS}),
            _tool("count_nonzero", {"epsilon": None}),
        ]
    ),
)
