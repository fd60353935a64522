"""The messages of a round, each with its rules: what is packed here can be unpacked here and nothing else can.

Every message names the plan (its digest, hence the round) and its sender, or is refused. Lists are in the order of names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dpaudit.errors import MessageError
from dpaudit_mitigations.secure_aggregation.keys import KEY_BYTES, SIGNATURE_BYTES
from dpaudit_mitigations.secure_aggregation.plan import Plan
from dpaudit_mitigations.secure_aggregation.shares import SEALED_BYTES, SHARE_BYTES
from dpaudit_mitigations.transport.fields import Field, Listed, Raw, Record, Text
from dpaudit_mitigations.transport.messages import pack, unpack

__all__ = [
    "Advert",
    "pack_advert",
    "pack_adverts",
    "pack_confirmation",
    "pack_confirmations",
    "pack_sealed",
    "pack_survivors",
    "pack_unmasking",
    "unpack_advert",
    "unpack_adverts",
    "unpack_confirmation",
    "unpack_confirmations",
    "unpack_sealed",
    "unpack_survivors",
    "unpack_unmasking",
]

_DIGEST = Raw(32)
_SIGNATURE = Raw(SIGNATURE_BYTES)


@dataclass(frozen=True, slots=True)
class Advert:
    """A party's public keys of the round, the commitment to its seed, and its signature under the roster's key."""

    name: str
    masking: bytes
    sharing: bytes
    commitment: bytes
    signature: bytes

    def signed(self, plan: Plan) -> tuple[bytes, ...]:
        """The byte strings under the signature, which has the label ``advert``."""
        return plan.digest, self.name.encode(), self.masking, self.sharing, self.commitment

    def encoded(self) -> bytes:
        """All of it in a row, of known lengths but for the name, which comes last."""
        return self.masking + self.sharing + self.commitment + self.signature + self.name.encode()


def pack_advert(plan: Plan, advert: Advert) -> bytes:
    """From a party: its own advert."""
    return pack("advert", session=plan.digest, **_plain(advert))


def unpack_advert(plan: Plan, data: bytes) -> Advert:
    """A party's own advert.

    Raises:
        MessageError: not one of this plan.
    """
    found = _unpack(plan, data, "advert", **_advert_fields(plan))
    return Advert(**found)


def pack_adverts(plan: Plan, adverts: Sequence[Advert]) -> bytes:
    """To all: everybody's adverts, given in the order of names."""
    return pack("adverts", session=plan.digest, adverts=[_plain(a) for a in adverts])


def unpack_adverts(plan: Plan, data: bytes) -> dict[str, Advert]:
    """Adverts by name, in the order of names, none twice.

    Raises:
        MessageError: not such a list of this plan.
    """
    rule = Listed(Record(**_advert_fields(plan)), 1, len(plan.roster))
    found = [Advert(**a) for a in _unpack(plan, data, "adverts", adverts=rule)["adverts"]]
    _in_order([a.name for a in found], "adverts")
    return {a.name: a for a in found}


def pack_sealed(plan: Plan, kind: str, party: str, sealed: Mapping[str, bytes]) -> bytes:
    """``kind`` ``shares``: from ``party`` to each of ``sealed``; ``envelopes``: to ``party`` from each of them."""
    return pack(kind, session=plan.digest, party=party, sealed=_listed(sealed))


def unpack_sealed(plan: Plan, data: bytes, kind: str, party: str) -> dict[str, bytes]:
    """Sealed shares by the other end's name.

    Raises:
        MessageError: not such a message of or to ``party``.
    """
    found = _unpack(plan, data, kind, party=_name(plan), sealed=_by_name(plan, Raw(SEALED_BYTES)))
    _from(found["party"], party, kind)
    return _mapping(found["sealed"], kind)


def pack_survivors(plan: Plan, *, agreed: bytes, survivors: Sequence[str], dropped: Sequence[str]) -> bytes:
    """To all that sent vectors: the transcript, whose vectors are in the sum, and who sent shares but no vector."""
    return pack("survivors", session=plan.digest, agreed=agreed, survivors=sorted(survivors), dropped=sorted(dropped))


