"""``python-dp:MECH``: PyDP, OpenMined's Python bindings of Google's C++ library.

``laplace`` and ``gaussian`` add the noise to the value themselves, 3 to 4 µs per number; ``-int``
releases whole numbers: continuous noise, rounded, which has no named law. ``bounded-sum``,
``bounded-mean`` and ``count`` take the value as the data set, each number one person's, and name
their options as PyDP does; a release takes 3 µs, a mean 23 µs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from dpaudit.targets.adapters.base import (
    Each,
    Library,
    LibraryMechanism,
    Option,
    Release,
    law,
    of_data,
)

__all__ = ["LIBRARY", "gaussian_std"]

_PURE: dict[str, Option | None] = {"epsilon": None, "sensitivity": 1.0}
_APPROXIMATE: dict[str, Option | None] = {"epsilon": None, "delta": None, "sensitivity": 1.0}
_COUNTED: dict[str, Option | None] = {"epsilon": None, "l0_sensitivity": 1, "linf_sensitivity": 1}
_BOUNDS: dict[str, Option | None] = {"delta": 0.0, "lower_bound": None, "upper_bound": None}
_BOUNDED = _COUNTED | _BOUNDS


def _laplace_law(*, epsilon: float, sensitivity: float) -> str:
    return law("laplace:scale", sensitivity / epsilon)


def gaussian_std(epsilon: float, delta: float, sensitivity: float) -> float:
    """The σ of the library's Gaussian: Balle and Wang 2018, algorithm 1, as its bisection ends.

    It doubles an upper bound from the sensitivity on and halves the gap until that is a thousandth
    of the lower bound (``CalculateGaussianStddev`` in google/differential-privacy,
    ``gaussian-stddev-calculator.cc``).
    """
    from dpaudit.accounting import gaussian_sigma  # imports scipy; listing adapters does not

    exact = gaussian_sigma(epsilon, delta, sensitivity=sensitivity)
    lower, upper = 0.0, float(sensitivity)
    while upper < exact:
        lower, upper = upper, 2 * upper
    while upper - lower > 1e-3 * lower:
        middle = (lower + upper) / 2
        lower, upper = (middle, upper) if middle < exact else (lower, middle)
    return upper


def _gaussian_law(*, epsilon: float, delta: float, sensitivity: float) -> str:
    return law("gaussian:sigma", gaussian_std(epsilon, delta, sensitivity))


def _noise(
    kind: str,
    options: Mapping[str, Option | None],
    *,
    claim: Callable[..., str] | None,
    whole: bool = False,
) -> LibraryMechanism:
    def make(_: Any, **options: float) -> Release:
        mechanisms = importlib.import_module("pydp.algorithms.numerical_mechanisms")
        budget = {name: float(value) for name, value in options.items()}
        return Each(getattr(mechanisms, kind)(**budget).add_noise, whole=whole)

    return LibraryMechanism(make, options=options, claim=claim, told=True, whole=whole)


def _aggregate(
    kind: str, options: Mapping[str, Option | None], *, whole: bool = False
) -> LibraryMechanism:
    def make(_: Any, **options: Any) -> Release:
        algorithm = getattr(importlib.import_module("pydp.algorithms.laplacian"), kind)
        aggregate = algorithm(**options, dtype="int64" if whole else "float")
        return of_data(aggregate.quick_result, whole=whole)

    return LibraryMechanism(make, options=options, data=True, whole=whole)


LIBRARY = Library(
    name="python-dp",
    module="pydp",
    install="pip install 'dpaudit[python-dp]'",
    distribution="python-dp",
    tested="1.1.5",
    table={
        "laplace": _noise("LaplaceMechanism", _PURE, claim=_laplace_law),
        "gaussian": _noise("GaussianMechanism", _APPROXIMATE, claim=_gaussian_law),
        "laplace-int": _noise("LaplaceMechanism", _PURE, claim=None, whole=True),
        "gaussian-int": _noise("GaussianMechanism", _APPROXIMATE, claim=None, whole=True),
        "bounded-sum": _aggregate("BoundedSum", _BOUNDED),
        "bounded-sum-int": _aggregate("BoundedSum", _BOUNDED, whole=True),
        "bounded-mean": _aggregate("BoundedMean", _BOUNDED),
        "count": _aggregate("Count", _COUNTED),
    },
)
