"""Property lists from untrusted files, XML and binary, bounded in size, depth and values.

``plistlib`` builds the values; what it would accept of a damaged or forged file is refused before.
"""

from __future__ import annotations

import plistlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError, ParserCreate

from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError, read_plain
from dpaudit_local.apple.quoting import path_text

__all__ = ["read_plist"]

MOST_BYTES = 2**20
"""Apple's four files together have about 100 kB."""
MOST_DEPTH = 32
"""Apple's files nest four deep."""
MOST_NODES = 500_000
"""The most values in one file, keys included; a value that is referred to twice counts twice."""


def read_plist(path: Path, *, limit: int = MOST_BYTES, nodes: int = MOST_NODES) -> object:
    """The value in a property list: dict, list, str, int, float, bool, bytes or datetime, nested.

    Files that could harm or mislead a reader are refused: more than ``limit`` bytes or ``nodes``
    values (shared ones counted each time), nesting deeper than 32, an XML internal subset (so
    entities of any kind), unknown elements, text outside a value, a duplicate key in one dict; in
    binary files references that lead back to their own container, objects outside the file or that
    together claim more bytes than the file has. Memory stays within a multiple of the file's size
    and nothing recurses deeper than the nesting allowed; the limit on the size also bounds the
    quadratic time that expat before 2.6 takes over one long token.

    Raises:
        UsageError: it cannot be read, is not a property list, or is refused; names the file, the
            rule and the fix.
    """
    try:
        data = read_plain(path, limit=limit)
    except RefusedError as error:
        raise UsageError(
            f"file={path_text(path)}: {error}; give a readable .plist file of Apple's size"
        ) from error
    try:
        if data.startswith(b"bplist"):
            _check_binary(data, nodes=nodes)
            return plistlib.loads(data, fmt=plistlib.FMT_BINARY, dict_type=_UniqueKeys)
        _XmlCheck(nodes).check(data)
        return plistlib.loads(data, fmt=plistlib.FMT_XML, dict_type=_UniqueKeys)
    except _RefusedError as error:
        raise UsageError(f"file={path_text(path)}: {error}") from error
    except (ValueError, ExpatError, LookupError, OverflowError) as error:
        raise UsageError(
            f"file={path_text(path)}: is not a property list ({error}); "
            "give a .plist file as Apple's tools write it"
        ) from error


class _RefusedError(Exception):
    """A property list is refused: the rule and the fix; :func:`read_plist` names the file."""


class _UniqueKeys(dict[str, Any]):
    """A dict that refuses duplicate keys: readers would disagree about the value."""

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise _RefusedError("has a dict key that is not a string; plutil -lint shows where")
        if key in self:
            raise _RefusedError(f"has the key {key[:_LONG]!r} twice in one dict; keep one of them")
        super().__setitem__(key, value)


_LONG = 80
_CONTAINERS = frozenset({"dict", "array"})
_LEAVES = frozenset({"key", "string", "integer", "real", "date", "data", "true", "false"})
_TEXTS = {
    "integer": re.compile(r"\s*[+-]?[0-9]{1,100}\s*|0[xX][0-9a-fA-F]{1,100}"),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"),
    "true": re.compile(r"\s*"),
    "false": re.compile(r"\s*"),
}
"""The valid text of these leaves: ``plistlib`` takes ``1_0`` for 10 and any text for true."""


class _XmlCheck:
    """One pass of expat over an XML property list, for errors that ``plistlib`` overlooks."""

    def __init__(self, nodes: int) -> None:
        self._most, self._count, self._values = nodes, 0, 0
        self._path: list[str] = []
        self._parts: list[str] = []

    def check(self, data: bytes) -> None:
        """Check the elements without building anything.

        Raises:
            _RefusedError: not one ``plist`` of one value; an internal subset; an unknown or
                misplaced element; text between elements; a leaf with invalid text; too deep; more
                than ``nodes`` values and keys.
            ExpatError, ValueError, LookupError: XML that is not well-formed or in an unknown
                encoding.
        """
        parser = self._parser = ParserCreate()
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.Parse(data, True)
        if self._values != 1:
            raise _RefusedError(f"holds {self._values} values where a property list has one")

    def _refuse(self, error: str) -> _RefusedError:
        return _RefusedError(f"line {self._parser.CurrentLineNumber} {error}")

    def _doctype(
        self, _name: str, _system: str | None, _public: str | None, internal: bool
    ) -> None:
        if internal:
            raise self._refuse(
                "declares an internal subset (<!DOCTYPE … […]>), which allows entity bombs; "
                "remove it"
            )

    def _start(self, element: str, _attributes: dict[str, str]) -> None:
        inside = self._path[-1] if self._path else None
        if inside is None:
            if element != "plist":
                raise self._refuse(
                    f"starts with <{element[:_LONG]}>; a property list starts with <plist>"
                )
        elif element not in _CONTAINERS and element not in _LEAVES:
            raise self._refuse(
                f"has <{element[:_LONG]}>, which is not an element of property lists; correct it"
            )
        elif inside in _LEAVES:
            raise self._refuse(f"has <{element}> inside <{inside}>; close that first")
        elif element == "key" and inside != "dict":
            raise self._refuse(f"has <key> inside <{inside}>; only a dict has keys")
        else:
            self._count += 1
            self._values += inside == "plist"
            if self._count > self._most:
                raise self._refuse(f"has value number {self._most + 1:,}; no such file has so many")
            if len(self._path) > MOST_DEPTH:
                raise self._refuse(f"nests deeper than {MOST_DEPTH}; no such file does")
        self._path.append(element)
        self._parts = []

    def _end(self, element: str) -> None:
        self._path.pop()
        if element in _TEXTS and not _TEXTS[element].fullmatch(text := "".join(self._parts)):
            raise self._refuse(f"has {text[:_LONG]!r} in <{element}>; correct it")

    def _text(self, text: str) -> None:
        if self._path and self._path[-1] in _TEXTS:
            self._parts.append(text)
        elif not text.isspace() and not (self._path and self._path[-1] in _LEAVES):
            raise self._refuse("has text outside any value; remove it or close its element")


