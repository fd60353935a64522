"""The secrets of a round: signing and one-time keys, masks, and Shamir shares in sealed envelopes.

Masks are AES-256-CTR key streams, added to a vector modulo 2^b and removed again, in place.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpaudit.errors import CheatingError, MessageError, MissingExtraError, UsageError
from dpaudit.protocols import Stream
from dpaudit_mitigations.secure_aggregation.plan import RingArray, transcript

__all__ = [
    "KEY_BYTES",
    "PRIME",
    "SEALED_BYTES",
    "SHARE_BYTES",
    "SIGNATURE_BYTES",
    "Envelope",
    "Mask",
    "RoundKeys",
    "apply_masks",
    "check_public",
    "derive",
    "new_signing_key",
    "own_mask",
    "pair_mask",
    "public_bytes",
    "recombine",
    "sign",
    "split",
    "verify",
]

KEY_BYTES = 32
SIGNATURE_BYTES = 64

# not secret: with this key every small-order point shows
_ANY = X25519PrivateKey.from_private_bytes(bytes([1]) * KEY_BYTES)


def new_signing_key(stream: Stream) -> Ed25519PrivateKey:
    """A long-term key from the stream's next 32 bytes; every roster needs its public bytes."""
    return Ed25519PrivateKey.from_private_bytes(stream.bytes(KEY_BYTES))


