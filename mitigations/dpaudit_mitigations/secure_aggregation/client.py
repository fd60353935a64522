"""A contributing party, as a state machine: bytes in, bytes out, no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from dpaudit.errors import CheatingError, MessageError, ProtocolError, UsageError
from dpaudit.protocols import Stream
from dpaudit_mitigations.codec import pack
from dpaudit_mitigations.secure_aggregation import wire
from dpaudit_mitigations.secure_aggregation.keys import (
    Envelope,
    Mask,
    RoundKeys,
    apply_masks,
    own_mask,
    pair_mask,
    public_bytes,
    sign,
    split,
)
from dpaudit_mitigations.secure_aggregation.plan import Plan, RingArray
from dpaudit_mitigations.secure_aggregation.wire import (
    after_adverts,
    after_shares,
    check_advert,
    check_confirmation,
    survivors_statement,
)

__all__ = ["Client"]


class _Stage(IntEnum):
    NEW = 0
    ADVERTISED = 1
    SHARED = 2
    OPENED = 3
    MASKED = 4
    CONFIRMED = 5
    ENDED = 6


class Client:
    """One party of one round, after Bonawitz et al. 2017, figure 4, with the consistency check.

    Call :meth:`advertise`, :meth:`share_keys`, :meth:`open_envelopes`, :meth:`masked_input`,
    :meth:`confirm`, :meth:`unmask`, each once and in that order, each but the first with the
    aggregator's answer to the one before. Any refusal ends the round for this party: its keys are
    dropped and every further call is refused, so an aggregator gets one answer per step and cannot
    try again with another list. The rounds have the paper's numbers.

    Threat model: the aggregator, together with fewer than ``plan.threshold`` parties, up to
    ``plan.colluding`` of which sign anything, may deviate at will. It learns at most the sum over
    one list of survivors with at least ``plan.threshold`` names. Not claimed: that the sum is right
    if a party deviates, or that the round ends at all.

    ``stream`` must be fresh and secret (``KeyedStream.fresh()``), and ``plan.round`` never used
    before; whoever runs rounds keeps a record of them.
    """

    def __init__(
        self, plan: Plan, name: str, *, signing_key: Ed25519PrivateKey, stream: Stream
    ) -> None:
        """Take part as ``name``.

        Raises:
            UsageError: the name is not in the roster, or its key there is not that of
                ``signing_key``.
        """
        if name not in plan.roster:
            raise UsageError(f"name={name}: not in the roster; add it for every party")
        if public_bytes(signing_key) != plan.roster[name]:
            raise UsageError(f"signing_key of {name}: does not fit its public key in the roster")
        self.plan, self.name = plan, name
        self._signing_key: Ed25519PrivateKey | None = signing_key
        self._keys: RoundKeys | None = RoundKeys.draw(stream)
        self._stage = _Stage.NEW
        self._adverts: Mapping[str, wire.Advert] = {}
        self._held: dict[str, tuple[bytes, bytes]] = {}
        self._masks: list[Mask] = []
        self._agreed = b""
        self._survivors: tuple[str, ...] = ()
        self._dropped: tuple[str, ...] = ()
        self._statement: tuple[bytes, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether the round is over for this party, successful or not."""
        return self._stage is _Stage.ENDED

    @property
    def survivors(self) -> tuple[str, ...]:
        """The parties in the sum, by the list that this party signed; empty before that."""
        return self._survivors

    def abandon(self) -> None:
        """Drop all secrets; this party answers no more."""
        self._stage = _Stage.ENDED
        self._keys = self._signing_key = None
        self._held, self._masks = {}, []

    def advertise(self) -> bytes:
        """Round 0: this party's public keys, signed."""
        with self._step(_Stage.NEW, _Stage.ADVERTISED) as keys:
            advert = self._own_advert(keys)
            self._adverts = {self.name: advert}
            return pack(wire.AdvertMessage.of(advert, self.plan))

    def share_keys(self, adverts: bytes) -> bytes:
        """Round 1: in, everybody's signed keys; out, sealed shares of this party's secrets.

        Raises:
            MessageError: not a list of this round, or this party's own advert is not in it.
            CheatingError: a key that its owner did not sign.
            ProtocolError: fewer parties than the threshold.
        """
        with self._step(_Stage.ADVERTISED, _Stage.SHARED) as keys:
            found = {a.name: a for a in wire.read(self.plan, adverts, wire.Adverts).adverts}
            if found.get(self.name) != self._adverts[self.name]:
                raise MessageError(f"message adverts: lacks {self.name}'s own as sent")
            self._enough(len(found), "advertised keys")
            for advert in found.values():
                check_advert(self.plan, advert)
            public = [key for advert in found.values() for key in (advert.masking, advert.sharing)]
            if len(set(public)) < len(public):
                raise CheatingError("message adverts: two parties with the same key")
            self._adverts, self._agreed = found, after_adverts(self.plan, found)
            n, t = len(self.plan.roster), self.plan.threshold
            seeds = split(keys.seed, parties=n, threshold=t)
            masking = split(keys.masking.private_bytes_raw(), parties=n, threshold=t)
            sealed = {}
            for name, advert in found.items():
                place = self.plan.places[name] - 1
                if name == self.name:
                    self._held[name] = seeds[place], masking[place]
                    continue
                envelope = self._envelope(keys, advert, sender=self.name, recipient=name)
                sealed[name] = envelope.seal(seeds[place], masking[place])
            return pack(
                wire.Shares(party=self.name, sealed=wire.entries(sealed), session=self.plan.digest)
            )

    def open_envelopes(self, envelopes: bytes) -> None:
        """Round 2, first half: take the others' shares; this fixes whom this party masks against.

        Raises:
            MessageError: not envelopes of this round for this party, or from somebody without keys.
            CheatingError: shares that were changed in transit.
            ProtocolError: fewer parties than the threshold.
        """
        with self._step(_Stage.SHARED, _Stage.OPENED) as keys:
            found = wire.by_name(
                wire.read(self.plan, envelopes, wire.Envelopes, party=self.name).sealed
            )
            if self.name in found or not found.keys() <= self._adverts.keys():
                raise MessageError("message envelopes: from a party without keys, or itself")
            self._enough(len(found) + 1, "sent shares")
            for name, sealed in found.items():
                advert = self._adverts[name]
                envelope = self._envelope(keys, advert, sender=name, recipient=self.name)
                self._held[name] = envelope.open(sealed)
            self._agreed = after_shares(self._agreed, self._held)
            self._masks = [own_mask(keys.seed, agreed=self._agreed, party=self.name)]
            for name in sorted(found):
                other = self._adverts[name].masking
                self._masks.append(
                    pair_mask(keys.masking, other, agreed=self._agreed, party=self.name, peer=name)
                )

    def masked_input(self, vector: RingArray) -> RingArray:
        """Round 2, second half: mask ``vector`` (length,), of the plan's ring, IN PLACE; return it.

        Raises:
            UsageError: another dtype, shape or layout than the plan's; the vector is unchanged.
        """
        if (
            vector.dtype != self.plan.dtype
            or vector.shape != (self.plan.length,)
            or not vector.flags.c_contiguous
        ):
            raise UsageError(
                f"vector of {vector.dtype} {vector.shape}: takes contiguous {self.plan.dtype} "
                f"({self.plan.length},)"
            )
        if not vector.flags.writeable:
            raise UsageError("vector: is read-only but masked in place; pass a copy")
        with self._step(_Stage.OPENED, _Stage.MASKED):
            masks, self._masks = self._masks, []
            apply_masks(vector, masks)
            return vector

    def confirm(self, survivors: bytes) -> bytes:
        """Round 3: in, the list of the parties in the sum; out, this party's signature on it.

        Raises:
            MessageError: lists that overlap, leave someone out or name someone new, or leave out
                this party.
            ProtocolError: fewer survivors than the threshold.
        """
        with self._step(_Stage.MASKED, _Stage.CONFIRMED):
            told = wire.read(self.plan, survivors, wire.Survivors)
            agreed, alive, dropped = told.agreed, told.survivors, told.dropped
            if agreed != self._agreed:
                raise MessageError("message survivors: of a round with other sharers")
            if set(alive) & set(dropped):
                raise MessageError("message survivors: a party is in both lists")
            if set(alive) | set(dropped) != self._held.keys():
                raise MessageError("message survivors: must hold each sharer in one list")
            if self.name not in alive:
                raise MessageError(f"message survivors: lacks {self.name}, which sent its vector")
            self._enough(len(alive), "sent masked vectors")
            self._survivors, self._dropped = alive, dropped
            self._statement = survivors_statement(agreed, alive, dropped)
            assert self._signing_key is not None  # noqa: S101 - held until the end
            signature = sign(self._signing_key, "survivors", *self._statement)
            return pack(
                wire.Confirmation(name=self.name, session=self.plan.digest, signature=signature)
            )

    def unmask(self, confirmations: bytes) -> bytes:
        """Round 4: in, signatures on the same list; out, one share of a secret per party.

        It is the seed's share of each survivor, the key's of each other sharer; never both of one
        party. This ends the round.

        Raises:
            MessageError: not a message of this round, or signatures of others than survivors.
            CheatingError: a signature on another list.
            ProtocolError: fewer signatures than the threshold.
        """
        with self._step(_Stage.CONFIRMED, _Stage.ENDED):
            signatures = wire.by_name(
                wire.read(self.plan, confirmations, wire.Confirmations).signatures
            )
            if not signatures.keys() <= set(self._survivors):
                raise MessageError("message confirmations: signed by a party not a survivor")
            self._enough(len(signatures), "signed the list of survivors")
            for name, signature in signatures.items():
                check_confirmation(self.plan, name, signature, self._statement)
            seeds = wire.entries({name: self._held[name][0] for name in self._survivors})
            keys = wire.entries({name: self._held[name][1] for name in self._dropped})
            self.abandon()
            return pack(
                wire.Unmasking(keys=keys, name=self.name, seeds=seeds, session=self.plan.digest)
            )

    @contextmanager
    def _step(self, expected: _Stage, following: _Stage) -> Iterator[RoundKeys]:
        if self._stage is not expected or self._keys is None:
            self.abandon()
            raise MessageError(f"{self.name}: step out of order or repeated; it has left the round")
        try:
            yield self._keys
        except BaseException:
            self.abandon()
            raise
        self._stage = following

    def _envelope(self, keys: RoundKeys, advert: wire.Advert, **ends: str) -> Envelope:
        return Envelope(own=keys.sharing, other=advert.sharing, agreed=self._agreed, **ends)

    def _own_advert(self, keys: RoundKeys) -> wire.Advert:
        unsigned = wire.Advert(
            commitment=keys.commitment,
            masking=public_bytes(keys.masking),
            name=self.name,
            sharing=public_bytes(keys.sharing),
            signature=b"",
        )
        assert self._signing_key is not None  # noqa: S101 - held until the end
        return replace(
            unsigned, signature=sign(self._signing_key, "advert", *unsigned.signed(self.plan))
        )

    def _enough(self, count: int, what: str) -> None:
        if count < self.plan.threshold:
            raise ProtocolError(
                f"{count} parties {what}, below the threshold of {self.plan.threshold}: the round "
                "is over, nothing was revealed"
            )
