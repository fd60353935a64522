"""The ten kinds of message: who sends each, after what, and what it holds.

::

    offer      verifier   terms, its nonce, commitments to its share of every candidate and to its coin; sealed: a salt
    commit     server     its nonce, commitments to its shares, and to the query result
    shares     verifier   sealed: its shares
    noises     server     commitments to every candidate's noise
    choice     verifier   its coin, and which candidate is used
    openings   server     both shares of all the others
    verdict    verifier   accepted or caught, and which candidates are wrong
    release    server     digest of the release
    receipt    verifier   the same, seen published
    abort      verifier   instead of what the server owes after the shares

Every message is signed over all before it. Of a *sealed* part only the digest is signed and kept; it must travel by a
channel that nobody else reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpaudit.errors import MessageError
from dpaudit_mitigations.joint_seeds.commitments import labelled_hash
from dpaudit_mitigations.joint_seeds.encoding import LARGEST_MESSAGE, decode, encode
from dpaudit_mitigations.joint_seeds.fields import Flag, Hex, Many, Maybe, Schema, Whole, Word, read
from dpaudit_mitigations.joint_seeds.terms import MOST_CANDIDATES

__all__ = ["ENVELOPE", "KINDS", "OWED", "Kind", "Message", "Sealed", "open_frame", "seal_digest"]

_SHARE = Hex(64)  # share ‖ nonce

Sealed = Mapping[str, Any] | None


@dataclass(frozen=True)
class Kind:
    """Who sends a message, which kinds it may follow, what it holds in the open (a list a candidate) and sealed."""

    sender: str
    follows: tuple[str, ...]
    body: Schema
    sealed: Schema | None = None


OWED = {"shares": "noises", "choice": "openings", "verdict": "release", "release": "vector"}
"""What the server owes after each kind of message once it knows the shares."""

KINDS: Mapping[str, Kind] = {
    "offer": Kind(
        "verifier", (), {"nonce": Hex(), "shares": Many(Hex()), "coin": Hex()}, {"salt": Hex()}
    ),  # and "terms", which say how many
    "commit": Kind("server", ("offer",), {"nonce": Hex(), "shares": Many(Hex()), "query": Hex()}),
    "shares": Kind("verifier", ("commit",), {}, {"shares": Many(_SHARE)}),
    "noises": Kind("server", ("shares",), {"noises": Many(Hex())}),
    "choice": Kind("verifier", ("noises",), {"coin": _SHARE, "used": Whole(0, MOST_CANDIDATES - 1)}),
    "openings": Kind("server", ("choice",), {"server": Many(Maybe(_SHARE)), "verifier": Many(Maybe(_SHARE))}),
    "verdict": Kind("verifier", ("openings",), {"outcome": Word(("accepted", "caught")), "wrong": Many(Flag())}),
    "release": Kind("server", ("verdict",), {"digest": Hex()}),
    "receipt": Kind("verifier", ("release",), {"digest": Hex()}),
    "abort": Kind("verifier", tuple(OWED), {"missing": Word(tuple(OWED.values()))}),
}

ENVELOPE: Schema = {
    "kind": Word(tuple(KINDS)),
    "sender": Word(("server", "verifier")),
    "sealed": Maybe(Hex()),
    "signature": Hex(64),
}


@dataclass(frozen=True)
class Message:
    """One signed message; ``body`` is its JSON, ``sealed`` the digest of its sealed part."""

    kind: str
    sender: str
    body: Mapping[str, Any]
    sealed: bytes | None
    signature: bytes

    def unsigned(self) -> bytes:
        """What the signature is over, together with all before it."""
        sealed = self.sealed.hex() if self.sealed is not None else None
        return encode({"body": self.body, "kind": self.kind, "sealed": sealed, "sender": self.sender})

    def document(self) -> dict[str, Any]:
        """As JSON."""
        sealed = self.sealed.hex() if self.sealed is not None else None
        return {
            "body": self.body,
            "kind": self.kind,
            "sealed": sealed,
            "sender": self.sender,
            "signature": self.signature.hex(),
        }

    @classmethod
    def read(cls, document: Any) -> Message:
        """Back from JSON; the body is looked at later, when the number of candidates is known.

        Raises:
            MessageError: a field too many, missing or of another type.
        """
        if type(document) is not dict or type(document.get("body")) is not dict:
            raise MessageError("message: must be an object with an object 'body'")
        rest = {name: value for name, value in document.items() if name != "body"}
        return cls(body=document["body"], **read(rest, ENVELOPE, count=0, what="message"))


def seal_digest(sealed: Sealed) -> bytes | None:
    """Digest of a sealed part as JSON; the secrets in it (32 random bytes and more) keep it from being guessed."""
    return None if sealed is None else labelled_hash("sealed", encode(sealed))


def open_frame(data: bytes) -> tuple[Message, Sealed]:
    """A message as it travels, with its sealed part.

    Raises:
        MessageError: too long, not canonical, fields too many or missing, or a sealed part that is not the one signed.
    """
    document = decode(data, most=LARGEST_MESSAGE, what="frame")
    if type(document) is not dict or set(document) != {"message", "sealed"}:
        raise MessageError("frame: must have exactly the fields message, sealed")
    message, sealed = Message.read(document["message"]), document["sealed"]
    if sealed is not None and type(sealed) is not dict:
        raise MessageError("frame.sealed: must be an object or null")
    if seal_digest(sealed) != message.sealed:
        raise MessageError("frame.sealed: is not what was signed")
    return message, sealed
