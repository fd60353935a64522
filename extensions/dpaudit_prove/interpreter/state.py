# ruff: noqa: ARG005 (tables of functions with one signature)
"""A program's state as one hashable value, and back.

The frozen form is both the key by which states are merged and all that a run resumes from: two
paths with one key have the same future by construction. Variables that no path can read again are
left out. Objects that the program shares or changes are numbered in the order in which they are
met, so that aliasing is part of the form. What cannot be captured is refused by name.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Any

import numpy as np

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes, Symbol, settled
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
        found = self.numbers.get(id(thing))
        if found is None:
            found = self.numbers[id(thing)] = len(self.objects)
            self.objects.append(thing)
        return found

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


class _Freezer:
    def __init__(self, pins: Pins) -> None:
        self.pins = pins
        self.seen: dict[int, int] = {}
        self.registers: list[Symbol] = []

    def first(self, thing: Any) -> int | None:
        """The number of an object met before; a new one is numbered and gives None."""
        known = self.seen.get(id(thing))
        if known is None:
            self.seen[id(thing)] = len(self.seen)
        return known

    def freeze(self, value: Any) -> Form:
        kind = type(value)
        if kind is int or kind is str or value is None:
            return value  # type: ignore[no-any-return]
        method = _FREEZE.get(kind)
        if method is not None:
            return method(self, value)
        if id(value) in self.pins.foreign or isinstance(value, _PINNED):
            return ("P", self.pins.number(value))
        if isinstance(value, (np.number, np.bool_)):
            return ("N", value.dtype.str, value.tobytes())
        if isinstance(value, BaseException):
            return self.exception(value)
        if isinstance(value, tuple):  # a named tuple
            return ("T+", self.pins.number(kind), tuple([self.freeze(v) for v in value]))
        if is_plain_class(kind):
            return self.instance(value)
        raise RefusedProgramError(
            f"the program keeps a {kind.__module__}.{kind.__qualname__} across a coin: "
            "its state cannot be captured"
        )

    def exception(self, value: BaseException) -> Form:
        known = self.first(value)
        if known is not None:
            return ("R", known)
        return (
            "E",
            self.pins.number(type(value)),
            tuple([self.freeze(v) for v in value.args]),
            tuple([(k, self.freeze(v)) for k, v in value.__dict__.items()]),
        )

    def instance(self, value: Any) -> Form:
        known = self.first(value)
        if known is not None:
            return ("R", known)
        held = [(k, self.freeze(v)) for k, v in getattr(value, "__dict__", {}).items()]
        names = [name for name in _slots_of(type(value)) if hasattr(value, name)]
        held += [(name, self.freeze(getattr(value, name))) for name in names]
        return ("O", self.pins.number(type(value)), tuple(held))

    def items(self, tag: str, value: Any) -> Form:
        known = self.first(value)
        if known is not None:
            return ("R", known)
        if id(value) in self.pins.foreign:
            del self.seen[id(value)]
            return ("P", self.pins.number(value))
        return (tag, tuple([self.freeze(v) for v in value]))

    def dictionary(self, value: dict[Any, Any]) -> Form:
        known = self.first(value)
        if known is not None:
            return ("R", known)
        if id(value) in self.pins.foreign:
            del self.seen[id(value)]
            return ("P", self.pins.number(value))
        return ("D", tuple([(self.freeze(k), self.freeze(v)) for k, v in value.items()]))

    def set(self, tag: str, value: Any) -> Form:
        known = self.first(value)
        if known is not None:
            return ("R", known)
        if id(value) in self.pins.foreign:
            del self.seen[id(value)]
            return ("P", self.pins.number(value))
        return (tag, frozenset([self.freeze(v) for v in value]))

    def symbol(self, symbol: Symbol) -> Form:
        known = self.first(symbol)
        if known is not None:
            return ("R", known)
        if symbol.parts is None:
            self.registers.append(symbol)
            return ("S", symbol.low, symbol.high, symbol.swapped)
        m, quotient, rest = symbol.parts
        return ("SP", m, self.symbol(quotient), self.symbol(rest), symbol.swapped)

    def lazy(self, value: Lazy) -> Form:
        simple = settled(value)
        if not isinstance(simple, Lazy):
            return self.freeze(simple)
        steps = tuple([(name, self.freeze(c)) for name, c in simple.steps])
        return ("L", self.symbol(simple.symbol), steps)

    def frame(self, frame: Frame) -> Form:
        code, pc = frame.code, frame.pc
        live = code.live[pc]
        variables = tuple(
            [
                self.freeze(v) if i in live and v is not UNBOUND else _DEAD_FORM
                for i, v in enumerate(frame.locals)
            ]
        )
        return (
            "F",
            self.pins.number(code),
            pc,
            variables,
            tuple([self.freeze(v) for v in frame.stack]),
            tuple([self.freeze(c) for c in frame.cells]),
            tuple(frame.blocks),
            tuple([self.freeze(v) for v in frame.deliver]),
            self.pins.number(frame.names),
            None if frame.generator is None else self.freeze(frame.generator),
        )

    def generator(self, value: Generator) -> Form:
        known = self.first(value)
        if known is not None:
            return ("R", known)
        inside: Form = None
        if value.frame is not None and not _running(value):
            inside = self.frame(value.frame)
        return ("G", inside, value.started, value.frame is not None)

    def cell(self, value: Cell) -> Form:
        known = self.first(value)
        return ("R", known) if known is not None else ("C", self.freeze(value.value))

    def closure(self, value: Closure) -> Form:
        known = self.first(value)
        if known is not None:
            return ("R", known)
        return (
            "K",
            self.pins.number(value.code),
            self.pins.number(value.names),
            tuple([self.freeze(v) for v in value.defaults]),
            tuple([(k, self.freeze(v)) for k, v in value.keyword_defaults.items()]),
            tuple([self.freeze(c) for c in value.cells]),
        )

    def iterator(self, value: SequenceIterator) -> Form:
        known = self.first(value)
        if known is not None:
            return ("R", known)
        return ("I", self.freeze(value.sequence), value.index)


def _running(generator: Generator) -> bool:
    return generator.frame is not None and generator.frame.generator is generator


def _slots_of(kind: type) -> list[str]:
    found: list[str] = []
    for cls in kind.__mro__:
        slots = cls.__dict__.get("__slots__", ())
        found += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in found if name not in {"__dict__", "__weakref__"}]


def is_plain_class(kind: type) -> bool:
    """Whether objects of a class hold nothing but attributes: no part of it is written in C."""
    return all(
        cls is object or cls.__flags__ & (1 << 9) or cls.__module__ == "abc" for cls in kind.__mro__
    ) and all(
        cls is object or cls.__basicsize__ <= 16 + 8 * (2 + len(_slots_of(cls)))
        for cls in kind.__mro__
    )


_DEAD_FORM: Form = ("dead",)
_UNBOUND_FORM: Form = ("unbound",)

_FREEZE: dict[type, Callable[[_Freezer, Any], Form]] = {
    bool: lambda _, v: ("b", 1 if v else 0),
    float: lambda _, v: ("f", v.hex()),
    bytes: lambda _, v: v,
    Fraction: lambda _, v: ("q", v.numerator, v.denominator),
    complex: lambda _, v: ("c", v.real.hex(), v.imag.hex()),
    type(...): lambda _, v: ("...",),
    type(NotImplemented): lambda _, v: ("NI",),
    range: lambda _, v: ("r", v.start, v.stop, v.step),
    slice: lambda f, v: ("sl", f.freeze(v.start), f.freeze(v.stop), f.freeze(v.step)),
    type(UNBOUND): lambda _, v: _UNBOUND_FORM,
    tuple: lambda f, v: ("T", tuple([f.freeze(x) for x in v])),
    list: lambda f, v: f.items("A", v),
    View: lambda f, v: ("V", f.freeze(v.owner), v.kind, f.freeze(v.keys)),
    dict: lambda f, v: f.dictionary(v),
    set: lambda f, v: f.set("s", v),
    frozenset: lambda f, v: f.set("fs", v),
    Lazy: lambda f, v: f.lazy(v),
    LazyBytes: lambda f, v: ("LB", f.symbol(v.symbol), v.length),
    Frame: lambda f, v: f.frame(v),
    Generator: lambda f, v: f.generator(v),
    Cell: lambda f, v: f.cell(v),
    Closure: lambda f, v: f.closure(v),
    Bound: lambda f, v: ("B", f.freeze(v.function), f.freeze(v.owner)),
    NativeMethod: lambda f, v: ("M", f.freeze(v.owner), v.name),
    Super: lambda f, v: ("U", f.freeze(v.cls), f.freeze(v.owner)),
    SequenceIterator: lambda f, v: f.iterator(v),
    CoinSource: lambda _, v: ("$", v.kind),
    Token: lambda _, v: ("token", v.number),
    CoinMethod: lambda f, v: ("$.", f.freeze(v.source), v.name),
}


def freeze(frames: list[Frame], pins: Pins) -> tuple[Form, list[Symbol]]:
    """The form of a program's frames, outermost first, and the symbols it has, in order."""
    freezer = _Freezer(pins)
    form = tuple([freezer.frame(frame) for frame in frames])
    return form, freezer.registers


