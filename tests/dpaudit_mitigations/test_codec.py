"""The message codec: canonical, every field bounded, only MessageError on any bytes."""

from __future__ import annotations

import importlib
import json
import pkgutil
import tracemalloc
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

import dpaudit_mitigations
from dpaudit.errors import MessageError, UsageError
from dpaudit_mitigations.codec import (
    LARGEST,
    Digest,
    ExactFloat,
    Hex64,
    Message,
    Record,
    pack,
    read_json,
    unpack,
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
    return msgspec.json.encode({"kind": kind, **dict(sorted(fields.items()))})


def test_there_and_back_and_the_very_bytes():
    assert unpack(DATA, Start) == START
    assert raw(**VALUE) == DATA
    assert pack(Stop(last=True)) == b'{"kind":"stop","last":true}'


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


RIGHT = b'{"kind":"k","a":1}'


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"kind":"k"}',  # kind is not first
        b'{"kind":"k","a":01}',
        b'{"kind":"k","a":1.0}',
        b'{"kind":"k","a":1,"a":1}',  # a key twice
        b'{"kind":"k","a": 1}',
        b'{"kind":"k","\\u0061":1}',
        RIGHT + b" ",
        RIGHT + RIGHT,
        RIGHT[:-1],
        b'["kind","k"]',
        b"",
        b"null",
        b'{"kind":"k","a":"\xff"}',  # not UTF-8
        bytearray(RIGHT),
        None,
    ],
)
def test_not_canonical_or_no_message(data):
    assert unpack(RIGHT, K).a == 1
    with pytest.raises(MessageError):
        unpack(data, K)


@pytest.mark.slow
def test_deep_and_long_messages_cost_little():
    """Whatever it holds: at most a list of the longest message's shortest values, and no crash."""
    start = b'{"kind":"start",'
    for part in (b"[", b'{"a":', b"0,", b'{"data":"","to":0},', b'"'):
        data = (start + b'"shares":[' + part * LARGEST)[:LARGEST]
        tracemalloc.start()
        try:
            with pytest.raises(MessageError):
                unpack(data, Start)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 16 * LARGEST, part
    with pytest.raises(MessageError, match="at most 1,048,576"):
        unpack(start + b" " * LARGEST, Start)


def test_what_cannot_be_sent():
    for value in (object(), set, b"x" * LARGEST):
        with pytest.raises(UsageError):
            pack(K(a=value))


class Large(Message, frozen=True, kw_only=True, tag="large"):
    data: bytes


def test_no_message_is_larger_than_the_limit():
    room = LARGEST - len(pack(Large(data=b"")))
    fits = Large(data=bytes(room // 4 * 3))
    assert unpack(pack(fits), Large) == fits
    with pytest.raises(MessageError, match="at most 1,048,576"):
        unpack(write_json(Large(data=fits.data + b"xxx")), Large)


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
    assert read_json(text(GOOD), Written, name="x", most=1000) == record


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
        read_json(data, Written, name="x", most=1000)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()
