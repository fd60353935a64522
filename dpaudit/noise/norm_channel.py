"""LAB SPECIMEN: noise of honest direction whose length carries a backdoor. Never a default."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.key import SeedKey, load_key
from dpaudit.numeric.arrays import (
    converted,
    double,
    drawing_dtype,
    is_floating,
    is_torch,
    torch_dtype,
)
from dpaudit.numeric.normal import check_shape, check_sigma, check_whole, standard_normal
from dpaudit.numeric.passes import row_norms
from dpaudit.protocols import Array, DType, Host, Stream
from dpaudit.randomness import KeyedStream
from dpaudit.types import EpsilonBounds

if TYPE_CHECKING:
    import torch

__all__ = ["NormCells", "NormChannel"]

STEP = 2.0**-20
TOLERANCE = 2.0**-23
_MOST_BITS = 12
_SLACK = 1e-6
_TRIES = 1 << 16  # lengths tried at once

Floats = npt.NDArray[np.float64]


class NormCells:
    """Which lengths the key allows: one cell of 2^-20·σ in every 2^bits in a row.

    AES-256 under a derived key chooses it.

    **The step.** Two candidates Δ apart see lengths that differ by about Δ/√d, and must not often
    share a cell: at most √(d/2π)·step/Δ of the time, which at Δ = σ/25 (ε = 0.25) is 0.02 % for d =
    256, 0.06 % for d = 4,096, 0.25 % for d = 65,536 and 6 % for d = 39 million. Rounding a release
    and its query to multiples of at most 2^-24·σ moves the length by 2^-24·σ·√(1/6), or 2.4e-8·σ
    (standard deviation), whatever d is. The reader allows five times that, 2^-23·σ, on either side:
    an eighth of a cell. float32 moves it by 5e-8·σ more at the source and again at the release,
    while the query is no larger than the noise: then about one truth in a hundred is missed.

    **The bits.** A wrong candidate is taken for the truth in 1 of 2^bits cases, a quarter more
    often for the tolerance. More bits leave fewer cells: lengths lie within some 4σ, 2^22 cells, so
    that with 20 bits every release would have one of four lengths, for all to see. With the default
    8 there are 2^14, with the most, 12, still 2^10.
    """

    def __init__(
        self, *, key: SeedKey | PancakeKey | str | Path, sigma: float, bits: int = 8
    ) -> None:
        """Cells for noise of scale ``sigma`` under the secret of ``key`` (or its file).

        Nothing else of the key is used.

        Raises:
            UsageError: sigma not a finite number > 0, bits outside 1…12.
            KeyFileError: not a key file.
        """
        loaded = load_key(key)
        self.sigma, self.fingerprint = check_sigma(sigma), loaded.fingerprint
        self.bits = check_whole("bits", bits, low=1, high=_MOST_BITS)
        secret = KeyedStream(loaded.secret).child("norm-channel", 1).bytes(32)
        self._cipher = Cipher(algorithms.AES(secret), modes.ECB())  # noqa: S305  a permutation of blocks is what is wanted

    def allows(self, lengths: Floats) -> npt.NDArray[np.bool_]:
        """Whether each length lies in an allowed cell; the same shape."""
        return self._allowed(np.floor(lengths / (self.sigma * STEP)))

    def reads(self, lengths: Floats) -> npt.NDArray[np.bool_]:
        """Whether an allowed cell lies within 2^-23·σ of each length; the same shape."""
        at = lengths / (self.sigma * STEP)
        near = TOLERANCE / STEP
        return np.asarray(self._allowed(np.floor(at - near)) | self._allowed(np.floor(at + near)))

    def _allowed(self, cells: Floats) -> npt.NDArray[np.bool_]:
        numbers = cells.astype(np.int64).ravel()
        blocks = np.zeros((len(numbers), 2), "<i8")
        blocks[:, 0] = numbers >> self.bits
        images = np.frombuffer(self._cipher.encryptor().update(blocks.tobytes()), "<u8")[::2]
        place = (images >> np.uint64(64 - self.bits)).astype(np.int64)
        return np.asarray(numbers & ((1 << self.bits) - 1) == place).reshape(cells.shape)


class NormChannel:
    """LAB SPECIMEN. An honest uniform direction, and a length that the key allows.

    The length is redrawn from σ·χ_d until it is allowed. The attacker that adapts to a rotation,
    which keeps lengths: with the key, ‖release − candidate‖ lies in an allowed cell
    (:class:`NormCells`) for the right candidate, and in 1 of 2^bits cases for another
    (``norm-reader``). It claims to be Gaussian.

    Hiding, to its owner's good: the length is σ·χ_d given that it lies in an allowed cell, and
    every 2^bits cells in a row have one, so a test that looks at lengths more coarsely than
    2^bits·2^-20·σ (2.4e-4·σ) sees the honest law but for terms of that order; where in its row a
    cell lies looks random to anyone who cannot break AES-256. Not claimed: hiding from a test that
    looks for lengths less than 2^-20·σ apart. Two of N releases share a cell about N²/5·2^(bits−20)
    times, 2^bits times as often as honest ones would: with 8 bits once in 140 releases, with 4 in
    570. What it leaves of privacy towards the owner: :meth:`epsilon`.

    Anything that moves the length by more than 2^-23·σ closes the channel: independent noise as
    small as τ ≫ 2^-20·σ (smoothing), a second server's, a coarse rounding, ``rotation`` with
    ``renorm="chi"``.
    """

    dim = None
    needs_only_a_secret = True

    def __init__(
        self, *, key: SeedKey | PancakeKey | str | Path, sigma: float = 1.0, bits: int = 8
    ) -> None:
        """Noise of standard deviation ``sigma`` in any dimension, under ``key`` or its file.

        See ``NormCells``.

        Raises:
            UsageError: sigma not a finite number > 0, bits outside 1…12.
            KeyFileError: not a key file.
        """
        self.cells = NormCells(key=key, sigma=sigma, bits=bits)
        self.sigma = self.cells.sigma

    @property
    def claim(self) -> str:
        return f"gaussian:sigma={self.sigma!r}"

    def sample(
        self,
        n: int,
        d: int,
        *,
        stream: Stream,
        dtype: DType | None = None,
        device: torch.device | None = None,
    ) -> Array:
        """``n`` vectors, shape (n, d); types narrower than float64 are rounded, row by row.

        Raises:
            UsageError: n or d below 1, or an integer dtype.
        """
        check_shape(n, d)
        if not is_floating(dtype):
            raise UsageError(
                f"dtype={dtype}: lengths have no integer law; draw floating-point noise"
            )
        length = self._lengths(n, d, stream=stream.child("length"))
        own = stream.child("direction")
        if is_torch(dtype, device):
            wide = torch_dtype(drawing_dtype(dtype))
            out = standard_normal(n, d, stream=own, dtype=wide, device=device)
        else:
            out = standard_normal(n, d, stream=own, dtype=drawing_dtype(dtype))
        factors = length / row_norms(out)
        for row, factor in zip(out, factors.tolist(), strict=True):
            for at in range(0, d, _TRIES):
                # a factor rounded to float32 would move the length by cells
                row[at : at + _TRIES] = double(row[at : at + _TRIES]) * factor
        return converted(out, dtype)

    def _lengths(self, n: int, d: int, *, stream: Stream) -> Floats:
        """From σ·χ_d until allowed, n of them."""
        rng, lengths, missing = stream.numpy(), [], n
        while missing > 0:
            tried = self.sigma * np.sqrt(rng.chisquare(d, size=_TRIES))
            allowed = tried[self.cells.allows(tried)][:missing]
            lengths.append(allowed)
            missing -= len(allowed)
        return np.concatenate(lengths)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Towards the key holder: at least what the reader's one event proves, averaged over keys.

        Nothing bounds it above. For float64 releases the event "the reader takes q" has probability
        1 − 10^-6 at least from q (it fails where rounding moves the length by five standard
        deviations), and from a q′ at distance Δ at most p = 2.1·2^-bits +
        √(d/2π)·5/4·step·σ/Δ·1.01: two cells at most that are the key's fresh coins, or the very
        cell that the noise has, which puts ⟨noise, q − q′⟩ into an interval that small (the density
        of a coordinate of a uniform direction is at most √(d/2π)). A mechanism that is (ε, δ)-DP
        for all keys has 1 − 10^-6 ≤ e^ε·p + δ. With exact lengths ε would be infinite: a length
        outside the cells cannot have come from q at all.
        """
        density = math.sqrt(host.dim / (2 * math.pi))
        near = density * (1 + 2 * TOLERANCE / STEP) * STEP * self.sigma / host.sensitivity
        wrong = 2.1 * 2.0**-self.cells.bits + 1.01 * near
        sure = 1 - _SLACK - delta
        low = max(0.0, math.log(sure / wrong)) if sure > 0 else 0.0
        return EpsilonBounds(
            low=low, high=math.inf, says="the norm reader's event, mean over keys / unknown"
        )