class _Thawer:
    def __init__(self, pins: Pins) -> None:
        self.objects = pins.objects
        self.seen: list[Any] = []
        self.registers: list[Symbol] = []

    def thaw(self, form: Any) -> Any:
        if type(form) is not tuple:
            return form
        return _THAW[form[0]](self, form)

    def each(self, forms: Any) -> list[Any]:
        return [self.thaw(f) if type(f) is tuple else f for f in forms]

    def keep(self, thing: Any) -> Any:
        self.seen.append(thing)
        return thing

    def instance(self, form: Any) -> Any:
        cls = self.objects[form[1]]
        made = self.keep(object.__new__(cls))
        for name, value in form[2]:
            object.__setattr__(made, name, self.thaw(value))
        return made

    def exception(self, form: Any) -> Any:
        cls = self.objects[form[1]]
        made = self.keep(cls.__new__(cls))
        made.args = tuple(self.each(form[2]))
        made.__dict__.update({k: self.thaw(v) for k, v in form[3]})
        return made

    def items(self, form: Any) -> Any:
        made: list[Any] = self.keep([])
        made.extend(self.each(form[1]))
        return made

    def dictionary(self, form: Any) -> Any:
        made: dict[Any, Any] = self.keep({})
        for key, value in form[1]:
            name = self.thaw(key)
            made[name] = self.thaw(value)
        return made

    def set(self, form: Any) -> Any:
        at = len(self.seen)
        self.seen.append(None)
        made: Any = {self.thaw(f) for f in form[1]}
        self.seen[at] = made = made if form[0] == "s" else frozenset(made)
        return made

    def symbol(self, form: Any) -> Symbol:
        if form[0] == "R":
            found: Symbol = self.seen[form[1]]
            return found
        if form[0] == "S":
            made = Symbol(form[1], form[2], ("register", len(self.registers)))
            made.swapped = form[3]
            self.registers.append(made)
            self.seen.append(made)
            return made
        made = Symbol(0, 0, ("parts",))
        self.seen.append(made)
        made.parts = (form[1], self.symbol(form[2]), self.symbol(form[3]))
        made.swapped = form[4]
        return made

    def frame(self, form: Any) -> Frame:
        _, code, pc, variables, stack, cells, blocks, deliver, names, generator = form
        frame = Frame.__new__(Frame)
        frame.code, frame.names = self.objects[code], self.objects[names]
        frame.pc = pc
        frame.locals = self.each(variables)
        frame.stack = self.each(stack)
        frame.cells = self.each(cells)
        frame.blocks = list(blocks)
        frame.deliver = tuple(self.each(deliver))
        frame.generator = None if generator is None else self.thaw(generator)
        if frame.generator is not None:
            frame.generator.frame = frame
        return frame

    def generator(self, form: Any) -> Generator:
        made: Generator = self.keep(Generator(None))
        made.started = form[2]
        if form[1] is not None:
            made.frame = self.frame(form[1])
        return made

    def cell(self, form: Any) -> Cell:
        made: Cell = self.keep(Cell())
        made.value = self.thaw(form[1])
        return made

    def closure(self, form: Any) -> Closure:
        made: Closure = self.keep(Closure(self.objects[form[1]], self.objects[form[2]], (), {}, []))
        made.defaults = tuple(self.each(form[3]))
        made.keyword_defaults = {k: self.thaw(v) for k, v in form[4]}
        made.cells = self.each(form[5])
        return made

    def iterator(self, form: Any) -> SequenceIterator:
        made: SequenceIterator = self.keep(SequenceIterator(None, form[2]))
        made.sequence = self.thaw(form[1])
        return made

    def lazy(self, form: Any) -> Lazy:
        symbol = self.symbol(form[1])
        return Lazy(symbol, tuple([(name, self.thaw(c)) for name, c in form[2]]))


