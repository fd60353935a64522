"""Calls: of interpreted functions, of classes, and of Python's own functions."""

from __future__ import annotations

import functools
import os
import random
import types
from fractions import Fraction
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import lazy as lazies
from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.arguments import bind, fill_dataclass
from dpaudit_prove.interpreter.classes import (
    class_attribute,
    is_named_tuple,
    is_plain_exception,
    is_python_class,
    python_method,
    type_of,
)
from dpaudit_prove.interpreter.code import Code
from dpaudit_prove.interpreter.coins import draw
from dpaudit_prove.interpreter.functions import ANSWERED
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes
from dpaudit_prove.interpreter.machine import Machine, Mode
from dpaudit_prove.interpreter.methods import call_method
from dpaudit_prove.interpreter.natives import MONOTONE, PRELUDE, PURE, PURE_TYPES, why_refused
from dpaudit_prove.interpreter.plain import concrete, is_simple, truth
from dpaudit_prove.interpreter.sizes import refuse_large_call
from dpaudit_prove.interpreter.values import (
    PENDING,
    UNBOUND,
    Bound,
    Call,
    Cell,
    Closure,
    CoinMethod,
    CoinSource,
    Frame,
    NativeMethod,
    View,
)

__all__ = ["invoke", "settle"]

_BUILDERS = frozenset({list, tuple, set, dict})
_SIZED = frozenset({list, tuple, dict, set, frozenset, str, bytes, range})
_Kwargs = dict[str, Any]


def invoke(vm: Machine, function: Any, args: list[Any], kwargs: _Kwargs, mode: Mode) -> None:
    """Call: pushes a frame, or delivers the result of one of Python's own at once."""
    kind = type(function)
    if kind is Bound:
        invoke(vm, function.function, [function.owner, *args], kwargs, mode)
    elif kind is types.FunctionType:
        _invoke_function(vm, function, args, kwargs, mode)
    elif kind is Closure:
        frame = _frame(function.code, function.names, function.cells)
        bind(
            frame,
            args,
            kwargs,
            defaults=function.defaults,
            keyword_defaults=function.keyword_defaults,
            name=function.code.name,
        )
        vm.enter(frame, mode)
    elif kind is types.MethodType:
        invoke(vm, function.__func__, [vm.outside(function.__self__), *args], kwargs, mode)
    elif kind is CoinMethod:
        vm.deliver(mode, draw(vm, function.name, *_concrete(args, kwargs)))
    elif kind is NativeMethod:
        settle(vm, call_method(vm, function, args, kwargs), mode)
    elif isinstance(function, type):
        _construct(vm, function, args, kwargs, mode)
    elif kind is functools.partial:
        vm.pins.adopt(function)
        inside = [vm.outside(a) for a in function.args]
        invoke(vm, function.func, inside + args, {**function.keywords, **kwargs}, mode)
    elif method := python_method(kind, "__call__"):
        invoke(vm, method, [function, *args], kwargs, mode)
    else:
        _invoke_native(vm, function, args, kwargs, mode)


def settle(vm: Machine, answer: Any, mode: Mode) -> None:
    """Deliver an answer; where it is a `Call`, make that."""
    if type(answer) is Call:
        invoke(vm, answer.function, answer.args, answer.kwargs, mode)
    elif answer is not PENDING:
        vm.deliver(mode, answer)


def _frame(code: Code, names: dict[str, Any], free: list[Any]) -> Frame:
    frame = Frame(code, names)
    frame.cells = [Cell() for _ in range(len(code.cells) - len(code.free))] + free
    return frame


def _concrete(args: list[Any], kwargs: _Kwargs, *, sets: bool = False) -> tuple[list[Any], _Kwargs]:
    return [concrete(a, sets=sets) for a in args], {k: concrete(v) for k, v in kwargs.items()}


def _invoke_function(
    vm: Machine, function: types.FunctionType, args: list[Any], kwargs: _Kwargs, mode: Mode
) -> None:
    answered = ANSWERED.get(id(function))
    if answered is not None:
        settle(vm, answered(vm, args, kwargs), mode)
        return
    code = vm.sources.code_of(function)
    free: list[Any] = []
    if code.free:
        real = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        free = [real[name] for name in code.free]
    frame = _frame(code, function.__globals__, free)
    bind(
        frame,
        args,
        kwargs,
        defaults=tuple([vm.outside(d) for d in function.__defaults__ or ()]),
        keyword_defaults={k: vm.outside(v) for k, v in (function.__kwdefaults__ or {}).items()},
        name=function.__name__,
    )
    vm.enter(frame, mode)


