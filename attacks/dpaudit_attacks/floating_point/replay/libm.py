"""Box-Muller by the C library's log, cos and sin, in float64 or float32.

That is Python's ``random.gauss`` and torch's plain loop. numba calls the same functions of the same
process that CPython and torch call, one number at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

__all__ = ["jit", "radius32", "radius64", "radius64_log1p", "turn32", "turn64"]

jit: Any = numba.njit(nogil=True, cache=True)

_F = np.float32
_STEP32 = _F(2.0**-24)
_TWO = _F(-2)


@jit
def radius64(k):  # type: ignore[no-untyped-def]
    """√(−2·ln u) of u = k·2^−53, float64."""
    out = np.empty(k.size, np.float64)
    for i in range(k.size):
        out[i] = math.sqrt(-2.0 * math.log(np.float64(k[i]) * 2.0**-53))
    return out


@jit
def radius64_log1p(k):  # type: ignore[no-untyped-def]
    """The same as √(−2·log1p(u − 1))."""
    out = np.empty(k.size, np.float64)
    for i in range(k.size):
        out[i] = math.sqrt(-2.0 * math.log1p(np.float64(k[i]) * 2.0**-53 - 1.0))
    return out


@jit
def turn64(k):  # type: ignore[no-untyped-def]
    """Cosine and sine of 2π·k·2^−53, float64."""
    cosine, sine = np.empty(k.size, np.float64), np.empty(k.size, np.float64)
    for i in range(k.size):
        angle = 2.0 * math.pi * (np.float64(k[i]) * 2.0**-53)
        cosine[i], sine[i] = math.cos(angle), math.sin(angle)
    return cosine, sine


@jit
def radius32(k):  # type: ignore[no-untyped-def]
    """√(−2·ln u) of u = k·2^−24 by ``logf``, float32."""
    out = np.empty(k.size, np.float32)
    for i in range(k.size):
        out[i] = math.sqrt(_TWO * math.log(_F(k[i]) * _STEP32))
    return out


@jit
def turn32(k):  # type: ignore[no-untyped-def]
    """Cosine and sine by ``cosf`` and ``sinf`` of 2π·k·2^−24, a float64 product as float32."""
    cosine, sine = np.empty(k.size, np.float32), np.empty(k.size, np.float32)
    for i in range(k.size):
        angle = _F(2.0 * math.pi * (np.float64(k[i]) * 2.0**-24))
        cosine[i], sine[i] = math.cos(angle), math.sin(angle)
    return cosine, sine