_TRAILER = 32
_HEADER = b"bplist00"
_ARRAY, _DICT = 0xA0, 0xD0
_FIXED = {
    0x00: 0,
    0x08: 0,
    0x09: 0,
    0x22: 4,
    0x23: 8,
    0x33: 8,
    **{0x10 + i: 1 << i for i in range(5)},
}
"""The bytes after each marker: null, false, true, float, double, date, integers."""


@dataclass(frozen=True, slots=True)
class _Table:
    data: bytes
    reference_size: int
    offsets: Sequence[int]
    end: int
    """Where the offset table begins; objects are before it."""
    nodes: int
    """The most values."""


def _check_binary(data: bytes, *, nodes: int) -> None:
    """Follow every reference from the top object once, building nothing and without recursion.

    Three limits make the file safe. The bytes that the reachable objects claim together are at most
    the file's (honest objects do not overlap), which bounds what ``plistlib`` allocates; the depth
    bounds its recursion; and the number of values, with shared ones counted each time, bounds any
    walk over the result.

    Raises:
        _RefusedError: truncated, an unknown version or marker, an object or a reference outside, a
            loop, nesting too deep, or more than ``nodes`` values.
    """
    table, top = _table(data, nodes)
    sizes: dict[int, int] = {}  # object → values in it, shared ones each time
    heights: dict[int, int] = {}
    claimed = 0
    path: list[tuple[int, list[int], int]] = []  # (object, its children, how many are done)
    on_path: set[int] = set()
    current: int | None = top
    while current is not None or path:
        if current is not None:
            if current in on_path:
                raise _RefusedError("has a container that contains itself; it is damaged or forged")
            if len(path) > MOST_DEPTH:
                raise _too_deep()
            children, length = _children(table, current)
            claimed += length
            if claimed > len(data):
                raise _RefusedError("has objects that overlap; it is damaged or forged")
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
        if heights[here] > MOST_DEPTH:  # through objects that were first reached on a shorter way
            raise _too_deep()
        if sizes[here] > nodes:
            raise _too_many(nodes)


def _too_deep() -> _RefusedError:
    return _RefusedError(f"nests deeper than {MOST_DEPTH}; no such file does")


def _too_many(nodes: int) -> _RefusedError:
    return _RefusedError(f"has more than {nodes:,} values; no such file has so many")


def _table(data: bytes, nodes: int) -> tuple[_Table, int]:
    if len(data) < len(_HEADER) + 1 + _TRAILER:
        raise _RefusedError(
            f"is a binary property list of {len(data)} bytes: truncated; copy it again"
        )
    if not data.startswith(_HEADER):
        raise _RefusedError(
            "is a binary property list of an unknown version; convert it with plutil -convert xml1"
        )
    offset_size, reference_size, count, top, start = struct.unpack(">6xBBQQQ", data[-_TRAILER:])
    table_bytes = len(data) - _TRAILER - start
    sizes_known = 1 <= offset_size <= 8 and 1 <= reference_size <= 8
    if not (
        sizes_known
        and len(_HEADER) < start
        and count > 0
        and count * offset_size <= table_bytes
        and top < count
    ):
        raise _RefusedError(
            "has a trailer that does not fit the file: truncated or damaged; copy it again"
        )
    if count > nodes:
        raise _too_many(nodes)
    raw = data[start : start + count * offset_size]
    offsets = [
        int.from_bytes(raw[i : i + offset_size], "big") for i in range(0, len(raw), offset_size)
    ]
    return _Table(data, reference_size, offsets, start, nodes), top


def _children(table: _Table, reference: int) -> tuple[list[int], int]:
    """The objects that an object refers to, and its length in bytes."""
    if reference >= len(table.offsets):
        raise _RefusedError(f"refers to object {reference} of {len(table.offsets)}; it is damaged")
    start = table.offsets[reference]
    if not len(_HEADER) <= start < table.end:
        raise _RefusedError(
            f"has object {reference} outside the objects' part of the file; it is damaged"
        )
    marker = table.data[start]
    kind, low = marker & 0xF0, marker & 0x0F
    if marker in _FIXED:
        return [], _within(table, start, 1 + _FIXED[marker])
    if kind == 0x80:
        return [], _within(table, start, 2 + low)
    if kind not in (0x40, 0x50, 0x60, _ARRAY, _DICT):
        raise _RefusedError(
            f"has an object of unknown kind 0x{marker:02x}; it is damaged, or newer than dpaudit"
        )
    count, body = (low, start + 1) if low != 0x0F else _long_count(table, start + 1)
    each = {
        0x40: 1,
        0x50: 1,
        0x60: 2,
        _ARRAY: table.reference_size,
        _DICT: 2 * table.reference_size,
    }[kind]
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
        raise _RefusedError("has an object without a length; it is damaged")
    size = 1 << (marker & 0x0F)
    _within(table, start, 1 + size)
    return int.from_bytes(table.data[start + 1 : start + 1 + size], "big"), start + 1 + size


def _within(table: _Table, start: int, length: int) -> int:
    if start + length > table.end:
        raise _RefusedError(
            "has an object that runs past the end of the objects; it is truncated or damaged"
        )
    return length
