"""What the rows of a store may be: one type per column, JSON objects, and no more of them than a file can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpaudit.results.foreign import RefusedError, read_json, shown

__all__ = ["Budget", "Provenances", "object_of", "typed"]

_OBJECTS = frozenset({"settings", "outcome", "versions", "content"})
_WHOLE = frozenset(
    {
        "number",
        "position",
        "process",
        "provenance",
        "trial",
        "truth",
        "guess",
        "trials",
        "done",
        "cells",
    }
)
_REAL = frozenset({"seconds", "score"})
_MOST_FACTS = 100  # keys of a provenance, which every result has a dict of
_FACTOR, _SLACK = 8, 32 << 20


class Budget:
    """How much text may be read from a file of ``size`` bytes in one go: eight times as much, and 32 MiB."""

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


class Provenances:
    """Every provenance of a run by its number, read when it is asked for; results share what is in it."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._texts = dict(rows)
        self._read: dict[int, dict[str, Any]] = {}

    def at(self, number: int, started: str | None, *, budget: Budget) -> dict[str, Any]:
        """That of one attempt, with its own start in its place; its text counts against ``budget``.

        Raises:
            RefusedError: there is none, it is no JSON object, or larger than any that dpaudit
                writes.
        """
        text = self._texts.get(number)
        if number not in self._read:
            self._read[number] = object_of("content", text)
            if len(self._read[number]) > _MOST_FACTS:
                raise RefusedError(f"content has more than {_MOST_FACTS} keys")
        budget.take((text,))
        found = self._read[number]
        return {**found, "started": started} if "started" in found else dict(found)


def object_of(name: str, text: Any) -> dict[str, Any]:
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
    versions = (
        found if name == "versions" else found.get("versions", {}) if name == "content" else {}
    )
    if not isinstance(versions, dict) or not all(isinstance(v, str) for v in versions.values()):
        raise RefusedError(f"{name} has versions that are no object of texts")
    return found


def typed(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """The values of ``row`` by name, JSON read; a name that ends with ``?`` may have none.

    Raises:
        RefusedError: a value of another type than the store's own schema gives the column of that
            name.
    """
    values: dict[str, Any] = {}
    for told, value in zip(names, row, strict=True):
        name = told.removesuffix("?")
        if value is None and told != name:
            values[name] = None
        elif name in _OBJECTS:
            values[name] = object_of(name, value)
        elif (
            name in _REAL
            and isinstance(value, (int, float))
            and (name == "score" or math.isfinite(value))
        ):
            values[name] = float(value)
        elif isinstance(value, int if name in _WHOLE else str) and name not in _REAL:
            values[name] = value
        else:
            raise RefusedError(f"{name}={shown(value)} is of another type")
    return values
