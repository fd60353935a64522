"""The signed chain of a session's messages, and whether its opened candidates hold.

The only definition of the messages' order; and, for the verifier and third parties, which opened
candidates differ from their commitments.
"""

from __future__ import annotations

from typing import TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Raw
from msgspec.structs import replace

from dpaudit.errors import MessageError
from dpaudit_mitigations.codec import Digest, Hex64, Record, read_json, write_json
from dpaudit_mitigations.joint_seeds.derivation import (
    Blocks,
    derived_noise,
    joint_key,
    labelled_hash,
    share_commitment,
    vector_digest,
)
from dpaudit_mitigations.joint_seeds.messages import (
    KINDS,
    LARGEST_MESSAGE,
    NOT_SEALED,
    OWED,
    Abort,
    Choice,
    Commit,
    Frame,
    KindName,
    Message,
    Noises,
    Offer,
    Openings,
    Owed,
    Release,
    ReleaseReceipt,
    SessionTerms,
    Verdict,
    open_frame,
    seal_digest,
)

__all__ = [
    "SignedChain",
    "candidate_holds",
    "candidate_noise",
    "noise_commitment",
    "query_commitment",
    "release_digest",
    "wrong_candidates",
]

B = TypeVar("B", bound=Record)
_KIND_OF = {spec.body: name for name, spec in KINDS.items()}


class SignedChain:
    """Messages in order, each checked as it is added.

    Checked are sender, order, fields, the signature over all before it, and what can be checked at
    once (the coin and its choice, which candidates are opened, whether a verdict fits its list).
    Whether openings are right is checked in :mod:`~dpaudit_mitigations.joint_seeds.record`.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._bodies: dict[type[Record], Record] = {}
        self._heads = [labelled_hash("start")]
        self._terms: SessionTerms | None = None

    def has(self, kind: type[Record]) -> bool:
        """Whether there is such a message."""
        return kind in self._bodies

    def body(self, kind: type[B]) -> B:
        """What the message of this kind holds.

        Raises:
            MessageError: there is none.
        """
        record = self._bodies.get(kind)
        if not isinstance(record, kind):
            raise MessageError(f"record: has no message {_KIND_OF[kind]}")
        return record

    @property
    def terms(self) -> SessionTerms:
        """The terms offered.

        Raises:
            MessageError: there is no offer yet.
        """
        if self._terms is None:
            raise MessageError("record: starts with an offer")
        return self._terms

    @property
    def head(self) -> Digest:
        """Digest of everything so far, signatures included."""
        return self._heads[-1]

    @property
    def session(self) -> Digest:
        """Digest of offer and commit: the session's name, with a nonce of each party."""
        return self._heads[2]

    @property
    def offered(self) -> Digest:
        """Digest of the offer."""
        return self._heads[1]

    @property
    def last(self) -> KindName | None:
        """The last message's kind."""
        return self.messages[-1].kind if self.messages else None

    @property
    def finished(self) -> bool:
        """Whether nothing may follow."""
        return self.last in ("receipt", "abort") or (
            self.last == "verdict" and self.body(Verdict).outcome == "caught"
        )

    @property
    def used(self) -> int:
        """The candidate that the coin chose."""
        return self.body(Choice).used

    def owed(self) -> Owed | None:
        """What the server owes now, if it knows the verifier's shares; an abort then names it."""
        return None if self.finished else OWED.get(self.last) if self.last else None

    def sign(self, body: Record, *, key: Ed25519PrivateKey, sealed: Record | None = None) -> bytes:
        """Add our own message; return it as it travels."""
        kind = _KIND_OF[type(body)]
        secret = NOT_SEALED if sealed is None else write_json(sealed)
        unsigned = Message(
            body=Raw(write_json(body)),
            kind=kind,
            sealed=seal_digest(secret),
            sender=KINDS[kind].sender,
            signature=Hex64(64),
        )
        message = replace(unsigned, signature=Hex64(key.sign(self._to_sign(unsigned))))
        self.add(message)
        return write_json(Frame(message=message, sealed=Raw(secret)))

    def receive(self, frame: bytes, *, sender: str) -> tuple[str, Record | None]:
        """Add a message of the other party; return its kind, and its sealed part if it has one.

        Raises:
            MessageError: anything that :meth:`add` or ``open_frame`` refuses, or a message of
                another sender.
        """
        message, sealed = open_frame(frame)
        if message.sender != sender:
            raise MessageError(f"message {message.kind}: not the {sender}'s")
        spec, secret = KINDS[message.kind], None
        # the sealed part first: otherwise it was not signed for us
        if spec.sealed is not None and sealed != NOT_SEALED:
            secret = read_json(
                sealed, spec.sealed, most=LARGEST_MESSAGE, name=f"{message.kind}.sealed"
            )
            _one_a_candidate(secret, self._terms, f"{message.kind}.sealed")
        self.add(message)
        return message.kind, secret

    def add(self, message: Message) -> None:
        """Check a message and add it.

        Raises:
            MessageError: out of order, of another sender, an unknown, missing or wrong field, a
                signature that is not the sender's over all before it, or a choice that is not the
                coin's.
        """
        spec = KINDS[message.kind]
        if self.finished or (self.last not in spec.follows if self.last else spec.follows):
            raise MessageError(f"message {message.kind}: cannot follow {self.last or 'nothing'}")
        if message.sender != spec.sender or (message.sealed is None) != (spec.sealed is None):
            raise MessageError(f"message {message.kind}: wrong sender or sealed part")
        body = read_json(message.body, spec.body, most=LARGEST_MESSAGE, name=message.kind)
        terms = body.terms if isinstance(body, Offer) else self.terms
        _one_a_candidate(body, terms, message.kind)
        try:
            public = Ed25519PublicKey.from_public_bytes(getattr(terms, message.sender))
            public.verify(message.signature, self._to_sign(message))
        except (InvalidSignature, ValueError) as error:
            raise MessageError(f"message {message.kind}: signature does not hold") from error
        self._check(body, terms)
        self._terms = terms
        self._bodies[spec.body] = body
        self.messages.append(message)
        self._heads.append(labelled_hash("link", self.head, write_json(message)))

    def _to_sign(self, message: Message) -> bytes:
        return labelled_hash("signature", self.head, message.unsigned())

    def _check(self, body: Record, terms: SessionTerms) -> None:
        match body:
            case Choice():
                offer = self.body(Offer)
                if share_commitment("coin", offer.nonce, 0, body.coin) != offer.coin:
                    raise MessageError("message choice: the coin is not the one committed to")
                if body.used != self.coin_choice(body.coin, terms.candidates):
                    raise MessageError("message choice: the coin chose another candidate")
            case Openings():
                for name, shares in (("server", body.server), ("verifier", body.verifier)):
                    if [i for i, share in enumerate(shares) if share is None] != [self.used]:
                        raise MessageError(f"message openings.{name}: must open all unused ones")
            case Verdict():
                if (body.outcome == "caught") != any(body.wrong) or body.wrong[self.used]:
                    raise MessageError("message verdict: does not fit its list of wrong candidates")
            case Release():
                if self.body(Verdict).outcome != "accepted":
                    raise MessageError("message release: of a session that was not accepted")
            case ReleaseReceipt():
                if body.digest != self.body(Release).digest:
                    raise MessageError("message receipt: is for another release")
            case Abort():
                if body.missing != self.owed():
                    raise MessageError("message abort: names another debt than the server's")

    def coin_choice(self, coin: bytes, candidates: int) -> int:
        """The candidate that the verifier's coin and the session choose; uniform to 2^-240.

        The session includes the server's nonce.
        """
        return int.from_bytes(labelled_hash("choice", self.session, coin), "big") % candidates


