"""Who takes part in a round: each contributor's signing key, vouched for by its certificate.

The aggregator distributes the introductions but is not trusted with them: every contributor checks
each one against the authority in its *own* folder and its *own* terms of the round. If an
aggregator invents a contributor, or gives two of them different terms, nobody continues.
"""

from __future__ import annotations

import datetime
from typing import Annotated

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from msgspec import Meta

from dpaudit.errors import KeyFileError, PeerError
from dpaudit_mitigations.codec import Message, pack, unpack
from dpaudit_mitigations.transport.certificates import BROKEN, Identity, party_of

__all__ = ["LARGEST_INTRODUCTION", "check_introduction", "introduce"]

LARGEST_INTRODUCTION = 1 << 13
"""Bytes, at most."""


class _Introduction(Message, frozen=True, kw_only=True, tag="secagg introduction"):
    certificate: Annotated[bytes, Meta(min_length=1, max_length=LARGEST_INTRODUCTION)]
    signature: Annotated[bytes, Meta(min_length=1, max_length=128)]
    signing: Annotated[bytes, Meta(min_length=32, max_length=32)]


class _Statement(Message, frozen=True, kw_only=True, tag="secagg introduction statement"):
    """What is signed; it is never sent."""

    name: str
    signing: bytes
    terms: bytes


def introduce(identity: Identity, *, signing: bytes, terms: bytes) -> bytes:
    """The message in which ``identity`` certifies its Ed25519 key ``signing`` for ``terms``.

    ``signing`` is the raw public key, 32 bytes; ``terms`` a digest of everything the contributors
    must agree on, 32 bytes. Signed by the certificate's key (ECDSA on P-256), with the certificate
    enclosed.

    Raises:
        KeyFileError: the identity's key is not on P-256.
    """
    key = load_pem_private_key(identity.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise KeyFileError("key=key.pem: not an elliptic-curve key; use dpaudit serve init")
    certificate = x509.load_pem_x509_certificate(identity.certificate)
    signature = key.sign(_statement(identity.name, signing, terms), ec.ECDSA(SHA256()))
    enclosed = certificate.public_bytes(Encoding.DER)
    return pack(_Introduction(certificate=enclosed, signature=signature, signing=signing))


def check_introduction(data: bytes, *, name: str, authority: bytes, terms: bytes) -> bytes:
    """The signing key (raw, 32 bytes) that ``name`` certified for the round with ``terms``.

    ``authority`` (PEM) is the one that the reader trusts.

    Raises:
        MessageError: not an introduction.
        PeerError: the certificate is not the authority's, not valid now, or not ``name``'s; or its
            key did not sign this key for these terms.
    """
    found = unpack(data, _Introduction)
    try:
        certificate = x509.load_der_x509_certificate(found.certificate)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        named, public = party_of(certificate), certificate.public_key()
    except (*BROKEN, InvalidSignature) as error:
        raise PeerError(f"{name}: its certificate is not from our authority") from error
    now = datetime.datetime.now(datetime.UTC)
    if (
        named != name
        or not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
    ):
        raise PeerError(f"{name}: its certificate is another party's, or not valid now")
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise PeerError(f"{name}: its certificate's key is not on an elliptic curve")
    try:
        public.verify(found.signature, _statement(name, found.signing, terms), ec.ECDSA(SHA256()))
    except InvalidSignature as error:
        raise PeerError(
            f"{name}: did not sign its key for this round's terms; give every contributor the same "
            "round, parties, threshold, colluding, dimension, bound, sigma, bits and noise"
        ) from error
    return found.signing


def _statement(name: str, signing: bytes, terms: bytes) -> bytes:
    return pack(_Statement(name=name, signing=signing, terms=terms))
