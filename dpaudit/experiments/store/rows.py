"""What the rows of a store may be: typed classes, JSON objects, no more than a file can hold."""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dpaudit.codec import convert_value
from dpaudit.results.foreign import RefusedError, read_json, shown

__all__ = ["Budget", "Provenances", "object_of", "read_rows"]

_MOST_FACTS = 100  # keys of a provenance, which every result has a dict of
_FACTOR, _SLACK = 8, 32 << 20
T = TypeVar("T")


class Budget:
    """How much text a query may read from a file of ``size`` bytes: 8 times that, and 32 MiB."""

    def __init__(self, size: int) -> None:
        self._left = _FACTOR * size + _SLACK

    def take(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """``row``, which counts at least four bytes.

        Raises:
            RefusedError: that is too much.
        """
        self._left -= 4 + sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if self._left < 0:
            raise RefusedError("gives more than a file of its size can hold")
        return row


class _Facts(Struct, frozen=True):
    """What every provenance must hold if it has it at all."""

    versions: Mapping[str, str] = msgspec.field(default_factory=dict)


class Provenances:
    """Every provenance of a run by its number, read on demand; results share what is in it.

    ``rows`` are (number, JSON text); the text of each one asked for counts against ``budget``.
    """

    def __init__(self, rows: Sequence[tuple[Any, ...]], *, budget: Budget) -> None:
        self._texts = dict(rows)
        self._budget = budget
        self._read: dict[Any, dict[str, Any]] = {}

    def at(self, number: object, started: object) -> dict[str, Any]:
        """That of one attempt, with its own start in its place.

        Raises:
            RefusedError: there is none, it is no JSON object, its versions are no object of texts,
                or it is larger than any that dpaudit writes.
        """
        text = self._texts.get(number)
        if number not in self._read:
            found = object_of("provenance", text)
            convert_value(found, _Facts, words=False)
            if len(found) > _MOST_FACTS:
                raise RefusedError(f"provenance has more than {_MOST_FACTS} keys")
            self._read[number] = found
        self._budget.take((text,))
        found = self._read[number]
        return {**found, "started": started} if "started" in found else dict(found)


def object_of(name: str, text: object) -> dict[str, Any]:
    """The JSON object in a column.

    Raises:
        RefusedError: it is none; the message begins with ``name``.
    """
    if not isinstance(text, str):
        raise RefusedError(f"{name}={shown(text)} is not JSON text")
    try:
        found = read_json(text)
    except RefusedError as error:
        raise RefusedError(f"{name}: {error}") from error
    if not isinstance(found, dict):
        raise RefusedError(f"{name}={shown(found)} is not a JSON object")
    return found


def read_rows(
    cls: type[T],
    names: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    provenances: Provenances,
) -> list[T]:
    """``rows``, whose columns are ``names``, as ``cls``, whose fields are among them.

    JSON is read where a field is a mapping. ``provenance``, a number that needs ``started`` in the
    same row, becomes the whole provenance.

    Raises:
        RefusedError: a value is not of its field's type, or infinite; the message says which.
    """
    objects = _objects(cls)  # type: ignore[arg-type]  # mypy: no class is hashable
    found = []
    for row in rows:
        values = dict(zip(names, row, strict=True))
        for name, value in values.items():
            if isinstance(value, float) and math.isinf(value):
                raise RefusedError(f"{name}={value} is not a finite number")
        for name in objects:
            if name == "provenance":
                values[name] = provenances.at(values[name], values["started"])
            elif values[name] is not None:
                values[name] = object_of(name, values[name])
        found.append(values)
    return convert_value(found, list[cls], words=False)  # type: ignore[valid-type]


@functools.cache
def _objects(cls: type) -> tuple[str, ...]:
    """The fields that hold JSON objects."""
    return tuple(
        name
        for name, kind in typing.get_type_hints(cls).items()
        if Mapping in (typing.get_origin(part) for part in (kind, *typing.get_args(kind)))
    )
