"""Keyed random streams: HKDF for the tree, ChaCha20 for the bytes.

Every random number in an experiment comes from one 32-byte root through named children, so a cell's
numbers do not depend on which cells ran before it, on which machine, or in what order.
"""

from __future__ import annotations

import secrets
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from dpaudit.errors import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["KEY_BYTES", "KeyedStream", "coin_words", "members"]

KEY_BYTES = 32


class KeyedStream:
    """A stream of randomness under a 32-byte key.

    Formal guarantees: ``bytes`` is ChaCha20 under a key derived by HKDF-SHA256 (RFC 5869, RFC
    8439), so it is indistinguishable from uniform to anyone without the key, and children with
    different labels are independent in the same sense. Not claimed: ``numpy`` and ``torch`` are
    fast statistical generators *seeded* from the stream; whoever sees enough of their raw
    output can predict the rest.

    >>> root = KeyedStream.from_seed(7)
    >>> root.child("cell", 3).bytes(4) == KeyedStream.from_seed(7).child("cell", 3).bytes(4)
    True
    """

    def __init__(self, key: bytes) -> None:
        """Start a stream under ``key`` (32 bytes).

        Raises:
            UsageError: the key has another length.
        """
        if len(key) != KEY_BYTES:
            raise UsageError(f"key of {len(key)} bytes: a stream key has {KEY_BYTES} bytes")
        self._key = key

    @classmethod
    def from_seed(cls, seed: int | str) -> KeyedStream:
        """A reproducible stream: the same seed gives the same numbers."""
        return cls(
            HKDF(SHA256(), KEY_BYTES, salt=b"dpaudit seed", info=b"root").derive(str(seed).encode())
        )

    @classmethod
    def fresh(cls) -> KeyedStream:
        """A stream that cannot be repeated, from the operating system's generator."""
        return cls(secrets.token_bytes(KEY_BYTES))

    def _derive(self, info: bytes) -> bytes:
        return HKDFExpand(SHA256(), KEY_BYTES, info).derive(self._key)

    def child(self, *labels: str | int) -> KeyedStream:
        """An independent stream named by ``labels``; ("a", "b") and ("ab",) name different ones."""
        labels = tuple(int(x) if isinstance(x, np.integer) else x for x in labels)  # numpy's 3 is 3
        encoded = [f"{type(x).__name__}:{x}".encode() for x in labels]
        return KeyedStream(
            self._derive(b"child" + b"".join(len(e).to_bytes(4, "big") + e for e in encoded))
        )

    @cached_property
    def _cipher(self) -> CipherContext:
        return Cipher(algorithms.ChaCha20(self._derive(b"bytes"), bytes(16)), mode=None).encryptor()

    @cached_property
    def _entropy(self) -> bytes:
        return self._derive(b"entropy")

    def entropy(self) -> bytes:
        """32 bytes for a seed: the same at every call, and independent of :meth:`bytes`."""
        return self._entropy

    def bytes(self, n: int) -> bytes:
        """The next ``n`` bytes of the key stream."""
        return self._cipher.update(bytes(n))

    def uniform(self, n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The next ``n`` doubles in the open interval (0, 1), odd multiples of 2^-53; 8 bytes each.

        52 bits, not 53: above one half the midpoints of a 53-bit grid are not doubles, and the last
        rounds to 1.
        """
        words = np.frombuffer(self.bytes(8 * n), dtype="<u8")
        return ((words >> 12).astype(np.float64) + 0.5) * 2.0**-52

    def numpy(self) -> np.random.Generator:
        """A fast generator, PCG64DXSM behind a 256-bit ``SeedSequence``, restarted at each call."""
        entropy = int.from_bytes(self._derive(b"numpy"), "big")
        return np.random.Generator(
            np.random.PCG64DXSM(np.random.SeedSequence(entropy, pool_size=8))
        )

    def torch(self, device: torch.device) -> torch.Generator:
        """A fast generator on a CUDA ``device``: Philox under a seed of 63 bits.

        torch's own default seed there has 53 bits.

        Raises:
            UsageError: for the CPU, whose torch generator keeps only 32 bits of a seed; use
                :meth:`numpy` there.
        """
        if device.type == "cpu":
            raise UsageError(
                "device=cpu: torch's CPU generator keeps 32 bits of a seed; use stream.numpy()"
            )
        import torch

        return torch.Generator(device=device).manual_seed(
            int.from_bytes(self._derive(b"torch")[:8], "big") >> 1
        )


def coin_words(share: bytes, records: int) -> npt.NDArray[np.uint64]:
    """The words of ``records`` records, shape (records,): ChaCha20 under ``share`` (32 bytes).

    Raises:
        UsageError: a share of another length.
    """
    return np.frombuffer(KeyedStream(share).bytes(8 * records), "<u8")


def members(words: npt.NDArray[np.uint64], *, rate: float) -> npt.NDArray[np.bool_]:
    """Which records are in the batch: those whose word is below ``rate``·2^64, shape of ``words``.

    Uniform words give independent coins of ``rate`` up to 2^-64.

    >>> members(np.array([0, 2**63, 2**64 - 1], np.uint64), rate=0.5).tolist()
    [True, False, False]

    Raises:
        UsageError: a rate outside (0, 1].
    """
    if isinstance(rate, (bool, str)) or not 0 < rate <= 1:
        raise UsageError(f"rate={rate}: must lie in (0, 1]; it is batch size / records")
    below = int(rate * 2**64)
    return np.ones(words.shape, np.bool_) if below >= 2**64 else words < np.uint64(below)
