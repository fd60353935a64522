# ruff: noqa: ARG005 (tables of functions with one signature)
"""A program's state as one hashable value, and back.

The frozen form is both the key by which states are merged and all that a run resumes from: two
paths with one key have the same future by construction. Variables that no path can read again are
left out. Objects that the program shares or changes are numbered in the order in which they are
met, so that aliasing is part of the form. What cannot be captured is refused by name.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes, Symbol, simplify
from dpaudit_prove.interpreter.values import (
    UNBOUND,
    Bound,
    Cell,
    Closure,
    CoinMethod,
    CoinSource,
    Frame,
    Generator,
    NativeMethod,
    SequenceIterator,
    Super,
    Token,
    View,
)

__all__ = ["Pins", "freeze", "is_plain_class", "thaw"]

_PINNED = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.MethodType,
    types.CellType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    property,
    staticmethod,
    classmethod,
    np.ufunc,
)


class Pins:
    """Objects that live outside the program's state, by number; they are never changed.

    `foreign` are the changeable ones among them (reached through globals, closures, defaults and
    classes): a program that changes one is refused, as its next call would have another law.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.objects: list[Any] = []
        self.foreign: dict[int, Any] = {}

    def number(self, thing: Any) -> int:
        index = self.numbers.get(id(thing))
        if index is None:
            index = self.numbers[id(thing)] = len(self.objects)
            self.objects.append(thing)
        return index

    def adopt(self, thing: Any) -> Any:
        """Note that a value, and all that it leads to, is from outside; returns it."""
        kind = type(thing)
        if kind in _ATOMS or isinstance(thing, _PINNED) or id(thing) in self.foreign:
            return thing
        todo = [thing]
        while todo:
            item = todo.pop()
            kind = type(item)
            if kind in _ATOMS or isinstance(item, _PINNED) or id(item) in self.foreign:
                continue
            self.foreign[id(item)] = item
            if isinstance(item, (list, tuple, set, frozenset)):
                todo.extend(item)
            elif isinstance(item, dict):
                todo.extend(item.keys())
                todo.extend(item.values())
            todo.extend(getattr(item, "__dict__", {}).values())
            for cls in kind.__mro__:
                slots = cls.__dict__.get("__slots__", ())
                names = (slots,) if isinstance(slots, str) else slots
                todo.extend(getattr(item, name) for name in names if hasattr(item, name))
        return thing


_ATOMS = frozenset(
    {int, bool, float, str, bytes, complex, type(None), Fraction, type(...), type(NotImplemented)}
)
Form = Hashable
_DEAD: Form = ("dead",)
_RECORDS: dict[type, tuple[str, ...]] = {
    **{
        kind: tuple([f.name for f in fields(kind)])
        for kind in (Bound, CoinMethod, CoinSource, NativeMethod, Super, Token)
    },
    Fraction: ("numerator", "denominator"),
    LazyBytes: ("symbol", "length"),
    View: ("owner", "kind", "keys"),
    complex: ("real", "imag"),
    range: ("start", "stop", "step"),
    slice: ("start", "stop", "step"),
}
"""Types that are made of the values of some attributes, in the order of their parameters."""
_RECORD_TYPES = {kind.__name__: kind for kind in _RECORDS}


