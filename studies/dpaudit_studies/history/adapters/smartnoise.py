"""``smartnoise:MECH``: SmartNoise SQL's mechanisms, which release numbers by OpenDP.

``snsql`` itself imports a database's tools, which are not needed and left out. A release of one
number takes 20 to 100 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpaudit.samplers.adapters.base import Each, Library, LibraryMechanism, Release

__all__ = ["LIBRARY"]


def _made(name: str, *, whole: bool) -> Callable[..., Release]:
    def make(mechanisms: Any, *, epsilon: float, delta: float, sensitivity: float) -> Release:
        given = int(sensitivity) if whole else float(sensitivity)
        made = getattr(mechanisms, name)(float(epsilon), delta=float(delta), sensitivity=given)
        return Each(lambda x: float(made.release([x])[0]), whole)

    return make


def _one(name: str, *, delta: float = 0.0, whole: bool = False) -> tuple[str, LibraryMechanism]:
    options = {"epsilon": 1.0, "delta": delta, "sensitivity": 1.0}
    made = _made(name, whole=whole)
    return name, LibraryMechanism(make=made, options=options, told=True, whole=whole)


LIBRARY = Library(
    name="smartnoise",
    module="snsql.sql._mechanisms",
    install="pip install smartnoise-sql",
    distribution="smartnoise-sql",
    tested="1.0.10",
    table=dict(
        [
            _one("Laplace"),
            _one("Gaussian", delta=1e-5),
            _one("DiscreteLaplace", whole=True),
            _one("DiscreteGaussian", delta=1e-5, whole=True),
        ]
    ),
)
