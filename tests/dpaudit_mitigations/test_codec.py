"""The message codec: canonical, every field bounded, only MessageError on any bytes."""

from __future__ import annotations

import importlib
import json
import pkgutil
import tracemalloc
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

import dpaudit_mitigations
from dpaudit.errors import MessageError, UsageError
from dpaudit_mitigations.codec import (
    DEEPEST,
    LARGEST,
    MOST_ITEMS,
    Digest,
    ExactFloat,
    Hex64,
    Message,
    Record,
    pack,
    read_json,
    unpack,
    walk,
    write_json,
)


class Share(Record, frozen=True, kw_only=True):
    data: Annotated[bytes, Meta(min_length=1, max_length=64)]
    to: Annotated[int, Meta(ge=0, le=9)]


class Start(Message, frozen=True, kw_only=True, tag="start"):
    last: bool
    name: Annotated[str, Meta(max_length=8)]
    note: Literal["yes", "no"] | None
    round: Annotated[int, Meta(ge=0, le=10)]
    session: Annotated[bytes, Meta(min_length=16, max_length=16)]
    shares: Annotated[tuple[Share, ...], Meta(max_length=4)]
    sigma: Annotated[float, Meta(ge=0, le=100)]


class Stop(Message, frozen=True, kw_only=True, tag="stop"):
    last: bool


VALUE = {
    "last": False,
    "name": "σ",
    "note": None,
    "round": 3,
    "session": b"s" * 16,
    "shares": [{"data": b"x", "to": 1}, {"data": b"yy" * 20, "to": 2}],
    "sigma": 2.5,
}
START = Start(**VALUE | {"shares": tuple(Share(**share) for share in VALUE["shares"])})
DATA = pack(START)


def raw(kind="start", /, **fields):
    return msgspec.msgpack.encode({"kind": kind, **dict(sorted(fields.items()))})


def test_there_and_back_and_the_very_bytes():
    assert unpack(DATA, Start) == START
    assert raw(**VALUE) == DATA
    assert pack(Stop(last=True)) == b"\x82\xa4kind\xa4stop\xa4last\xc3"


def test_every_message_declares_its_fields_in_alphabetical_order():
    """That is the order on the wire."""
    for module in pkgutil.walk_packages(dpaudit_mitigations.__path__, "dpaudit_mitigations."):
        importlib.import_module(module.name)
    found, todo = [], [Record]
    while todo:
        found += (new := [kind for parent in todo for kind in parent.__subclasses__()])
        todo = new
    assert len(found) > 35
    for kind in found:
        assert list(kind.__struct_fields__) == sorted(kind.__struct_fields__), kind
        assert kind.__struct_config__.frozen, kind
        assert kind.__struct_config__.forbid_unknown_fields, kind


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"round": 11}, "field round"),
        ({"round": -1}, "field round"),
        ({"round": True}, "field round"),
        ({"sigma": 2}, "canonical"),
        ({"sigma": float("inf")}, "field sigma"),
        ({"session": b"s" * 15}, "field session"),
        ({"session": "s" * 16}, "field session"),
        ({"last": 0}, "field last"),
        ({"name": "123456789"}, "field name"),
        ({"note": "what"}, "field note"),
        ({"shares": [{"data": b"x", "to": 1}] * 5}, "field shares"),
        ({"shares": [{"to": 1}]}, "field"),
        ({"shares": [{"data": b"x", "more": 1, "to": 1}]}, "unknown field"),
        ({"more": 1}, "unknown field"),
    ],
)
def test_a_field_that_breaks_its_rule(change, says):
    with pytest.raises(MessageError, match=says):
        unpack(raw(**{**VALUE, **change}), Start)


def test_a_missing_field_and_another_kind():
    with pytest.raises(MessageError, match="field `sigma`"):
        unpack(raw(**{k: v for k, v in VALUE.items() if k != "sigma"}), Start)
    with pytest.raises(MessageError, match="another kind"):
        unpack(DATA, Stop)


class K(Message, frozen=True, kw_only=True, tag="k"):
    a: Annotated[int, Meta(ge=0, le=9)]


RIGHT = msgspec.msgpack.encode({"kind": "k", "a": 1})


@pytest.mark.parametrize(
    "data",
    [
        msgspec.msgpack.encode({"a": 1, "kind": "k"}),  # kind is not first
        b"\x82\xa4kind\xa1k\xa1a\xcd\x00\x01",  # 1 in three bytes
        b"\xde\x00\x02" + RIGHT[1:],  # a longer map header
        b"\x83\xa4kind\xa1k\xa1a\x01\xa1a\x01",  # a key twice
        b"\x82\xc4\x04kind\xa1k\xa1a\x01",  # a key of bytes
        RIGHT + b"\xc0",  # one value more
        RIGHT[:-1],
        msgspec.msgpack.encode(["kind", "k"]),
        b"",
        b"\xc1",
        b"\x82\xa4kind\xa1k\xa1a\xd4\x05x",  # an extension type
        b"\x82\xa4kind\xa1k\xa1a\xd6\xff\x00\x00\x00\x01",  # a timestamp
        b"\x82\xa4kind\xa1k\xa1a\xa1\xff",  # not UTF-8
        bytearray(RIGHT),
        None,
    ],
)
def test_not_canonical_or_no_message(data):
    assert unpack(RIGHT, K).a == 1
    with pytest.raises(MessageError):
        unpack(data, K)


