# ruff: noqa: ARG001 (functions of one signature)
"""Calls: of interpreted functions, of classes, and of Python's own functions.

Builtins that look at the machine's own values are in `_ANSWERS`: each answers with a value, with a
`Call` that is to be made in its place, or with PENDING.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import random
import types
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import lazy as lazies
from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.attributes import attribute, call_method
from dpaudit_prove.interpreter.code import Code
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes
from dpaudit_prove.interpreter.machine import Machine, Mode, draw
from dpaudit_prove.interpreter.natives import (
    MONOTONE,
    PRELUDE,
    PURE,
    PURE_TYPES,
    refuse_large_call,
    why_refused,
)
from dpaudit_prove.interpreter.objects import (
    advance,
    class_attribute,
    concrete,
    is_named_tuple,
    is_plain_exception,
    is_python_class,
    is_simple,
    iterator_of,
    python_method,
    truth,
    type_of,
)
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
    Generator,
    NativeMethod,
    SequenceIterator,
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
    elif kind is types.FunctionType and id(function) not in _ANSWERS:
        _enter(vm, _closure_of(vm, function), args, kwargs, mode)
    elif kind is Closure:
        _enter(vm, function, args, kwargs, mode)
    elif kind is types.MethodType:
        invoke(vm, function.__func__, [vm.adopt_value(function.__self__), *args], kwargs, mode)
    elif kind is CoinMethod:
        vm.deliver(mode, draw(vm, function.name, *_decided(args, kwargs)))
    elif kind is NativeMethod:
        settle(vm, call_method(vm, function, args, kwargs), mode)
    elif isinstance(function, type):
        _construct(vm, function, args, kwargs, mode)
    elif kind is functools.partial:
        vm.pins.adopt(function)
        inside = [vm.adopt_value(a) for a in function.args]
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


def _enter(vm: Machine, function: Closure, args: list[Any], kwargs: _Kwargs, mode: Mode) -> None:
    """Begin a call of an interpreted function."""
    code = function.code
    frame = Frame(code, function.names)
    frame.cells = [Cell() for _ in range(len(code.cells) - len(code.free))] + function.cells
    _bind(frame.locals, function, args, kwargs)
    vm.enter(frame, mode)


def _decided(args: list[Any], kwargs: _Kwargs, *, sets: bool = False) -> tuple[list[Any], _Kwargs]:
    return [concrete(a, sets=sets) for a in args], {k: concrete(v) for k, v in kwargs.items()}


def _closure_of(vm: Machine, function: types.FunctionType) -> Closure:
    """A function of the program's files, as one that is interpreted."""
    code = vm.sources.code_of(function)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return Closure(
        code,
        function.__globals__,
        defaults=tuple([vm.adopt_value(d) for d in function.__defaults__ or ()]),
        keyword_defaults={k: vm.adopt_value(v) for k, v in (function.__kwdefaults__ or {}).items()},
        cells=[cells[name] for name in code.free],
    )


def _invoke_native(
    vm: Machine, function: Any, args: list[Any], kwargs: _Kwargs, mode: Mode
) -> None:
    number = id(function)
    answered = _ANSWERS.get(number)
    if answered is not None:
        settle(vm, answered(vm, args, kwargs), mode)
        return
    if function is os.urandom:
        vm.deliver(mode, draw(vm, "urandom", *_decided(args, kwargs)))
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
    plain, named = _decided(args, kwargs, sets=function in (sorted, min, max))
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
    instance = object.__new__(cls)
    init = python_method(cls, "__init__")
    if not init and class_attribute(cls, "__init__") is not object.__init__:
        raise RefusedProgramError(f"{cls.__name__}.__init__")
    if init and init.__code__.co_filename == "<string>" and hasattr(cls, "__dataclass_fields__"):
        _fill_dataclass(instance, args, kwargs, adopt=vm.adopt_value)
        init, args, kwargs = python_method(cls, "__post_init__"), [], {}
    if init:
        invoke(
            vm, init, [instance, *args], kwargs, ("init", instance) if mode == ("push",) else mode
        )
    elif args or kwargs:
        raise TypeError(f"{cls.__name__}() takes no arguments")
    else:
        vm.deliver(mode, instance)


def _native_object(cls: type, args: list[Any], kwargs: _Kwargs) -> Any:
    """An object of one of Python's own classes."""
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
            return cls(first.current_items() if type(first) is View else first)
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
    plain, named = _decided(args, kwargs, sets=cls in (set, frozenset))
    return cls(*plain, **named)


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
        value = attribute(vm, args[0], args[1])
    except AttributeError:
        if len(args) < 3:
            raise
        return args[2]
    if len(args) > 2 and type(value) is Call:  # its AttributeError would not be caught here
        raise RefusedProgramError("hasattr of a property, or getattr of one with a default")
    return value