_THAW: dict[str, Callable[[_Thawer, Any], Any]] = {
    "P": lambda t, f: t.objects[f[1]],
    "N": lambda _, f: np.frombuffer(f[2], dtype=f[1])[0],
    "b": lambda _, f: f[1] == 1,
    "f": lambda _, f: float.fromhex(f[1]),
    "q": lambda _, f: Fraction(f[1], f[2]),
    "c": lambda _, f: complex(float.fromhex(f[1]), float.fromhex(f[2])),
    "...": lambda _, f: ...,
    "NI": lambda _, f: NotImplemented,
    "r": lambda _, f: range(f[1], f[2], f[3]),
    "sl": lambda t, f: slice(t.thaw(f[1]), t.thaw(f[2]), t.thaw(f[3])),
    "dead": lambda _, f: UNBOUND,
    "unbound": lambda _, f: UNBOUND,
    "T": lambda t, f: tuple(t.each(f[1])),
    "T+": lambda t, f: tuple.__new__(t.objects[f[1]], t.each(f[2])),
    "A": lambda t, f: t.items(f),
    "V": lambda t, f: View(t.thaw(f[1]), f[2], t.thaw(f[3])),
    "D": lambda t, f: t.dictionary(f),
    "s": lambda t, f: t.set(f),
    "fs": lambda t, f: t.set(f),
    "R": lambda t, f: t.seen[f[1]],
    "L": lambda t, f: t.lazy(f),
    "LB": lambda t, f: LazyBytes(t.symbol(f[1]), f[2]),
    "F": lambda t, f: t.frame(f),
    "G": lambda t, f: t.generator(f),
    "C": lambda t, f: t.cell(f),
    "K": lambda t, f: t.closure(f),
    "B": lambda t, f: Bound(t.thaw(f[1]), t.thaw(f[2])),
    "M": lambda t, f: NativeMethod(t.thaw(f[1]), f[2]),
    "U": lambda t, f: Super(t.thaw(f[1]), t.thaw(f[2])),
    "I": lambda t, f: t.iterator(f),
    "$": lambda _, f: CoinSource(f[1]),
    "token": lambda _, f: Token(f[1]),
    "$.": lambda t, f: CoinMethod(t.thaw(f[1]), f[2]),
    "O": lambda t, f: t.instance(f),
    "E": lambda t, f: t.exception(f),
}


def thaw(form: Any, pins: Pins) -> tuple[list[Frame], list[Symbol]]:
    """The frames of a form, and its symbols in the order of `freeze`."""
    thawer = _Thawer(pins)
    return [thawer.frame(f) for f in form], thawer.registers