class _Freezer:
    def __init__(self, pins: Pins) -> None:
        self.pins = pins
        self.indices: dict[int, int] = {}
        self.registers: list[Symbol] = []

    def freeze(self, value: Any) -> Form:
        kind = type(value)
        if kind is int or kind is str or value is None:
            return value  # type: ignore[no-any-return]
        if method := _FREEZE.get(kind):
            return method(self, value)
        if id(value) in self.pins.foreign or isinstance(value, _PINNED):
            return ("P", self.pins.number(value))
        if isinstance(value, (np.number, np.bool_)):
            return ("N", value.dtype.str, value.tobytes())
        if isinstance(value, tuple):  # a named tuple
            return ("T+", self.pins.number(kind), self.each(value))
        method = _FREEZE_ONCE.get(kind) or _family(value)
        known = self.indices.get(id(value))
        if known is not None:
            return ("R", known)
        self.indices[id(value)] = len(self.indices)
        return method(self, value)

    def record(self, value: Any) -> Form:
        kind = type(value)
        return (kind.__name__, *[self.freeze(getattr(value, name)) for name in _RECORDS[kind]])

    def each(self, values: Iterable[Any]) -> tuple[Form, ...]:
        return tuple([self.freeze(v) for v in values])

    def named(self, values: Mapping[Any, Any]) -> tuple[Form, ...]:
        return tuple([(self.freeze(k), self.freeze(v)) for k, v in values.items()])

    def exception(self, value: BaseException) -> Form:
        number = self.pins.number(type(value))
        return ("E", number, self.each(value.args), self.named(value.__dict__))

    def instance(self, value: Any) -> Form:
        slots = [name for name in _slots_of(type(value)) if hasattr(value, name)]
        members = getattr(value, "__dict__", {}) | {name: getattr(value, name) for name in slots}
        return ("O", self.pins.number(type(value)), self.named(members))

    def symbol(self, symbol: Symbol) -> Form:
        if symbol.parts is None:
            self.registers.append(symbol)
            return ("S", symbol.low, symbol.high, symbol.swapped)
        return ("SP", self.each(symbol.parts), symbol.swapped)

    def lazy(self, value: Lazy) -> Form:
        simple = simplify(value)
        if not isinstance(simple, Lazy):
            return self.freeze(simple)
        steps = tuple([(name, self.freeze(c)) for name, c in simple.steps])
        return ("L", self.freeze(simple.symbol), steps)

    def frame(self, frame: Frame) -> Form:
        code, pc = frame.code, frame.pc
        live = code.live[pc]
        variables = [
            self.freeze(v) if i in live and v is not UNBOUND else _DEAD
            for i, v in enumerate(frame.locals)
        ]
        return (
            "F",
            self.pins.number(code),
            pc,
            tuple(variables),
            self.each(frame.stack),
            self.each(frame.cells),
            tuple(frame.blocks),
            self.each(frame.mode),
            self.pins.number(frame.names),
            None if frame.generator is None else self.freeze(frame.generator),
        )

    def generator(self, value: Generator) -> Form:
        inside: Form = None
        if value.frame is not None and value.frame.generator is not value:  # not running
            inside = self.frame(value.frame)
        return ("G", inside, value.started, value.frame is not None)

    def closure(self, value: Closure) -> Form:
        return (
            "K",
            self.pins.number(value.code),
            self.pins.number(value.names),
            self.each(value.defaults),
            self.named(value.keyword_defaults),
            self.each(value.cells),
        )


def _family(value: Any) -> Callable[[_Freezer, Any], Form]:
    """How to freeze an exception, or an object of the program's classes."""
    kind = type(value)
    if isinstance(value, BaseException):
        return _Freezer.exception
    if is_plain_class(kind):
        return _Freezer.instance
    raise RefusedProgramError(
        f"the program keeps a {kind.__module__}.{kind.__qualname__} across a coin: "
        "its state cannot be captured"
    )


def _slots_of(kind: type) -> list[str]:
    names: list[str] = []
    for cls in kind.__mro__:
        slots = cls.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in {"__dict__", "__weakref__"}]


def is_plain_class(kind: type) -> bool:
    """Whether objects of a class hold nothing but attributes: no part of it is written in C."""
    return all(
        cls is object or cls.__flags__ & (1 << 9) or cls.__module__ == "abc" for cls in kind.__mro__
    ) and all(
        cls is object or cls.__basicsize__ <= 16 + 8 * (2 + len(_slots_of(cls)))
        for cls in kind.__mro__
    )


_FREEZE: dict[type, Callable[[_Freezer, Any], Form]] = {
    **dict.fromkeys(_RECORDS, _Freezer.record),
    bool: lambda _, v: ("b", 1 if v else 0),
    float: lambda _, v: ("f", v.hex()),
    bytes: lambda _, v: v,
    type(...): lambda _, v: ("...",),
    type(NotImplemented): lambda _, v: ("NI",),
    type(UNBOUND): lambda _, v: ("unbound",),
    tuple: lambda f, v: ("T", f.each(v)),
    Lazy: _Freezer.lazy,
    Frame: _Freezer.frame,
}
_FREEZE_ONCE: dict[type, Callable[[_Freezer, Any], Form]] = {
    list: lambda f, v: ("A", f.each(v)),
    dict: lambda f, v: ("D", f.named(v)),
    set: lambda f, v: ("s", frozenset(f.each(v))),
    frozenset: lambda f, v: ("fs", frozenset(f.each(v))),
    Symbol: _Freezer.symbol,
    Generator: _Freezer.generator,
    Closure: _Freezer.closure,
    Cell: lambda f, v: ("C", f.freeze(v.value)),
    SequenceIterator: lambda f, v: ("I", f.freeze(v.sequence), v.index),
}
"""Types compared by identity, so frozen where they are met first; objects are too."""


def freeze(frames: list[Frame], pins: Pins) -> tuple[Form, list[Symbol]]:
    """The form of a program's frames, outermost first, and the symbols it has, in order."""
    freezer = _Freezer(pins)
    form = tuple([freezer.frame(frame) for frame in frames])
    return form, freezer.registers


