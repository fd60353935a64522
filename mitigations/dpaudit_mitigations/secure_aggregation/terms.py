"""The terms of a round among processes, and who takes part in it, proved by certificates.

Each party has the terms from its operator. The aggregator distributes the introductions, in which a
contributor's certificate vouches for its signing key, but is not trusted with them: every
contributor checks each one against the authority in its *own* folder and its *own* terms of the
round. If an aggregator invents a contributor, or gives two of them different terms, nobody
continues.
"""

from __future__ import annotations

import datetime
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy.typing as npt
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from msgspec import Meta

from dpaudit.errors import KeyFileError, MessageError, PeerError, ProtocolError, UsageError
from dpaudit.protocols import Stream
from dpaudit_mitigations.codec import Message, Record, pack, unpack
from dpaudit_mitigations.secure_aggregation.noise import Law, NoiseShare, finest_granularity
from dpaudit_mitigations.secure_aggregation.plan import (
    ROUND_BYTES,
    FixedPoint,
    Plan,
    RingArray,
    transcript,
)
from dpaudit_mitigations.secure_aggregation.wire import Bytes32
from dpaudit_mitigations.transport.certificates import BROKEN, Identity, check_party, party_of

__all__ = ["Introduced", "Roster", "RoundTerms", "check_introduction", "check_roster", "introduce"]

MOST_PARTIES = 500
"""Contributors per round among processes, at most: each waits in a thread of the aggregator."""
_ROUND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class RoundTerms:
    """One round: ``round`` is a name never used again, ``parties`` are the contributors' names.

    Names are as in the certificates. ``threshold`` of them must stay to the end; up to
    ``colluding`` of them may work with the aggregator. Count among these whoever reads the sum and
    might remove noise of its own, alone or with others, and whoever's generator may be bad. Each
    contributes ``length`` values of at most ``bound`` in size, summed in integers of ``bits`` bits.
    ``sigma`` is the standard deviation of the noise in the sum that no colluder can remove: each
    adds σ/√(threshold − colluding), whichever honest ones the aggregator leaves out; 0 means no
    noise. Every field is hashed into :attr:`digest`, which all introductions, keys and signatures
    are bound to.

    Raises:
        UsageError: a field that breaks its rule, or a bound and noise that the ring has no room
            for.
    """

    round: str
    parties: tuple[str, ...]
    threshold: int
    length: int
    bound: float
    sigma: float
    bits: int = 32
    colluding: int = 0
    law: Law = "discrete-gaussian"

    def __post_init__(self) -> None:
        if not _ROUND.fullmatch(self.round):
            raise UsageError(
                f"round={self.round!r}: takes 1 to 64 of A-Z a-z 0-9 . _ -, starting with a letter "
                "or digit; take a new one each time"
            )
        if (
            len(set(map(check_party, self.parties))) != len(self.parties)
            or len(self.parties) > MOST_PARTIES
        ):
            raise UsageError(f"parties: {len(self.parties)} of at most {MOST_PARTIES}, none twice")
        nobody = {name: transcript("nobody's key", name.encode()) for name in self.parties}
        self._plan(nobody, b"")  # checks the plan's rules first
        _ = self.share  # and the ring's

    @property
    def least(self) -> int:
        """How many must join, at least: the sum of two reveals to each the other's vector."""
        return max(3, self.threshold)

    @property
    def honest(self) -> int:
        """The least number of survivors that do not collude: at least 2, by the plan's rules."""
        return self.threshold - self.colluding

    @cached_property
    def ring(self) -> FixedPoint:
        """How values become integers and the sum values: the finest granularity that fits."""
        own = self.sigma / self.honest**0.5
        return FixedPoint.finest(
            bits=self.bits,
            parties=len(self.parties),
            bound=self.bound,
            sigma=own,
            length=self.length,
            finest=finest_granularity(self.law, own) if own else 0.0,
        )

    @cached_property
    def share(self) -> NoiseShare | None:
        """What each contributor adds, or None for no noise."""
        granularity = self.ring.granularity
        if not self.sigma:
            return None
        return NoiseShare.calibrated(
            self.law, sigma=self.sigma, honest=self.honest, granularity=granularity
        )

    @cached_property
    def digest(self) -> bytes:
        """32 bytes, a hash of all fields."""
        whole = (self.threshold, self.length, self.bits, self.colluding, len(self.parties))
        numbers = struct.pack("<5Qd", *whole, self.sigma)
        names = (name.encode() for name in sorted(self.parties))
        return transcript(
            "terms", self.round.encode(), numbers, self.law.encode(), self.ring.context, *names
        )

    def plan(self, roster: Mapping[str, bytes]) -> Plan:
        """The plan of the round with the parties that joined: names and raw Ed25519 public keys.

        Raises:
            UsageError: fewer than 3, or than the threshold.
        """
        return self._plan(roster, self.digest)

    def encode(self, values: npt.NDArray[Any], *, stream: Stream) -> RingArray:
        """``values`` (length,) with this contributor's noise from ``stream``, in the ring.

        Raises:
            UsageError: another shape; a value beyond the bound or no number.
        """
        if values.shape != (self.length,):
            raise UsageError(f"input of shape {values.shape}: must be ({self.length},)")
        return self.ring.encode(values, noise=self.share.drawer(stream) if self.share else None)

    def _plan(self, roster: Mapping[str, bytes], context: bytes) -> Plan:
        return Plan(
            round=transcript("round", self.round.encode())[:ROUND_BYTES],
            roster=dict(roster),
            threshold=self.threshold,
            length=self.length,
            bits=self.bits,
            colluding=self.colluding,
            context=context,
        )


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


