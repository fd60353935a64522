"""The messages of a round, and what both sides derive from them: transcripts and signed statements.

Every message names the plan (its digest, hence the round), or is refused.

All names are the roster's. Lists are in the order of names, none twice: another order would be a
second message of the same meaning, and a name given twice could hide another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Generic, TypeVar

from msgspec import Meta

from dpaudit.errors import CheatingError, MessageError
from dpaudit_mitigations.codec import Message, Record, unpack
from dpaudit_mitigations.secure_aggregation.keys import (
    KEY_BYTES,
    SEALED_BYTES,
    SHARE_BYTES,
    SIGNATURE_BYTES,
    check_public,
    verify,
)
from dpaudit_mitigations.secure_aggregation.plan import Plan, transcript

__all__ = [
    "VECTOR_KIND",
    "Advert",
    "AdvertMessage",
    "Adverts",
    "Bytes32",
    "Confirmation",
    "Confirmations",
    "Done",
    "Envelopes",
    "Name",
    "Shares",
    "Survivors",
    "Unmasking",
    "after_adverts",
    "after_shares",
    "by_name",
    "check_advert",
    "check_confirmation",
    "entries",
    "read",
    "survivors_statement",
]

VECTOR_KIND = "masked"
"""The kind of the frames that carry a masked vector; their session is the plan's digest."""

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
    """A party's public keys, the commitment to its seed, and its signature on them."""

    commitment: Bytes32
    masking: Key
    name: Name
    sharing: Key
    signature: Signature

    def signed(self, plan: Plan) -> tuple[bytes, ...]:
        """The signed byte strings, under the label ``advert``."""
        return plan.digest, self.name.encode(), self.masking, self.sharing, self.commitment

    def encoded(self) -> bytes:
        """All fields in a row, each of known length but the name, which is last."""
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
        """The message that carries ``advert``."""
        return cls(
            session=plan.digest,
            **{field: getattr(advert, field) for field in Advert.__struct_fields__},
        )

    @property
    def advert(self) -> Advert:
        """The advert in this message."""
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
    """To all that sent vectors: the transcript, the parties in the sum, the sharers not in it."""

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
    """To all that signed: all signatures."""

    session: Bytes32
    signatures: tuple[Entry[Signature], ...]


class Unmasking(RoundMessage, frozen=True, kw_only=True, tag="unmasking"):
    """From a party: its shares of survivors' seeds and of dropped parties' masking keys."""

    keys: tuple[Entry[Share], ...]
    name: Name
    seeds: tuple[Entry[Share], ...]
    session: Bytes32


class Done(RoundMessage, frozen=True, kw_only=True, tag="secagg done"):
    """To all that gave shares: the file's SHA-256 and the parties in it, for a plan's digest."""

    session: Bytes32
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    survivors: tuple[Name, ...]


M = TypeVar("M", bound=RoundMessage)


def read(plan: Plan, data: bytes, kind: type[M], *, party: str | None = None) -> M:
    """A message of this plan; from or to ``party``, if one is given.

    Raises:
        MessageError: not such a message, a name that is not the roster's, or a list out of order.
    """
    message = unpack(data, kind)
    label = f"message {kind.__struct_config__.tag}"
    if getattr(message, "session") != plan.digest:  # noqa: B009 - every kind declares it in its place
        raise MessageError(f"{label}: of another round or another plan")
    own = [getattr(message, field) for field in ("party", "name") if hasattr(message, field)]
    for names in (own, *_lists(message)):
        if not plan.roster.keys() >= set(names):
            raise MessageError(f"{label}: a name that is not in the roster")
        if any(a >= b for a, b in pairwise(names)):
            raise MessageError(f"{label}: names out of order, or one twice")
    if party is not None and own != [party]:
        raise MessageError(f"{label}: names another party than its sender or recipient")
    return message


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


def after_adverts(plan: Plan, adverts: Mapping[str, Advert]) -> bytes:
    """The transcript once all keys are known: what envelopes are bound to."""
    return transcript(
        "adverts", plan.digest, *(adverts[name].encoded() for name in sorted(adverts))
    )


def after_shares(agreed: bytes, sharers: Iterable[str]) -> bytes:
    """The transcript once the sharers are known: what masks and confirmations are bound to."""
    return transcript("sharers", agreed, *(name.encode() for name in sorted(sharers)))


def survivors_statement(
    agreed: bytes, survivors: Sequence[str], dropped: Sequence[str]
) -> tuple[bytes, ...]:
    """What a party signs (label ``survivors``): the parties in the sum and the dropped ones."""
    return (
        agreed,
        len(survivors).to_bytes(8, "big"),
        *(name.encode() for name in (*sorted(survivors), *sorted(dropped))),
    )


def check_advert(plan: Plan, advert: Advert) -> None:
    """Check the signature with the roster's key, and that the keys are usable.

    Raises:
        CheatingError: keys that the party did not sign, of another round, equal, or of small order.
    """
    name = advert.name
    verify(plan.roster[name], advert.signature, "advert", *advert.signed(plan), signer=name)
    if advert.masking == advert.sharing:
        raise CheatingError(f"advert of {name}: uses one key for two purposes")
    for key in (advert.masking, advert.sharing):
        check_public(key, owner=name)


def check_confirmation(plan: Plan, name: str, signature: bytes, statement: Sequence[bytes]) -> None:
    """Check ``name``'s signature on a list of survivors.

    Raises:
        CheatingError: it signed another list, or none.
    """
    verify(plan.roster[name], signature, "survivors", *statement, signer=name)
