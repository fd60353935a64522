"""Values of an interpreted program's variables, besides Python's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dpaudit_prove.interpreter.code import Code

__all__ = [
    "PENDING",
    "UNBOUND",
    "Bound",
    "Call",
    "Cell",
    "Closure",
    "CoinMethod",
    "CoinSource",
    "Frame",
    "Generator",
    "NativeMethod",
    "SequenceIterator",
    "Super",
    "Token",
    "View",
]


class _Unbound:
    def __repr__(self) -> str:
        return "UNBOUND"


UNBOUND = _Unbound()
PENDING = object()
"""The answer of a call that a frame will deliver later."""


@dataclass(slots=True, eq=False)
class Call:
    """A call that is still to be made: a property's getter, Python code for a builtin."""

    function: Any
    args: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Cell:
    """A captured variable of an interpreted function."""

    value: Any = UNBOUND


@dataclass(slots=True, eq=False)
class Closure:
    """A function that the program defined while it ran."""

    code: Code
    names: dict[str, Any]
    defaults: tuple[Any, ...]
    keyword_defaults: dict[str, Any]
    cells: list[Any]


@dataclass(slots=True, eq=False)
class Bound:
    """A method of an object whose function is interpreted."""

    function: Any
    owner: Any


@dataclass(slots=True, eq=False)
class NativeMethod:
    """A method of one of Python's own values."""

    owner: Any
    name: str


@dataclass(slots=True, eq=False)
class Super:
    """super() within a method."""

    cls: type
    owner: Any


@dataclass(slots=True, eq=False)
class CoinSource:
    """A generator of random numbers: every draw of it is a coin."""

    kind: str = "random"


@dataclass(slots=True, eq=False)
class CoinMethod:
    """A method of a coin source."""

    source: CoinSource
    name: str


@dataclass(slots=True, eq=False)
class SequenceIterator:
    """An iterator over something with positions."""

    sequence: Any
    index: int = 0


class View:
    """Keys, values or items of a dict, with its keys when the view was made."""

    __slots__ = ("keys", "kind", "owner")

    def __init__(
        self, owner: dict[Any, Any], kind: str, keys: tuple[Any, ...] | None = None
    ) -> None:
        self.owner, self.kind = owner, kind
        self.keys = tuple(owner) if keys is None else keys

    def current_items(self) -> list[Any]:
        """The items that it has now."""
        return list(getattr(self.owner, self.kind)())

    def unchanged(self) -> bool:
        """Whether the dict still has the same keys in the same order."""
        return (
            tuple(map(id, self.owner)) == tuple(map(id, self.keys))
            or tuple(self.owner) == self.keys
        )


@dataclass(frozen=True, slots=True)
class Token:
    """A finished number that a program may move, and not look at: `verdicts.disjoint`."""

    number: int


class Frame:
    """An activation: instruction, variables, stack and handlers; `mode` says who waits for it.

    `mode` is ("push",), ("init", object), ("operator", name, left, right), ("not",), ("drop",),
    or of a generator ("for", label) and ("next", default or UNBOUND).
    """

    __slots__ = (
        "blocks",
        "cells",
        "code",
        "generator",
        "locals",
        "mode",
        "names",
        "pc",
        "stack",
    )

    def __init__(self, code: Code, names: dict[str, Any]) -> None:
        self.code, self.names = code, names
        self.pc = 0
        self.locals: list[Any] = [UNBOUND] * len(code.slots)
        self.cells: list[Any] = []
        self.stack: list[Any] = []
        self.blocks: list[tuple[int, int]] = []
        self.mode: tuple[Any, ...] = ("push",)
        self.generator: Generator | None = None


class Generator:
    """A generator of an interpreted function; `frame` is None once it has ended."""

    __slots__ = ("frame", "started")

    def __init__(self, frame: Frame | None) -> None:
        self.frame = frame
        self.started = False
