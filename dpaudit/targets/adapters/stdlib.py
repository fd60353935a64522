"""``stdlib:MECH``: Python's own :mod:`random` as it ships, one number at a time.

A number takes about 0.3 µs (``system-gauss`` 2 µs). ``gauss`` and ``normalvariate`` draw from an
unseeded MT19937, ``system-gauss`` from the operating system. MT19937 is not cryptographic:
``state-recovery`` recovers its state from 800 values of ``gauss``. Python does not add noise to a
value; the adapter does.
"""

from __future__ import annotations

from typing import Any

from dpaudit.targets.adapters.base import Each, Library, LibraryMechanism, Release, claims

__all__ = ["LIBRARY"]


def _normal(generator: str, method: str) -> LibraryMechanism:
    def build(random: Any, *, sigma: float) -> Release:
        draw = getattr(getattr(random, generator)(), method)
        return Each(lambda value: value + draw(0.0, sigma))

    claim = claims("gaussian:sigma", "sigma")
    return LibraryMechanism(build, options={"sigma": 1.0}, claim=claim)


LIBRARY = Library(
    name="stdlib",
    module="random",
    install="it comes with Python",
    distribution="",
    tested="3.11.7",
    table={
        "gauss": _normal("Random", "gauss"),
        "normalvariate": _normal("Random", "normalvariate"),
        "system-gauss": _normal("SystemRandom", "gauss"),
    },
)