def _invoke_native(
    vm: Machine, function: Any, args: list[Any], kwargs: _Kwargs, mode: Mode
) -> None:
    number = id(function)
    answered = ANSWERED.get(number)
    if answered is not None:
        settle(vm, answered(vm, args, kwargs), mode)
        return
    if function is os.urandom:
        vm.deliver(mode, draw(vm, "urandom", *_concrete(args, kwargs)))
        return
    if number in PRELUDE and (number not in PURE or not is_simple([*args, *kwargs.values()])):
        invoke(vm, PRELUDE[number], args, kwargs, mode)
        return
    if len(args) == 1 and type(args[0]) is Lazy and not kwargs:
        name = MONOTONE.get(number)
        if name is not None:
            vm.deliver(mode, lazies.apply(name, args[0]))
            return
        if function is abs:
            vm.deliver(mode, lazies.absolute(args[0]))
            return
    if number not in PURE:
        raise RefusedProgramError(why_refused(function))
    if function is len and len(args) == 1:
        settle(vm, _length(args[0]), mode)
        return
    if function is hash and not isinstance(args[0], (int, float, Fraction, bool)):
        raise RefusedProgramError(why_refused(function))
    refuse_large_call(function, args)
    plain, named = _concrete(args, kwargs, sets=function in (sorted, min, max))
    vm.deliver(mode, function(*plain, **named))


def _length(value: Any) -> Any:
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if kind is View:
        return len(value.owner)
    if kind is LazyBytes:
        return value.length
    method = python_method(kind, "__len__")
    return Call(method, [value]) if method else len(concrete(value))


# -- classes -----------------------------------------------------------------------------------
def _construct(vm: Machine, cls: type, args: list[Any], kwargs: _Kwargs, mode: Mode) -> None:
    if id(cls) in PRELUDE or not is_python_class(cls):
        settle(vm, _native_object(cls, args, kwargs), mode)
        return
    if class_attribute(type(cls), "__call__") is not type.__call__:
        raise RefusedProgramError(f"{cls.__name__}: its metaclass has a __call__")
    if getattr(cls, "__abstractmethods__", None):
        raise TypeError(f"Can't instantiate abstract class {cls.__name__}")
    if class_attribute(cls, "__del__") is not UNBOUND:
        raise RefusedProgramError(f"{cls.__name__}.__del__")
    if class_attribute(cls, "__new__") is not object.__new__:
        raise RefusedProgramError(f"{cls.__name__}.__new__")
    made = object.__new__(cls)
    init = python_method(cls, "__init__")
    if not init and class_attribute(cls, "__init__") is not object.__init__:
        raise RefusedProgramError(f"{cls.__name__}.__init__")
    if init and init.__code__.co_filename == "<string>" and hasattr(cls, "__dataclass_fields__"):
        fill_dataclass(made, args, kwargs, outside=vm.outside)
        init, args, kwargs = python_method(cls, "__post_init__"), [], {}
    if init:
        invoke(vm, init, [made, *args], kwargs, ("init", made) if mode == ("push",) else mode)
    elif args or kwargs:
        raise TypeError(f"{cls.__name__}() takes no arguments")
    else:
        vm.deliver(mode, made)


def _native_object(cls: type, args: list[Any], kwargs: _Kwargs) -> Any:
    """What one of Python's own classes makes."""
    first: Any = args[0] if args else None
    if cls is type and len(args) == 1:
        return type_of(first)
    if cls is random.SystemRandom:
        return CoinSource()
    if type(first) is Lazy and not kwargs:
        if len(args) == 1 and id(cls) in MONOTONE:
            return lazies.apply(MONOTONE[id(cls)], first)
        if cls is Fraction and len(args) == 2:
            below = lazies.force(args[1])
            if type(below) is int and below > 0:
                return lazies.apply("over", first, below)
    if id(cls) in PRELUDE and (cls not in _BUILDERS or not is_simple(args)):
        if cls is dict and (not args or type(first) is dict):
            return {**dict(*args), **kwargs}
        if cls in (list, tuple) and type(first) in (list, tuple, View):
            return cls(first.now() if type(first) is View else first)
        return Call(PRELUDE[id(cls)], args, kwargs)
    if cls is bool:
        if args and is_python_class(type(first)):
            return Call(prelude.bool_, args, kwargs)
        return truth(first) if args else False
    if cls is bytes and type(first) is LazyBytes:
        return first
    if cls not in PURE_TYPES and not is_named_tuple(cls) and not is_plain_exception(cls):
        raise RefusedProgramError(why_refused(cls))
    refuse_large_call(cls, args)
    plain, named = _concrete(args, kwargs, sets=cls in (set, frozenset))
    return cls(*plain, **named)
