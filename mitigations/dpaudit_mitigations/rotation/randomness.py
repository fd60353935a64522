"""A rotation's own randomness: a fast generator or ChaCha20."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UsageError
from dpaudit.protocols import Array, DType, Stream
from dpaudit.vectors.arrays import as_asked, drawn_in
from dpaudit.vectors.kernels import spread
from dpaudit.vectors.normal import check_shape, standard_normal

if TYPE_CHECKING:
    import torch

__all__ = ["Randomness"]

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
        values = np.empty(n * d, drawn_in(dtype))

        def work(first: int, last: int) -> None:
            for part in range(first, last):
                place = values[part * _PART : (part + 1) * _PART]
                place[:] = _quantiles(len(place), stream.child("part", part)) * sigma

        spread(work, -(-len(values) // _PART), len(values))
        return as_asked(values.reshape(n, d), dtype, device)


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
