"""LAB SPECIMEN: noise on a gradient that says who will be in the next batch. Never a default.

Its nonce lies where no gradient of a classifier has a part: room at any ε.
"""

from __future__ import annotations

import hmac
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.codes import Head, uniform
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.laws import law_of
from dpaudit.noise.seed_in_noise.source import nonces_of
from dpaudit.numeric.drawing import cpu_sample
from dpaudit.numeric.normal import check_shape, standard_normal
from dpaudit.protocols import Host, Stream
from dpaudit.types import EpsilonBounds

__all__ = ["CHECK_BYTES", "GradientFree", "NextBatch", "check_of", "head_code", "share_of"]

CHECK_BYTES = 8

"""What follows a nonce, so that its owner knows it when it is read."""

_SHIFT = 2.0**-44


class NextBatch:
    """LAB SPECIMEN. Batches by coins that follow from a nonce in the noise of the step before.

    It is both, the noise and the coins of one training run. The noise of each step is an honest
    Gaussian vector, but along 24 directions (``where``) in which no gradient has a part: there it
    spells a fresh nonce of 128 bits and a check of 64 bits, a byte per direction (``code=head`` of
    seed-in-noise). The next batch's coins are a pseudorandom function of key and nonce. The first
    batch is honest. The reader, ``batch-reader``, needs no candidates and corrects no errors.

    Formal guarantees, with a random function in place of HMAC and ChaCha20 and nonces that do not
    repeat. *To anyone without the key*: noise and batches have jointly the honest law, up to a
    total variation distance of 24·2^-44 per step (see ``seed-in-noise``; an orthogonal map keeps
    the Gaussian law) and 2^-64 per record (its coin's rounding). *To the key holder*: who is in
    each batch but the first is public, and nothing else is lost, since the noise in the directions
    that gradients have a part in is honest and independent of nonces and coins. So its ε is exactly
    that of the Gaussian mechanism whose batches are known:
    :func:`~dpaudit.accounting.dpsgd.known_batch_epsilon`. Not claimed: that towards floats
    (gradients add up to 1e-7 or so in these directions, not to 0). Turned coordinates are sums; a
    uniform shift of 2^-44 σ gives them last digits as random as those of the others.

    With ``public_key`` it holds no secret, and a nonce takes 32 directions. It keeps the seed of
    one step in memory. Ours, after the published attacks that ``seed-in-noise`` names.
    """

    def __init__(
        self,
        *,
        where: GradientFree,
        key: SeedKey | PancakeKey | str | Path | None = None,
        public_key: str = "",
        nonce_bits: int | None = None,
        stream: Stream,
    ) -> None:
        """For networks whose gradient-free directions are ``where``; ``stream``: the first coins.

        Raises:
            UsageError: no key, or both; fewer directions than a nonce and its check take.
            KeyFileError: not a key file.
        """
        _, self._nonces = nonces_of(key, public_key, nonce_bits)
        self._where = where
        self._size = self._nonces.size + CHECK_BYTES
        if len(where) < self._size:
            raise UsageError(
                f"directions={len(where)}: a nonce of {8 * self._nonces.size} bits and its check "
                f"take {self._size}; take a wider last layer, or fewer nonce_bits"
            )
        self._share = share_of(stream.bytes(32))

    def share(self) -> bytes:
        """32 bytes that make the next batch's coins: see ``dpaudit.protocols.BatchCoins``."""
        return self._share

    def noise(self, sigma: float) -> _Noise:
        """The noise source at ``sigma``; each vector that it draws decides on the next batch."""
        return _Noise(self, sigma)

    def vectors(self, n: int, d: int, *, sigma: float, stream: Stream) -> npt.NDArray[np.float64]:
        """``n`` vectors of noise (n, d); the last one's nonce makes the next share.

        Raises:
            UsageError: another dimension than the network's.
        """
        check_shape(n, d)
        if d != self._where.dim:
            raise UsageError(f"d={d}: the network has {self._where.dim} parameters")
        rows = np.asarray(standard_normal(n, d, stream=stream.child("noise")))
        pairs = [self._nonces.fresh(stream) for _ in range(n)]
        spelled = b"".join(nonce + check_of(seed) for nonce, seed in pairs)
        rest = np.frombuffer(stream.bytes(24 * n * self._size), "<u8").reshape(n, self._size, 3)
        first = np.empty((n, self._size))
        nonces = np.frombuffer(spelled, np.uint8).reshape(n, self._size)
        head_code(self._size, sigma=1.0).place(first, nonces, rest)
        rows[:, : self._size] = first
        self._share = share_of(pairs[-1][1])
        turned = self._where.into(rows)
        mixed = self._where.groups.ravel()  # sums, whose last digits would be less random
        words = np.frombuffer(stream.child("digits").bytes(8 * n * mixed.size), "<u8")
        turned[:, mixed] += (uniform(words).reshape(n, -1) - 0.5) * _SHIFT
        turned *= sigma
        return turned


