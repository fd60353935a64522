"""Typed messages with one canonical encoding, in msgpack or in JSON.

A message is a frozen :class:`Record`: its fields are declared in alphabetical order with their
types and bounds, and are written in that order; a :class:`Message` puts its ``kind`` before them.
So equal messages have equal bytes, which can be signed and hashed.

Formal guarantee: a reader returns a message only if writing that message gives exactly the bytes
read. Before msgpack is decoded, :func:`walk` checks its size, depth, number of items and declared
lengths without building anything; JSON is limited in size, and by the interpreter in depth. An
error names the field and the rule; of received values it quotes only the numbers of a session's
terms.
"""

from __future__ import annotations

import functools
import re
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from dpaudit.errors import MessageError, UsageError

__all__ = [
    "DEEPEST",
    "LARGEST",
    "MOST_ITEMS",
    "Digest",
    "ExactFloat",
    "Hex",
    "Hex64",
    "Message",
    "Record",
    "pack",
    "read_json",
    "unpack",
    "walk",
    "write_json",
]

LARGEST = 4 << 20
"""Bytes of a msgpack message, at most; gRPC has the same limit on both sides."""
DEEPEST = 6
"""Levels of nesting in msgpack, at most."""
MOST_ITEMS = 1 << 16
"""Values in one msgpack message, keys and containers counted, at most."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A map with exactly the declared fields. Subclasses declare them in alphabetical order."""


class Message(Record, frozen=True, kw_only=True, tag_field="kind"):
    """A record that travels by itself as msgpack; its ``tag`` is its kind."""


R = TypeVar("R", bound=Record)
M = TypeVar("M", bound=Message)


class Hex(bytes):
    """Exactly ``size`` bytes, in JSON as lower-case hexadecimal digits."""

    size: ClassVar[int]

    def written(self) -> str:
        """The value in JSON."""
        return self.hex()

    @classmethod
    def parse(cls, text: object) -> Self:
        """Raises ValueError unless ``text`` is what :meth:`written` gives."""
        if type(text) is not str or not re.fullmatch(f"[0-9a-f]{{{2 * cls.size}}}", text):
            raise ValueError(f"must be {2 * cls.size} lower-case hexadecimal digits")
        return cls.fromhex(text)


class Digest(Hex):
    """32 bytes: a hash, a commitment, a nonce or a raw Ed25519 public key."""

    size = 32


class Hex64(Hex):
    """64 bytes: an Ed25519 signature, or what opens a commitment (share ‖ nonce)."""

    size = 64


class ExactFloat(float):
    """A double, in JSON exactly as ``float.hex`` spells it."""

    def written(self) -> str:
        """The value in JSON."""
        return self.hex()

    @classmethod
    def parse(cls, text: object) -> Self:
        """Raises ValueError unless ``text`` is what :meth:`written` gives."""
        try:
            value = cls.fromhex(text) if type(text) is str and len(text) <= 32 else None
        except (ValueError, OverflowError):
            value = None
        if value is None or value.hex() != text:
            raise ValueError("must be a double as float.hex spells it")
        return value


def pack(message: Message) -> bytes:
    """The canonical msgpack of a message.

    Raises:
        UsageError: a value has no such encoding, or the message is too large.
    """
    kind = message.__struct_config__.tag
    try:
        data = _MSGPACK.encode(message)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"message {kind}: a field cannot be encoded") from error
    if len(data) > LARGEST:
        raise UsageError(f"message {kind}: {len(data):,} bytes, at most {LARGEST:,}; send frames")
    return data


def unpack(data: bytes, kind: type[M]) -> M:
    """The message of this kind that ``data`` encodes.

    Raises:
        MessageError: it encodes none.
    """
    tag = kind.__struct_config__.tag
    what = f"message {tag}"
    if not isinstance(data, bytes):
        raise MessageError(f"{what}: not bytes")
    if len(data) > LARGEST:
        raise MessageError(f"{what}: {len(data):,} bytes, more than {LARGEST:,}")
    walk(data, what)
    if not data.startswith(_MSGPACK.encode("kind") + _MSGPACK.encode(tag), 1):
        raise MessageError(f"{what}: another kind of message")
    return _decode(data, kind, _MSGPACK, what)


def write_json(record: Record) -> bytes:
    """The only JSON of ``record``: sorted keys, no spaces, ASCII."""
    return _JSON.encode(record)


