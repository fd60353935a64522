"""Which binary property lists are read: objects within the file, no loops, and no more than the file could hold."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from dpaudit.deployments.apple.plists.limits import MOST_DEPTH, PlistRefusedError

__all__ = ["check_binary"]

_TRAILER = 32
_HEADER = b"bplist00"
_ARRAY, _DICT = 0xA0, 0xD0
_FIXED = {0x00: 0, 0x08: 0, 0x09: 0, 0x22: 4, 0x23: 8, 0x33: 8, **{0x10 + i: 1 << i for i in range(5)}}
"""Bytes after the marker: null, false, true, float, double, date, integers."""


@dataclass(frozen=True, slots=True)
class _Table:
    data: bytes
    reference_size: int
    offsets: Sequence[int]
    end: int
    """Where the offset table begins; objects stand before it."""
    nodes: int
    """The most values."""


def check_binary(data: bytes, *, nodes: int) -> None:
    """Follow every reference from the top object once, without building anything and without recursion.

    Sound because of three sums. The bytes that the reachable objects claim, together, are at most the file's (honest
    objects do not overlap), which bounds what ``plistlib`` allocates; the depth bounds its recursion; and the number of
    values with shared ones counted each time bounds whoever walks over the result.

    Raises:
        PlistRefusedError: truncated, an unknown version or marker, an object or a reference outside, a loop, nesting
            too deep, or more than ``nodes`` values.
    """
    table, top = _table(data, nodes)
    sizes: dict[int, int] = {}  # object → values in it, shared ones each time
    heights: dict[int, int] = {}
    claimed = 0
    path: list[tuple[int, list[int], int]] = []  # (object, its children, how many of them are done)
    on_path: set[int] = set()
    current: int | None = top
    while current is not None or path:
        if current is not None:
            if current in on_path:
                raise PlistRefusedError("has a container that contains itself; it is damaged or forged")
            if len(path) > MOST_DEPTH:
                raise _too_deep()
            children, length = _children(table, current)
            claimed += length
            if claimed > len(data):
                raise PlistRefusedError("has objects that overlap; it is damaged or forged")
            path.append((current, children, 0))
            on_path.add(current)
            current = None
            continue
        here, children, done = path.pop()
        while done < len(children) and children[done] in sizes:
            done += 1
        if done < len(children):
            path.append((here, children, done))
            current = children[done]
            continue
        on_path.remove(here)
        sizes[here] = 1 + sum(sizes[c] for c in children)
        heights[here] = 1 + max((heights[c] for c in children), default=0)
        if heights[here] > MOST_DEPTH:  # over objects that were reached by a shorter way before
            raise _too_deep()
        if sizes[here] > nodes:
            raise _too_many(nodes)


def _too_deep() -> PlistRefusedError:
    return PlistRefusedError(f"nests deeper than {MOST_DEPTH}; no such file does")


def _too_many(nodes: int) -> PlistRefusedError:
    return PlistRefusedError(f"has more than {nodes:,} values; no such file needs so many")


def _table(data: bytes, nodes: int) -> tuple[_Table, int]:
    if len(data) < len(_HEADER) + 1 + _TRAILER:
        raise PlistRefusedError(f"is a binary property list of {len(data)} bytes: truncated; copy it again")
    if not data.startswith(_HEADER):
        raise PlistRefusedError("is a binary property list of an unknown version; convert it with plutil -convert xml1")
    offset_size, reference_size, count, top, start = struct.unpack(">6xBBQQQ", data[-_TRAILER:])
    table_bytes = len(data) - _TRAILER - start
    sizes_known = 1 <= offset_size <= 8 and 1 <= reference_size <= 8
    if not (sizes_known and len(_HEADER) < start and count > 0 and count * offset_size <= table_bytes and top < count):
        raise PlistRefusedError("has a trailer that does not fit the file: truncated or damaged; copy it again")
    if count > nodes:
        raise _too_many(nodes)
    raw = data[start : start + count * offset_size]
    offsets = [int.from_bytes(raw[i : i + offset_size], "big") for i in range(0, len(raw), offset_size)]
    return _Table(data, reference_size, offsets, start, nodes), top


def _children(table: _Table, reference: int) -> tuple[list[int], int]:
    """The objects that one refers to, and the bytes that it takes."""
    if reference >= len(table.offsets):
        raise PlistRefusedError(f"refers to object {reference} of {len(table.offsets)}; it is damaged")
    start = table.offsets[reference]
    if not len(_HEADER) <= start < table.end:
        raise PlistRefusedError(f"has object {reference} outside the objects' part of the file; it is damaged")
    marker = table.data[start]
    kind, low = marker & 0xF0, marker & 0x0F
    if marker in _FIXED:
        return [], _within(table, start, 1 + _FIXED[marker])
    if kind == 0x80:
        return [], _within(table, start, 2 + low)
    if kind not in (0x40, 0x50, 0x60, _ARRAY, _DICT):
        raise PlistRefusedError(f"has an object of unknown kind 0x{marker:02x}; it is damaged, or newer than dpaudit")
    count, body = (low, start + 1) if low != 0x0F else _long_count(table, start + 1)
    each = {0x40: 1, 0x50: 1, 0x60: 2, _ARRAY: table.reference_size, _DICT: 2 * table.reference_size}[kind]
    length = _within(table, start, body - start + count * each)
    if kind not in (_ARRAY, _DICT):
        return [], length
    if count > table.nodes:
        raise _too_many(table.nodes)
    raw, size = table.data[body : body + count * each], table.reference_size
    return [int.from_bytes(raw[i : i + size], "big") for i in range(0, len(raw), size)], length


def _long_count(table: _Table, start: int) -> tuple[int, int]:
    marker = table.data[start]
    if start >= table.end or not 0x10 <= marker <= 0x13:
        raise PlistRefusedError("has an object without a length; it is damaged")
    size = 1 << (marker & 0x0F)
    _within(table, start, 1 + size)
    return int.from_bytes(table.data[start + 1 : start + 1 + size], "big"), start + 1 + size


def _within(table: _Table, start: int, length: int) -> int:
    if start + length > table.end:
        raise PlistRefusedError("has an object that runs past the end of the objects; it is truncated or damaged")
    return length
