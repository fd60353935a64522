"""A rotation's own randomness: a fast generator or ChaCha20, and perhaps a second party."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpaudit.errors import KeyFileError, UsageError
from dpaudit.protocols import Array, DType, Stream
from dpaudit.randomness import KEY_BYTES, KeyedStream
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

    ``second_party``: 32 bytes from another party, or a file of mode 0600 that holds them as 64 hex
    digits. The rotation's seed is then HKDF-SHA256 of both parties' shares, ours taken from the
    release's stream. Guarantee: if either share is secret and uniform, given the other, so is the
    seed (HKDF as a random oracle). That assumes that neither chose its share knowing the other's:
    nothing is committed here, so the last to choose can try 2^k shares and fix k bits of the seed.
    If the other share was fixed before our stream was keyed, that is us; ``joint-seeds`` has
    commitments.
    """

    def __init__(
        self, *, kind: str = "stream", second_party: bytes | str | Path | None = None
    ) -> None:
        """Hold the choice, and the second party's share.

        Raises:
            UsageError: another kind, or a share of other than 32 bytes.
            KeyFileError: a share's file that cannot be read, is open to others, or holds something
                else.
        """
        if kind not in _KINDS:
            raise UsageError(f"randomness={kind}: must be stream or csprng")
        share = read_share(second_party) if isinstance(second_party, (str, Path)) else second_party
        if share is not None and len(share) != KEY_BYTES:
            raise UsageError(f"second_party: {len(share)} bytes; a share must have {KEY_BYTES}")
        self.kind, self._share = kind, share

    def own(self, stream: Stream) -> Stream:
        """A child of ``stream``, combined with the second party's share if there is one."""
        mine = stream.child("rotation")
        if self._share is None:
            return mine
        both = HKDF(
            SHA256(), KEY_BYTES, salt=b"dpaudit rotation", info=b"two parties' seed, version 1"
        )
        return KeyedStream(both.derive(mine.entropy() + self._share))

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
        """``sigma`` times independent N(0, 1), shape (n, d), from :meth:`own`'s ``stream``.

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


def read_share(path: str | Path) -> bytes:
    """32 bytes from a file of mode 0600 with 64 hex digits.

    Raises:
        KeyFileError: it cannot be read, is open to others, or holds something else.
    """
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise KeyFileError(f"second_party={path}: cannot be read ({error.strerror})") from error
    with os.fdopen(fd, "rb") as file:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & 0o077:
            raise KeyFileError(f"second_party={path}: readable by others ({mode:04o}); chmod 600")
        text = file.read(4 * KEY_BYTES).strip()
    if len(text) != 2 * KEY_BYTES or set(text) - set(b"0123456789abcdef"):
        raise KeyFileError(f"second_party={path}: must hold {2 * KEY_BYTES} lower-case hex digits")
    return bytes.fromhex(text.decode())
