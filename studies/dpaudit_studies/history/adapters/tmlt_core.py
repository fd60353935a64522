"""``tmlt-core:MECH``: Tumult Core's ``noise_mechanisms``, which release numbers themselves.

The library adds the noise, 70 µs per ``laplace`` or ``gaussian`` number and 100 to 250 µs per whole
one. Options have the names of the classes': ``scale``, ``alpha``, ``sigma_squared``. Spark is not
started.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from typing import Any

from dpaudit.samplers.adapters.base import Each, Library, LibraryMechanism, Release, claims, law

__all__ = ["LIBRARY"]


def _made(name: str, *, whole: bool) -> Callable[..., Release]:
    def make(noise: Any, **options: float) -> Release:
        number = import_module("tmlt.core.utils.exact_number").ExactNumber
        exact = {option: number(str(Fraction(value))) for option, value in options.items()}
        if not whole:
            domains = import_module("tmlt.core.domains.numpy_domains")
            exact["input_domain"] = domains.NumpyFloatDomain()
        return Each(getattr(noise, name)(**exact), whole)

    return make


def _one(
    name: str, option: str, value: float, claim: Callable[..., str], *, whole: bool = False
) -> LibraryMechanism:
    made = _made(name, whole=whole)
    return LibraryMechanism(make=made, options={option: value}, claim=claim, told=True, whole=whole)


def _root(family: str) -> Callable[..., str]:
    return lambda *, sigma_squared: law(family, math.sqrt(sigma_squared))


LIBRARY = Library(
    name="tmlt-core",
    module="tmlt.core.measurements.noise_mechanisms",
    install="pip install tmlt.core",
    distribution="tmlt.core",
    tested="0.20.0",
    table={
        "laplace": _one("AddLaplaceNoise", "scale", 1.0, claims("laplace:scale", "scale")),
        "gaussian": _one("AddGaussianNoise", "sigma_squared", 1.0, _root("gaussian:sigma")),
        "geometric": _one(
            "AddGeometricNoise", "alpha", 1.0, claims("discrete-laplace:scale", "alpha"), whole=True
        ),
        "discrete-gaussian": _one(
            "AddDiscreteGaussianNoise",
            "sigma_squared",
            100.0,
            _root("discrete-gaussian:sigma"),
            whole=True,
        ),
    },
)
