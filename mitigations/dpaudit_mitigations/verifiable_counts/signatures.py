"""The verifier's signature on a finished session: without it, a prover alone could draw coins until they please."""

from __future__ import annotations

import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpaudit.errors import CheatingError
from dpaudit_mitigations.verifiable_counts.terms import Terms

__all__ = ["KEY_BYTES", "SIGNATURE_BYTES", "check_signature", "sign_session"]

KEY_BYTES = 32
SIGNATURE_BYTES = 64


def _signed(terms: Terms, commitments: bytes, challenge: bytes, response: bytes) -> bytes:
    digests = b"".join(hashlib.sha512(part).digest() for part in (terms.encode(), commitments, challenge, response))
    return b"dpaudit verifiable-counts v1 signature " + digests


def sign_session(
    terms: Terms, *, commitments: bytes, challenge: bytes, response: bytes, key: Ed25519PrivateKey
) -> bytes:
    """64 bytes (Ed25519) over the terms and the three messages; for a verifier that drew the challenge and accepted."""
    return key.sign(_signed(terms, commitments, challenge, response))


def check_signature(
    signature: bytes, terms: Terms, *, commitments: bytes, challenge: bytes, response: bytes, verifier: bytes
) -> None:
    """Accept ``signature`` by the public key ``verifier`` (32 bytes) or raise.

    Raises:
        CheatingError: it does not hold, or ``verifier`` is no public key.
    """
    try:
        public = Ed25519PublicKey.from_public_bytes(verifier)
        public.verify(signature, _signed(terms, commitments, challenge, response))
    except (InvalidSignature, ValueError) as error:
        raise CheatingError("the session is not signed by the verifier that the transcript names") from error
