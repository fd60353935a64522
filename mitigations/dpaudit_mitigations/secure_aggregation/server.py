"""The aggregator as a state machine: messages in, messages and a sum out, no I/O.

It is trusted only with sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpaudit.errors import CheatingError, MessageError, ProtocolError
from dpaudit.protocols import Message
from dpaudit_mitigations.codec import pack
from dpaudit_mitigations.secure_aggregation import wire
from dpaudit_mitigations.secure_aggregation.keys import (
    Mask,
    apply_masks,
    own_mask,
    pair_mask,
    public_bytes,
    recombine,
)
from dpaudit_mitigations.secure_aggregation.plan import Plan, RingArray, transcript
from dpaudit_mitigations.secure_aggregation.terms import (
    Introduced,
    Roster,
    RoundTerms,
    check_introduction,
)
from dpaudit_mitigations.secure_aggregation.wire import (
    after_adverts,
    after_shares,
    check_advert,
    check_confirmation,
    survivors_statement,
)
from dpaudit_mitigations.transport.journal import npy_header

__all__ = ["STAGES", "Aggregator", "RoundServer", "Stage", "Sum"]


class Stage(StrEnum):
    """What the aggregator is waiting for."""

    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "mask"
    CONFIRM = "confirm"
    UNMASK = "unmask"
    ENDED = "ended"


STAGES = tuple(stage for stage in Stage if stage is not Stage.ENDED)
"""In their order."""
_DEEDS = {
    Stage.ADVERTISE: "advertised keys",
    Stage.SHARE: "sent shares",
    Stage.MASK: "sent masked vectors",
    Stage.CONFIRM: "signed the list of survivors",
    Stage.UNMASK: "gave their shares",
}
"""The stages that can be closed, and what their parties have done."""


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """The sum modulo 2^b of the ``survivors``' vectors, shape (length,), of the plan's dtype."""

    total: RingArray = field(repr=False)
    survivors: tuple[str, ...]


class Aggregator:
    """One round at the aggregator: takes each party's message of a stage, then closes the stage.

    A refused message (unknown or repeated sender, other round, broken) changes no state, so one bad
    party does not end the round; the caller authenticates the sender (mTLS) and passes its name.
    Closing continues with those that answered, or ends the round if they are fewer than the
    threshold. Closing the last stage gives the :attr:`release`. Not thread-safe.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stage = Stage.ADVERTISE
        self.release: Aggregate | None = None
        self._adverts: dict[str, wire.Advert] = {}
        self._sealed: dict[str, dict[str, bytes]] = {}
        self._masked: set[str] = set()
        self._total: RingArray | None = None
        self._signatures: dict[str, bytes] = {}
        self._shares: dict[str, tuple[dict[str, bytes], dict[str, bytes]]] = {}
        self._agreed = b""
        self._survivors: tuple[str, ...] = ()
        self._dropped: tuple[str, ...] = ()
        self._statement: tuple[bytes, ...] = ()

    @property
    def done(self) -> bool:
        """Whether the round is over, successful or not."""
        return self.stage is Stage.ENDED

    @property
    def expected(self) -> tuple[str, ...]:
        """The parties whose message of this stage is still due."""
        senders, answered = self._parties
        return tuple(name for name in sorted(senders) if name not in answered)

    @property
    def _parties(self) -> tuple[Collection[str], Collection[str]]:
        """Who is asked in this stage, and who has answered."""
        return {
            Stage.ADVERTISE: (self.plan.parties, self._adverts.keys()),
            Stage.SHARE: (self._adverts.keys(), self._sealed.keys()),
            Stage.MASK: (self._sealed.keys(), self._masked),
            Stage.CONFIRM: (self._survivors, self._signatures.keys()),
            Stage.UNMASK: (self._signatures.keys(), self._shares.keys()),
            Stage.ENDED: ((), ()),
        }[self.stage]

    def step(self, inbox: Mapping[str, Message]) -> dict[str, bytes]:
        """Take messages of this stage by sender; with none, close it: the answers by recipient.

        A message is bytes; of the stage ``mask`` a whole vector (length,), of the plan's dtype; it
        is added, not kept. Half a vector cannot be subtracted from the sum again, so a stream is
        read whole (``transport.vectors.read_vector``) before it is added: memory is the sum and the
        vectors being received.

        Closing answers adverts by all signed keys, to all that sent one; shares by each sharer's
        envelopes; masked vectors by who is in the sum and who is not; confirmations by all
        signatures; shares of secrets by nothing: it rebuilds the remaining masks, removes them, and
        sets :attr:`release`.

        Raises:
            MessageError: not due from this sender, broken, in another's name, or of another shape;
                sealed or opened shares of other parties than needed. At the end, shares that are no
                numbers of the field: there is no sum.
            CheatingError: a signature that is not the sender's, or on other lists of survivors;
                keys that would make the other parties leave the round. At the end, shares that do
                not give what their owner committed to: there is no sum.
            ProtocolError: as a stage closes, fewer parties than the threshold; the round is over.
        """
        for sender, message in inbox.items():
            self._take(sender, message)
        return {} if inbox else self._close()

    def _take(self, sender: str, message: Any) -> None:
        if sender not in self.expected:
            raise MessageError(
                f"message of {sender} at stage {self.stage}: repeated, or not asked for"
            )
        take: dict[Stage, Callable[[str, Any], None]] = {
            Stage.ADVERTISE: self._take_advert,
            Stage.SHARE: self._take_shares,
            Stage.MASK: self._take_masked,
            Stage.CONFIRM: self._take_confirmation,
            Stage.UNMASK: self._take_unmasking,
        }
        take[self.stage](sender, message)

    def _close(self) -> dict[str, bytes]:
        stage = self.stage
        self._check_enough()
        if stage is Stage.UNMASK:
            self._finish()
            return {}
        self.stage = STAGES[STAGES.index(stage) + 1]
        if stage is Stage.SHARE:
            self._agreed = after_shares(self._agreed, self._sealed)
            self._total = np.zeros(self.plan.length, dtype=self.plan.dtype)
            return {name: self._envelopes(name) for name in self._sealed}
        answer = self._answer_to_all(stage)
        return dict.fromkeys(self.expected, answer)

    def _answer_to_all(self, stage: Stage) -> bytes:
        session = self.plan.digest
        if stage is Stage.ADVERTISE:
            self._agreed = after_adverts(self.plan, self._adverts)
            adverts = tuple(self._adverts[name] for name in sorted(self._adverts))
            return pack(wire.Adverts(adverts=adverts, session=session))
        if stage is Stage.CONFIRM:
            signatures = wire.entries(self._signatures)
            return pack(wire.Confirmations(session=session, signatures=signatures))
        self._survivors = tuple(sorted(self._masked))
        self._dropped = tuple(sorted(self._sealed.keys() - self._masked))
        self._statement = survivors_statement(self._agreed, self._survivors, self._dropped)
        lists = {"dropped": self._dropped, "survivors": self._survivors}
        return pack(wire.Survivors(agreed=self._agreed, session=session, **lists))

    def _take_advert(self, sender: str, message: bytes) -> None:
        advert = wire.read(self.plan, message, wire.AdvertMessage, party=sender).advert
        check_advert(self.plan, advert)
        if any(
            {advert.masking, advert.sharing} & {other.masking, other.sharing}
            for other in self._adverts.values()
        ):
            raise CheatingError(f"advert of {sender}: has another party's key")
        self._adverts[sender] = advert

    def _take_shares(self, sender: str, message: bytes) -> None:
        sealed = wire.by_name(wire.read(self.plan, message, wire.Shares, party=sender).sealed)
        if sealed.keys() != self._adverts.keys() - {sender}:
            raise MessageError(f"message shares: {sender}'s are not one per other party with keys")
        self._sealed[sender] = sealed

    def _take_masked(self, sender: str, vector: RingArray) -> None:
        if not isinstance(vector, np.ndarray):
            raise MessageError(f"vector of {sender}: another kind of message")
        if vector.dtype != self.plan.dtype or vector.shape != (self.plan.length,):
            raise MessageError(
                f"vector of {sender}: {vector.dtype} {vector.shape}, not of this plan"
            )
        total = self._sum
        np.add(total, vector, out=total)
        self._masked.add(sender)

    def _take_confirmation(self, sender: str, message: bytes) -> None:
        signature = wire.read(self.plan, message, wire.Confirmation, party=sender).signature
        check_confirmation(self.plan, sender, signature, self._statement)
        self._signatures[sender] = signature

    def _take_unmasking(self, sender: str, message: bytes) -> None:
        shares = wire.read(self.plan, message, wire.Unmasking, party=sender)
        seeds, keys = wire.by_name(shares.seeds), wire.by_name(shares.keys)
        if seeds.keys() != set(self._survivors) or keys.keys() != set(self._dropped):
            raise MessageError(f"message unmasking: {sender} gave other shares than needed")
        self._shares[sender] = seeds, keys

    def _finish(self) -> None:
        self.stage = Stage.ENDED
        masks = [-mask for mask in (*self._own_masks(), *self._dropped_masks())]
        total, self._total = self._sum, None
        apply_masks(total, masks)
        self.release = Aggregate(total=total, survivors=self._survivors)

    def _envelopes(self, name: str) -> bytes:
        sealed = wire.entries({s: sealed[name] for s, sealed in self._sealed.items() if s != name})
        return pack(wire.Envelopes(party=name, sealed=sealed, session=self.plan.digest))

    @property
    def _sum(self) -> RingArray:
        assert self._total is not None  # noqa: S101 - there from the stage mask to the end
        return self._total

    def _own_masks(self) -> list[Mask]:
        out = []
        for name in self._survivors:
            seed = self._rebuild(name, 0)
            if transcript("seed", seed) != self._adverts[name].commitment:
                raise CheatingError(f"seed of {name}: some of its shares are wrong")
            out.append(own_mask(seed, agreed=self._agreed, party=name))
        return out

    def _dropped_masks(self) -> list[Mask]:
        out = []
        for gone in self._dropped:
            key = X25519PrivateKey.from_private_bytes(self._rebuild(gone, 1))
            if public_bytes(key) != self._adverts[gone].masking:
                raise CheatingError(f"masking key of {gone}: some of its shares are wrong")
            # a survivor's mask is the negative of the one that the dropped party would have added
            for name in self._survivors:
                mask = pair_mask(
                    key, self._adverts[name].masking, agreed=self._agreed, party=gone, peer=name
                )
                out.append(-mask)
        return out

    def _rebuild(self, owner: str, which: int) -> bytes:
        shares = {self.plan.places[name]: pair[which][owner] for name, pair in self._shares.items()}
        return recombine(shares, threshold=self.plan.threshold)

    def _check_enough(self) -> None:
        if self.done:
            raise MessageError("aggregate: the round is over; start another with a new round")
        count, deed = len(self._parties[1]), _DEEDS[self.stage]
        if count < self.plan.threshold:
            self.stage, self._total = Stage.ENDED, None
            raise ProtocolError(
                f"{count} of {len(self.plan.roster)} parties {deed}, below the threshold of "
                f"{self.plan.threshold}: the round is over, nothing was revealed; start another "
                "with a new round"
            )


