"""What the machine asks of a class: its attributes by name, and whether Python code runs in it."""

from __future__ import annotations

import dataclasses
import random
import types
from collections import namedtuple
from fractions import Fraction
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes, Symbol, settled
from dpaudit_prove.interpreter.natives import PURE_TYPES
from dpaudit_prove.interpreter.state import is_plain_class
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

__all__ = [
    "class_attribute",
    "compared_fields",
    "has_own_replace",
    "is_named_tuple",
    "is_plain_exception",
    "is_python_class",
    "python_method",
    "runs_no_python",
    "type_of",
]

_OURS = frozenset(
    {
        Frame, Generator, Cell, Closure, Bound, NativeMethod, Super, CoinSource, CoinMethod,
        SequenceIterator, View, Lazy, LazyBytes, Symbol, Fraction, type(UNBOUND), Token,
    }
)  # fmt: skip
_SHOWN_AS: dict[type, type] = {
    CoinSource: random.SystemRandom,
    LazyBytes: bytes,
    Closure: types.FunctionType,
    Generator: types.GeneratorType,
    Bound: types.MethodType,
    NativeMethod: types.BuiltinMethodType,
    View: type({}.keys()),
}
_NAMED = namedtuple("_NAMED", "field")
_PYTHON_CLASSES: dict[type, bool] = {}
_NO_PYTHON: dict[type, bool] = {}


def class_attribute(cls: Any, name: str) -> Any:
    """What the first class in the resolution order has by a name; UNBOUND if none has it."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return UNBOUND


def python_method(cls: type, name: str) -> types.FunctionType | None:
    """A method of a class that is written in Python; None if there is none."""
    found = class_attribute(cls, name)
    return found if isinstance(found, types.FunctionType) else None


def is_python_class(cls: type) -> bool:
    """Whether a class is written in Python alone, and is not one of this machine's own."""
    known = _PYTHON_CLASSES.get(cls)
    if known is None:
        known = cls not in _OURS and cls not in PURE_TYPES and is_plain_class(cls)
        known = known and not issubclass(cls, BaseException)
        _PYTHON_CLASSES[cls] = known
    return known


def runs_no_python(cls: type) -> bool:
    """Whether one of Python's own classes, or one made of it, has no special method in Python."""
    known = _NO_PYTHON.get(cls)
    if known is None:
        known = _NO_PYTHON[cls] = type(cls) is type and all(
            not name.startswith("__") or held.__module__.startswith(("collections", "namedtuple_"))
            for base in cls.__mro__
            for name, held in base.__dict__.items()
            if isinstance(held, types.FunctionType)
        )
    return known


def is_named_tuple(cls: type) -> bool:
    """Whether a class is a tuple with names, and runs no Python code where a tuple runs none."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and runs_no_python(cls)


def has_own_replace(cls: type) -> bool:
    """Whether a named tuple's _replace and _make are those that Python gave it."""
    make = class_attribute(cls, "_make")
    codes = [getattr(getattr(f, "__func__", f), "__code__", None) for f in (cls._replace, make)]  # type: ignore[attr-defined]
    return codes == [_NAMED._replace.__code__, _NAMED.__dict__["_make"].__func__.__code__]


def compared_fields(cls: type, name: str) -> tuple[str, ...] | None:
    """The fields that a dataclass compares by; None unless `dataclass` wrote its method ``name``.

    That is so if the method has the very bytecode that `dataclass` writes for these fields.
    """
    for base in cls.__mro__:
        if name in base.__dict__:
            held = base.__dict__.get("__dataclass_fields__", {}).values()
            fields = tuple(f.name for f in held if f.compare)
            if not held:
                return None
            written = getattr(dataclasses.make_dataclass("Same", fields, order=True), name)
            return fields if _bytecode(written) == _bytecode(base.__dict__[name]) else None
    return None


def _bytecode(function: types.FunctionType) -> tuple[Any, ...]:
    code = function.__code__
    return (code.co_code, code.co_names, code.co_consts, code.co_varnames, function.__closure__)


def is_plain_exception(cls: type) -> bool:
    """Whether a class is an exception, and no Python code runs when one is made."""
    return issubclass(cls, BaseException) and not (
        python_method(cls, "__init__") or python_method(cls, "__new__")
    )


def type_of(value: Any) -> type:
    """The class that the program sees of a value."""
    kind = type(value)
    if kind is Closure and value.code.filename == prelude.__file__:
        raise RefusedProgramError("the type of a functools.partial")
    if kind is Token:
        raise RefusedProgramError("the type of a value that was hidden")
    if kind is Lazy:
        simple = settled(value)
        return type(simple.ends()[0]) if isinstance(simple, Lazy) else type(simple)
    return _SHOWN_AS.get(kind, kind)
