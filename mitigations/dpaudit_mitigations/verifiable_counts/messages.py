"""The three messages of a session, of fixed lengths that follow from the terms.

1. prover: commitments to the counts and to the rows of private bits;
2. verifier: 32 bytes that the public coins are expanded from;
3. prover: commitments to the rows' signed sums, the released numbers, the blindings that open their
   commitments, and a proof per block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpaudit.errors import CheatingError, MessageError
from dpaudit_mitigations.verifiable_counts.bit_proofs import BlockProof
from dpaudit_mitigations.verifiable_counts.group import (
    SIZE,
    decode_points,
    decode_scalars,
    encode_scalars,
)
from dpaudit_mitigations.verifiable_counts.terms import MOST_IN_ALL, SESSION_BYTES, CountTerms

__all__ = [
    "LARGEST_RELEASE",
    "Commitments",
    "Response",
    "check_signature",
    "decode_seed",
    "encode_seed",
    "public_coins",
    "sign_session",
    "wire_bytes",
]

_MAGIC = b"dpVC1"
_HEAD = len(_MAGIC) + 1 + 48
_SEED = 32
LARGEST_RELEASE = 1 << 53


def _frame(number: int, terms: CountTerms, payload: bytes) -> bytes:
    return _MAGIC + bytes([number]) + terms.encode() + payload


def _unframe(number: int, terms: CountTerms, data: bytes, *, size: int) -> bytes:
    if not isinstance(data, bytes) or len(data) != _HEAD + size:
        raise MessageError(f"message {number}: must have {_HEAD + size} bytes")
    if data[:_HEAD] != _frame(number, terms, b""):
        raise MessageError(f"message {number}: of another kind, session or terms")
    return data[_HEAD:]


@dataclass(frozen=True)
class Commitments:
    """Message 1: a point per bin, then a point per row."""

    counts: Sequence[bytes]
    rows: Sequence[bytes]

    @staticmethod
    def size(terms: CountTerms) -> int:
        """Bytes of the whole message."""
        return _HEAD + SIZE * (terms.bins + terms.rows)

    def encode(self, terms: CountTerms) -> bytes:
        return _frame(1, terms, b"".join([*self.counts, *self.rows]))

    @classmethod
    def decode(cls, data: bytes, terms: CountTerms) -> Commitments:
        """The message.

        Raises:
            MessageError: another length, header, or a point that is not canonical or the identity.
        """
        points = decode_points(_unframe(1, terms, data, size=cls.size(terms) - _HEAD))
        return cls(points[: terms.bins], points[terms.bins :])


def encode_seed(seed: bytes, terms: CountTerms) -> bytes:
    """Message 2."""
    return _frame(2, terms, seed)


def decode_seed(data: bytes, terms: CountTerms) -> bytes:
    """The seed in message 2.

    Raises:
        MessageError: another length or header.
    """
    return _unframe(2, terms, data, size=_SEED)


def public_coins(
    terms: CountTerms, *, commitments: bytes, challenge: bytes
) -> npt.NDArray[np.uint8]:
    """The public coins, shape (bins, coins): SHAKE-256 of messages 1 and 2."""
    count = terms.bins * terms.coins
    digest = hashlib.sha512(commitments).digest() + challenge
    data = hashlib.shake_256(b"dpaudit verifiable-counts v1 coins " + digest).digest(-(-count // 8))
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count)
    return bits.reshape(terms.bins, terms.coins)


@dataclass(frozen=True)
class Response:
    """Message 3."""

    sums: Sequence[bytes]
    released: Sequence[int]
    blindings: Sequence[int]
    proofs: Sequence[BlockProof]

    @staticmethod
    def _parts(terms: CountTerms) -> list[int]:
        proofs = [
            BlockProof.size(rows=b.stop - b.start, columns=terms.columns) for b in terms.blocks
        ]
        return [SIZE * terms.rows, 8 * terms.bins, SIZE * terms.bins, *proofs]

    @classmethod
    def size(cls, terms: CountTerms) -> int:
        """Bytes of the whole message."""
        return _HEAD + sum(cls._parts(terms))

    def encode(self, terms: CountTerms) -> bytes:
        numbers = np.array(self.released, dtype="<i8").tobytes()
        proofs = [proof.encode() for proof in self.proofs]
        return _frame(
            3, terms, b"".join([*self.sums, numbers, encode_scalars(self.blindings), *proofs])
        )

    @classmethod
    def decode(cls, data: bytes, terms: CountTerms) -> Response:
        """The message.

        Raises:
            MessageError: another length or header, a point or scalar that is not canonical, or a
                released number beyond 2^53.
        """
        parts = cls._parts(terms)
        payload = _unframe(3, terms, data, size=sum(parts))
        ends = np.cumsum(parts).tolist()
        pieces = [payload[end - part : end] for part, end in zip(parts, ends, strict=True)]
        sums = decode_points(pieces[0])
        released = np.frombuffer(pieces[1], "<i8").tolist()
        if any(abs(number) > LARGEST_RELEASE for number in released):
            raise MessageError("message 3: a released number beyond 2^53")
        proofs = [
            BlockProof.decode(piece, rows=b.stop - b.start, columns=terms.columns)
            for piece, b in zip(pieces[3:], terms.blocks, strict=True)
        ]
        return cls(sums, released, decode_scalars(pieces[2]), proofs)


def wire_bytes(*, bins: int, coins: int) -> int:
    """Bytes of all messages of such a session, or of several if one cannot take all bins."""
    most = max(1, MOST_IN_ALL // coins)
    total = 0
    for at in range(0, bins, most):
        terms = CountTerms(bytes(SESSION_BYTES), min(most, bins - at), coins)
        total += Commitments.size(terms) + _HEAD + _SEED + Response.size(terms)
    return total


KEY_BYTES = 32
SIGNATURE_BYTES = 64


def _signed(terms: CountTerms, commitments: bytes, challenge: bytes, response: bytes) -> bytes:
    digests = b"".join(
        hashlib.sha512(part).digest() for part in (terms.encode(), commitments, challenge, response)
    )
    return b"dpaudit verifiable-counts v1 signature " + digests


def sign_session(
    terms: CountTerms,
    *,
    commitments: bytes,
    challenge: bytes,
    response: bytes,
    key: Ed25519PrivateKey,
) -> bytes:
    """64 bytes (Ed25519) over terms and messages: the verifier drew the challenge and accepted."""
    return key.sign(_signed(terms, commitments, challenge, response))


def check_signature(
    signature: bytes,
    terms: CountTerms,
    *,
    commitments: bytes,
    challenge: bytes,
    response: bytes,
    verifier: bytes,
) -> None:
    """Accept ``signature`` by the public key ``verifier`` (32 bytes) or raise.

    Raises:
        CheatingError: it does not hold, or ``verifier`` is not a public key.
    """
    try:
        public = Ed25519PublicKey.from_public_bytes(verifier)
        public.verify(signature, _signed(terms, commitments, challenge, response))
    except (InvalidSignature, ValueError) as error:
        raise CheatingError("the session is not signed by the transcript's verifier") from error
