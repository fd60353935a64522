"""Typed messages with one canonical encoding, JSON.

A message is a frozen :class:`Record`: its fields are declared in alphabetical order with their
types and bounds, and are written in that order; a :class:`Message` puts its ``kind`` before them.
So equal messages have equal bytes, which can be signed and hashed.

Formal guarantee: a reader returns a message only if writing that message gives exactly the bytes
read. Its size is checked first; the interpreter limits its depth. Memory while reading is bounded
by the message's size, times what its shortest values take as objects. An error names the field and
the rule; of received values it quotes only the numbers of a session's terms.
"""

from __future__ import annotations

import functools
import re
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from dpaudit.errors import MessageError, UsageError

__all__ = [
    "LARGEST",
    "Digest",
    "ExactFloat",
    "Hex64",
    "Message",
    "Record",
    "pack",
    "read_json",
    "unpack",
    "write_json",
]

LARGEST = 1 << 20
"""Bytes of a message, at most; longer data goes in frames."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A map with exactly the declared fields. Subclasses declare them in alphabetical order."""


class Message(Record, frozen=True, kw_only=True, tag_field="kind"):
    """A record that travels by itself; its ``tag`` is its kind."""


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
    """The canonical JSON of a message.

    Raises:
        UsageError: a value has no such encoding, or the message is too large.
    """
    kind = message.__struct_config__.tag
    try:
        data = write_json(message)
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
    if not isinstance(data, bytes):
        raise MessageError(f"message {tag}: not bytes")
    if not data.startswith(b'{"kind":%b' % _JSON.encode(tag)):
        raise MessageError(f"message {tag}: another kind of message, or none")
    return read_json(data, kind, name=f"message {tag}", most=LARGEST)


def write_json(record: Record) -> bytes:
    """The only JSON of ``record``: sorted keys, no spaces, ASCII."""
    return _JSON.encode(record)


def read_json(data: bytes | msgspec.Raw, kind: type[R], *, name: str, most: int) -> R:
    """The record that ``data`` encodes; ``name`` names it in errors.

    Raises:
        MessageError: more than ``most`` bytes, or not what :func:`write_json` writes for such a
            record.
    """
    data = data if isinstance(data, bytes) else bytes(memoryview(data))
    if len(data) > most:
        raise MessageError(f"{name}: {len(data):,} bytes, at most {most:,} are allowed")
    try:
        record: R = _decoder(kind).decode(data)
    except msgspec.ValidationError as error:
        raise MessageError(f"{name}: {_fault(error)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise MessageError(f"{name}: broken encoding (not JSON)") from error
    if write_json(record) != data:
        raise MessageError(f"{name}: not in canonical encoding (sorted keys, shortest numbers)")
    return record


def _written(value: Any) -> str:
    if isinstance(value, Hex | ExactFloat):
        return value.written()
    raise TypeError(f"{type(value).__name__}: has no JSON")


def _parsed(kind: type[Any], text: object) -> Any:
    return kind.parse(text)


_JSON = msgspec.json.Encoder(enc_hook=_written)


@functools.cache
def _decoder(kind: type[R]) -> msgspec.json.Decoder[R]:
    return msgspec.json.Decoder(kind, dec_hook=_parsed)


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
