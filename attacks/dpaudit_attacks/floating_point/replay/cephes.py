"""The float32 logarithm, sine and cosine of torch's vectorised ``normal_``.

Cephes' polynomials, on x86 with AVX2 and up. torch computes them eight lanes at a time
(``ATen/native/cpu/avx_mathfun.h``, after Pommier's and Garberoglio's rewriting of Moshier's
Cephes); each lane is independent of the others, so one lane is replayed here. The header multiplies
and then adds, and its compiler fuses the two into one rounding where the product is used nowhere
else (``fused``); without fused multiply-add each is rounded.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic

from dpaudit_attacks.floating_point.replay.libm import jit

__all__ = ["radius", "turn"]

_F = np.float32
_HALF, _ONE, _TWO, _STEP = _F(0.5), _F(1), _F(-2), _F(2.0**-24)
_LOG = tuple(
    _F(c)
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
)
_ROOT_HALF = _F(0.707106781186547524)
_LN2_LOW, _LN2_HIGH = _F(-2.12194440e-4), _F(0.693359375)
_TWO_PI, _FOUR_OVER_PI = _F(2 * math.pi), _F(1.27323954473516)
# of −π/4, in three parts
_PI4 = (_F(-0.78515625), _F(-2.4187564849853515625e-4), _F(-3.77489497744594108e-8))
_SIN = (_F(-1.9515295891e-4), _F(8.3321608736e-3), _F(-1.6666654611e-1))
_COS = (_F(2.443315711809948e-5), _F(-1.388731625493765e-3), _F(4.166664568298827e-2))

inline: Any = numba.njit(inline="always")


def _one_rounding(_context, a, _b, _c):  # type: ignore[no-untyped-def]
    """a·b + c with one rounding."""

    def build(_context, builder, _signature, args):  # type: ignore[no-untyped-def]
        return builder.fma(*args)

    return a(a, a, a), build


_fma: Any = intrinsic(_one_rounding)


@inline
def _mad(a, b, c, fused):  # type: ignore[no-untyped-def]
    return _fma(a, b, c) if fused else a * b + c


@jit
def radius(k, fused):  # type: ignore[no-untyped-def]
    """√(−2·ln u) of u = k·2^−24, float32."""
    out = np.empty(k.size, np.float32)
    for i in range(k.size):
        mantissa, exponent = math.frexp(np.float64(k[i]) * 2.0**-24)
        x, e = _F(mantissa), _F(exponent)
        if x < _ROOT_HALF:
            e -= _ONE
            x = (x - _ONE) + x
        else:
            x -= _ONE
        z = x * x
        y = _LOG[0]
        for c in _LOG[1:]:
            y = _mad(y, x, c, fused)
        y = _mad(y * x, z, e * _LN2_LOW, fused) - z * _HALF
        out[i] = math.sqrt(_TWO * _mad(e, _LN2_HIGH, x + y, fused))
    return out


@jit
def turn(k, fused):  # type: ignore[no-untyped-def]
    """Cosine and sine of 2π·k·2^−24, float32."""
    cosine, sine = np.empty(k.size, np.float32), np.empty(k.size, np.float32)
    for i in range(k.size):
        x = _TWO_PI * (_F(k[i]) * _STEP)
        octant = (np.int64(x * _FOUR_OVER_PI) + 1) & ~1
        j = _F(octant)
        for part in _PI4:
            x = _mad(j, part, x, fused)
        z = x * x
        even = _mad(_mad(_COS[0], z, _COS[1], fused), z, _COS[2], fused) * z
        even = _mad(even, z, -(z * _HALF), fused) + _ONE
        odd = _mad(_mad(_SIN[0], z, _SIN[1], fused), z, _SIN[2], fused) * z
        odd = _mad(odd, x, x, fused)
        s, c = (odd, even) if octant & 2 == 0 else (even, odd)
        sine[i] = -s if octant & 4 else s
        cosine[i] = c if (octant - 2) & 4 else -c
    return cosine, sine
