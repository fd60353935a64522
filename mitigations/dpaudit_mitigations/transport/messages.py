"""Small messages: msgpack maps in one canonical encoding, with every field declared and bounded.

A message is a map whose first key is ``kind`` and whose other keys are in sorted order, each value in msgpack's
shortest form; so equal messages are equal bytes and can be signed or hashed. What comes from a peer is first walked over
without building anything (depth, number of items, declared lengths against the bytes that are there), then decoded,
checked field by field, and encoded again to see that it was canonical.
"""

from __future__ import annotations

from typing import Any

import msgpack

from dpaudit.errors import MessageError, UsageError
from dpaudit_mitigations.transport.fields import (
    Field,
    Flag,
    Listed,
    Maybe,
    Raw,
    Real,
    Record,
    Text,
    Whole,
    fault_of,
)
from dpaudit_mitigations.transport.vectors import VectorReader, read_vector, vector_frames
from dpaudit_mitigations.transport.walking import walk

__all__ = [
    "Field",
    "Flag",
    "Listed",
    "Maybe",
    "Raw",
    "Real",
    "Record",
    "Text",
    "VectorReader",
    "Whole",
    "kind_of",
    "pack",
    "read_vector",
    "unpack",
    "vector_frames",
]

LARGEST = 4 << 20
"""Bytes of a message, at most; the same limit that gRPC is given on both sides."""


def pack(kind: str, /, **fields: Any) -> bytes:
    """The canonical bytes of a message with ``fields`` (None, bool, int, float, str, bytes, lists and dicts of them).

    Raises:
        UsageError: a value has no such encoding, or the message is too large.
    """
    if "kind" in fields:
        raise UsageError(f"message {kind}: a field cannot be named kind, which every message has already")
    try:
        data: bytes = msgpack.packb({"kind": kind, **_sorted(fields)}, use_bin_type=True, strict_types=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"message {kind}: a field's type or size has no encoding; use plain Python values") from error
    if len(data) > LARGEST:
        raise UsageError(f"message {kind}: {len(data):,} bytes, more than {LARGEST:,}; send a vector in frames")
    return data


def unpack(data: bytes, kind: str, /, **schema: Field) -> dict[str, Any]:
    """The fields of a message of ``kind``: exactly those of ``schema``, each as its rule allows, canonically encoded.

    Raises:
        MessageError: on anything else; the text names the rule and the field, never a value.
    """
    found = _decode(data, f"message {kind}")
    if found.pop("kind", None) != kind:
        raise MessageError(f"message {kind}: another kind of message came")
    fault = fault_of(found, schema)
    if fault is not None:
        raise MessageError(f"message {kind}: {fault}")
    if msgpack.packb({"kind": kind, **_sorted(found)}, use_bin_type=True) != data:
        raise MessageError(f"message {kind}: not in canonical encoding")
    return found


def kind_of(data: bytes) -> str:
    """The kind of a message, before its fields are looked at.

    Raises:
        MessageError: it is no message at all.
    """
    kind = _decode(data, "message").get("kind")
    if not isinstance(kind, str) or len(kind) > 64 or not kind.isprintable():
        raise MessageError("message: says no kind")
    return kind


def _decode(data: bytes, what: str) -> dict[str, Any]:
    if not isinstance(data, bytes):
        raise MessageError(f"{what}: not bytes")
    if len(data) > LARGEST:
        raise MessageError(f"{what}: {len(data):,} bytes, more than {LARGEST:,}")
    walk(data, what)
    try:
        found = msgpack.unpackb(data, raw=False, strict_map_key=True, ext_hook=_no_extension)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise MessageError(f"{what}: not a message (broken encoding)") from error
    if not isinstance(found, dict):
        raise MessageError(f"{what}: not a map")
    return found


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value


def _no_extension(*_: Any) -> Any:
    raise ValueError("extension types are not part of a message")
