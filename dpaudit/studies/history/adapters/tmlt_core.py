"""``tmlt-core:MECH`` through the worker; the laws and options are those of the adapter's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any

from dpaudit.samplers.adapters import tmlt_core
from dpaudit.samplers.adapters.base import Each, Library, Release

__all__ = ["LIBRARY"]

_CLASSES = {
    "laplace": "AddLaplaceNoise",
    "gaussian": "AddGaussianNoise",
    "geometric": "AddGeometricNoise",
    "discrete-gaussian": "AddDiscreteGaussianNoise",
}


def _made(name: str, *, whole: bool) -> Callable[..., Release]:
    def make(noise: Any, **options: float) -> Release:
        number = import_module("tmlt.core.utils.exact_number").ExactNumber
        exact = {option: number(str(Fraction(value))) for option, value in options.items()}
        if not whole:
            domains = import_module("tmlt.core.domains.numpy_domains")
            exact["input_domain"] = domains.NumpyFloatDomain()
        return Each(getattr(noise, _CLASSES[name])(**exact), whole)

    return make


LIBRARY = Library(
    name="tmlt-core",
    module="tmlt.core.measurements.noise_mechanisms",
    install="pip install tmlt.core",
    distribution="tmlt.core",
    tested=tmlt_core.LIBRARY.tested,
    table={
        name: replace(mechanism, make=_made(name, whole=mechanism.whole))
        for name, mechanism in tmlt_core.LIBRARY.table.items()
    },
)
