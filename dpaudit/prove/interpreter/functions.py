# ruff: noqa: ARG001 (functions of one signature)
"""Builtins that look at the machine's own values, so that the machine answers them itself.

Each answers with a value, with a `Call` that is to be made in its place, or with PENDING.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit.prove.interpreter import prelude
from dpaudit.prove.interpreter.attributes import attribute
from dpaudit.prove.interpreter.classes import is_python_class, python_method, type_of
from dpaudit.prove.interpreter.iteration import advance, iterator_of
from dpaudit.prove.interpreter.machine import Machine
from dpaudit.prove.interpreter.plain import concrete
from dpaudit.prove.interpreter.sizes import refuse_large_call
from dpaudit.prove.interpreter.values import (
    PENDING,
    UNBOUND,
    Bound,
    Call,
    Closure,
    CoinMethod,
    CoinSource,
    Generator,
    NativeMethod,
    SequenceIterator,
    View,
)

__all__ = ["ANSWERED"]

_Kwargs = dict[str, Any]


def _isinstance(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    value, classes = args
    for cls in classes if isinstance(classes, tuple) else (classes,):
        check = python_method(type(cls), "__instancecheck__")
        if check and check.__module__ not in {"abc", "typing"}:
            raise RefusedProgramError(f"isinstance with {cls.__name__}, whose class decides it")
    kind = type_of(value)
    return isinstance(value, classes) if kind is type(value) else issubclass(kind, classes)


def _issubclass(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    return issubclass(args[0], args[1])


def _getattr(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    try:
        return attribute(vm, args[0], args[1])
    except AttributeError:
        if len(args) < 3:
            raise
        return args[2]


def _hasattr(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    try:
        attribute(vm, args[0], args[1])
    except AttributeError:
        return False
    return True


def _next(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    iterator = args[0]
    default = args[1] if len(args) > 1 else UNBOUND
    value: Any = UNBOUND
    if type(iterator) is SequenceIterator:
        value = advance(iterator)
    elif type(iterator) is not Generator:
        raise RefusedProgramError(f"next() of a {type(iterator).__name__}")
    elif iterator.frame is not None:
        vm.resume_generator(iterator, ("next", default))
        return PENDING
    if value is UNBOUND:
        if default is UNBOUND:
            raise StopIteration
        return default
    return value


def _iter(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    if len(args) != 1:
        raise RefusedProgramError("iter() with a sentinel")
    return iterator_of(args[0])


def _callable(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    value = args[0]
    if isinstance(value, (Closure, Bound, NativeMethod, CoinMethod)):
        return True
    return not isinstance(value, CoinSource) and callable(value)


def _sum(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    if type(args[0]) not in (list, tuple, range, View):
        return Call(prelude.sum_, args, kwargs)
    refuse_large_call(sum, args)
    plain = [concrete(a) for a in args]
    return sum(*plain, **{k: concrete(v) for k, v in kwargs.items()})


def _order(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    scores, reverse = [concrete(a) for a in args]
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=reverse)


def _object_setattr(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    owner, name, value = args
    vm.check_own(owner, f"{name} = …")
    if not is_python_class(type(owner)):
        raise RefusedProgramError("object.__setattr__ of one of Python's own values")
    object.__setattr__(owner, name, value)


ANSWERED: dict[int, Callable[[Machine, list[Any], _Kwargs], Any]] = {
    id(isinstance): _isinstance,
    id(issubclass): _issubclass,
    id(getattr): _getattr,
    id(hasattr): _hasattr,
    id(next): _next,
    id(iter): _iter,
    id(callable): _callable,
    id(sum): _sum,
    id(prelude.order): _order,
    id(object.__setattr__): _object_setattr,
}
