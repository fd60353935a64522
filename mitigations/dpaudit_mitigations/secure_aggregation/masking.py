"""Masks: AES-256-CTR key streams added to a vector modulo 2^b and removed again, in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpaudit_mitigations.secure_aggregation.keys import KEY_BYTES, derive
from dpaudit_mitigations.secure_aggregation.plan import RingArray, transcript

__all__ = ["Mask", "apply_masks", "own_mask", "pair_mask"]

_CHUNK = 1 << 17  # bytes: a piece of the vector stays in cache while all masks go over it
_ZEROS = bytes(_CHUNK)
_BLOCK = 16


@dataclass(frozen=True, kw_only=True)
class Mask:
    """A 256-bit key used for this one mask, and whether the mask is added or subtracted."""

    key: bytes = field(repr=False)
    subtract: bool = False

    def __neg__(self) -> Mask:
        return Mask(key=self.key, subtract=not self.subtract)


def own_mask(seed: bytes, *, agreed: bytes, party: str) -> Mask:
    """The mask that only ``party`` adds, from its 32-byte seed."""
    info = transcript("own mask", agreed, party.encode())
    return Mask(key=HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(seed))


def pair_mask(own: X25519PrivateKey, other: bytes, *, agreed: bytes, party: str, peer: str) -> Mask:
    """The mask of ``party`` (private key ``own``) against ``peer``: first adds, second subtracts.

    Both derive the same key: HKDF over X25519 with the purpose, ``agreed`` (the transcript so far,
    hence the round, all keys and all parties) and both names in its info. So no key serves two
    rounds, pairs or purposes, and counters start at 0.

    Raises:
        CheatingError: the peer's public key is a point of small order.
    """
    first, second = sorted((party, peer))
    key = derive(own, other, "pair mask", agreed, first.encode(), second.encode(), peer=peer)
    return Mask(key=key, subtract=party == second)


def apply_masks(vector: RingArray, masks: Sequence[Mask]) -> None:
    """Put all masks on ``vector`` (d,), contiguous, of a ring's dtype, in place and modulo 2^b.

    Each mask is the AES-256-CTR key stream from counter 0, as little-endian integers of b bits: as
    many bytes of key stream as the vector has, none stretched or repeated.
    """
    ciphers = [
        Cipher(algorithms.AES256(m.key), modes.CTR(bytes(_BLOCK))).encryptor() for m in masks
    ]
    buffer = bytearray(_CHUNK + _BLOCK - 1)
    size = vector.dtype.itemsize
    step = _CHUNK // size
    for at in range(0, len(vector), step):
        part = vector[at : at + step]
        stream = np.frombuffer(buffer, dtype=vector.dtype, count=len(part))
        zeros = _ZEROS if len(part) == step else _ZEROS[: len(part) * size]
        for mask, cipher in zip(masks, ciphers, strict=True):
            cipher.update_into(zeros, buffer)
            if mask.subtract:
                np.subtract(part, stream, out=part)
            else:
                np.add(part, stream, out=part)
