"""``stdlib:MECH``: Python's own :mod:`random` as it ships, one number at a time (about 0.3 µs; ``system-gauss`` 2 µs).

``gauss`` and ``normalvariate`` draw from an unseeded MT19937, ``system-gauss`` from the operating
system. Python adds nothing to a value, so the adapter does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpaudit.samplers.adapters.base import Library, LibraryMechanism, Release, claims, each

__all__ = ["LIBRARY"]


def _normal(generator: str, method: str) -> Callable[..., Release]:
    def build(random: Any, *, sigma: float) -> Release:
        draw = getattr(getattr(random, generator)(), method)
        return each(lambda value: value + draw(0.0, sigma))

    return build


_SIGMA = {"sigma": 1.0}

LIBRARY = Library(
    name="stdlib",
    module="random",
    install="it comes with Python",
    distribution="",
    tested="3.11.7",
    table={
        "gauss": LibraryMechanism(
            make=_normal("Random", "gauss"), options=_SIGMA, claim=claims("gaussian:sigma", "sigma")
        ),
        "normalvariate": LibraryMechanism(
            make=_normal("Random", "normalvariate"),
            options=_SIGMA,
            claim=claims("gaussian:sigma", "sigma"),
        ),
        "system-gauss": LibraryMechanism(
            make=_normal("SystemRandom", "gauss"),
            options=_SIGMA,
            claim=claims("gaussian:sigma", "sigma"),
        ),
    },
)
