"""The signed chain of a session's messages: the one place that says what may follow what, for parties and third parties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpaudit.errors import MessageError
from dpaudit_mitigations.joint_seeds.commitments import labelled_hash, share_commitment
from dpaudit_mitigations.joint_seeds.encoding import encode
from dpaudit_mitigations.joint_seeds.fields import read, write
from dpaudit_mitigations.joint_seeds.messages import KINDS, OWED, Message, Sealed, open_frame, seal_digest
from dpaudit_mitigations.joint_seeds.terms import Terms

__all__ = ["Record"]


class Record:
    """Messages in order, each checked as it is added: sender, order, fields, signature over all before it, and what can be
    checked at once (the coin and its choice, which candidates are opened, whether a verdict fits its list).

    Whether openings are right is :mod:`~dpaudit_mitigations.joint_seeds.checks`' question.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.bodies: dict[str, Mapping[str, Any]] = {}
        self._heads = [labelled_hash("start")]
        self._terms: Terms | None = None

    @property
    def terms(self) -> Terms:
        """The terms offered.

        Raises:
            MessageError: there is no offer yet.
        """
        if self._terms is None:
            raise MessageError("record: starts with an offer")
        return self._terms

    @property
    def head(self) -> bytes:
        """Digest of everything so far, signatures included."""
        return self._heads[-1]

    @property
    def session(self) -> bytes:
        """Digest of offer and commit: the session's name, with a nonce of each party in it."""
        return self._heads[2]

    @property
    def offered(self) -> bytes:
        """Digest of the offer."""
        return self._heads[1]

    @property
    def last(self) -> str | None:
        """The last message's kind."""
        return self.messages[-1].kind if self.messages else None

    @property
    def finished(self) -> bool:
        """Whether nothing may follow."""
        return self.last in ("receipt", "abort") or (
            self.last == "verdict" and self.bodies["verdict"]["outcome"] == "caught"
        )

    @property
    def used(self) -> int:
        """The candidate that the coin chose."""
        return int(self.bodies["choice"]["used"])

    def owed(self) -> str | None:
        """What the server owes now, if it knows the verifier's shares already; an abort then names it."""
        return None if self.finished else OWED.get(self.last or "")

    def sign(self, kind: str, body: Mapping[str, Any], *, key: Ed25519PrivateKey, sealed: Sealed = None) -> bytes:
        """Add an own message, values as they are (bytes, numbers); return it as it travels."""
        spec = KINDS[kind]
        terms: Terms | None = body.get("terms")
        document = write(body, spec.body) | ({"terms": terms.document()} if terms is not None else {})
        secret = write(sealed, spec.sealed) if sealed is not None and spec.sealed is not None else None
        message = Message(kind, spec.sender, document, seal_digest(secret), b"")
        signature = key.sign(self._to_sign(message))
        self.add(Message(kind, spec.sender, document, message.sealed, signature))
        return encode({"message": self.messages[-1].document(), "sealed": secret})

    def receive(self, frame: bytes, *, sender: str) -> tuple[str, Mapping[str, Any]]:
        """Add a message of the other party's; return its kind, and its sealed part if it is of a kind that has one.

        Raises:
            MessageError: anything that :meth:`add` or ``open_frame`` refuses, or a message of another sender's.
        """
        message, sealed = open_frame(frame)
        if message.sender != sender:
            raise MessageError(
                f"message {message.kind}: comes from the {sender}, so it cannot be the {message.sender}'s"
            )
        spec = KINDS[message.kind]
        secret: Mapping[str, Any] = {}
        if spec.sealed is not None and sealed is not None:  # the sealed part first: it was not signed for us otherwise
            count = self._terms.candidates if self._terms is not None else 0
            secret = read(sealed, spec.sealed, count=count, what=f"{message.kind}.sealed")
        self.add(message)
        return message.kind, secret

    def add(self, message: Message) -> None:
        """Check a message and add it.

        Raises:
            MessageError: out of order, of another sender, a field too many, missing or wrong, a signature that is not the
                sender's over all before it, or a choice that is not the coin's.
        """
        spec = KINDS[message.kind]
        follows = (self.last,) if self.last is not None else ()
        if self.finished or not (set(follows) & set(spec.follows) if follows else not spec.follows):
            raise MessageError(f"message {message.kind}: cannot follow {self.last or 'nothing'}")
        if message.sender != spec.sender or (message.sealed is None) != (spec.sealed is None):
            raise MessageError(f"message {message.kind}: is the {spec.sender}'s, or its sealed part is amiss")
        terms, document = self._terms, dict(message.body)
        if message.kind == "offer":
            terms = Terms.read(document.pop("terms", None))
        if terms is None:
            raise MessageError("record: starts with an offer")
        body = read(document, spec.body, count=terms.candidates, what=message.kind)
        try:
            public = Ed25519PublicKey.from_public_bytes(getattr(terms, message.sender))
            public.verify(message.signature, self._to_sign(message))
        except (InvalidSignature, ValueError) as error:
            raise MessageError(
                f"message {message.kind}: not signed by the {message.sender} over all before it"
            ) from error
        self._check(message.kind, body, terms)
        self._terms = terms
        self.bodies[message.kind] = body
        self.messages.append(message)
        self._heads.append(labelled_hash("link", self.head, encode(message.document())))

    def _to_sign(self, message: Message) -> bytes:
        return labelled_hash("signature", self.head, message.unsigned())

    def _check(self, kind: str, body: Mapping[str, Any], terms: Terms) -> None:
        if kind == "choice":
            coin = share_commitment("coin", self.bodies["offer"]["nonce"], 0, body["coin"])
            if coin != self.bodies["offer"]["coin"]:
                raise MessageError("message choice: the coin is not the one committed to")
            if body["used"] != self.coin_choice(body["coin"], terms.candidates):
                raise MessageError("message choice: the coin chose another candidate")
        elif kind == "openings":
            for name, shares in body.items():
                if [i for i, share in enumerate(shares) if share is None] != [self.used]:
                    raise MessageError(f"message openings.{name}: all candidates but the one used must be opened")
        elif kind == "verdict":
            if (body["outcome"] == "caught") != any(body["wrong"]) or body["wrong"][self.used]:
                raise MessageError("message verdict: does not fit its list of wrong candidates")
        elif kind == "release":
            if self.bodies["verdict"]["outcome"] != "accepted":
                raise MessageError("message release: nothing is released from a session that was not accepted")
        elif kind == "receipt":
            if body["digest"] != self.bodies["release"]["digest"]:
                raise MessageError("message receipt: is for another release")
        elif kind == "abort" and body["missing"] != self.owed():
            raise MessageError("message abort: names something else than what is owed")

    def coin_choice(self, coin: bytes, candidates: int) -> int:
        """The candidate that the verifier's coin and the session (so the server's nonce) choose; uniform to 2^-240."""
        return int.from_bytes(labelled_hash("choice", self.session, coin), "big") % candidates
