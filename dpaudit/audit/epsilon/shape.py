"""Whether the noise depends on the value: advice, never a finding."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

__all__ = ["shape_advice"]

_WORTH_SAYING = 1e-4
_MOST = 64
"""Coordinates looked at."""
_FAR = 3.0

Array = npt.NDArray[np.float64]


def shape_advice(y0: Array, y1: Array, v0: Array, v1: Array) -> str:
    """One sentence where releases less the query value, (n, k) at each neighbour, have different laws; else nothing.

    Two-sample Kolmogorov-Smirnov for each of the first 64 coordinates (asymptotic p-value, conservative for discrete
    laws), Bonferroni over them, said where p < 1e-4. Additive noise of one law passes; clamping, snapping that depends
    on the value, and randomized response do not. Nothing where releases are not as long as the query, or in a coordinate
    where they do not lie around the query value (median further away than three median deviations): there the value is a
    name for a data set, and releases less the value are no noise.
    """
    if y0.shape[1] != len(v0):
        return ""
    n = math.sqrt(len(y0) * len(y1) / (len(y0) + len(y1)))
    with np.errstate(over="ignore"):
        noise = [(y0[:, j] - v0[j], y1[:, j] - v1[j]) for j in range(min(len(v0), _MOST))]
        gaps = [_gap(*both) if all(map(_around_zero, both)) else 0.0 for both in noise]
    j = int(np.argmax(gaps))
    p = min(1.0, len(gaps) * float(scipy.special.kolmogorov(n * gaps[j])))
    if p >= _WORTH_SAYING:
        return ""
    where = "" if len(gaps) == 1 else f" (coordinate {j})"
    return (
        f"If a release is the query value plus noise, the noise depends on the value{where}: releases less the value differ "
        f"by {gaps[j]:.3g} in distribution between the neighbours (Kolmogorov-Smirnov, p {p:.1e}). That is no fault in "
        "itself; for a mechanism that says it adds noise of one law, it is."
    )


def _around_zero(noise: Array) -> bool:
    middle = float(np.median(noise))
    return abs(middle) <= _FAR * float(np.median(np.abs(noise - middle)))


def _gap(a: Array, b: Array) -> float:
    a, b = np.sort(a), np.sort(b)
    places = np.concatenate([a, b])
    upto = [np.searchsorted(s, places, side="right") / len(s) for s in (a, b)]
    return float(np.abs(upto[0] - upto[1]).max())
