"""What an interpreted program's variables can hold beside Python's own values."""

from __future__ import annotations

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


class Call:
    """A call that is still to be made: a property's getter, Python code for a builtin."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(
        self, function: Any, args: list[Any], kwargs: dict[str, Any] | None = None
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs or {}


class Cell:
    """A captured variable of an interpreted function."""

    __slots__ = ("value",)

    def __init__(self, value: Any = UNBOUND) -> None:
        self.value = value


class Closure:
    """A function that the program defined while it ran."""

    __slots__ = ("cells", "code", "defaults", "keyword_defaults", "names")

    def __init__(
        self,
        code: Code,
        names: dict[str, Any],
        defaults: tuple[Any, ...],
        keyword_defaults: dict[str, Any],
        cells: list[Any],
    ) -> None:
        self.code, self.names, self.defaults = code, names, defaults
        self.keyword_defaults, self.cells = keyword_defaults, cells


class Bound:
    """A method of an object whose function is interpreted."""

    __slots__ = ("function", "owner")

    def __init__(self, function: Any, owner: Any) -> None:
        self.function, self.owner = function, owner


class NativeMethod:
    """A method of one of Python's own values."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name


class Super:
    """super() within a method."""

    __slots__ = ("cls", "owner")

    def __init__(self, cls: type, owner: Any) -> None:
        self.cls, self.owner = cls, owner


class CoinSource:
    """A generator of random numbers: every draw of it is a coin."""

    __slots__ = ("kind",)

    def __init__(self, kind: str = "random") -> None:
        self.kind = kind


class CoinMethod:
    """A method of a coin source."""

    __slots__ = ("name", "source")

    def __init__(self, source: CoinSource, name: str) -> None:
        self.source, self.name = source, name


class SequenceIterator:
    """An iterator over something with positions."""

    __slots__ = ("index", "sequence")

    def __init__(self, sequence: Any, index: int = 0) -> None:
        self.sequence, self.index = sequence, index


class View:
    """Keys, values or items of a dict, with its keys when the view was made."""

    __slots__ = ("keys", "kind", "owner")

    def __init__(
        self, owner: dict[Any, Any], kind: str, keys: tuple[Any, ...] | None = None
    ) -> None:
        self.owner, self.kind = owner, kind
        self.keys = tuple(owner) if keys is None else keys

    def now(self) -> list[Any]:
        """What it shows now."""
        return list(getattr(self.owner, self.kind)())

    def unchanged(self) -> bool:
        """Whether the dict still has the same keys in the same order."""
        return (
            tuple(map(id, self.owner)) == tuple(map(id, self.keys))
            or tuple(self.owner) == self.keys
        )


class Token:
    """A finished number that a program may move, and not look at: `verdicts.disjoint`."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and other.number == self.number

    def __hash__(self) -> int:
        return hash(("token", self.number))


class Frame:
    """An activation: instruction, variables, stack and handlers; `deliver` says who waits for it.

    `deliver` is ("push",), ("init", object), ("operator", name, left, right), ("not",), ("drop",),
    or of a generator ("for", label) and ("next", default or UNBOUND).
    """

    __slots__ = (
        "blocks",
        "cells",
        "code",
        "deliver",
        "generator",
        "locals",
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
        self.deliver: tuple[Any, ...] = ("push",)
        self.generator: Generator | None = None


class Generator:
    """A generator of an interpreted function; `frame` is None once it has ended."""

    __slots__ = ("frame", "started")

    def __init__(self, frame: Frame | None) -> None:
        self.frame = frame
        self.started = False