def public_bytes(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    """The raw public key, 32 bytes."""
    return key.public_key().public_bytes_raw()


@dataclass(frozen=True, kw_only=True)
class RoundKeys:
    """One party's secrets of one round; they are never printed.

    ``masking`` makes the masks with each other party; the others can rebuild it if this party drops
    out. ``sharing`` encrypts the shares and is never shared: who rebuilds a mask must not read
    envelopes. ``seed`` makes the party's own mask.
    """

    masking: X25519PrivateKey = field(repr=False)
    sharing: X25519PrivateKey = field(repr=False)
    seed: bytes = field(repr=False)

    @classmethod
    def draw(cls, stream: Stream) -> RoundKeys:
        """96 further bytes of the stream, 32 for each."""
        masking, sharing, seed = (stream.bytes(KEY_BYTES) for _ in range(3))
        return cls(
            masking=X25519PrivateKey.from_private_bytes(masking),
            sharing=X25519PrivateKey.from_private_bytes(sharing),
            seed=seed,
        )

    @property
    def commitment(self) -> bytes:
        """What the rebuilt seed must hash to."""
        return transcript("seed", self.seed)


def sign(key: Ed25519PrivateKey, label: str, *parts: bytes) -> bytes:
    """Ed25519 over :func:`transcript` of a label and byte strings."""
    return key.sign(transcript(label, *parts))


def verify(public: bytes, signature: bytes, label: str, *parts: bytes, signer: str) -> None:
    """Check a signature of :func:`sign`.

    Raises:
        CheatingError: it is not one of ``signer`` (the name is for the text only) over these parts.
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, transcript(label, *parts))
    except (InvalidSignature, ValueError):
        raise CheatingError(f"{label} of {signer}: the signature is not {signer}'s") from None


def derive(own: X25519PrivateKey, other: bytes, purpose: str, *parts: bytes, peer: str) -> bytes:
    """A 32-byte key that two parties share: HKDF-SHA256 over X25519, bound to ``purpose, *parts``.

    Raises:
        CheatingError: the other's public key is a point of small order.
    """
    secret = _exchange(own, other, peer)
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=transcript(purpose, *parts)).derive(secret)


def check_public(key: bytes, *, owner: str) -> None:
    """Check a raw X25519 public key.

    Raises:
        CheatingError: it is a point of small order, with which nobody can share a secret.
    """
    _exchange(_ANY, key, owner)


def _exchange(own: X25519PrivateKey, other: bytes, peer: str) -> bytes:
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise CheatingError(f"public key of {peer}: of small order, so not an honest one") from None


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


def _load_mpyc() -> tuple[Any, Any]:
    """``import mpyc`` parses ``sys.argv`` and sets up the root logger; keep it from both."""
    arguments, root = sys.argv, logging.getLogger()
    silence = logging.NullHandler()
    sys.argv = [*arguments[:1], "--no-log"]
    root.addHandler(silence)  # a root with a handler is left as it is
    try:
        import mpyc.finfields as fields
        import mpyc.thresha as sharing
    except ModuleNotFoundError as e:
        raise MissingExtraError(
            "secure aggregation: needs mpyc; pip install 'dpaudit[protocols]'"
        ) from e
    finally:
        sys.argv = arguments
        root.removeHandler(silence)
    return fields, sharing


finfields, thresha = _load_mpyc()

PRIME = 2**256 + 297  # the least prime above every 32-byte secret
SHARE_BYTES = 33
SEALED_BYTES = 2 * SHARE_BYTES + 16

_FIELD = finfields.GF(PRIME)
_NONCE = bytes(12)  # each key seals one envelope


def split(secret: bytes, *, parties: int, threshold: int) -> list[bytes]:
    """Shares of a 32-byte secret for places 1 to ``parties``; any ``threshold`` of them restore it.

    Perfect secrecy below the threshold; the polynomial's coefficients come from the operating
    system's generator.

    Raises:
        UsageError: a secret of another length, or not 1 ≤ threshold ≤ parties.
    """
    if len(secret) != KEY_BYTES or not 1 <= threshold <= parties:
        raise UsageError(
            f"secret of {len(secret)} bytes (takes 32), threshold={threshold} of {parties}"
        )
    rows = thresha.random_split(
        _FIELD, [_FIELD(int.from_bytes(secret, "big"))], threshold - 1, parties
    )
    return [int(row[0]).to_bytes(SHARE_BYTES, "big") for row in rows]


def recombine(shares: Mapping[int, bytes], *, threshold: int) -> bytes:
    """The 32-byte secret from ``threshold`` of the shares (the lowest places), by place.

    Raises:
        MessageError: too few shares, or one that is not a number below the prime.
        CheatingError: they do not make a secret of 32 bytes, so that one of them is wrong.
    """
    if len(shares) < threshold:
        raise MessageError(f"{len(shares)} shares: {threshold} are needed")
    points = []
    for place in sorted(shares)[:threshold]:
        value = int.from_bytes(shares[place], "big")
        if len(shares[place]) != SHARE_BYTES or value >= PRIME:
            raise MessageError(f"share at place {place}: not a number below the field's order")
        points.append((place, [value]))
    secret = int(thresha.recombine(_FIELD, points)[0]) % PRIME  # plain integers come back unreduced
    if secret >= 1 << 256:
        raise CheatingError("shares that make no secret: at least one is wrong")
    return secret.to_bytes(KEY_BYTES, "big")


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """Carries the two shares of ``sender`` to one ``recipient`` under AES-256-GCM, in 82 bytes.

    ``own`` is this end's private key, ``other`` the other end's public one. Key and associated data
    are bound to ``agreed`` (the round and all its public keys), the sender and the recipient; the
    key serves this one envelope.
    """

    own: X25519PrivateKey = field(repr=False)
    other: bytes
    agreed: bytes
    sender: str
    recipient: str

    def seal(self, seed_share: bytes, key_share: bytes) -> bytes:
        """The envelope with both shares, at the sender's end.

        Raises:
            CheatingError: the recipient's public key is a point of small order.
        """
        cipher, bound = self._cipher(self.recipient)
        return cipher.encrypt(_NONCE, seed_share + key_share, bound)

    def open(self, sealed: bytes) -> tuple[bytes, bytes]:
        """(share of the seed, share of the masking key), at the recipient's end.

        Raises:
            CheatingError: it was changed, moved from another round or meant for someone else.
        """
        cipher, bound = self._cipher(self.sender)
        try:
            plain = cipher.decrypt(_NONCE, sealed, bound)
        except InvalidTag:
            raise CheatingError(
                f"shares from {self.sender} for {self.recipient}: not what {self.sender} sealed"
            ) from None
        if len(plain) != 2 * SHARE_BYTES:
            raise MessageError(
                f"shares from {self.sender}: {len(plain)} bytes, takes {2 * SHARE_BYTES}"
            )
        return plain[:SHARE_BYTES], plain[SHARE_BYTES:]

    def _cipher(self, peer: str) -> tuple[AESGCM, bytes]:
        parts = self.agreed, self.sender.encode(), self.recipient.encode()
        key = derive(self.own, self.other, "envelope", *parts, peer=peer)
        return AESGCM(key), transcript("envelope", *parts)