def _hasattr(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    return _getattr(vm, [*args[:2], UNBOUND], kwargs) is not UNBOUND


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
        raise RefusedProgramError("list.sort of values that have no order: use sorted()") from error


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
    """Do as `functools.wraps`: a closure's name and documentation cannot be read here."""
    if type(args[0]) is not Closure:
        raise RefusedProgramError("functools.wraps of a function that outlives the call")
    return args[0]


def _object_setattr(vm: Machine, args: list[Any], kwargs: _Kwargs) -> Any:
    owner, name, value = args
    vm.check_own(owner, f"{name} = …")
    if not is_python_class(type(owner)):
        raise RefusedProgramError("object.__setattr__ of one of Python's own values")
    object.__setattr__(owner, name, value)


_ANSWERS: dict[int, Callable[[Machine, list[Any], _Kwargs], Any]] = {
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


class _Layout:
    """Which variable each parameter is."""

    def __init__(self, parameters: ast.arguments) -> None:
        only = [a.arg for a in parameters.posonlyargs]
        self.positional = only + [a.arg for a in parameters.args]
        at = len(self.positional)
        self.vararg = self.kwarg = None
        if parameters.vararg:
            self.vararg, at = at, at + 1
        self.keyword_only = {a.arg: at + i for i, a in enumerate(parameters.kwonlyargs)}
        at += len(parameters.kwonlyargs)
        if parameters.kwarg:
            self.kwarg = at
        self.by_name = {n: i for i, n in enumerate(self.positional) if i >= len(only)}
        self.by_name |= self.keyword_only


_LAYOUTS: dict[Code, _Layout] = {}


def _bind(variables: list[Any], function: Closure, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Fill the parameters of a call, the first of its variables.

    Raises:
        TypeError: the arguments do not fit, as in Python.
    """
    code, name = function.code, function.code.name
    layout = _LAYOUTS.get(code)
    if layout is None:
        layout = _LAYOUTS[code] = _Layout(code.parameters)
    count = len(layout.positional)
    for i, value in enumerate(args[:count]):
        variables[i] = value
    if layout.vararg is not None:
        variables[layout.vararg] = tuple(args[count:])
    elif len(args) > count:
        raise TypeError(f"{name}() takes {count} positional arguments but {len(args)} were given")
    extra: dict[str, Any] = {}
    for key, value in kwargs.items():
        at = layout.by_name.get(key)
        if at is None:
            if layout.kwarg is None:
                raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
            extra[key] = value
        elif variables[at] is not UNBOUND:
            raise TypeError(f"{name}() got multiple values for argument '{key}'")
        else:
            variables[at] = value
    if layout.kwarg is not None:
        variables[layout.kwarg] = extra
    names, defaults = layout.positional, function.defaults
    values = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    values |= function.keyword_defaults
    for parameter, at in (*zip(names, range(count), strict=True), *layout.keyword_only.items()):
        if variables[at] is UNBOUND:
            if parameter not in values:
                raise TypeError(f"{name}() missing the argument '{parameter}'")
            variables[at] = values[parameter]


def _fill_dataclass(
    instance: Any, args: list[Any], kwargs: dict[str, Any], *, adopt: Callable[[Any], Any]
) -> None:
    """Do as the __init__ that `dataclass` writes, before __post_init__.

    Raises:
        TypeError: the arguments do not fit, as in Python.
    """
    fields = [f for f in dataclasses.fields(instance) if f.init]
    positional = [f for f in fields if not f.kw_only]
    if len(args) > len(positional):
        raise TypeError(f"{type(instance).__name__}() takes {len(positional)} arguments")
    values = {f.name: a for f, a in zip(positional, args, strict=False)}
    if any(k in values or k not in {f.name for f in fields} for k in kwargs):
        raise TypeError(f"{type(instance).__name__}() got an unexpected argument")
    values.update(kwargs)
    for field in dataclasses.fields(instance):
        if field.name in values:
            value = values[field.name]
        elif field.default is not dataclasses.MISSING:
            value = adopt(field.default)
        elif field.default_factory in (list, dict, set, tuple):
            value = field.default_factory()
        else:
            raise TypeError(f"{type(instance).__name__}() misses the argument {field.name}")
        object.__setattr__(instance, field.name, value)
