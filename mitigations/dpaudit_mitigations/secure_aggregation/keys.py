"""Long-term signing keys, and the one-time keys of a round that they vouch for."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpaudit.errors import CheatingError
from dpaudit.protocols import Stream
from dpaudit_mitigations.secure_aggregation.plan import transcript

__all__ = [
    "KEY_BYTES",
    "SIGNATURE_BYTES",
    "RoundKeys",
    "check_public",
    "derive",
    "new_signing_key",
    "public_bytes",
    "sign",
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


def sign(key: Ed25519PrivateKey, what: str, *parts: bytes) -> bytes:
    """Ed25519 over :func:`transcript` of a label and byte strings."""
    return key.sign(transcript(what, *parts))


def verify(public: bytes, signature: bytes, what: str, *parts: bytes, signer: str) -> None:
    """Check a signature of :func:`sign`.

    Raises:
        CheatingError: it is not one of ``signer`` (the name is for the text only) over these parts.
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, transcript(what, *parts))
    except (InvalidSignature, ValueError):
        raise CheatingError(f"{what} of {signer}: the signature is not {signer}'s") from None


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
