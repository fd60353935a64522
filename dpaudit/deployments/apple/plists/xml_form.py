"""XML property lists: one value, known elements, no internal subset, bounded depth and count."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any
from xml.parsers.expat import ParserCreate

from dpaudit.deployments.apple.plists.limits import MOST_DEPTH, PlistRefusedError

__all__ = ["read_xml"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}|[+-]?0[xX][0-9a-fA-F]{1,100}")
_SHOWN = 40


def read_xml(data: bytes, *, nodes: int) -> Any:
    """The value, as ``plistlib`` would build it.

    ``plistlib`` itself feeds expat in small pieces, and then expat before 2.6 takes quadratic time over one long token:
    46 seconds for a comment of 15 MB. Here expat gets the whole file at once.

    Raises:
        PlistRefusedError: not one ``plist`` of one value; an internal subset; an unknown or misplaced element; text between
            elements; a leaf that is not what its element says; a key twice in one dict; too deep; more than ``nodes``
            values and keys.
        ExpatError, ValueError, LookupError: no well-formed XML, or in an encoding that is not known.
    """
    return _Reader(nodes).read(data)


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError
    return int(text, 16 if "x" in text.lower() else 10)


def _date(text: str) -> datetime:
    return datetime.strptime(text.strip(), "%Y-%m-%dT%H:%M:%SZ")


def _empty(text: str) -> bool:
    if text.strip():
        raise ValueError
    return True


_CONTAINERS = frozenset({"dict", "array"})
_LEAVES: dict[str, Callable[[str], Any]] = {
    "key": str,
    "string": str,
    "integer": _integer,
    "real": float,
    "date": _date,
    "data": binascii.a2b_base64,
    "true": _empty,
    "false": lambda text: not _empty(text),
}


class _Reader:
    def __init__(self, nodes: int) -> None:
        self._most, self._seen = nodes, 0
        self._open: list[str] = []
        self._filled: list[Any] = []  # the containers among the open elements; plist counts as a list
        self._keys: list[str | None] = []  # of each of them the key that waits for its value
        self._words: list[str] = []
        self._root: list[Any] = []

    def read(self, data: bytes) -> Any:
        parser = self._parser = ParserCreate()
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.Parse(data, True)
        if len(self._root) != 1:
            raise PlistRefusedError(f"holds {len(self._root)} values where a property list has one")
        return self._root[0]

    def _refuse(self, what: str) -> PlistRefusedError:
        return PlistRefusedError(f"line {self._parser.CurrentLineNumber} {what}")

    def _doctype(self, _name: str, _system: str | None, _public: str | None, internal: bool) -> None:
        if internal:
            raise self._refuse("declares an internal subset (<!DOCTYPE … […]>), where entity bombs are made; remove it")

    def _start(self, element: str, _attributes: dict[str, str]) -> None:
        inside = self._open[-1] if self._open else None
        if inside is None:
            if element != "plist":
                raise self._refuse(f"starts with <{element[:_SHOWN]}>; a property list starts with <plist>")
            self._fill(self._root)
        elif element not in _CONTAINERS and element not in _LEAVES:
            raise self._refuse(f"has <{element[:_SHOWN]}>, which is no element of property lists; correct it")
        elif inside in _LEAVES:
            raise self._refuse(f"has <{element}> inside <{inside}>; close that first")
        else:
            self._begin(element)
        self._open.append(element)

    def _begin(self, element: str) -> None:
        """A value or key inside a container."""
        container = self._filled[-1]
        waiting = self._keys[-1]
        if (element == "key") != (isinstance(container, dict) and waiting is None):
            raise self._refuse(f"has <{element}> where a {'key of a dict' if element != 'key' else 'value'} belongs")
        self._seen += 1
        if self._seen > self._most:
            raise self._refuse(f"has value number {self._most + 1:,}; no such file needs so many")
        if len(self._open) > MOST_DEPTH:
            raise self._refuse(f"nests deeper than {MOST_DEPTH}; no such file does")
        if element in _CONTAINERS:
            made: Any = {} if element == "dict" else []
            self._add(made)
            self._fill(made)
        self._words = []

    def _end(self, element: str) -> None:
        self._open.pop()
        if element not in _LEAVES:
            self._filled.pop()
            if self._keys.pop() is not None:
                raise self._refuse("ends a dict after a key without its value; add the value")
            return
        text = "".join(self._words)
        try:
            value = _LEAVES[element](text)
        except ValueError:
            raise self._refuse(f"has {text[:_SHOWN]!r} in <{element}>; correct it") from None
        if element != "key":
            self._add(value)
        elif value in self._filled[-1]:
            raise self._refuse(f"has the key {value[:_SHOWN]!r} twice in one dict; keep one of them")
        else:
            self._keys[-1] = value

    def _text(self, text: str) -> None:
        if self._open and self._open[-1] in _LEAVES:
            self._words.append(text)
        elif not text.isspace():
            raise self._refuse("has text outside any value; remove it or close its element")

    def _fill(self, container: Any) -> None:
        self._filled.append(container)
        self._keys.append(None)

    def _add(self, value: Any) -> None:
        container = self._filled[-1]
        if isinstance(container, dict):
            container[self._keys[-1]] = value
            self._keys[-1] = None
        else:
            container.append(value)
