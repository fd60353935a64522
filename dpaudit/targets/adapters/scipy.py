"""``scipy:MECH``: scipy.stats as it ships, drawing from numpy's global legacy generator, unseeded.

That generator is MT19937, which is not cryptographic: ``state-recovery`` recovers its state from
2,500 values. About 25 ns per normal. scipy does not add noise to a value; the adapter does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpaudit.targets.adapters.base import Library, LibraryMechanism, Release, additive, claims

__all__ = ["LIBRARY"]


def _scaled(name: str) -> Callable[..., Release]:
    def make(stats: Any, *, scale: float) -> Release:
        law = getattr(stats, name)(scale=scale)
        return additive(lambda size: law.rvs(size=size))

    return make


def _dlaplace(stats: Any, *, scale: float) -> Release:
    law = stats.dlaplace(1 / scale)
    return additive(lambda size: law.rvs(size=size))


_SCALE = {"scale": 1.0}

LIBRARY = Library(
    name="scipy",
    module="scipy.stats",
    install="pip install scipy",
    distribution="scipy",
    tested="1.17.1",
    table={
        "norm": LibraryMechanism(
            _scaled("norm"), options=_SCALE, claim=claims("gaussian:sigma", "scale")
        ),
        "laplace": LibraryMechanism(
            _scaled("laplace"), options=_SCALE, claim=claims("laplace:scale", "scale")
        ),
        "dlaplace": LibraryMechanism(
            _dlaplace, options=_SCALE, claim=claims("discrete-laplace:scale", "scale"), whole=True
        ),
    },
)
