"""``numpy:MECH``: numpy.random as it ships, ``default_rng()`` and the legacy ``RandomState()``.

These are PCG64 and MT19937, with the operating system's entropy as seed. Neither is cryptographic:
``state-recovery`` recovers the state of the legacy one from about 2,000 values, and a pass of the
other does not say that nobody can. About 10 ns per normal. numpy does not add noise to a value; the
adapter does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpaudit.targets.adapters.base import Library, LibraryMechanism, Release, additive, claims

__all__ = ["LIBRARY"]


def _normal(random: Any, *, scale: float, dtype: str) -> Release:
    rng = random.default_rng()
    if dtype == "f64":
        return additive(lambda size: rng.normal(0.0, scale, size))
    single = np.float32(scale)
    return lambda value, n: (
        value.astype(np.float32) + single * rng.standard_normal((n, len(value)), np.float32)
    )


def _of(generator: str, method: str) -> Callable[..., Release]:
    def make(random: Any, *, scale: float) -> Release:
        draw = getattr(getattr(random, generator)(), method)
        return additive(lambda size: draw(0.0, scale, size))

    return make


_SCALE = {"scale": 1.0}
_GAUSSIAN, _LAPLACE = claims("gaussian:sigma", "scale"), claims("laplace:scale", "scale")

LIBRARY = Library(
    name="numpy",
    module="numpy.random",
    install="pip install numpy",
    distribution="numpy",
    tested="2.4.6",
    table={
        "normal": LibraryMechanism(_normal, options={**_SCALE, "dtype": "f64"}, claim=_GAUSSIAN),
        "laplace": LibraryMechanism(_of("default_rng", "laplace"), options=_SCALE, claim=_LAPLACE),
        "legacy-normal": LibraryMechanism(
            _of("RandomState", "normal"), options=_SCALE, claim=_GAUSSIAN
        ),
        "legacy-laplace": LibraryMechanism(
            _of("RandomState", "laplace"), options=_SCALE, claim=_LAPLACE
        ),
    },
)