def _one_a_candidate(body: Record, terms: SessionTerms | None, place: str) -> None:
    """Refuse a list without exactly one value per candidate."""
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if isinstance(value, tuple) and (terms is None or len(value) != terms.candidates):
            raise MessageError(f"field {place}.{name}: must be a list of one value per candidate")


def candidate_noise(key: bytes, terms: SessionTerms) -> Blocks:
    """The noise that the key of both shares gives."""
    return derived_noise(key, dim=terms.dim, scale=terms.scale)


def noise_commitment(
    session: bytes, index: int, key: bytes, blocks: Blocks, terms: SessionTerms, *, threads: int
) -> Digest:
    """Commitment to a candidate's noise, salted by its key.

    A bare digest would confirm a guess of the query: release − guess is the noise if the guess is
    right. The salt takes both shares, so that even somebody who knows the server's (a backdoored
    server's vendor) cannot do that.
    """
    digest = vector_digest("noise", blocks, dim=terms.dim, threads=threads)
    return labelled_hash(
        "noise commitment", session, index.to_bytes(4, "big"), labelled_hash("salt", key), digest
    )


def query_commitment(
    offered: bytes, opening: bytes, blocks: Blocks, terms: SessionTerms, *, threads: int
) -> Digest:
    """Commitment to the query result in steps; ``opening`` is both salts, verifier's ‖ server's.

    Each salt has 32 bytes.
    """
    digest = vector_digest("query", blocks, dim=terms.dim, threads=threads)
    return labelled_hash("query commitment", offered, opening, digest)


def release_digest(blocks: Blocks, terms: SessionTerms, *, threads: int) -> Digest:
    """Digest of a release in steps."""
    return vector_digest("release", blocks, dim=terms.dim, threads=threads)


def candidate_holds(
    record: SignedChain, index: int, server: bytes, verifier: bytes, *, threads: int
) -> bool:
    """Whether these openings (share ‖ nonce) fit their commitments, and their noise its own."""
    offer, commit = record.body(Offer), record.body(Commit)
    if share_commitment("server share", record.offered, index, server) != commit.shares[index]:
        return False
    if share_commitment("verifier share", offer.nonce, index, verifier) != offer.shares[index]:
        return False
    key = joint_key(record.session, index, server, verifier)
    noise = candidate_noise(key, record.terms)
    own = noise_commitment(record.session, index, key, noise, record.terms, threads=threads)
    return own == record.body(Noises).noises[index]


def wrong_candidates(record: SignedChain, *, threads: int = 1) -> tuple[bool, ...]:
    """For each candidate whether its opening does not hold; False for the one used.

    Draws (k − 1)·d integers.
    """
    openings = record.body(Openings)
    pairs = zip(openings.server, openings.verifier, strict=True)
    return tuple(
        index != record.used
        and not (
            server
            and verifier
            and candidate_holds(record, index, server, verifier, threads=threads)
        )
        for index, (server, verifier) in enumerate(pairs)
    )