class _Thawer:
    def __init__(self, pins: Pins) -> None:
        self.objects = pins.objects
        self.things: list[Any] = []
        self.registers: list[Symbol] = []

    def thaw(self, form: Any) -> Any:
        if type(form) is not tuple:
            return form
        method = _THAW.get(form[0])
        return method(self, form) if method else _RECORD_TYPES[form[0]](*self.each(form[1:]))

    def each(self, forms: Any) -> list[Any]:
        return [self.thaw(f) if type(f) is tuple else f for f in forms]

    def named(self, forms: Any) -> Iterator[tuple[Any, Any]]:
        for name, value in forms:
            yield self.thaw(name), self.thaw(value)

    def keep(self, thing: Any) -> Any:
        self.things.append(thing)
        return thing

    def instance(self, form: Any) -> Any:
        thing = self.keep(object.__new__(self.objects[form[1]]))
        for name, value in self.named(form[2]):
            object.__setattr__(thing, name, value)
        return thing

    def exception(self, form: Any) -> Any:
        cls = self.objects[form[1]]
        error = self.keep(cls.__new__(cls))
        error.args = tuple(self.each(form[2]))
        error.__dict__.update(self.named(form[3]))
        return error

    def items(self, form: Any) -> Any:
        members: list[Any] = self.keep([])
        members.extend(self.each(form[1]))
        return members

    def dictionary(self, form: Any) -> Any:
        mapping: dict[Any, Any] = self.keep({})
        mapping.update(self.named(form[1]))
        return mapping

    def set(self, form: Any) -> Any:
        at = len(self.things)
        self.things.append(None)
        members: Any = {self.thaw(f) for f in form[1]}
        self.things[at] = members = members if form[0] == "s" else frozenset(members)
        return members

    def symbol(self, form: Any) -> Symbol:
        register: Symbol = self.keep(Symbol(form[1], form[2], ("register", len(self.registers))))
        register.swapped = form[3]
        self.registers.append(register)
        return register

    def divided(self, form: Any) -> Symbol:
        thing: Symbol = self.keep(Symbol(0, 0, ("parts",)))
        m, quotient, rest = self.each(form[1])
        thing.parts, thing.swapped = (m, quotient, rest), form[2]
        return thing

    def frame(self, form: Any) -> Frame:
        _, code, pc, variables, stack, cells, blocks, mode, names, generator = form
        frame = Frame.__new__(Frame)
        frame.code, frame.names = self.objects[code], self.objects[names]
        frame.pc = pc
        frame.locals = self.each(variables)
        frame.stack = self.each(stack)
        frame.cells = self.each(cells)
        frame.blocks = list(blocks)
        frame.mode = tuple(self.each(mode))
        frame.generator = None if generator is None else self.thaw(generator)
        if frame.generator is not None:
            frame.generator.frame = frame
        return frame

    def generator(self, form: Any) -> Generator:
        thing: Generator = self.keep(Generator(None))
        thing.started = form[2]
        if form[1] is not None:
            thing.frame = self.frame(form[1])
        return thing

    def cell(self, form: Any) -> Cell:
        thing: Cell = self.keep(Cell())
        thing.value = self.thaw(form[1])
        return thing

    def closure(self, form: Any) -> Closure:
        thing: Closure = self.keep(
            Closure(self.objects[form[1]], self.objects[form[2]], (), {}, [])
        )
        thing.defaults = tuple(self.each(form[3]))
        thing.keyword_defaults = dict(self.named(form[4]))
        thing.cells = self.each(form[5])
        return thing

    def iterator(self, form: Any) -> SequenceIterator:
        thing: SequenceIterator = self.keep(SequenceIterator(None, form[2]))
        thing.sequence = self.thaw(form[1])
        return thing


_THAW: dict[str, Callable[[_Thawer, Any], Any]] = {
    "P": lambda t, f: t.objects[f[1]],
    "R": lambda t, f: t.things[f[1]],
    "N": lambda _, f: np.frombuffer(f[2], dtype=f[1])[0],
    "b": lambda _, f: f[1] == 1,
    "f": lambda _, f: float.fromhex(f[1]),
    "...": lambda _, f: ...,
    "NI": lambda _, f: NotImplemented,
    "dead": lambda _, f: UNBOUND,
    "unbound": lambda _, f: UNBOUND,
    "T": lambda t, f: tuple(t.each(f[1])),
    "T+": lambda t, f: tuple.__new__(t.objects[f[1]], t.each(f[2])),
    "A": _Thawer.items,
    "D": _Thawer.dictionary,
    "s": _Thawer.set,
    "fs": _Thawer.set,
    "S": _Thawer.symbol,
    "SP": _Thawer.divided,
    "L": lambda t, f: Lazy(t.thaw(f[1]), tuple([(name, t.thaw(c)) for name, c in f[2]])),
    "F": _Thawer.frame,
    "G": _Thawer.generator,
    "C": _Thawer.cell,
    "K": _Thawer.closure,
    "I": _Thawer.iterator,
    "O": _Thawer.instance,
    "E": _Thawer.exception,
}


def thaw(form: Any, pins: Pins) -> tuple[list[Frame], list[Symbol]]:
    """The frames of a form, and its symbols in the order of `freeze`."""
    thawer = _Thawer(pins)
    return [thawer.frame(f) for f in form], thawer.registers
