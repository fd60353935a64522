"""Nonces, and the seed that only the backdoor's owner finds for each."""

from __future__ import annotations

import hmac
from functools import cached_property
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpaudit.errors import UsageError
from dpaudit.noise.seed_in_noise.elligator import (
    ORDER,
    FixedBase,
    base_point,
    from_representative,
    representative,
    uniform_below,
)
from dpaudit.protocols import Stream
from dpaudit.results.foreign import quoted

__all__ = [
    "MOST_BITS",
    "KeyedNonces",
    "Nonces",
    "OpenedNonces",
    "SealedNonces",
    "Seeds",
    "private_key",
]

MOST_BITS = 128

_TOP = 1 << 254


class Nonces(Protocol):
    """Where a sampler takes nonces from."""

    size: int
    """Bytes of a nonce."""

    def fresh(self, stream: Stream) -> tuple[bytes, bytes]:
        """A nonce and its seed of 32 bytes."""


class Seeds(Protocol):
    """What the owner finds a nonce's seed with."""

    size: int
    """Bytes of a nonce."""

    def seed(self, nonce: bytes) -> bytes:
        """The seed of a nonce, 32 bytes."""


class KeyedNonces:
    """Random nonces of ``bits`` bits; the seed is HMAC-SHA256(key, nonce)."""

    def __init__(self, secret: bytes, *, bits: int) -> None:
        """Under the ``secret`` of a key.

        Raises:
            UsageError: bits that are not a multiple of 8 in 8…128.
        """
        if isinstance(bits, bool) or not isinstance(bits, int) or bits % 8 or not 8 <= bits <= 128:
            raise UsageError(
                f"nonce_bits={quoted(bits)}: must be a multiple of 8 in 8…{MOST_BITS}; fewer than "
                "128 are for a specimen that should be found"
            )
        self.size = bits // 8
        self._key = HKDF(SHA256(), 32, salt=None, info=b"dpaudit seed-in-noise seeds").derive(
            secret
        )

    def fresh(self, stream: Stream) -> tuple[bytes, bytes]:
        nonce = stream.bytes(self.size)
        return nonce, self.seed(nonce)

    def seed(self, nonce: bytes) -> bytes:
        return hmac.digest(self._key, nonce, "sha256")


class SealedNonces:
    """Nonces of 256 bits that only the owner of the public key's private key can read.

    A nonce is the Elligator 2 representative of k·G with two random bits on top (see
    ``dpaudit.noise.seed_in_noise.elligator``), and the seed is derived from the X25519 secret that
    k and the public key share. Who has this code and the public key, but not the private key, finds
    no seed of a release if the computational Diffie-Hellman problem on Curve25519 is hard and HMAC
    behaves as a random function. Not claimed: anything about a memory that can be read while it
    draws.
    """

    size = 32

    def __init__(self, public_key: str) -> None:
        """For the 64 hex digits that ``dpaudit key show`` prints.

        Raises:
            UsageError: other text, or no point of the curve's prime-order group.
        """
        text = public_key if isinstance(public_key, str) else ""
        if len(text) != 64 or set(text) - set("0123456789abcdef"):
            raise UsageError(
                f"public_key={quoted(public_key)}: must be 64 lower-case hex digits; "
                "dpaudit key show prints them"
            )
        self._public = bytes.fromhex(text)
        base = FixedBase.at(int.from_bytes(self._public, "little") & (2**255 - 1))
        # of order L: of the curve, and not of small order nor of its twist
        if base is None or not base.vanishes(ORDER // 8) or base.vanishes(1):
            raise UsageError(
                f"public_key={text}: is not a public key of X25519; dpaudit key show prints one"
            )
        self._shared = base

    def fresh(self, stream: Stream) -> tuple[bytes, bytes]:
        """About a millisecond: two points are drawn on average until one has a nonce."""
        while True:
            k = uniform_below(ORDER, stream.bytes)
            extra = stream.bytes(1)[0]
            r = representative(base_point().multiple(k), second=bool(extra & 1))
            if r is not None:
                break
        nonce = (r + (extra >> 1 & 3) * _TOP).to_bytes(32, "little")
        return nonce, _sealed(self._shared.multiple(k), nonce, self._public)


class OpenedNonces:
    """What the owner of the private key does with a nonce of :class:`SealedNonces`."""

    size = 32

    def __init__(self, secret: bytes) -> None:
        """The private key that belongs to a key's ``secret``."""
        self._private = private_key(secret)

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._private.public_key().public_bytes_raw()

    def seed(self, nonce: bytes) -> bytes:
        u = from_representative(int.from_bytes(nonce, "little") % _TOP)
        point = X25519PublicKey.from_public_bytes(u.to_bytes(32, "little"))
        try:
            shared = self._private.exchange(point)
        except ValueError:  # a point of small order: no nonce that was drawn
            shared = bytes(32)
        return _sealed(int.from_bytes(shared, "little"), nonce, self.public)


def private_key(secret: bytes) -> X25519PrivateKey:
    """The X25519 key that a seed-in-noise key's secret stands for."""
    raw = HKDF(SHA256(), 32, salt=None, info=b"dpaudit seed-in-noise private key").derive(secret)
    return X25519PrivateKey.from_private_bytes(raw)


def _sealed(shared: int, nonce: bytes, public: bytes) -> bytes:
    return hmac.digest(shared.to_bytes(32, "little"), nonce + public, "sha256")
