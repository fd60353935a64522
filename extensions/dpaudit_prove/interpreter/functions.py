# ruff: noqa: ARG001 (functions of one signature)
"""Builtins that look at the machine's own values, so that the machine answers them itself.

Each answers with a value, with a `Call` that is to be made in its place, or with PENDING.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.attributes import attribute
from dpaudit_prove.interpreter.classes import is_python_class, python_method, type_of
from dpaudit_prove.interpreter.iteration import advance, iterator_of
from dpaudit_prove.interpreter.machine import Machine
from dpaudit_prove.interpreter.plain import concrete
from dpaudit_prove.interpreter.sizes import refuse_large_call
from dpaudit_prove.interpreter.values import (
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


def _order_or_refuse(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    try:
        return _order(vm, args, kwargs)
    except TypeError as error:
        raise RefusedProgramError("list.sort of what has no order: use sorted()") from error


def _matches_sequence(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    kind = type_of(args[0])
    if issubclass(kind, (list, tuple, range)):
        return True
    if is_python_class(kind) and issubclass(kind, Sequence):
        raise RefusedProgramError(f"a pattern in brackets for a {kind.__name__}: use an if")
    return False


def _matches_class(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    if not isinstance(args[1], type):
        raise TypeError("called match pattern must be a class")
    return _isinstance(vm, args, kwargs)


def _matches_itself(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    if args[1] not in _MATCH_SELF:
        raise RefusedProgramError("a class pattern with attributes: use isinstance() and an if")
    return _isinstance(vm, args, kwargs)


_MATCH_SELF = (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)


def _update_wrapper(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    """What `functools.wraps` does: of a closure neither name nor documentation can be read here."""
    if type(args[0]) is not Closure:
        raise RefusedProgramError("functools.wraps of a function that outlives the call")
    return args[0]


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
    id(prelude.order_or_refuse): _order_or_refuse,
    id(prelude.matches_sequence): _matches_sequence,
    id(prelude.matches_class): _matches_class,
    id(prelude.matches_itself): _matches_itself,
    id(object.__setattr__): _object_setattr,
    id(functools.update_wrapper): _update_wrapper,
}
