"""The messages of a round. Every one names the plan (its digest, hence the round), or is refused.

All names are the roster's. Lists are in the order of names, none twice: another order would be a second message of the same
meaning, and a name given twice could hide another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Generic, TypeVar

from msgspec import Meta

from dpaudit.errors import MessageError
from dpaudit_mitigations.codec import Message, Record, unpack
from dpaudit_mitigations.secure_aggregation.keys import KEY_BYTES, SIGNATURE_BYTES
from dpaudit_mitigations.secure_aggregation.plan import Plan
from dpaudit_mitigations.secure_aggregation.shares import SEALED_BYTES, SHARE_BYTES

__all__ = [
    "Advert",
    "AdvertMessage",
    "Adverts",
    "Bytes32",
    "Confirmation",
    "Confirmations",
    "Entry",
    "Envelopes",
    "Name",
    "RoundMessage",
    "Shares",
    "Survivors",
    "Unmasking",
    "by_name",
    "entries",
    "read",
]

Name = Annotated[str, Meta(max_length=64)]
Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Sealed = Annotated[bytes, Meta(min_length=SEALED_BYTES, max_length=SEALED_BYTES)]
Share = Annotated[bytes, Meta(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]
Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
V = TypeVar("V")


class Entry(Record, Generic[V], frozen=True, kw_only=True):
    """One party's part of a list."""

    name: Name
    value: V


class Advert(Record, frozen=True, kw_only=True):
    """A party's public keys of the round, the commitment to its seed, and its signature under the roster's key."""

    commitment: Bytes32
    masking: Key
    name: Name
    sharing: Key
    signature: Signature

    def signed(self, plan: Plan) -> tuple[bytes, ...]:
        """The byte strings under the signature, which has the label ``advert``."""
        return plan.digest, self.name.encode(), self.masking, self.sharing, self.commitment

    def encoded(self) -> bytes:
        """All of it in a row, of known lengths but for the name, which comes last."""
        return self.masking + self.sharing + self.commitment + self.signature + self.name.encode()


class RoundMessage(Message, frozen=True, kw_only=True):
    """A message of a round: it has a field ``session``, the plan's digest."""


class AdvertMessage(RoundMessage, frozen=True, kw_only=True, tag="advert"):
    """From a party: its own :class:`Advert`."""

    commitment: Bytes32
    masking: Key
    name: Name
    session: Bytes32
    sharing: Key
    signature: Signature

    @classmethod
    def of(cls, advert: Advert, plan: Plan) -> AdvertMessage:
        """The message that says ``advert``."""
        return cls(session=plan.digest, **{field: getattr(advert, field) for field in Advert.__struct_fields__})

    @property
    def advert(self) -> Advert:
        """What it says."""
        return Advert(**{field: getattr(self, field) for field in Advert.__struct_fields__})


class Adverts(RoundMessage, frozen=True, kw_only=True, tag="adverts"):
    """To all: everybody's adverts."""

    adverts: Annotated[tuple[Advert, ...], Meta(min_length=1)]
    session: Bytes32


class Shares(RoundMessage, frozen=True, kw_only=True, tag="shares"):
    """From ``party``: sealed shares to each of the others."""

    party: Name
    sealed: tuple[Entry[Sealed], ...]
    session: Bytes32


class Envelopes(RoundMessage, frozen=True, kw_only=True, tag="envelopes"):
    """To ``party``: sealed shares from each of the others."""

    party: Name
    sealed: tuple[Entry[Sealed], ...]
    session: Bytes32


class Survivors(RoundMessage, frozen=True, kw_only=True, tag="survivors"):
    """To all that sent vectors: the transcript, whose vectors are in the sum, and who sent shares but no vector."""

    agreed: Bytes32
    dropped: tuple[Name, ...]
    session: Bytes32
    survivors: tuple[Name, ...]


class Confirmation(RoundMessage, frozen=True, kw_only=True, tag="confirmation"):
    """From a party: its signature on the survivors."""

    name: Name
    session: Bytes32
    signature: Signature


class Confirmations(RoundMessage, frozen=True, kw_only=True, tag="confirmations"):
    """To all that signed: everybody's signatures."""

    session: Bytes32
    signatures: tuple[Entry[Signature], ...]


class Unmasking(RoundMessage, frozen=True, kw_only=True, tag="unmasking"):
    """From a party: its shares of survivors' seeds and of dropped parties' masking keys."""

    keys: tuple[Entry[Share], ...]
    name: Name
    seeds: tuple[Entry[Share], ...]
    session: Bytes32


M = TypeVar("M", bound=RoundMessage)


def read(plan: Plan, data: bytes, kind: type[M], *, party: str | None = None) -> M:
    """A message of this plan; from or to ``party``, if one is given.

    Raises:
        MessageError: not such a message, a name that is not the roster's, or a list out of order.
    """
    found = unpack(data, kind)
    what = f"message {kind.__struct_config__.tag}"
    if getattr(found, "session") != plan.digest:  # noqa: B009 - every kind declares it in its place
        raise MessageError(f"{what}: of another round or another plan")
    own = [getattr(found, field) for field in ("party", "name") if hasattr(found, field)]
    for names in (own, *_lists(found)):
        if not plan.roster.keys() >= set(names):
            raise MessageError(f"{what}: a name that is not in the roster")
        if any(a >= b for a, b in pairwise(names)):
            raise MessageError(f"{what}: names out of order, or one twice")
    if party is not None and own != [party]:
        raise MessageError(f"{what}: says another name than the party that it comes from or goes to")
    return found


def entries(values: Mapping[str, V]) -> tuple[Entry[V], ...]:
    """A list in the order of names."""
    return tuple(Entry(name=name, value=values[name]) for name in sorted(values))


def by_name(listed: Sequence[Entry[V]]) -> dict[str, V]:
    """The values of a list by name."""
    return {entry.name: entry.value for entry in listed}


def _lists(message: RoundMessage) -> Iterator[list[str]]:
    for field in message.__struct_fields__:
        value = getattr(message, field)
        if isinstance(value, tuple):
            yield [item if isinstance(item, str) else item.name for item in value]
