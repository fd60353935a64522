"""Values as Python's own operations may take them: of its own types, with their coins decided."""

from __future__ import annotations

import types
from fractions import Fraction
from typing import Any

import numpy as np

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import lazy as lazies
from dpaudit_prove.interpreter.classes import (
    is_named_tuple,
    is_python_class,
    python_method,
    runs_no_python,
)
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes
from dpaudit_prove.interpreter.values import (
    Bound,
    Closure,
    CoinMethod,
    CoinSource,
    Generator,
    NativeMethod,
    Token,
    View,
)

__all__ = ["ATOMS", "CONTAINERS", "NUMPY", "concrete", "is_number", "is_simple", "key", "truth"]

ATOMS = frozenset({int, float, bool, Fraction, str, bytes, type(None), complex})
CONTAINERS = frozenset({list, tuple, dict, set, frozenset, range})
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
    if kind in ATOMS or kind in CONTAINERS or isinstance(value, NUMPY):
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
        return concrete(value.now())
    if kind is list:
        for i, item in enumerate(value):
            simple = concrete(item)
            if simple is not item:
                value[i] = simple
        return value
    if kind is tuple:
        simple = tuple([concrete(item) for item in value])
        return simple if any(a is not b for a, b in zip(simple, value, strict=True)) else value
    if kind is dict:
        for name, item in value.items():
            concrete(name)
            simple = concrete(item)
            if simple is not item:
                value[name] = simple
        return value
    if kind in (set, frozenset) and len(value) > 1 and not sets:
        raise RefusedProgramError("the order of a set is not part of the language: sort it")
    if kind in (set, frozenset, range) or isinstance(value, (type, *NUMPY)):
        return value
    if kind is slice:
        return slice(*[concrete(v) for v in (value.start, value.stop, value.step)])
    if kind is LazyBytes:
        return value.data()
    if value is ... or value is NotImplemented:
        return value
    if isinstance(value, (BaseException, tuple)) and runs_no_python(kind):
        return value
    if kind is Token:
        raise RefusedProgramError("a returned value is read again after it was made")
    raise RefusedProgramError(f"a {kind.__name__} is given to one of Python's own functions")


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
        if not is_simple(value.now() if kind is View else list(value)):
            return False
    return True
