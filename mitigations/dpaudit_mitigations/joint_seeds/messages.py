"""The ten kinds of message: who sends each, after what, and what it holds.

::

    offer      verifier   terms, its nonce, commitments to its share of every candidate and to its
                          coin; sealed: a salt
    commit     server     its nonce, commitments to its shares, and to the query result
    shares     verifier   sealed: its shares
    noises     server     commitments to every candidate's noise
    choice     verifier   its coin, and which candidate is used
    openings   server     both shares of all the others
    verdict    verifier   accepted or caught, and which candidates are wrong
    release    server     digest of the release
    receipt    verifier   the same, as published
    abort      verifier   instead of what the server owes after the shares

Every message is signed over all before it. Of a *sealed* part only the digest is signed and kept;
it must travel by a private channel. A tuple holds one value per candidate, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dpaudit.errors import MessageError
from dpaudit_mitigations.codec import Digest, Hex64, Record, read_json, write_json
from dpaudit_mitigations.joint_seeds.commitments import labelled_hash
from dpaudit_mitigations.joint_seeds.terms import MOST_CANDIDATES, SessionTerms

__all__ = [
    "KINDS",
    "LARGEST_MESSAGE",
    "NOT_SEALED",
    "OWED",
    "Abort",
    "Choice",
    "Commit",
    "Frame",
    "Kind",
    "Message",
    "Noises",
    "Offer",
    "Openings",
    "Release",
    "ReleaseReceipt",
    "Salt",
    "SealedShares",
    "Shares",
    "Verdict",
    "open_frame",
    "seal_digest",
]

LARGEST_MESSAGE = 1 << 18  # bytes; 256 candidates need 70,000
NOT_SEALED = b"null"

KindName = Literal[
    "offer",
    "commit",
    "shares",
    "noises",
    "choice",
    "openings",
    "verdict",
    "release",
    "receipt",
    "abort",
]
Owed = Literal["noises", "openings", "release", "vector"]
Party = Literal["server", "verifier"]


class Offer(Record, frozen=True, kw_only=True):
    """Terms, the verifier's nonce, commitments to its shares and to its coin."""

    coin: Digest
    nonce: Digest
    shares: tuple[Digest, ...]
    terms: SessionTerms


class Salt(Record, frozen=True, kw_only=True):
    """Sealed with an offer: the verifier's part of the salt of the query's commitment."""

    salt: Digest


class Commit(Record, frozen=True, kw_only=True):
    """The server's nonce, commitments to its shares and to the query result."""

    nonce: Digest
    query: Digest
    shares: tuple[Digest, ...]


class Shares(Record, frozen=True, kw_only=True):
    """No open fields; the shares are sealed."""


class SealedShares(Record, frozen=True, kw_only=True):
    """The verifier's shares, each share ‖ nonce."""

    shares: tuple[Hex64, ...]


class Noises(Record, frozen=True, kw_only=True):
    """Commitments to the candidates' noise."""

    noises: tuple[Digest, ...]


class Choice(Record, frozen=True, kw_only=True):
    """The coin (coin ‖ nonce) and the candidate that it chooses."""

    coin: Hex64
    used: Annotated[int, Meta(ge=0, lt=MOST_CANDIDATES)]


class Openings(Record, frozen=True, kw_only=True):
    """Both parties' shares of all candidates but the one used, which has None."""

    server: tuple[Hex64 | None, ...]
    verifier: tuple[Hex64 | None, ...]


class Verdict(Record, frozen=True, kw_only=True):
    """``caught`` if any candidate is wrong."""

    outcome: Literal["accepted", "caught"]
    wrong: tuple[bool, ...]


class Release(Record, frozen=True, kw_only=True):
    """Digest of the release."""

    digest: Digest


class ReleaseReceipt(Record, frozen=True, kw_only=True):
    """Digest of the release as published."""

    digest: Digest


class Abort(Record, frozen=True, kw_only=True):
    """What the server owes and did not give."""

    missing: Owed


@dataclass(frozen=True)
class Kind:
    """Who sends a message, which kinds it may follow, and its open and sealed parts."""

    sender: Party
    follows: tuple[KindName, ...]
    body: type[Record]
    sealed: type[Record] | None = None


OWED: Mapping[KindName, Owed] = {
    "shares": "noises",
    "choice": "openings",
    "verdict": "release",
    "release": "vector",
}
"""What the server owes after each kind of message once it knows the shares."""

KINDS: Mapping[KindName, Kind] = {
    "offer": Kind("verifier", (), Offer, Salt),
    "commit": Kind("server", ("offer",), Commit),
    "shares": Kind("verifier", ("commit",), Shares, SealedShares),
    "noises": Kind("server", ("shares",), Noises),
    "choice": Kind("verifier", ("noises",), Choice),
    "openings": Kind("server", ("choice",), Openings),
    "verdict": Kind("verifier", ("openings",), Verdict),
    "release": Kind("server", ("verdict",), Release),
    "receipt": Kind("verifier", ("release",), ReleaseReceipt),
    "abort": Kind("verifier", tuple(OWED), Abort),
}


class _Unsigned(Record, frozen=True, kw_only=True):
    body: msgspec.Raw
    kind: KindName
    sealed: Digest | None
    sender: Party


class Message(_Unsigned, frozen=True, kw_only=True):
    """One signed message: ``body`` is JSON, read in turn, ``sealed`` its sealed part's digest."""

    signature: Hex64

    def unsigned(self) -> bytes:
        """The bytes that the signature covers, together with all messages before."""
        return write_json(
            _Unsigned(body=self.body, kind=self.kind, sealed=self.sealed, sender=self.sender)
        )


class Frame(Record, frozen=True, kw_only=True):
    """A message as it travels, with its sealed part or null."""

    message: Message
    sealed: msgspec.Raw


def seal_digest(sealed: bytes) -> Digest | None:
    """Digest of a sealed part as JSON; 32 or more secret random bytes in it prevent a guess."""
    return None if sealed == NOT_SEALED else labelled_hash("sealed", sealed)


def open_frame(data: bytes) -> tuple[Message, bytes]:
    """A message as it travels, and its sealed part.

    Raises:
        MessageError: too long, not canonical, an unknown or missing field, or a sealed part that is
            not the one signed.
    """
    frame = read_json(data, Frame, most=LARGEST_MESSAGE, what="frame")
    sealed = bytes(memoryview(frame.sealed))
    if seal_digest(sealed) != frame.message.sealed:
        raise MessageError("frame.sealed: is not what was signed")
    return frame.message, sealed
