"""The Gaussian mechanism made safe in floating point: exact lattice noise from a CSPRNG."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.accounting.discrete import discrete_gaussian_bounds
from dpaudit.numeric.drawing import cpu_sample
from dpaudit.numeric.exact_integers import IntegerLaw, draw_integers
from dpaudit.numeric.lattice import NORMAL_REACH, check_granularity, release_on_lattice
from dpaudit.protocols import Array, Host, Stream
from dpaudit.types import EpsilonBounds

__all__ = ["SecureGaussian"]


class SecureGaussian:
    """Rounds the query to a lattice g·Z and adds exact discrete Gaussian noise: g·(K + Z).

    Z has the scale σ/g. g is a power of two: σ·2^-24 rounded down to one, which depends on σ alone
    and is as fine as float32 noise (a coarser one no longer passes for the continuous law), or
    chosen by the caller from public knowledge. The integers are drawn with P(z) ∝ exp(−z²g²/2σ²)
    exactly (``dpaudit.numeric.exact_integers`` has the proof) from ``Stream.bytes``; their sum with
    K is exact, and so is its product with g. So a release's low bits are those of a lattice that is
    the same for every value: nothing of the query's own bits below g survives.

    Threat model: an adversary who sees every bit of every release, knows σ, g, this code and all
    about the query but the one record, and cannot break ChaCha20; the stream's key is fresh, secret
    and used once. Repeated releases from one stream object take further bytes; two streams with one
    key give the same noise.

    Formal guarantee: for queries of L2 sensitivity Δ the release has the privacy of the
    d-dimensional discrete Gaussian mechanism at sensitivity Δ + g√d, the latter for the rounding to
    the lattice: ρ-zCDP with ρ = (Δ + g√d)²/2σ² (Canonne, Kamath and Steinke 2020, Theorem 4, in
    each coordinate), and (ε, δ) as :meth:`epsilon` says. Casting to a narrower dtype is rounding of
    the released value, hence post-processing.

    Not claimed: constant time. Rejection makes a call's length vary; the number of trials does not
    depend on the noise drawn, but a table look-up and the number of terms in the last trial do, a
    little. Keep the time of single releases from the adversary. Nor: that the query was computed
    without error (its sensitivity must hold for the floating-point result, not for the real one);
    that a refusal is private (it reveals that a value is beyond the limit, and names it: clip the
    query to public bounds first); erasure of the stream's bytes from memory. ``claim`` names the
    continuous law that the noise is indistinguishable from above the lattice.
    """

    dim = None

    def __init__(self, *, sigma: float = 1.0, granularity: float | None = None) -> None:
        """Noise of standard deviation ``sigma`` on multiples of ``granularity``.

        Both are in the query's unit.

        Raises:
            UsageError: sigma not a finite number > 0; granularity not a power of two, above sigma
                or below sigma/2^32; or multiples of it up to 2^53 that are not doubles.
        """
        self.granularity = check_granularity(sigma, granularity)
        self.sigma = float(sigma)
        self._law = IntegerLaw.gaussian(self.sigma / self.granularity)
        self._margin = math.ceil(NORMAL_REACH * self.sigma / self.granularity)

    @property
    def claim(self) -> str:
        return f"gaussian:sigma={self.sigma!r}"

    @cpu_sample(exact=True)
    def sample(self, n: int, d: int, *, stream: Stream) -> npt.NDArray[np.floating]:
        """``n`` vectors of the lattice noise g·Z alone, shape (n, d).

        Added to a value off the lattice in floating point it protects no better than other noise:
        use :meth:`release`.
        """
        return draw_integers(n * d, self._law, stream=stream).reshape(n, d) * self.granularity

    def release(self, query: Array, *, stream: Stream) -> Array:
        """g·(K + Z) for each value of ``query`` (n, d), K its nearest multiple of g.

        Same shape, dtype and device back. float64 releases are exactly that, narrower ones are it
        rounded (float16 by way of float32). −0.0 is 0.

        Raises:
            UsageError: not floating-point of shape (n, d); NaN or infinite; |value| above g·2^53 −
                64σ; or a release that the dtype cannot hold.
        """
        return release_on_lattice(
            query,
            law=self._law,
            margin=self._margin,
            granularity=self.granularity,
            whole=False,
            stream=stream,
            name="secure-gaussian",
        )

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Bounds at Δ ± g√d, by ``dpaudit.accounting.discrete.discrete_gaussian_bounds``."""
        return discrete_gaussian_bounds(
            delta,
            scale=self.sigma / self.granularity,
            sensitivity=host.sensitivity / self.granularity,
            dim=host.dim,
            rounded=True,
        )
