"""A client between messages as bytes, for hosts with a process per message (Flower's SuperNode).

The bytes are as secret as the client, and whoever can restore older ones can make a party answer
one stage twice, with two different lists. Our own processes never do this: they keep their client
in memory and lose it when they die.
"""

from __future__ import annotations

from typing import Annotated

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec import Meta

from dpaudit.errors import MessageError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.codec import LARGEST, Message, Record, pack, unpack
from dpaudit_mitigations.secure_aggregation import wire
from dpaudit_mitigations.secure_aggregation.client import Client, _Stage
from dpaudit_mitigations.secure_aggregation.keys import KEY_BYTES, RoundKeys
from dpaudit_mitigations.secure_aggregation.plan import Plan
from dpaudit_mitigations.secure_aggregation.shares import SHARE_BYTES
from dpaudit_mitigations.secure_aggregation.wire import survivors_statement

__all__ = ["resume", "suspend"]

_BETWEEN = (_Stage.ADVERTISED, _Stage.SHARED, _Stage.MASKED, _Stage.CONFIRMED)


class _Held(Record, frozen=True, kw_only=True):
    name: wire.Name
    shares: Annotated[bytes, Meta(min_length=2 * SHARE_BYTES, max_length=2 * SHARE_BYTES)]


class _Suspended(Message, frozen=True, kw_only=True, tag="secagg suspended"):
    adverts: Annotated[bytes, Meta(min_length=1, max_length=LARGEST)]
    agreed: Annotated[bytes, Meta(max_length=32)]
    dropped: tuple[wire.Name, ...]
    held: tuple[_Held, ...]
    keys: Annotated[bytes, Meta(min_length=3 * KEY_BYTES, max_length=3 * KEY_BYTES)]
    name: wire.Name
    plan: wire.Bytes32
    stage: int
    survivors: tuple[wire.Name, ...]


def suspend(client: Client) -> bytes:
    """Everything that ``client`` knows but its long-term signing key; SECRET. Ends ``client``.

    Raises:
        UsageError: its round is over, or it is in the middle of a stage.
    """
    keys = client._keys
    if keys is None or client._stage not in _BETWEEN:
        raise UsageError("client: in the middle of a stage, or ended; cannot be resumed")
    adverts = tuple(client._adverts[name] for name in sorted(client._adverts))
    data = pack(
        _Suspended(
            adverts=pack(wire.Adverts(adverts=adverts, session=client.plan.digest)),
            agreed=client._agreed,
            dropped=client._dropped,
            held=tuple(
                _Held(name=name, shares=b"".join(client._held[name]))
                for name in sorted(client._held)
            ),
            keys=keys.masking.private_bytes_raw() + keys.sharing.private_bytes_raw() + keys.seed,
            name=client.name,
            plan=client.plan.digest,
            stage=int(client._stage),
            survivors=client._survivors,
        )
    )
    client.abandon()
    return data


def resume(plan: Plan, *, signing_key: Ed25519PrivateKey, data: bytes) -> Client:
    """The client that :func:`suspend` saved.

    Raises:
        MessageError: not such bytes.
        UsageError: of another plan.
    """
    found = unpack(data, _Suspended)
    if found.stage not in _BETWEEN:
        raise MessageError("message secagg suspended: of a stage at which no client is suspended")
    if not plan.roster.keys() >= {
        *found.survivors,
        *found.dropped,
        *(x.name for x in found.held),
        found.name,
    }:
        raise MessageError("message secagg suspended: a name that is not in the roster")
    if found.plan != plan.digest:
        raise UsageError("client: was suspended in another round, or with another plan")
    client = Client(plan, found.name, signing_key=signing_key, stream=KeyedStream.fresh())
    masking, sharing, seed = (
        found.keys[at : at + KEY_BYTES] for at in range(0, 3 * KEY_BYTES, KEY_BYTES)
    )
    client._keys = RoundKeys(
        masking=X25519PrivateKey.from_private_bytes(masking),
        sharing=X25519PrivateKey.from_private_bytes(sharing),
        seed=seed,
    )
    client._stage = _Stage(found.stage)
    client._adverts = {a.name: a for a in wire.read(plan, found.adverts, wire.Adverts).adverts}
    client._held = {x.name: (x.shares[:SHARE_BYTES], x.shares[SHARE_BYTES:]) for x in found.held}
    client._agreed = found.agreed
    client._survivors, client._dropped = found.survivors, found.dropped
    if client._survivors:
        client._statement = survivors_statement(client._agreed, client._survivors, client._dropped)
    return client
