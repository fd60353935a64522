"""What a field of a message may hold: each type writes itself as JSON and reads itself back, strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dpaudit.errors import MessageError

__all__ = ["Field", "Flag", "Hex", "Many", "Maybe", "Real", "Schema", "Whole", "Word", "read", "write"]


class Field(Protocol):
    """A type of value."""

    def write(self, value: Any) -> Any:
        """As JSON."""

    def read(self, document: Any, name: str) -> Any:
        """Back from JSON; a MessageError says which field is wrong, never what it holds."""


@dataclass(frozen=True)
class Hex:
    """``size`` bytes as lower-case hexadecimal digits."""

    size: int = 32

    def write(self, value: bytes) -> str:
        return value.hex()

    def read(self, document: Any, name: str) -> bytes:
        _require(type(document) is str and len(document) == 2 * self.size, name, f"{2 * self.size} hexadecimal digits")
        _require(re.fullmatch(r"[0-9a-f]+", document) is not None, name, "lower-case hexadecimal digits")
        return bytes.fromhex(document)


@dataclass(frozen=True)
class Whole:
    """A whole number in [low, high]."""

    low: int
    high: int

    def write(self, value: int) -> int:
        return value

    def read(self, document: Any, name: str) -> int:
        _require(type(document) is int and self.low <= document <= self.high, name, f"whole, {self.low} to {self.high}")
        return int(document)


@dataclass(frozen=True)
class Real:
    """A double in [low, high], spelt exactly (``float.hex``)."""

    low: float
    high: float

    def write(self, value: float) -> str:
        return float(value).hex()

    def read(self, document: Any, name: str) -> float:
        says = f"a double from {self.low!r} to {self.high!r} as float.hex spells it"
        _require(type(document) is str and len(document) <= 32, name, says)
        try:
            value = float.fromhex(document)
        except (ValueError, OverflowError) as error:
            raise MessageError(f"field {name}: must be {says}") from error
        _require(value.hex() == document and self.low <= value <= self.high, name, says)
        return value


@dataclass(frozen=True)
class Word:
    """One of a few words."""

    words: tuple[str, ...]

    def write(self, value: str) -> str:
        return value

    def read(self, document: Any, name: str) -> str:
        _require(type(document) is str and document in self.words, name, f"one of {', '.join(self.words)}")
        return str(document)


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def write(self, value: bool) -> bool:
        return value

    def read(self, document: Any, name: str) -> bool:
        _require(type(document) is bool, name, "true or false")
        return bool(document)


@dataclass(frozen=True)
class Maybe:
    """Something or null."""

    of: Field

    def write(self, value: Any) -> Any:
        return None if value is None else self.of.write(value)

    def read(self, document: Any, name: str) -> Any:
        return None if document is None else self.of.read(document, name)


@dataclass(frozen=True)
class Many:
    """One a candidate, in their order."""

    of: Field

    def write(self, value: Any) -> Any:
        return [self.of.write(each) for each in value]

    def read(self, document: Any, name: str, count: int) -> Any:
        """Back from a list of ``count``."""
        _require(type(document) is list and len(document) == count, name, f"a list of {count}")
        return tuple(self.of.read(each, f"{name}[{i}]") for i, each in enumerate(document))


Schema = Mapping[str, Field | Many]
"""Fields by name."""


def write(values: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """``values`` as a JSON object with exactly the fields of ``schema``."""
    return {name: field.write(values[name]) for name, field in schema.items()}


def read(document: Any, schema: Schema, *, count: int, what: str) -> dict[str, Any]:
    """Values by name from an object with exactly the fields of ``schema``; ``count`` is the number of candidates.

    Raises:
        MessageError: no object, a field too many or missing, or one that holds something else.
    """
    if type(document) is not dict or set(document) != set(schema):
        raise MessageError(f"{what}: must have exactly the fields {', '.join(sorted(schema)) or '(none)'}")
    return {
        name: field.read(document[name], f"{what}.{name}", count)
        if isinstance(field, Many)
        else field.read(document[name], f"{what}.{name}")
        for name, field in schema.items()
    }


def _require(holds: bool, name: str, says: str) -> None:
    if not holds:
        raise MessageError(f"field {name}: must be {says}")
