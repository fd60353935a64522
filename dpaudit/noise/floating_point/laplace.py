"""LAB SPECIMEN: Laplace noise by inversion of a uniform, as libraries do. Never a default."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.floating_point.common import CpuSpecimen
from dpaudit.numeric.normal import check_whole
from dpaudit.numeric.random_words import jit
from dpaudit.protocols import Stream

__all__ = ["NaiveLaplace"]


class NaiveLaplace(CpuSpecimen):
    """LAB SPECIMEN. Laplace noise, density ∝ exp(−|x|/b), from one uniform's logarithm.

    All in float64. ``form="log"``: ±b·ln U with U = k·2^−bits, k from 1 to 2^bits, and a fair sign.
    ``form="numpy"``: numpy's own expression, −b·ln(2 − U − U) where U ≥ ½ and b·ln(U + U) below, U
    = k·2^−bits with k from 1 to 2^bits − 1 (numpy draws again at 0); with ``bits=53`` that is
    ``Generator.laplace`` and ``RandomState.laplace``, bit for bit. The logarithm is the C
    library's: numpy's vectorised one differs in the last bit now and then.

    The flaw: noise takes at most 2^bits magnitudes, spaced unlike floats, so each value has its own
    set of reachable releases; trying the few k around exp(−|y − v|/b)·2^bits shows which values a
    release excludes (Mironov 2012). No magnitude exceeds b·bits·ln 2.
    """

    _name = "naive-laplace"

    def __init__(self, *, scale: float = 1.0, bits: int = 53, form: str = "log") -> None:
        """Noise of nominal scale b = ``scale``, from a uniform of ``bits`` bits (8 to 53).

        Its standard deviation is √2·b.

        Raises:
            UsageError: a scale that is not a finite number above 0, other bits, another form.
        """
        if isinstance(scale, (str, bool)) or not (scale > 0 and math.isfinite(scale)):
            raise UsageError(f"scale={scale}: must be a finite number > 0")
        if form not in ("log", "numpy"):
            raise UsageError(f"form={form}: must be log or numpy")
        self.scale, self.bits, self.form = (
            float(scale),
            check_whole("bits", bits, low=8, high=53),
            form,
        )
        self.sigma = math.sqrt(2) * self.scale

    @property
    def claim(self) -> str:
        return f"laplace:scale={self.scale!r}"

    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        grid = 2**self.bits
        rng = stream.numpy()
        if self.form == "numpy":
            _numpy_form(
                out, rng.integers(1, grid, size=out.size, dtype=np.int64), self.scale, 1 / grid
            )
        else:  # k above, the sign in the last bit
            _log_form(
                out,
                rng.integers(2, 2 * grid + 2, size=out.size, dtype=np.int64),
                self.scale,
                1 / grid,
            )


@jit
def _log_form(out, drawn, scale, unit):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        noise = -scale * math.log(np.float64(drawn[i] >> 1) * unit)
        out[i] = -noise if drawn[i] & 1 else noise


@jit
def _numpy_form(out, drawn, scale, unit):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        u = np.float64(drawn[i]) * unit
        out[i] = -(scale * math.log(2.0 - u - u)) if u >= 0.5 else scale * math.log(u + u)
