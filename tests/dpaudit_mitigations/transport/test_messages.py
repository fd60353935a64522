"""Messages: canonical both ways, every field bounded, and nothing but MessageError from whatever bytes come."""

from __future__ import annotations

import random
import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import MessageError, UsageError
from dpaudit_mitigations.transport.messages import (
    LARGEST,
    Flag,
    Listed,
    Maybe,
    Raw,
    Real,
    Record,
    Text,
    Whole,
    kind_of,
    pack,
    unpack,
)
from dpaudit_mitigations.transport.walking import DEEPEST, MOST_ITEMS, walk

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.binary(max_size=9)
    | st.text(max_size=9)
)
SCHEMA = {
    "round": Whole(0, 10),
    "sigma": Real(0, 100),
    "session": Raw(16),
    "name": Text(8),
    "last": Flag(),
    "note": Maybe(Text(4, choices=("yes", "no"))),
    "shares": Listed(Record(to=Whole(0, 9), data=Raw(1, 64)), 0, 4),
}
VALUE = {
    "round": 3,
    "sigma": 2.5,
    "session": b"s" * 16,
    "name": "σ",
    "last": False,
    "note": None,
    "shares": [{"to": 1, "data": b"x"}, {"to": 2, "data": b"yy" * 20}],
}
DATA = pack("start", **VALUE)


def test_there_and_back():
    assert unpack(DATA, "start", **SCHEMA) == VALUE
    assert kind_of(DATA) == "start"


def test_one_message_has_one_encoding():
    backwards = dict(reversed(VALUE.items())) | {"shares": [dict(reversed(s.items())) for s in VALUE["shares"]]}
    assert pack("start", **backwards) == DATA
    assert list(msgpack.unpackb(DATA)) == ["kind", *sorted(VALUE)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"round": 11}, r"round is not in \[0, 10\]"),
        ({"round": -1}, "round is not in"),
        ({"round": True}, "round is not an integer"),
        ({"round": 1.0}, "round is not an integer"),
        ({"sigma": 2}, "sigma is not a finite"),
        ({"sigma": float("nan")}, "sigma is not a finite"),
        ({"sigma": float("inf")}, "sigma is not a finite"),
        ({"sigma": 101.0}, "sigma is not in"),
        ({"session": b"s" * 15}, "session has 15 bytes, not 16"),
        ({"session": "s" * 16}, "session is not bytes"),
        ({"name": "123456789"}, "name has 9 characters"),
        ({"name": "a\nb"}, "name is not printable"),
        ({"name": b"a"}, "name is not printable"),
        ({"last": 0}, "last is not true or false"),
        ({"note": "what"}, "note is none of the words"),
        ({"shares": None}, "shares is not a list"),
        ({"shares": [{"to": 1, "data": b"x"}] * 5}, "shares has 5 items, not 0 to 4"),
        ({"shares": [{"to": 1}]}, r"shares \[0\] has no field data"),
        ({"shares": [{"to": 1, "data": b"x", "more": 1}]}, r"shares \[0\] has a field that is not known"),
        ({"more": 1}, "a field that is not known"),
    ],
)
def test_a_field_that_breaks_its_rule(change, says):
    with pytest.raises(MessageError, match=says):
        unpack(pack("start", **{**VALUE, **change}), "start", **SCHEMA)


def test_a_missing_field_and_another_kind():
    with pytest.raises(MessageError, match="no field sigma"):
        unpack(pack("start", **{k: v for k, v in VALUE.items() if k != "sigma"}), "start", **SCHEMA)
    with pytest.raises(MessageError, match="another kind"):
        unpack(DATA, "stop", **SCHEMA)


def raw(value, **options):
    return msgpack.packb(value, **options)


@pytest.mark.parametrize(
    "data",
    [
        raw({"a": 1, "kind": "k"}),  # kind is not first
        b"\x82\xa4kind\xa1k\xa1a\xcd\x00\x01",  # 1 in three bytes
        b"\xde\x00\x02" + raw({"kind": "k", "a": 1})[1:],  # a longer map header
        b"\x83\xa4kind\xa1k\xa1a\x01\xa1a\x01",  # a key twice
        b"\x82\xc4\x04kind\xa1k\xa1a\x01",  # a key of bytes
        raw({"kind": "k", "a": 1}) + b"\xc0",  # one value more
        raw({"kind": "k", "a": 1})[:-1],
        raw(["kind", "k"]),
        b"",
        b"\xc1",
        raw({"kind": "k", "a": msgpack.ExtType(5, b"x")}),
        raw({"kind": "k", "a": msgpack.Timestamp(1)}),
        b"\x82\xa4kind\xa1k\xa1a\xa1\xff",  # not UTF-8
        bytearray(raw({"kind": "k", "a": 1})),
        None,
    ],
)
def test_not_canonical_or_no_message(data):
    assert unpack(raw({"kind": "k", "a": 1}), "k", a=Whole(0, 9)) == {"a": 1}
    with pytest.raises(MessageError):
        unpack(data, "k", a=Whole(0, 9))


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff" * 1000,  # lists of 2³² items, a thousand deep
        b"\xdd\x00\x3f\xff\x00" * (LARGEST // 5),  # each smaller than the message
        b"\x91" * 2_000_000,
        b"\x81" * 2_000_000,
        b"\x81\xa1a" * 100_000,
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdc\xff\xff" + b"\xc0" * 65535,
        b"\xdd\x00\x3f\xff\x00" + b"\x00" * 4_000_000,
        b"\x00" * (LARGEST + 1),
    ],
)
def test_huge_lengths_and_deep_nests_cost_nothing(data):
    tracemalloc.start()
    try:
        with pytest.raises(MessageError):
            unpack(data, "start", **SCHEMA)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20


