"""A contributing party, as a state machine: message in, message out, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from dpaudit.errors import CheatingError, MessageError, ProtocolError, UsageError
from dpaudit.protocols import Message, Stream
from dpaudit_mitigations.codec import pack, unpack
from dpaudit_mitigations.secure_aggregation import wire
from dpaudit_mitigations.secure_aggregation.keys import (
    Envelope,
    Mask,
    RoundKeys,
    apply_masks,
    new_signing_key,
    own_mask,
    pair_mask,
    public_bytes,
    sign,
    split,
)
from dpaudit_mitigations.secure_aggregation.plan import Plan, RingArray
from dpaudit_mitigations.secure_aggregation.terms import RoundTerms, check_roster, introduce
from dpaudit_mitigations.secure_aggregation.wire import (
    after_adverts,
    after_shares,
    check_advert,
    check_confirmation,
    survivors_statement,
)
from dpaudit_mitigations.transport.certificates import Identity
from dpaudit_mitigations.transport.journal import Journal
from dpaudit_mitigations.transport.vectors import vector_frames

__all__ = ["Client", "Contributor", "RoundReceipt"]


class _Stage(IntEnum):
    NEW = 0
    ADVERTISED = 1
    SHARED = 2
    MASKED = 3
    CONFIRMED = 4
    ENDED = 5


class Client:
    """One party of one round, after Bonawitz et al. 2017, figure 4, with the consistency check.

    Each :meth:`step` but the first takes the aggregator's answer to the one before: everybody's
    keys, this party's envelopes, the list of survivors, the signatures on it. Any refusal ends the
    round for this party: its keys are dropped and every further step is refused, so an aggregator
    gets one answer per step and cannot try again with another list. The rounds have the paper's
    numbers.

    Threat model: the aggregator, together with fewer than ``plan.threshold`` parties, up to
    ``plan.colluding`` of which sign anything, may deviate at will. It learns at most the sum over
    one list of survivors with at least ``plan.threshold`` names. Not claimed: that the sum is right
    if a party deviates, or that the round ends at all.

    ``stream`` must be fresh and secret (``KeyedStream.fresh()``), and ``plan.round`` never used
    before; whoever runs rounds keeps a record of them.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        *,
        vector: RingArray | Callable[[], RingArray],
        signing_key: Ed25519PrivateKey,
        stream: Stream,
    ) -> None:
        """Take part as ``name``, with ``vector`` (length,), of the plan's ring; masked IN PLACE.

        A function makes the vector when it is due.

        Raises:
            UsageError: the name is not in the roster, or its key there is not that of
                ``signing_key``; a vector of another dtype, shape or layout than the plan's.
        """
        if name not in plan.roster:
            raise UsageError(f"name={name}: not in the roster; add it for every party")
        if public_bytes(signing_key) != plan.roster[name]:
            raise UsageError(f"signing_key of {name}: does not fit its public key in the roster")
        if not callable(vector):
            _check_vector(vector, plan)
        self.plan, self.name = plan, name
        self._vector: RingArray | Callable[[], RingArray] | None = vector
        self._signing_key: Ed25519PrivateKey | None = signing_key
        self._keys: RoundKeys | None = RoundKeys.draw(stream)
        self._stage = _Stage.NEW
        self._adverts: Mapping[str, wire.Advert] = {}
        self._shares: dict[str, tuple[bytes, bytes]] = {}
        self._agreed = b""
        self._survivors: tuple[str, ...] = ()
        self._dropped: tuple[str, ...] = ()
        self._statement: tuple[bytes, ...] = ()

    @property
    def done(self) -> bool:
        """Whether the round is over for this party, successful or not."""
        return self._stage is _Stage.ENDED

    @property
    def survivors(self) -> tuple[str, ...]:
        """The parties in the sum, by the list that this party signed; empty before that."""
        return self._survivors

    def abandon(self) -> None:
        """Drop all secrets; this party answers no more."""
        self._stage = _Stage.ENDED
        self._keys = self._signing_key = self._vector = None
        self._shares = {}

    def step(self, message: bytes | None) -> bytes | RingArray:
        """This party's signed keys for None; the answer to the aggregator's next message.

        The answer to the envelopes is the masked vector itself; the others are bytes.

        Raises:
            MessageError: a message of another round or kind, or out of order; lists that overlap,
                leave someone out (this party, above all) or name someone new.
            CheatingError: a key, a share or a list that its owner did not sign or seal.
            ProtocolError: fewer parties than the threshold.
            UsageError: the function made a vector that is not the plan's.
        """
        stage, keys = self._stage, self._keys
        try:
            if keys is None or (message is None) != (stage is _Stage.NEW):
                raise MessageError(
                    f"{self.name}: step out of order or repeated; it has left the round"
                )
            answer = self._answer(stage, keys, message)
        except BaseException:
            self.abandon()
            raise
        self._stage = _Stage(stage + 1)
        if self.done:
            self.abandon()
        return answer

    def _answer(self, stage: _Stage, keys: RoundKeys, message: Any) -> bytes | RingArray:
        match stage:
            case _Stage.NEW:
                return self._advertise(keys)
            case _Stage.ADVERTISED:
                return self._share_keys(keys, message)
            case _Stage.SHARED:
                return self._masked(self._open_envelopes(keys, message))
            case _Stage.MASKED:
                return self._confirm(message)
        return self._unmask(message)

    def _advertise(self, keys: RoundKeys) -> bytes:
        """Round 0: this party's public keys, signed."""
        advert = self._own_advert(keys)
        self._adverts = {self.name: advert}
        return pack(wire.AdvertMessage.of(advert, self.plan))

    def _share_keys(self, keys: RoundKeys, message: bytes) -> bytes:
        """Round 1: in, everybody's signed keys; out, sealed shares of this party's secrets."""
        listed = wire.read(self.plan, message, wire.Adverts)
        adverts = {advert.name: advert for advert in listed.adverts}
        if adverts.get(self.name) != self._adverts[self.name]:
            raise MessageError(f"message adverts: lacks {self.name}'s own as sent")
        self._check_enough(len(adverts), "advertised keys")
        for advert in adverts.values():
            check_advert(self.plan, advert)
        public = [key for advert in adverts.values() for key in (advert.masking, advert.sharing)]
        if len(set(public)) < len(public):
            raise CheatingError("message adverts: two parties with the same key")
        self._adverts, self._agreed = adverts, after_adverts(self.plan, adverts)
        n, t = len(self.plan.roster), self.plan.threshold
        seeds = split(keys.seed, parties=n, threshold=t)
        masking = split(keys.masking.private_bytes_raw(), parties=n, threshold=t)
        sealed = {}
        for name, advert in adverts.items():
            place = self.plan.places[name] - 1
            if name == self.name:
                self._shares[name] = seeds[place], masking[place]
                continue
            envelope = self._envelope(keys, advert, sender=self.name, recipient=name)
            sealed[name] = envelope.seal(seeds[place], masking[place])
        return pack(
            wire.Shares(party=self.name, sealed=wire.entries(sealed), session=self.plan.digest)
        )

    def _open_envelopes(self, keys: RoundKeys, message: bytes) -> list[Mask]:
        """Round 2, first half: the others' shares, and so the masks against them."""
        envelopes = wire.read(self.plan, message, wire.Envelopes, party=self.name)
        sealed = wire.by_name(envelopes.sealed)
        if self.name in sealed or not sealed.keys() <= self._adverts.keys():
            raise MessageError("message envelopes: from a party without keys, or itself")
        self._check_enough(len(sealed) + 1, "sent shares")
        for name, ciphertext in sealed.items():
            advert = self._adverts[name]
            envelope = self._envelope(keys, advert, sender=name, recipient=self.name)
            self._shares[name] = envelope.open(ciphertext)
        self._agreed = after_shares(self._agreed, self._shares)
        masks = [own_mask(keys.seed, agreed=self._agreed, party=self.name)]
        for name in sorted(sealed):
            other = self._adverts[name].masking
            masks.append(
                pair_mask(keys.masking, other, agreed=self._agreed, party=self.name, peer=name)
            )
        return masks

    def _masked(self, masks: list[Mask]) -> RingArray:
        """Round 2, second half: this party's vector, masked in place."""
        vector, self._vector = self._vector, None
        assert vector is not None  # noqa: S101 - used once
        if callable(vector):
            vector = vector()
            _check_vector(vector, self.plan)
        apply_masks(vector, masks)
        return vector

    def _confirm(self, message: bytes) -> bytes:
        """Round 3: in, the list of the parties in the sum; out, this party's signature on it."""
        lists = wire.read(self.plan, message, wire.Survivors)
        agreed, alive, dropped = lists.agreed, lists.survivors, lists.dropped
        if agreed != self._agreed:
            raise MessageError("message survivors: of a round with other sharers")
        if set(alive) & set(dropped):
            raise MessageError("message survivors: a party is in both lists")
        if set(alive) | set(dropped) != self._shares.keys():
            raise MessageError("message survivors: must hold each sharer in one list")
        if self.name not in alive:
            raise MessageError(f"message survivors: lacks {self.name}, which sent its vector")
        self._check_enough(len(alive), "sent masked vectors")
        self._survivors, self._dropped = alive, dropped
        self._statement = survivors_statement(agreed, alive, dropped)
        assert self._signing_key is not None  # noqa: S101 - held until the end
        signature = sign(self._signing_key, "survivors", *self._statement)
        return pack(
            wire.Confirmation(name=self.name, session=self.plan.digest, signature=signature)
        )

    def _unmask(self, message: bytes) -> bytes:
        """Round 4: in, signatures on the same list; out, one share of a secret per party.

        It is the seed's share of each survivor, the key's of each other sharer; never both of one
        party. This ends the round.
        """
        signatures = wire.by_name(wire.read(self.plan, message, wire.Confirmations).signatures)
        if not signatures.keys() <= set(self._survivors):
            raise MessageError("message confirmations: signed by a party not a survivor")
        self._check_enough(len(signatures), "signed the list of survivors")
        for name, signature in signatures.items():
            check_confirmation(self.plan, name, signature, self._statement)
        seeds = wire.entries({name: self._shares[name][0] for name in self._survivors})
        keys = wire.entries({name: self._shares[name][1] for name in self._dropped})
        return pack(
            wire.Unmasking(keys=keys, name=self.name, seeds=seeds, session=self.plan.digest)
        )

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

    def _check_enough(self, count: int, deed: str) -> None:
        if count < self.plan.threshold:
            raise ProtocolError(
                f"{count} parties {deed}, below the threshold of {self.plan.threshold}: the round "
                "is over, nothing was revealed"
            )


