"""Libraries whose releases are audited, and that have no adapter of their own for this Python.

``smartnoise:MECH``: SmartNoise SQL's mechanisms, which release numbers by OpenDP. ``snsql`` itself
imports a database's tools, which are not needed and left out. A release of one number takes 20 to
100 µs.

``tmlt-core:MECH``: Tumult Core's ``noise_mechanisms``, which release numbers themselves: 70 µs per
``laplace`` or ``gaussian`` number and 100 to 250 µs per whole one. Options have the names of the
classes': ``scale``, ``alpha``, ``sigma_squared``. Spark is not started.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from typing import Any

from dpaudit.targets.adapters.base import Each, Library, LibraryMechanism, Release, claims, law

__all__ = ["SMARTNOISE", "TMLT_CORE"]


def _smartnoise_made(name: str, *, whole: bool) -> Callable[..., Release]:
    def make(mechanisms: Any, *, epsilon: float, delta: float, sensitivity: float) -> Release:
        bound = int(sensitivity) if whole else float(sensitivity)
        mechanism = getattr(mechanisms, name)(float(epsilon), delta=float(delta), sensitivity=bound)
        return Each(lambda x: float(mechanism.release([x])[0]), whole)

    return make


def _smartnoise(
    name: str, *, delta: float = 0.0, whole: bool = False
) -> tuple[str, LibraryMechanism]:
    options = {"epsilon": 1.0, "delta": delta, "sensitivity": 1.0}
    make = _smartnoise_made(name, whole=whole)
    return name, LibraryMechanism(make=make, options=options, told=True, whole=whole)


SMARTNOISE = Library(
    name="smartnoise",
    module="snsql.sql._mechanisms",
    install="pip install smartnoise-sql",
    distribution="smartnoise-sql",
    tested="1.0.10",
    table=dict(
        [
            _smartnoise("Laplace"),
            _smartnoise("Gaussian", delta=1e-5),
            _smartnoise("DiscreteLaplace", whole=True),
            _smartnoise("DiscreteGaussian", delta=1e-5, whole=True),
        ]
    ),
)


def _tmlt_made(name: str, *, whole: bool) -> Callable[..., Release]:
    def make(noise: Any, **options: float) -> Release:
        number = import_module("tmlt.core.utils.exact_number").ExactNumber
        exact = {option: number(str(Fraction(value))) for option, value in options.items()}
        if not whole:
            domains = import_module("tmlt.core.domains.numpy_domains")
            exact["input_domain"] = domains.NumpyFloatDomain()
        return Each(getattr(noise, name)(**exact), whole)

    return make


def _tmlt(
    name: str, option: str, value: float, claim: Callable[..., str], *, whole: bool = False
) -> LibraryMechanism:
    make = _tmlt_made(name, whole=whole)
    return LibraryMechanism(make=make, options={option: value}, claim=claim, told=True, whole=whole)


def _root(family: str) -> Callable[..., str]:
    return lambda *, sigma_squared: law(family, math.sqrt(sigma_squared))


TMLT_CORE = Library(
    name="tmlt-core",
    module="tmlt.core.measurements.noise_mechanisms",
    install="pip install tmlt.core",
    distribution="tmlt.core",
    tested="0.20.0",
    table={
        "laplace": _tmlt("AddLaplaceNoise", "scale", 1.0, claims("laplace:scale", "scale")),
        "gaussian": _tmlt("AddGaussianNoise", "sigma_squared", 1.0, _root("gaussian:sigma")),
        "geometric": _tmlt(
            "AddGeometricNoise", "alpha", 1.0, claims("discrete-laplace:scale", "alpha"), whole=True
        ),
        "discrete-gaussian": _tmlt(
            "AddDiscreteGaussianNoise",
            "sigma_squared",
            100.0,
            _root("discrete-gaussian:sigma"),
            whole=True,
        ),
    },
)
