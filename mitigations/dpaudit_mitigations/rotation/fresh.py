"""A fresh Haar rotation of every noise vector: the hidden direction changes every time.

And what all rotations share: their own randomness (a fast generator or ChaCha20), drawing the
source's noise, and releasing turned noise on a lattice. Noise is turned in float64 whatever the
query's type: see ``add_on_lattice`` on narrow noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import cast_to, converted, device_of, drawing_dtype, library
from dpaudit.numeric.kernels import spread
from dpaudit.numeric.lattice import add_on_lattice, lattice_step
from dpaudit.numeric.normal import check_query, check_shape, standard_normal
from dpaudit.numeric.passes import row_norms
from dpaudit.protocols import Array, DType, Host, NoiseSource, Stream
from dpaudit.types import EpsilonBounds
from dpaudit_mitigations.rotation.bounds import gaussian_on_lattice, haar_rotated

if TYPE_CHECKING:
    import torch

__all__ = ["Randomness", "Rotation", "draw", "narrow", "publish"]

_KINDS = ("stream", "csprng")
_PART = 1 << 16


class Randomness:
    """Normals for a rotation.

    ``kind``:

    - ``stream``: the compiled ziggurat, seeded from the release's stream with 192 bits (CUDA:
      torch's Philox, 64 bits). Correct in law, and fast; but its SFC64 is not cryptographic. Noise
      that a known generator can make is a small set: whoever could find a generator's state from
      the noise that a candidate leaves over would know that this candidate is right. No such attack
      here is known to us, and nothing rules one out.
    - ``csprng``: ChaCha20 (``Stream.bytes``) through Φ⁻¹, 64 bits per value and 64 more in the
      tails, so that there, too, values lie far closer together than a release's lattice: the attack
      above then needs a break of ChaCha20. Drawn on the CPU, and several times slower.
    """

    def __init__(self, *, kind: str = "stream") -> None:
        """Hold the choice.

        Raises:
            UsageError: another kind.
        """
        if kind not in _KINDS:
            raise UsageError(f"randomness={kind}: must be stream or csprng")
        self.kind = kind

    def normal(
        self,
        n: int,
        d: int,
        *,
        stream: Stream,
        device: torch.device | None,
        dtype: DType | None = None,
        sigma: float = 1.0,
    ) -> Array:
        """``sigma`` times independent N(0, 1), shape (n, d), from ``stream``.

        An array, unless a torch dtype or a device asks for a tensor.
        """
        if self.kind == "stream":
            return standard_normal(n, d, sigma=sigma, stream=stream, dtype=dtype, device=device)
        check_shape(n, d)
        values = np.empty(n * d, drawing_dtype(dtype))

        def work(first: int, last: int) -> None:
            for part in range(first, last):
                place = values[part * _PART : (part + 1) * _PART]
                place[:] = _quantiles(len(place), stream.child("part", part)) * sigma

        spread(work, -(-len(values) // _PART), len(values))
        return cast_to(values.reshape(n, d), dtype, device)


def _quantiles(count: int, stream: Stream) -> npt.NDArray[np.float64]:
    """N(0, 1) from ``stream.bytes``: a sign and 63 bits of a tail probability below 1/2.

    After 24 zeros 64 more bits are used: a grid of 2^-52 would leave values beyond six standard
    deviations further apart than a lattice of 2^-24.
    """
    words = np.frombuffer(stream.bytes(8 * count), dtype="<u8")
    tail = (words >> np.uint64(1)).astype(np.float64)
    far = np.flatnonzero(tail < 2.0**39)
    if len(far):
        more = np.frombuffer(stream.bytes(8 * len(far)), dtype="<u8")
        tail[far] += more.astype(np.float64) * 2.0**-64
    values: npt.NDArray[np.float64] = scipy.special.ndtri(
        (tail + np.where(tail < 2.0**39, 2.0**-65, 0.5)) * 2.0**-64
    )
    return np.where(words & np.uint64(1), -values, values)


class Rotation:
    """Each noise vector under its own random rotation (arXiv 2509.23834, Section 6.1), in O(d).

    A Haar rotation applied to one vector is, exactly, its norm times an independent uniform
    direction; no matrix. The turned noise and the query are then each rounded to a lattice of g =
    σ·2^-24 (down to a power of two) and added there.

    ``renorm="keep"`` is that. ``renorm="chi"`` also redraws the norm from σ·χ_d, from the
    defender's own randomness: the release is then fresh Gaussian noise without any of the source's,
    which is not even drawn.

    Threat model: the source may hide anything in the direction of its noise; the defender's
    generator is trusted and its rotation stays secret (never stored). See ``Randomness`` for what
    the generators give.

    Formal guarantee: given its norm, the released noise is uniform on the sphere except for the
    lattice, so only the norm of the source's noise passes; with ``chi`` not even that, and ε is the
    Gaussian mechanism's at sensitivity Δ + g√d. The release is a function of the query's multiple
    of g and of noise that does not depend on it: the low bits reveal nothing more of the query. Not
    claimed: anything about that norm, which a source may use as a channel (``norm-channel``); one
    rotation of several releases, which is another defence (``shared-rotation``).

    Cost: one Gaussian draw and two passes beyond the source's draw, and at most the memory of one
    more float64 vector, also for narrower queries (float32 noise has too few values for the
    lattice: ``add_on_lattice``); the error does not change.
    """

    trusts = "the defender's generator, and that its rotation stays secret"

    def __init__(self, *, renorm: str = "keep", randomness: str = "stream") -> None:
        """``renorm`` is ``keep`` or ``chi``, ``randomness`` ``stream`` or ``csprng`` (see there).

        Raises:
            UsageError: another value.
        """
        if renorm not in ("keep", "chi"):
            raise UsageError(f"renorm={renorm}: must be keep or chi")
        self.renorm = renorm
        self._randomness = Randomness(kind=randomness)

    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """``query`` plus rotated noise on the lattice, shape (n, d).

        Raises:
            UsageError: no query (see ``check_query``), values beyond σ·2^28, or that the dtype
                cannot hold.
        """
        n, d = check_query(query)
        keep, unit = self.renorm == "keep", 2.0**24 * lattice_step(source.sigma)
        length = None
        if keep:
            length = row_norms(draw(query, source, stream=stream, dtype=narrow(query)), unit=unit)
        turned = self._randomness.normal(
            n,
            d,
            sigma=1.0 if keep else source.sigma,
            stream=stream.child("rotation"),
            device=device_of(query),
        )
        factors = np.ones(n) if length is None else length / row_norms(turned)
        return publish(query, turned, sigma=source.sigma, factors=factors)

    def scale(self, sigma: float) -> float:
        return sigma

    def mixes(self, sigma: float) -> tuple[float, float]:
        """Gaussian noise of σ; the source's key fits no turned noise."""
        return 0.0, sigma

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """``chi``: the Gaussian's. ``keep``: that for Gaussian noise, near it for a pancake.

        The latter by a theorem; for any other source it is unknown.
        """
        if self.renorm == "chi":
            return gaussian_on_lattice(delta, sigma=source.sigma, host=host)
        return haar_rotated(source, delta, host=host)


def draw(query: Array, source: NoiseSource, *, stream: Stream, dtype: DType | None = None) -> Array:
    """The source's noise for ``query`` (n, d), not turned yet, by default float64."""
    n, d = query.shape
    own = stream.child("source")
    return source.sample(n, d, stream=own, dtype=dtype, device=device_of(query))


def narrow(query: Array) -> DType:
    """The type of noise used only for lengths and angles: float64 or float32, as the query's."""
    name = np.dtype(drawing_dtype(query.dtype)).name
    return getattr(library(query), name)


def publish(
    query: Array,
    turned: Array,
    *,
    sigma: float,
    factors: npt.NDArray[np.float64] | None = None,
) -> Array:
    """g·(K + Z) in ``query``'s dtype: g = ``lattice_step(sigma)``, Z = factor·turned/g, rounded.

    ``turned`` (n, d), float64, is overwritten.

    Raises:
        UsageError: values beyond σ·2^28, or that the dtype cannot hold.
    """
    fitting = converted(query, narrow(query))
    step = lattice_step(sigma)
    return add_on_lattice(
        fitting, turned, granularity=step, name="a rotation", factors=factors, dtype=query.dtype
    )
