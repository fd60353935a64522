"""Hash commitments, and the key from two shares: SHA-256 and HKDF, labelled, length-prefixed."""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpaudit_mitigations.codec import Digest

__all__ = ["SHARE_BYTES", "joint_key", "labelled_hash", "share_commitment"]

SHARE_BYTES = 32

_PROTOCOL = b"dpaudit joint-seeds 1"


def labelled_hash(label: str, *parts: bytes) -> Digest:
    """SHA-256 of ``label`` and ``parts``, each behind its length: equal only for equal inputs."""
    state = hashlib.sha256(_PROTOCOL)
    for part in (label.encode(), *parts):
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return Digest(state.digest())


def share_commitment(label: str, context: bytes, index: int, opening: bytes) -> Digest:
    """Commitment to a share; ``opening`` is share ‖ nonce, 32 bytes each.

    ``context`` binds it to one session.
    """
    return labelled_hash(label, context, index.to_bytes(4, "big"), opening)


def joint_key(session: bytes, index: int, server: bytes, verifier: bytes) -> bytes:
    """The 32-byte key of candidate ``index``: HKDF-SHA256 of both shares, with the session as salt.

    As long as one share is uniform, secret, and independent of the other when that is fixed, the
    key is indistinguishable from uniform to whoever lacks that share (HKDF with SHA-256 as a random
    oracle).
    """
    info = _PROTOCOL + b" candidate" + index.to_bytes(4, "big")
    shares = server[:SHARE_BYTES] + verifier[:SHARE_BYTES]
    return HKDF(SHA256(), 32, salt=session, info=info).derive(shares)