def _check_vector(vector: RingArray, plan: Plan) -> None:
    if (
        vector.dtype != plan.dtype
        or vector.shape != (plan.length,)
        or not vector.flags.c_contiguous
    ):
        raise UsageError(
            f"vector of {vector.dtype} {vector.shape}: takes contiguous {plan.dtype} "
            f"({plan.length},)"
        )
    if not vector.flags.writeable:
        raise UsageError("vector: is read-only but masked in place; pass a copy")


@dataclass(frozen=True, kw_only=True)
class RoundReceipt:
    """What a contributor knows at the end.

    ``survivors`` are the parties in the sum (it signed that list and checked t signatures on it);
    ``sha256`` is the file's, as the aggregator claims.
    """

    survivors: tuple[str, ...]
    sha256: str


class Contributor:
    """A party of a round among processes: it joins by its certificate, then it is a client.

    :attr:`stage` names what the message that :meth:`step` has just returned is for: ``join``, then
    the aggregator's stages. The last message is the digest of the published sum, which makes the
    :attr:`receipt`. A refusal ends it, as for :class:`Client`.
    """

    def __init__(
        self,
        terms: RoundTerms,
        *,
        identity: Identity,
        vector: RingArray,
        stream: Stream,
        journal: Journal,
    ) -> None:
        """Contribute ``vector`` (length,), which is masked in place.

        ``stream`` must be fresh and secret: the keys come from it. ``journal`` notes that the round
        is *joined* before a key is sent, and *done* with the receipt.
        """
        self.stage = "new"
        self.receipt: RoundReceipt | None = None
        self._terms, self._identity, self._journal = terms, identity, journal
        self._secrets: tuple[RingArray, Stream, Ed25519PrivateKey] | None = (
            vector,
            stream,
            new_signing_key(stream.child("signing")),
        )
        self._introduction = b""
        self._client: Client | None = None

    @property
    def done(self) -> bool:
        """Whether it is over, successful (there is a receipt) or not."""
        return self.stage == "done"

    def step(self, message: bytes | None) -> Message | None:
        """The introduction for None; then the answer to the aggregator's next message.

        Raises:
            ProtocolError: as for :meth:`Client.step`; a roster that is not this round's, or with an
                introduction that its certificate did not sign; a digest of another round or of
                other survivors.
        """
        stage, self.stage = self.stage, "done"  # unless this step succeeds
        try:
            answer = self._answer(stage, message)
        except BaseException:
            self._secrets = None
            if self._client is not None:
                self._client.abandon()
            raise
        self.stage = _STAGES[_STAGES.index(stage) + 1]
        return answer

    def _answer(self, stage: str, message: Any) -> Message | None:
        if stage == "done" or (message is None) != (stage == "new"):
            raise MessageError(f"{self._identity.name}: step out of order, or after the end")
        if self._secrets is not None:
            vector, stream, signing = self._secrets
            if stage == "new":
                self._introduction = introduce(
                    self._identity, signing=public_bytes(signing), terms=self._terms.digest
                )
                return self._introduction
            roster = check_roster(
                message, own=self._introduction, identity=self._identity, terms=self._terms
            )
            terms = self._terms
            self._journal.advance(terms.round, None, "joined", terms=terms.digest.hex())
            self._client = Client(
                self._terms.plan(roster),
                self._identity.name,
                vector=vector,
                signing_key=signing,
                stream=stream.child("keys"),
            )
            self._secrets = None  # the client has them
            return self._client.step(None)
        assert self._client is not None  # noqa: S101 - it has the secrets
        if not self._client.done:
            answer = self._client.step(message)
            if isinstance(answer, np.ndarray):
                return vector_frames(wire.VECTOR_KIND, answer, session=self._client.plan.digest)
            return answer
        self.receipt = read_receipt(message, self._client)
        sha256 = self.receipt.sha256
        self._journal.advance(self._terms.round, "joined", "done", sha256=sha256)
        return None


def read_receipt(message: bytes, client: Client) -> RoundReceipt:
    """The receipt in the aggregator's last message.

    Raises:
        MessageError: of another round, or of other survivors than ``client`` signed for.
    """
    done = unpack(message, wire.Done)
    if done.session != client.plan.digest:
        raise MessageError("message done: of another round")
    if done.survivors != client.survivors:
        raise MessageError("message done: names other survivors than those signed for")
    return RoundReceipt(survivors=client.survivors, sha256=done.sha256)


_STAGES = ("new", "join", "advertise", "share", "mask", "confirm", "unmask", "done")