def unpack_survivors(plan: Plan, data: bytes) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """(transcript, survivors, dropped), the lists each in order.

    Raises:
        MessageError: not such a message of this plan.
    """
    names = Listed(_name(plan), 0, len(plan.roster))
    found = _unpack(plan, data, "survivors", agreed=_DIGEST, survivors=names, dropped=names)
    _in_order(found["survivors"], "survivors")
    _in_order(found["dropped"], "dropped")
    return found["agreed"], tuple(found["survivors"]), tuple(found["dropped"])


def pack_confirmation(plan: Plan, name: str, signature: bytes) -> bytes:
    """From a party: its signature on the survivors."""
    return pack("confirmation", session=plan.digest, name=name, signature=signature)


def unpack_confirmation(plan: Plan, data: bytes, name: str) -> bytes:
    """The signature in ``name``'s confirmation.

    Raises:
        MessageError: not such a message of ``name``.
    """
    found = _unpack(plan, data, "confirmation", name=_name(plan), signature=_SIGNATURE)
    _from(found["name"], name, "confirmation")
    return bytes(found["signature"])


def pack_confirmations(plan: Plan, signatures: Mapping[str, bytes]) -> bytes:
    """To all that signed: everybody's signatures."""
    return pack("confirmations", session=plan.digest, signatures=_listed(signatures))


def unpack_confirmations(plan: Plan, data: bytes) -> dict[str, bytes]:
    """Signatures by name.

    Raises:
        MessageError: not such a message of this plan.
    """
    found = _unpack(plan, data, "confirmations", signatures=_by_name(plan, _SIGNATURE))
    return _mapping(found["signatures"], "confirmations")


def pack_unmasking(plan: Plan, name: str, *, seeds: Mapping[str, bytes], keys: Mapping[str, bytes]) -> bytes:
    """From a party: its shares of survivors' seeds and of dropped parties' masking keys."""
    return pack("unmasking", session=plan.digest, name=name, seeds=_listed(seeds), keys=_listed(keys))


def unpack_unmasking(plan: Plan, data: bytes, name: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """(shares of survivors' seeds, shares of dropped parties' masking keys) that ``name`` holds.

    Raises:
        MessageError: not such a message of ``name``.
    """
    rule = _by_name(plan, Raw(SHARE_BYTES))
    found = _unpack(plan, data, "unmasking", name=_name(plan), seeds=rule, keys=rule)
    _from(found["name"], name, "unmasking")
    return _mapping(found["seeds"], "unmasking"), _mapping(found["keys"], "unmasking")


def _unpack(plan: Plan, data: bytes, kind: str, **schema: Field) -> dict[str, Any]:
    found = unpack(data, kind, session=_DIGEST, **schema)
    if found.pop("session") != plan.digest:
        raise MessageError(f"message {kind}: of another round or another plan")
    return found


def _name(plan: Plan) -> Text:
    return Text(64, plan.roster.keys())


def _advert_fields(plan: Plan) -> dict[str, Field]:
    key = Raw(KEY_BYTES)
    return {"name": _name(plan), "masking": key, "sharing": key, "commitment": _DIGEST, "signature": _SIGNATURE}


def _plain(advert: Advert) -> dict[str, Any]:
    return {field: getattr(advert, field) for field in Advert.__slots__}


def _by_name(plan: Plan, value: Raw) -> Listed:
    return Listed(Record(name=_name(plan), value=value), 0, len(plan.roster))


def _listed(values: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [{"name": name, "value": values[name]} for name in sorted(values)]


def _mapping(items: Sequence[Mapping[str, Any]], kind: str) -> dict[str, bytes]:
    _in_order([item["name"] for item in items], kind)
    return {item["name"]: item["value"] for item in items}


def _in_order(names: Sequence[str], what: str) -> None:
    if any(a >= b for a, b in pairwise(names)):
        raise MessageError(f"message {what}: names out of order, or one twice")


def _from(found: str, expected: str, kind: str) -> None:
    if found != expected:
        raise MessageError(f"message {kind}: says another name than the party that it comes from or goes to")
