"""A client between two messages as bytes, for hosts that run each message in a process of its own (Flower's SuperNode).

The bytes are as secret as the client, and whoever can go back to older ones can make a party answer one stage twice, with
two different lists. Processes of our own never do this: they keep their client in memory, and lose it when they die.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpaudit.errors import MessageError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation import wire
from dpaudit_mitigations.secure_aggregation.agreement import survivors_statement
from dpaudit_mitigations.secure_aggregation.client import Client, _Stage
from dpaudit_mitigations.secure_aggregation.keys import KEY_BYTES, RoundKeys
from dpaudit_mitigations.secure_aggregation.plan import Plan
from dpaudit_mitigations.secure_aggregation.shares import SHARE_BYTES
from dpaudit_mitigations.transport.messages import Listed, Raw, Record, Text, Whole, pack, unpack

__all__ = ["resume", "suspend"]

_KIND = "secagg suspended"
_BETWEEN = (_Stage.ADVERTISED, _Stage.SHARED, _Stage.MASKED, _Stage.CONFIRMED)


def suspend(client: Client) -> bytes:
    """Everything that ``client`` knows, its long-term signing key aside; SECRET. The client itself is abandoned.

    Raises:
        UsageError: its round is over, or it is amid a stage.
    """
    keys = client._keys
    if keys is None or client._stage not in _BETWEEN:
        raise UsageError(
            "client: its round is over, or it has envelopes and no vector yet; there is nothing to come back to"
        )
    data = pack(
        _KIND,
        plan=client.plan.digest,
        name=client.name,
        stage=int(client._stage),
        keys=keys.masking.private_bytes_raw() + keys.sharing.private_bytes_raw() + keys.seed,
        adverts=wire.pack_adverts(client.plan, [client._adverts[name] for name in sorted(client._adverts)]),
        held=[{"name": name, "shares": b"".join(client._held[name])} for name in sorted(client._held)],
        agreed=client._agreed,
        survivors=list(client._survivors),
        dropped=list(client._dropped),
    )
    client.abandon()
    return data


def resume(plan: Plan, *, signing_key: Ed25519PrivateKey, data: bytes) -> Client:
    """The client that :func:`suspend` put to sleep.

    Raises:
        MessageError: not such bytes.
        UsageError: of another plan.
    """
    names = Listed(Text(64, plan.roster.keys()), 0, len(plan.roster))
    found = unpack(
        data,
        _KIND,
        plan=Raw(32),
        name=Text(64, plan.roster.keys()),
        stage=Whole(min(_BETWEEN), max(_BETWEEN)),
        keys=Raw(3 * KEY_BYTES),
        adverts=Raw(1, 4 << 20),
        held=Listed(Record(name=Text(64, plan.roster.keys()), shares=Raw(2 * SHARE_BYTES)), 0, len(plan.roster)),
        agreed=Raw(0, 32),
        survivors=names,
        dropped=names,
    )
    if found["stage"] not in _BETWEEN:
        raise MessageError(f"message {_KIND}: of a stage at which nobody is put to sleep")
    if found["plan"] != plan.digest:
        raise UsageError("client: was suspended in another round, or with another plan")
    client = Client(plan, found["name"], signing_key=signing_key, stream=KeyedStream.fresh())
    parts = [found["keys"][at : at + KEY_BYTES] for at in range(0, 3 * KEY_BYTES, KEY_BYTES)]
    client._keys = RoundKeys(
        masking=X25519PrivateKey.from_private_bytes(parts[0]),
        sharing=X25519PrivateKey.from_private_bytes(parts[1]),
        seed=parts[2],
    )
    client._stage = _Stage(found["stage"])
    client._adverts = wire.unpack_adverts(plan, found["adverts"])
    client._held = {x["name"]: (x["shares"][:SHARE_BYTES], x["shares"][SHARE_BYTES:]) for x in found["held"]}
    client._agreed = found["agreed"]
    client._survivors, client._dropped = tuple(found["survivors"]), tuple(found["dropped"])
    if client._survivors:
        client._statement = survivors_statement(client._agreed, client._survivors, client._dropped)
    return client