class Introduced(Record, frozen=True, kw_only=True):
    """One party of the roster, and its introduction."""

    introduction: Annotated[bytes, Meta(min_length=1, max_length=LARGEST_INTRODUCTION)]
    name: Annotated[str, Meta(max_length=32)]


class Roster(Message, frozen=True, kw_only=True, tag="secagg roster"):
    """To all parties that joined: who joined. ``session`` is the digest of the terms."""

    roster: Annotated[tuple[Introduced, ...], Meta(min_length=1, max_length=MOST_PARTIES)]
    session: Bytes32


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
    introduction = unpack(data, _Introduction)
    try:
        certificate = x509.load_der_x509_certificate(introduction.certificate)
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
        public.verify(
            introduction.signature,
            _statement(name, introduction.signing, terms),
            ec.ECDSA(SHA256()),
        )
    except InvalidSignature as error:
        raise PeerError(
            f"{name}: did not sign its key for this round's terms; give every contributor the same "
            "round, parties, threshold, colluding, dimension, bound, sigma, bits and noise"
        ) from error
    return introduction.signing


def check_roster(
    message: bytes, *, own: bytes, identity: Identity, terms: RoundTerms
) -> dict[str, bytes]:
    """Names and signing keys of who joined, each certified for exactly our terms.

    Raises:
        MessageError: not this round's roster, or our ``own`` introduction is not in it as sent.
        ProtocolError: too few joined.
        PeerError: as :func:`check_introduction`.
    """
    listed = unpack(message, Roster)
    introductions = {item.name: item.introduction for item in listed.roster}
    if (
        listed.session != terms.digest
        or len(introductions) < len(listed.roster)
        or not introductions.keys() <= set(terms.parties)
    ):
        raise MessageError("roster: of another round, a party twice, or not of this round")
    if introductions.get(identity.name) != own:
        raise MessageError("roster: lacks our own introduction as sent")
    if len(introductions) < terms.least:
        raise ProtocolError(
            f"{len(introductions)} parties joined, too few; nothing was sent to them"
        )
    return {
        name: check_introduction(
            introductions[name], name=name, authority=identity.authority, terms=terms.digest
        )
        for name in introductions
    }


def _statement(name: str, signing: bytes, terms: bytes) -> bytes:
    return pack(_Statement(name=name, signing=signing, terms=terms))