@dataclass(frozen=True, kw_only=True)
class Sum:
    """The sum of the ``survivors``' values as an ``.npy`` file, and that file's SHA-256 in hex."""

    parts: tuple[Any, ...] = field(repr=False)
    survivors: tuple[str, ...]
    sha256: str


class RoundServer:
    """A round among processes at the aggregator: parties join by certificate, then it is a round.

    The first stage, ``join``, takes introductions and answers them by all of them. The last one is
    answered by the digest of the :attr:`release`, which whoever drives this publishes first.
    """

    def __init__(self, terms: RoundTerms, *, authority: bytes) -> None:
        """``authority`` is the certificate (PEM) of who signed the parties'."""
        self.release: Sum | None = None
        self._terms, self._authority = terms, authority
        self._introductions: dict[str, Any] = {}
        self._joining = True
        self._aggregator: Aggregator | None = None

    @property
    def stage(self) -> str:
        """``join``, or the :class:`Stage`."""
        if self._aggregator is not None:
            return self._aggregator.stage
        return "join" if self._joining else Stage.ENDED

    @property
    def plan(self) -> Plan:
        """The plan, once the parties have joined."""
        assert self._aggregator is not None  # noqa: S101 - the stage join is closed
        return self._aggregator.plan

    @property
    def done(self) -> bool:
        """Whether the round is over, successful or not."""
        return self.stage == Stage.ENDED

    @property
    def expected(self) -> tuple[str, ...]:
        """The parties whose message of this stage is still due."""
        if self._aggregator is not None:
            return self._aggregator.expected
        if self.done:
            return ()
        return tuple(name for name in self._terms.parties if name not in self._introductions)

    def step(self, inbox: Mapping[str, Message]) -> Mapping[str, bytes]:
        """As :meth:`Aggregator.step`.

        Raises:
            ProtocolError: as there; an introduction that its certificate did not sign; fewer than
                the threshold, or than 3, have joined.
        """
        if self._aggregator is None:
            return self._join(inbox)
        senders = self._aggregator._parties[1]
        outbox = self._aggregator.step(inbox)
        if self._aggregator.release is None:
            return outbox
        self.release = _sum(self._terms, self._aggregator.release)
        session, sha256 = self.plan.digest, self.release.sha256
        end = wire.Done(session=session, sha256=sha256, survivors=self.release.survivors)
        return dict.fromkeys(senders, pack(end))

    def _join(self, inbox: Mapping[str, Message]) -> Mapping[str, bytes]:
        for party, message in inbox.items():
            if party not in self.expected:
                raise MessageError(f"message of {party} at stage join: repeated, or not asked for")
            self._key(party, message)
            self._introductions[party] = message
        if inbox:
            return {}
        if self.done:
            raise MessageError("aggregate: the round is over; start another with a new round")
        self._joining = False
        names, least = sorted(self._introductions), self._terms.least
        if len(names) < least:
            raise ProtocolError(
                f"{len(names)} of {len(self._terms.parties)} parties joined, {least} are needed; "
                "nothing was revealed; start again with a new round"
            )
        keys = {name: self._key(name, self._introductions[name]) for name in names}
        self._aggregator = Aggregator(self._terms.plan(keys))
        listed = tuple(
            Introduced(introduction=self._introductions[name], name=name) for name in names
        )
        return dict.fromkeys(names, pack(Roster(roster=listed, session=self._terms.digest)))

    def _key(self, party: str, message: Any) -> bytes:
        terms = self._terms.digest
        return check_introduction(message, name=party, authority=self._authority, terms=terms)


def _sum(terms: RoundTerms, aggregate: Aggregate) -> Sum:
    values = terms.ring.decode(aggregate.total)
    parts = npy_header(len(values), values.dtype.name), values.data
    digest = hashlib.sha256(parts[0])
    digest.update(parts[1])
    return Sum(parts=parts, survivors=aggregate.survivors, sha256=digest.hexdigest())
