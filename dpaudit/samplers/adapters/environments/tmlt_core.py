"""tmlt.core's noise, run in its environment: ``python tmlt_core.py JSON``. Spark is not started."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

_CLASSES = {
    "laplace": "AddLaplaceNoise",
    "gaussian": "AddGaussianNoise",
    "geometric": "AddGeometricNoise",
    "discrete-gaussian": "AddDiscreteGaussianNoise",
}


def _imported() -> tuple[Any, Any, Any]:
    core = "tmlt.core"
    return (
        importlib.import_module(f"{core}.measurements.noise_mechanisms"),
        importlib.import_module(f"{core}.domains.numpy_domains"),
        importlib.import_module(f"{core}.utils.exact_number"),
    )


def _made(
    library: tuple[Any, Any, Any], name: str, options: dict[str, float]
) -> Callable[[Any], Any]:
    """The measurement ``name``; an option is taken as the exact number that its float is."""
    noise, domains, numbers = library
    exact = {option: numbers.ExactNumber(str(Fraction(value))) for option, value in options.items()}
    if name in {"laplace", "gaussian"}:
        exact["input_domain"] = domains.NumpyFloatDomain()
    measurement: Callable[[Any], Any] = getattr(noise, _CLASSES[name])(**exact)
    return measurement


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))  # an isolated Python leaves it out
    importlib.import_module("released").write_releases(_imported, _made)