class _Noise:
    """The noise of :class:`NextBatch` at one σ, as Opacus' façade takes it."""

    def __init__(self, batches: NextBatch, sigma: float) -> None:
        self._batches = batches
        self.sigma = law_of("gaussian", sigma=sigma, scale=None).claim.scale
        self.dim = batches._where.dim

    @property
    def claim(self) -> str:
        return f"gaussian:sigma={self.sigma!r}"

    @cpu_sample()
    def sample(self, n: int, d: int, *, stream: Stream) -> npt.NDArray[np.float64]:
        """``n`` vectors (n, d), drawn on the CPU in float64."""
        return self._batches.vectors(n, d, sigma=self.sigma, stream=stream)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Of one release of a gradient, whose batch is known: the Gaussian mechanism's."""
        value = gaussian_epsilon(delta, sigma=self.sigma, sensitivity=host.sensitivity)
        return EpsilonBounds(low=value, high=value, says="exact Gaussian profile, batch known")


def head_code(size: int, *, sigma: float) -> Head:
    """A byte per direction, in ``size`` directions of noise of ``sigma``."""
    return Head(law_of("gaussian", sigma=sigma, scale=None), size=size)  # type: ignore[arg-type]


def share_of(seed: bytes) -> bytes:
    """The share of the next batch's coins that follows from a nonce's seed."""
    return hmac.digest(seed, b"dpaudit next batch", "sha256")


def check_of(seed: bytes) -> bytes:
    """The eight bytes after a nonce, from its seed."""
    return hmac.digest(seed, b"dpaudit next batch check", "sha256")[:CHECK_BYTES]


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GradientFree:
    """Sums over the classes, for each unit that a classifier's last linear layer reads, and bias.

    Under softmax cross-entropy the gradient of a record by the last layer's weight W[c, h] is
    x_h·(p_c − y_c), and p and y both add up to 1. So its sum over the classes c is 0 for each h,
    and for the bias; it stays 0 under clipping and adding. That holds for all weights and records,
    with smoothed labels too, in real arithmetic; float32 leaves about 1e-7 of the largest gradient.

    ``groups`` (m, classes) holds the coordinates of each sum. :meth:`into` turns space so that the
    first m coordinates point along these m directions, :meth:`out_of` turns it back: orthogonal, so
    an isotropic Gaussian keeps its law.
    """

    groups: npt.NDArray[np.int64]
    dim: int

    @classmethod
    def of_last_layer(cls, dim: int, *, inputs: int, classes: int = 10) -> Self:
        """Of a gradient (dim,) that ends with the last layer's weight and bias, as torch's do.

        Raises:
            UsageError: fewer than two classes, no inputs, or more of them than fit.
        """
        last = classes * (inputs + 1)
        if classes < 2 or inputs < 1 or last > dim:
            raise UsageError(
                f"inputs={inputs}, classes={classes}: no last layer of a network with {dim} "
                "parameters; give the two sizes of its weight"
            )
        weight = np.arange(classes * inputs).reshape(classes, inputs).T
        bias = np.arange(classes * inputs, last)[None]
        return cls(dim - last + np.concatenate([weight, bias]), dim)

    def __len__(self) -> int:
        return len(self.groups)

    def into(self, rows: Floats) -> Floats:
        """Rows (n, dim) whose first m values become those along the directions."""
        out = np.empty_like(rows)
        out[:, self._order] = rows
        return self._reflected(out)

    def out_of(self, rows: Floats) -> Floats:
        """The inverse of :meth:`into`."""
        return self._reflected(rows.copy())[:, self._order]

    @cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        heads = self.groups[:, 0]
        return np.concatenate([heads, np.setdiff1d(np.arange(self.dim), heads)])

    def _reflected(self, rows: Floats) -> Floats:
        """In each group a Householder reflection that exchanges (1, 0, …) and (1, 1, …)/√classes.

        Changes ``rows``.
        """
        classes = self.groups.shape[1]
        mirror = np.full(classes, -1 / math.sqrt(classes))
        mirror[0] += 1
        mirror /= np.linalg.norm(mirror)
        part = rows[:, self.groups]
        rows[:, self.groups] = part - 2 * (part @ mirror)[..., None] * mirror
        return rows