def read_json(data: bytes | msgspec.Raw, kind: type[R], *, what: str, most: int) -> R:
    """The record that ``data`` encodes; ``what`` names it in errors.

    Raises:
        MessageError: more than ``most`` bytes, or not what :func:`write_json` writes for such a
            record.
    """
    data = data if isinstance(data, bytes) else bytes(memoryview(data))
    if len(data) > most:
        raise MessageError(f"{what}: {len(data):,} bytes, at most {most:,} are allowed")
    return _decode(data, kind, _JSON, what)


def _decode(data: bytes, kind: type[R], encoder: Any, what: str) -> R:
    """The record whose canonical encoding is ``data``; raises MessageError if there is none."""
    try:
        found: R = _decoder(kind, encoder).decode(data)
    except msgspec.ValidationError as error:
        raise MessageError(f"{what}: {_fault(error)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise MessageError(f"{what}: broken encoding (not JSON or msgpack)") from error
    if encoder.encode(found) != data:
        raise MessageError(f"{what}: not in canonical encoding (sorted keys, shortest numbers)")
    return found


def _written(value: Any) -> str:
    if isinstance(value, Hex | ExactFloat):
        return value.written()
    raise TypeError(f"{type(value).__name__}: has no JSON")


def _parsed(kind: type[Any], text: object) -> Any:
    return kind.parse(text)


_MSGPACK = msgspec.msgpack.Encoder()
_JSON = msgspec.json.Encoder(enc_hook=_written)


@functools.cache
def _decoder(kind: type[Record], encoder: Any) -> Any:
    if encoder is _JSON:
        return msgspec.json.Decoder(kind, dec_hook=_parsed)
    return msgspec.msgpack.Decoder(kind)


def _fault(error: msgspec.ValidationError) -> str:
    """Msgspec's error text without received values: it quotes unknown fields and words."""
    text, _, place = str(error).partition(" - at `$")
    if text.startswith("Object contains unknown field"):
        text = "unknown field"
    elif not text.startswith(
        ("Expected ", "Object missing ", "must ", "Integer value out of", "Number out of", "terms")
    ):
        text = "a value that is not allowed"
    return f"field {place.rstrip('`').lstrip('.')}: {text}" if place.strip("`") else text


# How many bytes follow a tag; for texts, bytes, lists and maps: how many hold their length.
_FIXED = (
    {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8}
    | {0xCC + i: 1 << i for i in range(4)}
    | {0xD0 + i: 1 << i for i in range(4)}
)
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}


def walk(data: bytes, what: str) -> None:
    """Pass if ``data`` is exactly one msgpack value within the limits, without extension types.

    A decoder allocates a list of the declared length before it reads the items, at each level of
    nesting: a few kilobytes of headers can claim gigabytes. After this walk every declared length
    is known to be true.

    Raises:
        MessageError: it is not.
    """
    size, at, items = len(data), 0, 0
    open_: list[int] = [1]  # values still to come, level by level
    while open_:
        if open_[-1] == 0:
            open_.pop()
            continue
        open_[-1] -= 1
        items += 1
        if items > MOST_ITEMS:
            raise MessageError(f"{what}: more than {MOST_ITEMS:,} values")
        if at >= size:
            raise MessageError(f"{what}: cut short")
        tag = data[at]
        at += 1
        inner = -1
        if tag <= 0x7F or tag >= 0xE0:
            continue
        if tag <= 0x8F:
            inner = 2 * (tag & 0x0F)
        elif tag <= 0x9F:
            inner = tag & 0x0F
        elif tag <= 0xBF:
            at += tag & 0x1F
        elif tag in _FIXED:
            at += _FIXED[tag]
        elif tag in _SIZED:
            end = at + _SIZED[tag]
            at = end + int.from_bytes(data[at:end], "big")
        elif tag in _LISTS or tag in _MAPS:
            end = at + (_LISTS.get(tag) or _MAPS[tag])
            inner = int.from_bytes(data[at:end], "big") * (2 if tag in _MAPS else 1)
            at = end
        else:
            raise MessageError(f"{what}: not a message (an extension type or a reserved byte)")
        if at > size or inner > size - at:
            raise MessageError(f"{what}: cut short, or a declared length is not true")
        if inner >= 0:
            open_.append(inner)
            if len(open_) > DEEPEST + 1:
                raise MessageError(f"{what}: nested more than {DEEPEST} deep")
    if at != size:
        raise MessageError(f"{what}: {size - at:,} bytes too many at the end")
