"""The aggregator as a state machine: bytes in, bytes out, no I/O. It is trusted only with sums."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpaudit.errors import CheatingError, MessageError, ProtocolError, UsageError
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
from dpaudit_mitigations.secure_aggregation.wire import (
    after_adverts,
    after_shares,
    check_advert,
    check_confirmation,
    survivors_statement,
)

__all__ = ["STAGES", "Aggregator", "Stage"]


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
_DONE = {
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
    threshold. The last stage is closed by :meth:`finish`. Not thread-safe.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stage = Stage.ADVERTISE
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
    def expected(self) -> tuple[str, ...]:
        """The parties whose message of this stage is still due."""
        asked, answered = self._parties
        return tuple(name for name in sorted(asked) if name not in answered)

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

    def take(self, stage: Stage, sender: str, message: Any) -> None:
        """Take ``sender``'s message of ``stage``, as bytes; of the stage ``mask`` its whole vector.

        That is (length,), of the plan's dtype; it is added, not kept. Half a vector cannot be
        subtracted from the sum again, so a stream is read whole (``transport.vectors.read_vector``)
        before it is added: memory is the sum and the vectors being received.

        Raises:
            MessageError: not due from this sender, broken, in another's name, or of another shape;
                sealed or opened shares of other parties than needed.
            CheatingError: a signature that is not the sender's, or on other lists of survivors;
                keys that would make the other parties leave the round.
        """
        self._from(sender, stage)
        take: dict[Stage, Callable[[str, Any], None]] = {
            Stage.ADVERTISE: self._take_advert,
            Stage.SHARE: self._take_shares,
            Stage.MASK: self._take_masked,
            Stage.CONFIRM: self._take_confirmation,
            Stage.UNMASK: self._take_unmasking,
        }
        take[stage](sender, message)

    def close(self) -> bytes | dict[str, bytes]:
        """Go on to the next stage; the message to all that answered in this one, or each its own.

        After adverts all signed keys; after shares each sharer's envelopes; after masked vectors
        who is in the sum and who is not; after confirmations all signatures.

        Raises:
            ProtocolError: fewer parties than the threshold; the round is over.
        """
        stage = self.stage
        if stage not in STAGES[:-1]:
            raise UsageError(f"aggregate: cannot close stage {stage}; take finish() for the last")
        self._enough()
        self.stage = STAGES[STAGES.index(stage) + 1]
        session = self.plan.digest
        if stage is Stage.ADVERTISE:
            self._agreed = after_adverts(self.plan, self._adverts)
            adverts = tuple(self._adverts[name] for name in sorted(self._adverts))
            return pack(wire.Adverts(adverts=adverts, session=session))
        if stage is Stage.SHARE:
            self._agreed = after_shares(self._agreed, self._sealed)
            self._total = np.zeros(self.plan.length, dtype=self.plan.dtype)
            return {name: self._envelopes(name) for name in self._sealed}
        if stage is Stage.MASK:
            self._survivors = tuple(sorted(self._masked))
            self._dropped = tuple(sorted(self._sealed.keys() - self._masked))
            self._statement = survivors_statement(self._agreed, self._survivors, self._dropped)
            return pack(
                wire.Survivors(
                    agreed=self._agreed,
                    dropped=self._dropped,
                    session=session,
                    survivors=self._survivors,
                )
            )
        return pack(wire.Confirmations(session=session, signatures=wire.entries(self._signatures)))

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
        given = wire.read(self.plan, message, wire.Unmasking, party=sender)
        seeds, keys = wire.by_name(given.seeds), wire.by_name(given.keys)
        if seeds.keys() != set(self._survivors) or keys.keys() != set(self._dropped):
            raise MessageError(f"message unmasking: {sender} gave other shares than needed")
        self._shares[sender] = seeds, keys

    def finish(self) -> Aggregate:
        """Rebuild the remaining masks, remove them, return the survivors' sum. This ends the round.

        Raises:
            ProtocolError: fewer answers than the threshold.
            CheatingError: shares that do not give what their owner committed to; there is no sum.
            MessageError: shares that are no numbers of the field; there is no sum.
        """
        if self.stage is not Stage.UNMASK:
            raise UsageError(f"aggregate: cannot close stage unmask, the round is at {self.stage}")
        self._enough()
        self.stage = Stage.ENDED
        masks = [-mask for mask in (*self._own_masks(), *self._left_masks())]
        total, self._total = self._sum, None
        apply_masks(total, masks)
        return Aggregate(total=total, survivors=self._survivors)

    def _envelopes(self, name: str) -> bytes:
        sealed = wire.entries({s: sealed[name] for s, sealed in self._sealed.items() if s != name})
        return pack(wire.Envelopes(party=name, sealed=sealed, session=self.plan.digest))

    @property
    def _sum(self) -> RingArray:
        if self._total is None:
            raise UsageError("aggregate: no sum exists yet; close the stages in order")
        return self._total

    def _own_masks(self) -> list[Mask]:
        out = []
        for name in self._survivors:
            seed = self._rebuild(name, 0)
            if transcript("seed", seed) != self._adverts[name].commitment:
                raise CheatingError(f"seed of {name}: some of its shares are wrong")
            out.append(own_mask(seed, agreed=self._agreed, party=name))
        return out

    def _left_masks(self) -> list[Mask]:
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
        shares = {
            self.plan.places[name]: given[which][owner] for name, given in self._shares.items()
        }
        return recombine(shares, threshold=self.plan.threshold)

    def _from(self, sender: str, stage: Stage) -> None:
        if self.stage is not stage:
            raise MessageError(f"message of {sender} for {stage}: the round is at {self.stage}")
        if sender not in self.expected:
            raise MessageError(f"message of {sender} for stage {stage}: repeated, or not asked for")

    def _enough(self) -> None:
        count, done = len(self._parties[1]), _DONE[self.stage]
        if count < self.plan.threshold:
            self.stage, self._total = Stage.ENDED, None
            raise ProtocolError(
                f"{count} of {len(self.plan.roster)} parties {done}, below the threshold of "
                f"{self.plan.threshold}: the round is over, nothing was revealed; start another "
                "with a new round"
            )
