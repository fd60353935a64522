"""``numpy:MECH``: numpy.random as it ships, ``default_rng()`` and the legacy ``RandomState()``.

These are PCG64 and MT19937, with the operating system's entropy as seed. Neither is cryptographic:
``state-recovery`` recovers the state of the legacy one from about 2,000 values, and a pass of the
other does not say that nobody can. About 10 ns per normal. numpy does not add noise to a value; the
adapter does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpaudit.samplers.adapters.base import Library, LibraryMechanism, Release, added, claims

__all__ = ["LIBRARY"]


def _normal(random: Any, *, scale: float, dtype: str) -> Release:
    rng = random.default_rng()
    if dtype == "f64":
        return added(lambda size: rng.normal(0.0, scale, size))
    single = np.float32(scale)
    return lambda value, n: (
        value.astype(np.float32) + single * rng.standard_normal((n, len(value)), np.float32)
    )


def _laplace(random: Any, *, scale: float) -> Release:
    rng = random.default_rng()
    return added(lambda size: rng.laplace(0.0, scale, size))


def _legacy_normal(random: Any, *, scale: float) -> Release:
    rng = random.RandomState()
    return added(lambda size: rng.normal(0.0, scale, size))


def _legacy_laplace(random: Any, *, scale: float) -> Release:
    rng = random.RandomState()
    return added(lambda size: rng.laplace(0.0, scale, size))


_SCALE = {"scale": 1.0}

LIBRARY = Library(
    name="numpy",
    module="numpy.random",
    install="pip install numpy",
    distribution="numpy",
    tested="2.4.6",
    table={
        "normal": LibraryMechanism(
            _normal, options={**_SCALE, "dtype": "f64"}, claim=claims("gaussian:sigma", "scale")
        ),
        "laplace": LibraryMechanism(
            _laplace, options=_SCALE, claim=claims("laplace:scale", "scale")
        ),
        "legacy-normal": LibraryMechanism(
            _legacy_normal, options=_SCALE, claim=claims("gaussian:sigma", "scale")
        ),
        "legacy-laplace": LibraryMechanism(
            _legacy_laplace, options=_SCALE, claim=claims("laplace:scale", "scale")
        ),
    },
)
