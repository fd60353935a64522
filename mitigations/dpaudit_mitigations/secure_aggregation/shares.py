"""Shamir shares of a party's secrets, and the sealed envelopes that carry them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpaudit.errors import CheatingError, MessageError, MissingExtraError, UsageError
from dpaudit_mitigations.secure_aggregation.keys import KEY_BYTES, derive
from dpaudit_mitigations.secure_aggregation.plan import transcript

__all__ = [
    "PRIME",
    "SEALED_BYTES",
    "SHARE_BYTES",
    "open_shares",
    "recombine",
    "seal_shares",
    "split",
]


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
        MessageError: too few shares, or one that is no number below the prime.
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


def seal_shares(
    seed_share: bytes,
    key_share: bytes,
    *,
    own: X25519PrivateKey,
    other: bytes,
    agreed: bytes,
    sender: str,
    recipient: str,
) -> bytes:
    """Both shares for one recipient under AES-256-GCM, 82 bytes; the key serves this one envelope.

    Key and associated data are bound to ``agreed`` (the round and all its public keys), the sender
    and the recipient.
    """
    key, bound = _envelope(own, other, agreed, sender, recipient, peer=recipient)
    return AESGCM(key).encrypt(_NONCE, seed_share + key_share, bound)


def open_shares(
    sealed: bytes,
    *,
    own: X25519PrivateKey,
    other: bytes,
    agreed: bytes,
    sender: str,
    recipient: str,
) -> tuple[bytes, bytes]:
    """(share of the seed, share of the masking key) of ``sender``.

    Raises:
        CheatingError: it was changed, moved from another round or meant for someone else.
    """
    key, bound = _envelope(own, other, agreed, sender, recipient, peer=sender)
    try:
        plain = AESGCM(key).decrypt(_NONCE, sealed, bound)
    except InvalidTag:
        raise CheatingError(
            f"shares from {sender} for {recipient}: not what {sender} sealed"
        ) from None
    if len(plain) != 2 * SHARE_BYTES:
        raise MessageError(f"shares from {sender}: {len(plain)} bytes, takes {2 * SHARE_BYTES}")
    return plain[:SHARE_BYTES], plain[SHARE_BYTES:]


def _envelope(
    own: X25519PrivateKey, other: bytes, agreed: bytes, sender: str, recipient: str, *, peer: str
) -> tuple[bytes, bytes]:
    ends = sender.encode(), recipient.encode()
    return derive(own, other, "envelope", agreed, *ends, peer=peer), transcript(
        "envelope", agreed, *ends
    )