HUGE = (
    b"\xdd\xff\xff\xff\xff" * 1000,  # lists of 2³² items, a thousand deep
    b"\xdd\x00\x3f\xff\x00" * (LARGEST // 5),  # each smaller than the message
    b"\x91" * 2_000_000,
    b"\x81\xa1a" * 100_000,
    *(b"%c\xff\xff\xff\xff" % kind for kind in (0xC6, 0xDB, 0xDF)),
    b"\xdc\xff\xff" + b"\xc0" * 65535,
    b"\xdd\x00\x3f\xff\x00" + b"\x00" * 4_000_000,
    b"\x00" * (LARGEST + 1),
)


@pytest.mark.slow
def test_huge_lengths_and_deep_nests_cost_nothing():
    for data in HUGE:
        tracemalloc.start()
        try:
            with pytest.raises(MessageError):
                unpack(data, Start)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 2 << 20, data[:6]


def test_the_walks_limits_are_exact():
    def nested(depth):
        return b"\x91" * depth + b"\xc0"

    walk(nested(DEEPEST), "m")
    with pytest.raises(MessageError, match="more than 6 deep"):
        walk(nested(DEEPEST + 1), "m")
    walk(msgspec.msgpack.encode([0] * (MOST_ITEMS - 1)), "m")
    with pytest.raises(MessageError, match="more than 65,536"):
        walk(msgspec.msgpack.encode([0] * MOST_ITEMS), "m")
    for claims, items in ((b"\xdd\x00\x00\x00\x05", 5), (b"\x95", 5), (b"\xdf\x00\x00\x00\x03", 6)):
        walk(claims + bytes(items), "m")
        with pytest.raises(MessageError, match="declared length"):
            walk(claims + bytes(items - 1), "m")


def depth(value):
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.binary(max_size=9)
)
VALUES = st.recursive(
    LEAVES | st.text(),
    lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(), x),
    max_leaves=8,
)


@given(VALUES)
def test_the_walk_agrees_with_msgpack(value):
    """Written bytes are one value; one byte less or one value more is none."""
    data = msgspec.msgpack.encode(value)
    if depth(value) > DEEPEST:
        return
    walk(data, "m")
    for wrong in (data[:-1], data + b"\xc0"):
        with pytest.raises(MessageError):
            walk(wrong, "m")


def test_what_cannot_be_sent():
    for value in (object(), 1 << 64, set, b"x" * LARGEST):
        with pytest.raises(UsageError):
            pack(K(a=value))


class Large(Message, frozen=True, kw_only=True, tag="large"):
    data: bytes


def test_no_message_is_larger_than_the_limit():
    fits = Large(data=bytes(LARGEST - len(pack(Large(data=b""))) - 3))
    assert unpack(pack(fits), Large) == fits
    with pytest.raises(MessageError, match="more than 4,194,304"):
        unpack(msgspec.msgpack.encode(Large(data=fits.data + b"x")), Large)


class Many(Message, frozen=True, kw_only=True, tag="many"):
    items: tuple[int, ...]


def test_no_message_has_more_values_than_the_limit():
    # the map, two keys, the kind and the list are values too
    fits = Many(items=(0,) * (MOST_ITEMS - 5))
    assert unpack(pack(fits), Many) == fits
    with pytest.raises(MessageError, match="more than 65,536 values"):
        unpack(pack(Many(items=(*fits.items, 0))), Many)


def test_no_value_in_an_error():
    secret = "secretsecret-123"
    for data in (
        raw(**{**VALUE, "session": secret.encode() + b"!"}),
        raw(**{**VALUE, "name": secret}),
        raw(**{**VALUE, "note": secret}),
        raw("other", name=secret),
        raw(**{**VALUE, secret: 1}),
    ):
        with pytest.raises(MessageError) as caught:
            unpack(data, Start)
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None or "secret" not in str(caught.value.__cause__)


class Written(Record, frozen=True, kw_only=True):
    count: Annotated[int, Meta(ge=0, lt=2**53)]
    digest: Digest
    scale: ExactFloat
    signature: Hex64 | None = None


GOOD = {"count": 3, "digest": "0a" * 32, "scale": "0x1.8000000000000p+1", "signature": None}


def text(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def test_json_there_and_back():
    record = Written(count=3, digest=Digest.fromhex("0a" * 32), scale=ExactFloat(3.0))
    assert write_json(record) == text(GOOD)
    assert read_json(text(GOOD), Written, what="x", most=1000) == record


@pytest.mark.parametrize(
    "data",
    [
        *(
            text(GOOD | {"digest": bad})
            for bad in ("0A" * 32, "0a" * 31, "0a" * 32 + "\n", "é" * 64)
        ),
        *(text(GOOD | {"scale": bad}) for bad in ("0x1.8p+1", "3.0", 3.0, "1e999", None)),
        *(text(GOOD | {"count": bad}) for bad in (True, 3.0, "3", 10**400, None)),
        text({name: value for name, value in GOOD.items() if name != "signature"}),
        text(GOOD | {"more": 1}),
        text(GOOD).replace(b",", b", "),
        text(GOOD).replace(b'"count":3', b'"count":4,"count":3'),
        text(GOOD).replace(b'"count"', b'"c\\u006funt"'),
        text(dict(reversed(GOOD.items())) | {"a": 0}),
        b"[" * 900,
        b'{"count":' * 100,
        b'{"count":"\xff"}',
        b"",
        text(GOOD) + b" " * 1000,
    ],
)
def test_json_that_is_not_canonical(data):
    with pytest.raises(MessageError) as caught:
        read_json(data, Written, what="x", most=1000)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()
