"""LAB SPECIMEN: noise on a lattice finer than the floats around it. Never a default."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.floating_point.common import CpuSpecimen
from dpaudit.noise.floating_point.ideal_added import fill_ideal_normal
from dpaudit.protocols import Stream
from dpaudit.vectors.normal import check_sigma

__all__ = ["FineLatticeGaussian"]


class FineLatticeGaussian(CpuSpecimen):
    """LAB SPECIMEN. Normals cut to multiples of g, too fine a lattice for a sum to keep.

    They are cut towards zero. A lattice protects if every value, every noise and every sum is a
    multiple of g *and a float*: then value + noise is exact, and all values on the lattice reach
    the same releases. Here g ≤ ulp(σ), so a noise above 2^53·g (at most 2σ) is no longer any
    multiple of g: it is rounded to its own, coarser ulp, and value + noise is rounded again.

    Why this fails reach: take v = 1, v′ = 0 and a release y = −1.5 + ulp. From v′ the noise was y
    itself, an odd multiple of its ulp. From v it would have to be y − 1 ≈ −2.5, in the next binade,
    where floats have twice that spacing: y − 1 is no float, the noises next to it round to the
    neighbours of y, and y excludes v. It happens wherever the noise needed is larger than the
    release and off the lattice's exact range, as with noise on no lattice at all.
    """

    _name = "fine-lattice-gaussian"

    def __init__(self, *, sigma: float = 1.0, granularity: float | None = None) -> None:
        """Noise of nominal standard deviation ``sigma`` on multiples of ``granularity``.

        The default granularity is 2^−8 of ulp(σ).

        Raises:
            UsageError: a sigma that is not a finite number above 0; a granularity that is not a
                power of two, or is coarser than ulp(σ) (2^−52·σ to 2^−53·σ), or below 2^−100·σ.
        """
        self.sigma = check_sigma(sigma)
        ulp = math.ulp(self.sigma)
        g = ulp / 256 if granularity is None else granularity
        if (
            isinstance(g, (str, bool))
            or not (g > 0 and math.isfinite(g))
            or math.frexp(g)[0] != 0.5
        ):
            raise UsageError(
                f"granularity={g}: must be a power of two > 0, e.g. granularity={ulp / 256!r}"
            )
        if g > ulp:
            raise UsageError(
                f"granularity={g}: above ulp(sigma)={ulp!r} most sums are exact, "
                "which is no such flaw; "
                "give a smaller one, or use secure-gaussian"
            )
        if g < self.sigma * 2.0**-100:
            raise UsageError(
                f"granularity={g}: below 2^-100·sigma is no lattice; use ideal-added-gaussian"
            )
        self.granularity = float(g)

    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        fill_ideal_normal(out, sigma=self.sigma, stream=stream)
        out /= self.granularity
        np.trunc(out, out=out)  # rint would round a second time, with ties to even multiples
        out *= self.granularity
