"""Every message, broken in every way: a MessageError that holds no secret; no crash, no hang, nothing changed."""

import msgpack
import pytest

from dpaudit.errors import CheatingError, MessageError, ProtocolError
from dpaudit.randomness import KeyedStream

CLIENT = {"share": "adverts", "mask": "envelopes", "confirm": "survivors", "unmask": "confirmations"}
SERVER = {
    "advertise": ("advert", "take_advert"),
    "share": ("shares", "take_shares"),
    "confirm": ("confirmation", "take_confirmation"),
    "unmask": ("unmasking", "take_unmasking"),
}


def feed(client, stage, message):
    calls = {
        "share": client.share_keys,
        "mask": client.open_envelopes,
        "confirm": client.confirm,
        "unmask": client.unmask,
    }
    return calls[stage](message)


def answer(r, stage, name):
    """The message that ``name`` owes the server at ``stage``."""
    c = r.clients[name]
    return {
        "advertise": lambda: c.advertise(),
        "share": lambda: c.share_keys(r.adverts),
        "confirm": lambda: c.confirm(r.survivors),
        "unmask": lambda: c.unmask(r.confirmations),
    }[stage]()


def mutants(message, rng, count):
    """Truncated, lengthened, flipped, spliced, emptied, blown up."""
    yield from (b"", b"\x00", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 100_000, message * 2)
    yield from (message + b"\x00", message[:-1], message[1:], rng.bytes(len(message)))
    fields = msgpack.unpackb(message)
    for name in fields:
        for value in (
            None,
            2**63,
            float("nan"),
            "x" * 100,
            b"",
            [],
            [None] * 2000,
        ):
            yield msgpack.packb({**fields, name: value})
        yield msgpack.packb({k: v for k, v in fields.items() if k != name})
    yield msgpack.packb({**fields, "extra": 1})
    yield msgpack.packb(list(fields.items()))
    for _ in range(count):
        broken = bytearray(message)
        for _ in range(int(rng.integers(1, 4))):
            broken[int(rng.integers(len(broken)))] ^= 1 << int(rng.integers(8))
        yield bytes(broken[: int(rng.integers(1, len(broken) + 1))] if rng.random() < 0.3 else broken)


def secrets_of(r):
    out = []
    for client in r.clients.values():
        if client._keys is not None:
            out += [
                client._keys.seed,
                client._keys.masking.private_bytes_raw(),
                client._keys.sharing.private_bytes_raw(),
            ]
        out += [part for pair in client._held.values() for part in pair]
    return out


def holds(text, secrets):
    return any(repr(s)[2:-1] in text or s.hex() in text for s in secrets)


@pytest.mark.parametrize("stage", CLIENT)
def test_broken_messages_to_a_client(make_round, stage):
    rng = KeyedStream.from_seed("fuzz").child(stage).numpy()
    first = make_round(4).until(stage)
    original = getattr(first, CLIENT[stage])
    original = original["a"] if isinstance(original, dict) else original
    tried = 0
    for mutant in mutants(original, rng, 8):
        if mutant == original:
            continue
        r = make_round(4).until(stage) if stage != "share" else make_round(4)
        if stage == "share":
            r.advertise()
        client, secrets = r.clients["a"], secrets_of(r)
        with pytest.raises(ProtocolError) as e:
            feed(client, stage, mutant)
        assert isinstance(e.value, MessageError | CheatingError) or "below the threshold" in str(e.value)
        assert not holds(str(e.value), secrets)
        assert len(str(e.value)) < 400
        assert client.ended
        assert client._keys is None
        tried += 1
    assert tried > 30


@pytest.mark.parametrize("stage", SERVER)
def test_broken_messages_to_the_server(make_round, stage):
    rng = KeyedStream.from_seed("fuzz").child("server", stage).numpy()
    r = make_round(4)
    r.until(stage) if stage != "advertise" else None
    message = answer(r, stage, "a")
    take = getattr(r.server, SERVER[stage][1])
    secrets, before = secrets_of(r), r.server.expected
    refused = accepted = 0
    for mutant in mutants(message, rng, 100):
        if mutant == message:
            continue
        said = None
        try:
            take("a", mutant)
        except (MessageError, CheatingError) as e:
            said = str(e)
        if said is not None:
            assert not holds(said, secrets)
            assert r.server.expected == before  # one bad message changes nothing
            refused += 1
        else:  # well-formed, but other ciphertext or another share: noticed by whom it is for, or at the end
            assert stage in ("share", "unmask")
            {"share": r.server._sealed, "unmask": r.server._shares}[stage].pop("a")
            accepted += 1
    assert refused > 80 - accepted
    take("a", message)
    assert r.server.expected == before[1:]


def test_a_message_of_each_kind_is_refused_in_the_place_of_each_other(make_round):
    r = make_round(4).until("unmask")
    said = [r.adverts, r.envelopes["a"], r.survivors, r.confirmations, *(v for (_, n), v in r.sent.items() if n == "a")]
    assert len({m[:12] for m in said}) >= 5
    for stage, right in CLIENT.items():
        for message in said:
            if message in (getattr(r, right), r.envelopes["a"] if right == "envelopes" else None):
                continue
            other = make_round(4).until(stage)
            with pytest.raises(MessageError, match="another kind"):
                feed(other.clients["a"], stage, message)


def test_names_out_of_order_or_twice_are_refused(make_round):
    """Two encodings of one list would be two messages with one meaning, and a name given twice could hide another."""
    r = make_round(4).until("unmask")
    for stage, field in (("share", "adverts"), ("unmask", "signatures")):
        message = getattr(r, CLIENT[stage])
        fields = msgpack.unpackb(message)
        for items in (fields[field][::-1], fields[field][:1] + fields[field][:3]):
            other = make_round(4).until(stage)
            with pytest.raises(MessageError, match="out of order, or one twice"):
                feed(other.clients["a"], stage, msgpack.packb({**fields, field: items}))
    fields = msgpack.unpackb(r.survivors)
    for names in (["b", "a", "c", "d"], ["a", "a", "b", "c", "d"][:4]):
        other = make_round(4).until("confirm")
        with pytest.raises(MessageError, match="out of order, or one twice"):
            other.clients["a"].confirm(msgpack.packb({**fields, "survivors": names}))


def test_all_messages_of_another_round_are_refused(make_round):
    old = make_round(4, tag="old").until("unmask")
    old.unmask()
    for stage, right in CLIENT.items():
        message = getattr(old, right)
        r = make_round(4, tag="new").until(stage)
        with pytest.raises(MessageError, match="another round"):
            feed(r.clients["a"], stage, message["a"] if isinstance(message, dict) else message)
    for stage, (kind, take) in SERVER.items():
        r = make_round(4, tag="new").until(stage)
        with pytest.raises(MessageError, match="another round"):
            getattr(r.server, take)("a", old.sent[kind, "a"])
