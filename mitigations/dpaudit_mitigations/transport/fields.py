"""What a field of a message may hold. Every kind of field has bounds, checked on receipt and on sending."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Field", "Flag", "Listed", "Maybe", "Raw", "Real", "Record", "Text", "Whole"]


class Field(Protocol):
    """Says what is wrong with a value, by its rule and never by the value; None if nothing is."""

    def fault(self, value: Any) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer, ``low`` ≤ x ≤ ``high``."""

    low: int
    high: int

    def fault(self, value: Any) -> str | None:
        if type(value) is not int:
            return "is not an integer"
        return None if self.low <= value <= self.high else f"is not in [{self.low}, {self.high}]"


@dataclass(frozen=True, slots=True)
class Real:
    """A finite double, ``low`` ≤ x ≤ ``high``."""

    low: float = -math.inf
    high: float = math.inf

    def fault(self, value: Any) -> str | None:
        if type(value) is not float or not math.isfinite(value):
            return "is not a finite number"
        return None if self.low <= value <= self.high else f"is not in [{self.low:g}, {self.high:g}]"


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes, ``low`` to ``high`` of them; exactly ``low`` without ``high``."""

    low: int
    high: int | None = None

    def fault(self, value: Any) -> str | None:
        if type(value) is not bytes:
            return "is not bytes"
        high = self.low if self.high is None else self.high
        return None if self.low <= len(value) <= high else f"has {len(value)} bytes, not {_between(self.low, high)}"


@dataclass(frozen=True, slots=True)
class Text:
    """At most ``longest`` printable characters; one of ``choices``, if given."""

    longest: int
    choices: Collection[str] | None = None

    def fault(self, value: Any) -> str | None:
        if type(value) is not str or not value.isprintable():
            return "is not printable text"
        if len(value) > self.longest:
            return f"has {len(value)} characters, more than {self.longest}"
        return None if self.choices is None or value in self.choices else "is none of the words allowed here"


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def fault(self, value: Any) -> str | None:
        return None if type(value) is bool else "is not true or false"


@dataclass(frozen=True, slots=True)
class Maybe:
    """Nothing, or what ``of`` allows."""

    of: Field

    def fault(self, value: Any) -> str | None:
        return None if value is None else self.of.fault(value)


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of ``low`` to ``high`` items (exactly ``low`` without ``high``), each as ``of`` allows."""

    of: Field
    low: int
    high: int | None = None

    def fault(self, value: Any) -> str | None:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return "is not a list"
        high = self.low if self.high is None else self.high
        if not self.low <= len(value) <= high:
            return f"has {len(value)} items, not {_between(self.low, high)}"
        for index, item in enumerate(value):
            found = self.of.fault(item)
            if found is not None:
                return f"[{index}] {found}"
        return None


class Record:
    """A map with exactly these fields."""

    __slots__ = ("fields",)

    def __init__(self, **fields: Field) -> None:
        self.fields = fields

    def fault(self, value: Any) -> str | None:
        return fault_of(value, self.fields)


def fault_of(value: Any, fields: Mapping[str, Field]) -> str | None:
    """The first thing wrong with a map that must have exactly ``fields``, or None."""
    if not isinstance(value, dict):
        return "is not a map"
    for name, rule in fields.items():
        if name not in value:
            return f"has no field {name}"
        found = rule.fault(value[name])
        if found is not None:
            return f"field {name} {found}"
    if len(value) != len(fields):
        return "has a field that is not known"
    return None


def _between(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
