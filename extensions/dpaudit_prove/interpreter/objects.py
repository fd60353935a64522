"""Questions about a value and its class: Python code in it, iteration, plain form."""

from __future__ import annotations

import dataclasses
import random
import types
from collections import namedtuple
from fractions import Fraction
from typing import Any

import numpy as np

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import lazy as lazies
from dpaudit_prove.interpreter import prelude, values
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes, Symbol, simplify
from dpaudit_prove.interpreter.natives import PURE_TYPES
from dpaudit_prove.interpreter.state import is_plain_class
from dpaudit_prove.interpreter.values import (
    UNBOUND,
    Bound,
    Call,
    Closure,
    CoinMethod,
    CoinSource,
    Generator,
    NativeMethod,
    SequenceIterator,
    Token,
    View,
)

__all__ = [
    "ATOMS",
    "NUMPY",
    "SEQUENCES",
    "advance",
    "class_attribute",
    "compared_fields",
    "concrete",
    "has_own_replace",
    "is_named_tuple",
    "is_number",
    "is_plain_exception",
    "is_python_class",
    "is_simple",
    "iterator_of",
    "key",
    "python_method",
    "truth",
    "type_of",
]

_OURS = {Lazy, LazyBytes, Symbol, Fraction} | {v for v in vars(values).values() if type(v) is type}
_VISIBLE_TYPES: dict[type, type] = {
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
    """The attribute of the first class in the resolution order; UNBOUND if none has it."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return UNBOUND


def python_method(cls: type, name: str) -> types.FunctionType | None:
    """A method of a class that is written in Python; None if there is none."""
    member = class_attribute(cls, name)
    return member if isinstance(member, types.FunctionType) else None


def is_python_class(cls: type) -> bool:
    """Whether a class is written in Python alone, and is not one of this machine's own."""
    known = _PYTHON_CLASSES.get(cls)
    if known is None:
        known = cls not in _OURS and cls not in PURE_TYPES and is_plain_class(cls)
        known = known and not issubclass(cls, BaseException)
        _PYTHON_CLASSES[cls] = known
    return known


def _runs_no_python(cls: type) -> bool:
    """Whether one of Python's own classes, or one made of it, has no special method in Python."""
    known = _NO_PYTHON.get(cls)
    if known is None:
        known = _NO_PYTHON[cls] = type(cls) is type and all(
            not name.startswith("__")
            or member.__module__.startswith(("collections", "namedtuple_"))
            for base in cls.__mro__
            for name, member in base.__dict__.items()
            if isinstance(member, types.FunctionType)
        )
    return known


def is_named_tuple(cls: type) -> bool:
    """Whether a class is a tuple with names, and runs no Python code where a tuple runs none."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and _runs_no_python(cls)


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
            members = base.__dict__.get("__dataclass_fields__", {}).values()
            fields = tuple(f.name for f in members if f.compare)
            if not members:
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
        simple = simplify(value)
        return type(simple.ends()[0]) if isinstance(simple, Lazy) else type(simple)
    return _VISIBLE_TYPES.get(kind, kind)


ATOMS = frozenset({int, float, bool, Fraction, str, bytes, type(None), complex})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset, range})
NUMPY = (np.number, np.bool_)
_TRUE = frozenset(
    {
        LazyBytes, Closure, Bound, CoinSource, Generator, CoinMethod, NativeMethod,
        types.FunctionType, types.ModuleType,
    }
)  # fmt: skip


def is_number(value: Any) -> bool:
    """Whether a value is a number, decided or not."""
    return isinstance(value, (Lazy, int, float, Fraction, *NUMPY))


def truth(value: Any) -> bool:
    """bool() of a value whose class decides it without Python code."""
    kind = type(value)
    if kind is Lazy:
        return lazies.truth(value)
    if kind in ATOMS or kind in _CONTAINERS or isinstance(value, NUMPY):
        return bool(value)
    if kind in _TRUE or isinstance(value, type) or value is NotImplemented or value is ...:
        return True
    for name in ("__bool__", "__len__"):
        if python_method(kind, name):
            raise RefusedProgramError(f"{kind.__name__}.{name} in a condition")
    if is_named_tuple(kind):
        return bool(value)
    if isinstance(value, BaseException) or is_python_class(kind):
        return True
    raise RefusedProgramError(f"the truth of a {kind.__name__}")


def concrete(value: Any, *, sets: bool = False) -> Any:
    """A value of Python's own types, with every coin in it decided.

    Sets only with `sets`, for what does not depend on their order.
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is Lazy:
        return lazies.force(value)
    if kind is View:
        return concrete(value.current_items())
    if kind in (list, tuple, dict):
        return _concrete_items(value)
    if kind in (set, frozenset) and len(value) > 1 and not sets:
        raise RefusedProgramError("the order of a set is not part of the language: sort it")
    if kind is slice:
        return slice(*[concrete(v) for v in (value.start, value.stop, value.step)])
    if kind is LazyBytes:
        return value.data()
    if kind in (set, frozenset, range) or isinstance(value, (type, *NUMPY)):
        return value
    if value is ... or value is NotImplemented:
        return value
    if isinstance(value, (BaseException, tuple)) and _runs_no_python(kind):
        return value
    if kind is Token:
        raise RefusedProgramError("a finished value is read again")
    raise RefusedProgramError(f"a {kind.__name__} is passed to one of Python's own functions")


def _concrete_items(value: Any) -> Any:
    """The same of a list or a dict, in their place, and of a tuple."""
    if type(value) is tuple:
        simple = tuple([concrete(item) for item in value])
        return simple if any(a is not b for a, b in zip(simple, value, strict=True)) else value
    for name, item in value.items() if type(value) is dict else enumerate(value):
        concrete(name)
        decided = concrete(item)
        if decided is not item:
            value[name] = decided
    return value


def key(value: Any) -> Any:
    """A value as a key of a dict or an element of a set."""
    if isinstance(value, (type, types.FunctionType)):
        return value
    return concrete(value)


def is_simple(args: list[Any]) -> bool:
    """Whether arguments are Python's own values, with no coin or object in them."""
    for value in args:
        kind = type(value)
        if kind in ATOMS or kind in (range, set, frozenset) or isinstance(value, NUMPY):
            continue
        if kind not in (list, tuple, dict, View):
            return False
        if not is_simple(value.current_items() if kind is View else list(value)):
            return False
    return True


SEQUENCES = frozenset({list, tuple, str, bytes, range})


def iterator_of(value: Any) -> SequenceIterator | Generator | Call:
    """iter(value); a `Call` where Python code makes the iterator."""
    kind = type(value)
    if kind in SEQUENCES or kind is LazyBytes:
        return SequenceIterator(value)
    if isinstance(value, (SequenceIterator, Generator)):
        return value
    if kind is View:
        return SequenceIterator(View(value.owner, value.kind))
    if kind is dict:
        return SequenceIterator(View(value, "keys"))
    if kind in (set, frozenset):
        if len(value) > 1:
            raise RefusedProgramError("the order of a set is not part of the language: sort it")
        return SequenceIterator(tuple(value))
    method = python_method(kind, "__iter__")
    if method:
        return Call(method, [value])
    if is_named_tuple(kind):
        return SequenceIterator(value)
    if is_python_class(kind):
        raise TypeError(f"'{kind.__name__}' object is not iterable")
    raise RefusedProgramError(f"iteration over a {kind.__name__}")


def advance(iterator: SequenceIterator) -> Any:
    """The next item; UNBOUND at the end."""
    sequence, index = iterator.sequence, iterator.index
    kind = type(sequence)
    if kind is View:
        if not sequence.unchanged():
            if len(sequence.keys) != len(sequence.owner):
                raise RuntimeError("dictionary changed size during iteration")
            raise RefusedProgramError("a dict changes its keys while it is iterated over")
        sequence = sequence.current_items()
    if index >= (sequence.length if kind is LazyBytes else len(sequence)):
        iterator.sequence, iterator.index = (), 0
        return UNBOUND
    value = sequence.item(index) if kind is LazyBytes else sequence[index]
    iterator.index = index + 1
    return value
