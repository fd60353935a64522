"""LAB SPECIMEN: the sum of four flawed normals, which hides only the sampler. Never a default."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.floating_point.box_muller import BoxMullerF32, BoxMullerF64
from dpaudit.noise.floating_point.common import CpuSpecimen
from dpaudit.protocols import NoiseSource, Stream
from dpaudit.vectors.normal import check_sigma

__all__ = ["FourSumGaussian"]

_WIDTHS: dict[str, type[np.floating[Any]]] = {"f32": np.float32, "f64": np.float64}


class FourSumGaussian(CpuSpecimen):
    """LAB SPECIMEN. Half the sum of four Box-Muller normals, as in Opacus's ``secure_mode``.

    Four independent draws of the whole block, of standard deviation σ each, are added one after the
    other to zeros in ``dtype`` and halved; the base draws are those of ``box-muller-f32`` or
    ``box-muller-f64``.

    The flaw: it hides the sampler, not the addition. To solve for the uniforms of four normals
    costs too much (Holohan and Braghin 2021, arXiv 2107.10138, section 5.1: about 2^(3p) tries for
    p bits of a uniform), but the sum is still a float drawn around 0 that is then added to the
    value in floating point: reach needs no sampler and still excludes values. Draw f32 noise as
    float32 and add it to float32 values, as DP-SGD does; a float64 sum keeps all its bits, and then
    shows by release − value being a float32 or not.
    """

    _name = "four-sum-gaussian"

    def __init__(self, *, sigma: float = 1.0, dtype: str = "f32") -> None:
        """Noise of nominal standard deviation ``sigma`` per coordinate, in ``dtype`` f32 or f64.

        Raises:
            UsageError: a sigma that is not a finite number above 0, another dtype.
        """
        if dtype not in _WIDTHS:
            raise UsageError(f"dtype={dtype}: must be f32 or f64")
        self.sigma, self.dtype = check_sigma(sigma), dtype
        self._compute = _WIDTHS[dtype]
        base = BoxMullerF32 if dtype == "f32" else BoxMullerF64
        self._base: NoiseSource = base(sigma=self.sigma)

    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        out[:] = 0
        for i in range(4):
            out += self._base.sample(
                1, out.size, stream=stream.child("four-sum", i), dtype=self._compute
            )[0]
        out /= 2
