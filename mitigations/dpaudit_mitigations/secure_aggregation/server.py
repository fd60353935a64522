"""The aggregator as a state machine: bytes in, bytes out, no I/O. It is trusted only with sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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

__all__ = ["Aggregator", "Stage"]


class Stage(StrEnum):
    """What the aggregator is waiting for."""

    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "mask"
    CONFIRM = "confirm"
    UNMASK = "unmask"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """The sum modulo 2^b of the ``survivors``' vectors, shape (length,), of the plan's dtype."""

    total: RingArray = field(repr=False)
    survivors: tuple[str, ...]


class Aggregator:
    """One round at the aggregator: takes each party's message of a stage, then closes the stage.

    ``take_*`` refuses a message (unknown or repeated sender, other round, broken) without changing
    state, so one bad party does not end the round; the caller authenticates the sender (mTLS) and
    passes its name. ``close_*`` continues with those that answered, or ends the round with a
    :class:`ProtocolError` if they are fewer than the threshold. The order: adverts, shares, masked
    vectors, confirmations, unmaskings. Not thread-safe.
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
        before: dict[Stage, tuple[Mapping[str, object] | tuple[str, ...] | set[str], ...]] = {
            Stage.ADVERTISE: (self.plan.parties, self._adverts),
            Stage.SHARE: (self._adverts, self._sealed),
            Stage.MASK: (self._sealed, self._masked),
            Stage.CONFIRM: (self._survivors, self._signatures),
            Stage.UNMASK: (self._signatures, self._shares),
            Stage.ENDED: ((), ()),
        }
        asked, answered = before[self.stage]
        return tuple(name for name in sorted(asked) if name not in answered)

    def take_advert(self, sender: str, message: bytes) -> None:
        """Round 0: a party's signed keys.

        Raises:
            MessageError: not due from this sender, broken, or in another's name.
            CheatingError: the signature is not the sender's, or the keys would make the other
                parties leave the round.
        """
        self._from(sender, Stage.ADVERTISE)
        advert = wire.read(self.plan, message, wire.AdvertMessage, party=sender).advert
        check_advert(self.plan, advert)
        if any(
            {advert.masking, advert.sharing} & {other.masking, other.sharing}
            for other in self._adverts.values()
        ):
            raise CheatingError(f"advert of {sender}: has another party's key")
        self._adverts[sender] = advert

    def close_adverts(self) -> bytes:
        """All signed keys, the same bytes for each party that sent its own.

        Raises:
            ProtocolError: fewer parties than the threshold; the round is over.
        """
        self._close(Stage.ADVERTISE, len(self._adverts), "advertised keys")
        self._agreed = after_adverts(self.plan, self._adverts)
        self.stage = Stage.SHARE
        adverts = tuple(self._adverts[name] for name in sorted(self._adverts))
        return pack(wire.Adverts(adverts=adverts, session=self.plan.digest))

    def take_shares(self, sender: str, message: bytes) -> None:
        """Round 1: a party's sealed shares, one for each other party with keys.

        Raises:
            MessageError: not due from this sender, broken, or for other recipients.
        """
        self._from(sender, Stage.SHARE)
        sealed = wire.by_name(wire.read(self.plan, message, wire.Shares, party=sender).sealed)
        if sealed.keys() != self._adverts.keys() - {sender}:
            raise MessageError(f"message shares: {sender}'s are not one per other party with keys")
        self._sealed[sender] = sealed

    def close_shares(self) -> dict[str, bytes]:
        """Each sharer's envelopes, by name.

        Raises:
            ProtocolError: fewer parties than the threshold; the round is over.
        """
        self._close(Stage.SHARE, len(self._sealed), "sent shares")
        self._agreed = after_shares(self._agreed, self._sealed)
        self.stage = Stage.MASK
        self._total = np.zeros(self.plan.length, dtype=self.plan.dtype)
        return {name: self._envelopes(name) for name in self._sealed}

    def take_masked(self, sender: str, vector: RingArray) -> None:
        """Round 2: a party's whole masked vector (length,), of the plan's dtype; added, not kept.

        Half a vector cannot be subtracted from the sum again, so a stream is read whole
        (``transport.vectors.read_vector``) before it is added: memory is the sum and the vectors
        being received.

        Raises:
            MessageError: not due from this sender, or of another dtype or shape.
        """
        self._from(sender, Stage.MASK)
        if vector.dtype != self.plan.dtype or vector.shape != (self.plan.length,):
            raise MessageError(
                f"vector of {sender}: {vector.dtype} {vector.shape}, not of this plan"
            )
        total = self._sum
        np.add(total, vector, out=total)
        self._masked.add(sender)

    def close_masked(self) -> bytes:
        """Who is in the sum and who is not, the same bytes for each survivor.

        Raises:
            ProtocolError: fewer parties than the threshold; the round is over.
        """
        self._close(Stage.MASK, len(self._masked), "sent masked vectors")
        self._survivors = tuple(sorted(self._masked))
        self._dropped = tuple(sorted(self._sealed.keys() - self._masked))
        self._statement = survivors_statement(self._agreed, self._survivors, self._dropped)
        self.stage = Stage.CONFIRM
        return pack(
            wire.Survivors(
                agreed=self._agreed,
                dropped=self._dropped,
                session=self.plan.digest,
                survivors=self._survivors,
            )
        )

    def take_confirmation(self, sender: str, message: bytes) -> None:
        """Round 3: a survivor's signature on the lists.

        Raises:
            MessageError: not due from this sender, or broken.
            CheatingError: the signature is not the sender's, or on other lists.
        """
        self._from(sender, Stage.CONFIRM)
        signature = wire.read(self.plan, message, wire.Confirmation, party=sender).signature
        check_confirmation(self.plan, sender, signature, self._statement)
        self._signatures[sender] = signature

    def close_confirmations(self) -> bytes:
        """All signatures, the same bytes for each that signed.

        Raises:
            ProtocolError: fewer than the threshold; the round is over.
        """
        self._close(Stage.CONFIRM, len(self._signatures), "signed the list of survivors")
        self.stage = Stage.UNMASK
        return pack(
            wire.Confirmations(session=self.plan.digest, signatures=wire.entries(self._signatures))
        )

    def take_unmasking(self, sender: str, message: bytes) -> None:
        """Round 4: the shares that a party reveals.

        Raises:
            MessageError: not due from this sender, broken, or other shares than those needed.
        """
        self._from(sender, Stage.UNMASK)
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
        self._close(Stage.UNMASK, len(self._shares), "gave their shares")
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

    def _close(self, stage: Stage, count: int, what: str) -> None:
        if self.stage is not stage:
            raise UsageError(f"aggregate: cannot close stage {stage}, the round is at {self.stage}")
        if count < self.plan.threshold:
            self.stage, self._total = Stage.ENDED, None
            raise ProtocolError(
                f"{count} of {len(self.plan.roster)} parties {what}, below the threshold of "
                f"{self.plan.threshold}: the round is over, nothing was revealed; start another "
                "with a new round"
            )