def test_the_walks_limits_are_exact():
    def nested(depth):
        return b"\x91" * depth + b"\xc0"

    walk(nested(DEEPEST), "m")
    with pytest.raises(MessageError, match="m: nested more than 6 deep"):
        walk(nested(DEEPEST + 1), "m")
    walk(msgpack.packb([0] * (MOST_ITEMS - 1)), "m")
    with pytest.raises(MessageError, match="m: more than 65,536 values"):
        walk(msgpack.packb([0] * MOST_ITEMS), "m")
    for claims, items in ((b"\xdd\x00\x00\x00\x05", 5), (b"\x95", 5), (b"\xdf\x00\x00\x00\x03", 6)):
        walk(claims + bytes(items), "m")
        with pytest.raises(MessageError, match="declared length is not true"):
            walk(claims + bytes(items - 1), "m")


def depth(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(
    st.recursive(
        LEAVES, lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=4), x, max_size=4), max_leaves=8
    )
)
def test_the_walk_agrees_with_msgpack(value):
    """Whatever msgpack writes is one value at its last byte, and at no byte before or after."""
    data = msgpack.packb(value, unicode_errors="surrogatepass")
    if depth(value) > DEEPEST:
        return
    walk(data, "m")
    for wrong in (data[:-1], data + b"\xc0"):
        with pytest.raises(MessageError):
            walk(wrong, "m")


def test_what_cannot_be_sent():
    for fields in ({"a": object()}, {"a": 1 << 64}, {"a": {1: 2, "b": 3}}, {"a": b"x" * LARGEST}, {"a": {1, 2}}):
        with pytest.raises(UsageError):
            pack("k", **fields)
    with pytest.raises(UsageError, match="named kind"):
        pack("k", kind="other")


def test_no_value_in_an_error():
    secret = b"secretsecret-123"
    for data in (
        pack("start", **{**VALUE, "session": secret + b"!"}),
        pack("start", **{**VALUE, "name": secret.decode()}),
        pack("other", name=secret.decode()),
        pack("start", **{**VALUE, "secretsecret": 1}),
    ):
        with pytest.raises(MessageError) as caught:
            unpack(data, "start", **SCHEMA)
        assert "secret" not in str(caught.value)


def survives(data):
    try:
        found = unpack(data, "start", **SCHEMA)
    except MessageError:
        return False
    assert pack("start", **found) == data
    return True


def test_mutations_of_a_valid_message():
    rng = random.Random(20240601)
    held = 0
    for _ in range(20_000):
        data = bytearray(DATA)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            mutate(data, rng)
        held += survives(bytes(data))
    assert 500 < held < 15_000  # a flipped byte inside a bytes field is another valid message


def mutate(data, rng):
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 2, 5, 30)))
    match rng.randrange(6):
        case 0 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 1:
            del data[at:]
        case 2:
            del data[at:end]
        case 3:
            data[at:at] = data[at:end]
        case 4:
            data[at:at] = rng.randbytes(rng.choice((1, 3, 9)))
        case 5 if at < len(data):
            data[at] = rng.choice((0xC1, 0xC6, 0xDB, 0xDD, 0xDF, 0xFF, 0x80, 0x90, 0xC9, 0xD8))
    if not data:
        data[:] = b"\xc0"


@given(st.binary(max_size=300))
def test_garbage(data):
    survives(data)
    survives(DATA[: len(DATA) // 2] + data)


@given(st.recursive(LEAVES, lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=4), x, max_size=4)))
def test_any_msgpack_value(value):
    survives(msgpack.packb(value, unicode_errors="surrogatepass"))
    survives(msgpack.packb({"kind": "start", **VALUE, "shares": value}, unicode_errors="surrogatepass"))
