"""``opendp:MECH``: OpenDP's measurements, which add noise from exact samplers themselves.

A call releases all its vectors as one vector. On one core a ``gaussian`` value takes about 62 µs
and a ``laplace`` value 25 µs at OpenDP's own granularity 2^-1074 (so ask for 1e6 values rather than
1e7); with ``k=-40``, granularity 2^-40, 11 and 7 µs; a discrete one 6 to 10 µs. ``bounded-sum``
takes the value as the data set: clamped, summed and Laplace noise added for ε under adding or
removing one number, the rounding of the sum included; about 100 µs per release.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

import numpy as np

from dpaudit.errors import UsageError
from dpaudit.targets.adapters.base import Library, LibraryMechanism, Release, claims, of_data

__all__ = ["LIBRARY"]

_FINEST = -1074  # OpenDP's default for float64


def _real(make: str, distance: str) -> Any:
    def build(dp: Any, *, scale: float, k: int) -> Release:
        if k != int(k) or not _FINEST <= k <= 0:
            raise UsageError(
                f"k={k}: the granularity is 2^k, k a whole number in {_FINEST}…0; "
                "leave it out for the finest"
            )
        dp.enable_features("contrib")
        atom, metric = _floats(dp), getattr(dp, distance)(T=float)

        @lru_cache(maxsize=8)
        def measurement(size: int) -> Any:
            domain = dp.vector_domain(atom, size=size)
            return getattr(dp.m, make)(domain, metric, scale=float(scale), k=int(k))

        return lambda value, n: _rows(measurement(n * len(value)), value.tolist(), n)

    return build


def _whole(make: str, distance: str, distance_type: str) -> Any:
    def build(dp: Any, *, scale: float) -> Release:
        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        metric = getattr(dp, distance)(T=distance_type)
        measurement = getattr(dp.m, make)(domain, metric, scale=float(scale))
        return lambda value, n: _rows(measurement, [int(x) for x in value.tolist()], n)

    return build


def _bounded_sum(dp: Any, *, epsilon: float, lower: float, upper: float) -> Release:
    dp.enable_features("contrib")
    space = dp.vector_domain(_floats(dp)), dp.symmetric_distance()
    summed = space >> dp.t.then_clamp((float(lower), float(upper))) >> dp.t.then_sum()

    def chain(scale: float) -> Any:
        return summed >> dp.m.then_laplace(scale)

    return of_data(dp.binary_search_chain(chain, d_in=1, d_out=float(epsilon)))


def _floats(dp: Any) -> Any:
    """Finite numbers; older releases have no word for NaN, and leave it out anyway."""
    named = "nan" in inspect.signature(dp.atom_domain).parameters
    return dp.atom_domain(T=float, nan=False) if named else dp.atom_domain(T=float)


def _rows(measurement: Any, value: list[Any], n: int) -> Any:
    return np.array(measurement(value * n)).reshape(n, len(value))


_SCALE = {"scale": 1.0}

LIBRARY = Library(
    name="opendp",
    module="opendp.prelude",
    install="pip install 'dpaudit[opendp]'",
    distribution="opendp",
    tested="0.16.0",
    table={
        "gaussian": LibraryMechanism(
            _real("make_gaussian", "l2_distance"),
            options={**_SCALE, "k": _FINEST},
            claim=claims("gaussian:sigma", "scale"),
            told=True,
        ),
        "laplace": LibraryMechanism(
            _real("make_laplace", "l1_distance"),
            options={**_SCALE, "k": _FINEST},
            claim=claims("laplace:scale", "scale"),
            told=True,
        ),
        "discrete-gaussian": LibraryMechanism(
            _whole("make_gaussian", "l2_distance", "f64"),
            options={"scale": 10.0},
            claim=claims("discrete-gaussian:sigma", "scale"),
            told=True,
            whole=True,
        ),
        "discrete-laplace": LibraryMechanism(
            _whole("make_laplace", "l1_distance", "i64"),
            options={"scale": 10.0},
            claim=claims("discrete-laplace:scale", "scale"),
            told=True,
            whole=True,
        ),
        "bounded-sum": LibraryMechanism(
            _bounded_sum, options={"epsilon": None, "lower": None, "upper": None}, data=True
        ),
    },
)
