"""Runs a program's instructions until it ends or a coin must be decided."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import operator
import os
import random
import types
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from dpaudit.errors import RefusedProgramError
from dpaudit.prove.interpreter import lazy as lazies
from dpaudit.prove.interpreter import prelude
from dpaudit.prove.interpreter.code import Code
from dpaudit.prove.interpreter.coins import draw, is_draw
from dpaudit.prove.interpreter.lazy import Lazy, LazyBytes, NeedSplit, Symbol
from dpaudit.prove.interpreter.natives import (
    METHODS,
    MONOTONE,
    MUTATORS,
    PRELUDE,
    PURE,
    PURE_TYPES,
    why_refused,
)
from dpaudit.prove.interpreter.sizes import GROWING, refuse_large_call, refuse_large_operator
from dpaudit.prove.interpreter.sources import Sources
from dpaudit.prove.interpreter.state import Pins, freeze, is_plain_class, thaw
from dpaudit.prove.interpreter.values import (
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

__all__ = ["Machine", "Raised"]

_DEEPEST = 900
_LONGEST = 3_000_000
_FAST = frozenset({int, float, bool, Fraction, str, bytes, type(None), complex})
_NUMPY = (np.number, np.bool_)
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "<<": operator.lshift,
    ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "@": operator.matmul,
}  # fmt: skip
_INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "|": operator.ior, "&": operator.iand, "-": operator.isub,
}  # fmt: skip
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg, "pos": operator.pos, "invert": operator.invert,
}  # fmt: skip
_CONVERSIONS: dict[int, Callable[[Any], str]] = {115: str, 114: repr, 97: ascii}
_DUNDER = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
    "<<": "lshift", ">>": "rshift", "&": "and", "|": "or", "^": "xor", "@": "matmul",
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne",
}  # fmt: skip
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_MIRROR = {"<": "gt", "<=": "ge", ">": "lt", ">=": "le", "==": "eq", "!=": "ne"}
_SEQUENCES = (list, tuple, str, bytes, range)


class Raised:
    """The program ended with an exception."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Machine:
    """Frames that run; `requests` are the coins asked for since `resume` was called.

    `coins` names the generators with hidden state whose draws count as coins: "random", "numpy".
    """

    def __init__(
        self, *, pins: Pins, sources: Sources, coins: frozenset[str] = frozenset()
    ) -> None:
        self.pins, self.sources, self.coins = pins, sources, coins
        self.frames: list[Frame] = []
        self.requests: list[int] = []
        self.result: Any = UNBOUND
        self.hides = ""  # which finished numbers become tokens: those "stored" or "returned"
        self.hidden = self.segment = 0  # tokens so far: in this run, and before it
        self.cut: Any = UNBOUND  # the number that the last instruction hid

    # -- running -------------------------------------------------------------------------------
    def start(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call a function, before its first instruction."""
        frame = Frame(_ROOT, {})
        if isinstance(function, functools.partial):
            self.pins.adopt(function)
        frame.stack = [function, list(args), dict(kwargs)]
        form, _ = freeze([frame], self.pins)  # the caller's own arguments are never changed
        self.resume(thaw(form, self.pins)[0])

    def resume(self, frames: list[Frame]) -> None:
        """Continue from a state."""
        self.frames, self.requests, self.result = frames, [], UNBOUND
        self.cut, self.hidden = UNBOUND, self.segment

    def request(self, count: int) -> Symbol:
        """A new coin with so many values."""
        symbol = Symbol(0, count, ("new", len(self.requests)))
        self.requests.append(count)
        return symbol

    def run(self) -> NeedSplit | None:
        """Run until a coin must be decided (returned), or to the end: see `result`."""
        steps = 0
        table = _TABLE
        while self.frames:
            frame = self.frames[-1]
            pc = frame.pc
            op, arg = frame.code.instructions[pc]
            frame.pc = pc + 1
            try:
                table[op](self, frame, arg)
            except NeedSplit as split:
                frame.pc = pc
                return split
            except RefusedProgramError as error:
                where = f"{frame.code.filename}:{frame.code.lines[pc]}"
                if str(error).startswith("/") or not frame.code.filename:
                    raise
                raise RefusedProgramError(f"{where}: {error}") from error
            except Exception as error:  # noqa: BLE001 (the program's own exception)
                self.unwind(error)
            if self.cut is not UNBOUND:
                return None
            steps += 1
            if steps > _LONGEST:
                raise RefusedProgramError(
                    f"{frame.code.filename}:{frame.code.lines[pc]}: {_LONGEST:,} steps without a "
                    "decision by a coin; the program may not end"
                )
        return None

    def unwind(self, error: Exception) -> None:
        if isinstance(error, (MemoryError, RecursionError)):
            raise RefusedProgramError(f"the interpreter ran out of space ({error})") from error
        error.__traceback__ = None
        error.__context__ = None
        while self.frames:
            frame = self.frames[-1]
            if frame.blocks:
                handler, depth = frame.blocks.pop()
                del frame.stack[depth:]
                frame.stack.append(error)
                frame.pc = handler
                return
            self.frames.pop()
            if frame.generator is not None:
                frame.generator.frame = None
                frame.generator = None
                if isinstance(error, StopIteration):
                    error = RuntimeError("generator raised StopIteration")
        self.result = Raised(error)

    def deliver(self, mode: tuple[Any, ...], value: Any) -> None:
        """Hand a callee's result to the frame that waits for it."""
        kind = mode[0]
        if not self.frames:
            self.result = value
            return
        stack = self.frames[-1].stack
        if kind == "push":
            stack.append(value)
        elif kind == "init":
            stack.append(mode[1])
        elif kind == "not":
            if not isinstance(value, bool):
                raise RefusedProgramError("a comparison whose result is not True or False")
            stack.append(not value)
        elif kind == "operator":
            if value is NotImplemented:
                self.reflected(mode[1], mode[2], mode[3])
            else:
                stack.append(value)
        elif kind != "drop":
            raise AssertionError(kind)

    def push_frame(self, frame: Frame) -> None:
        if len(self.frames) >= _DEEPEST:
            raise RefusedProgramError(f"more than {_DEEPEST} calls inside each other")
        self.frames.append(frame)

    # -- values --------------------------------------------------------------------------------
    def outside(self, value: Any) -> Any:
        """A value that comes from outside the run: generators of coins are recognised."""
        kind = type(value)
        if kind in _FAST or kind is types.FunctionType or kind is types.ModuleType:
            return value
        if isinstance(value, random.Random):
            if isinstance(value, random.SystemRandom) or "random" in self.coins:
                return CoinSource()
        elif isinstance(value, (np.random.Generator, np.random.RandomState)):
            if "numpy" in self.coins:
                return CoinSource()
        elif isinstance(value, (types.MethodType, types.BuiltinMethodType)):
            owner = getattr(value, "__self__", None)
            if isinstance(owner, (random.Random, np.random.Generator, np.random.RandomState)):
                source = self.outside(owner)
                if isinstance(source, CoinSource):
                    return self.attribute(source, value.__name__)
                return value
            if owner is not None and not isinstance(owner, types.ModuleType):
                self.pins.adopt(owner)
        return self.pins.adopt(value)

    def truth(self, value: Any) -> bool:
        if type(value) is Lazy:
            return lazies.truth(value)
        if type(value) is LazyBytes:
            return True
        if type(value) in _FAST or isinstance(value, (list, tuple, dict, set, frozenset, range)):
            return bool(value)
        if isinstance(value, _NUMPY):
            return bool(value)
        if isinstance(value, (types.FunctionType, type, Closure, Bound, CoinSource, Generator)):
            return True
        if isinstance(value, (BaseException, types.ModuleType, CoinMethod, NativeMethod)):
            return True
        if value is NotImplemented or value is ...:
            return True
        for name in ("__bool__", "__len__"):
            if isinstance(_class_attribute(type(value), name), types.FunctionType):
                raise RefusedProgramError(f"{type(value).__name__}.{name} in a condition")
        if _python_class(type(value)):
            return True
        raise RefusedProgramError(f"the truth of a {type(value).__name__}")

    def concrete(self, value: Any, *, sets: bool = False) -> Any:
        """A value of Python's own types, with every coin in it decided.

        Sets only with `sets`, for what does not depend on their order.
        """
        kind = type(value)
        if kind in _FAST:
            return value
        if kind is Lazy:
            return lazies.force(value)
        if kind is View:
            return self.concrete(value.now())
        if kind is list:
            for i, item in enumerate(value):
                simple = self.concrete(item)
                if simple is not item:
                    value[i] = simple
            return value
        if kind is tuple:
            simple = tuple([self.concrete(item) for item in value])
            return simple if any(a is not b for a, b in zip(simple, value, strict=True)) else value
        if kind is dict:
            for key, item in value.items():
                self.concrete(key)
                simple = self.concrete(item)
                if simple is not item:
                    value[key] = simple
            return value
        if kind in (set, frozenset) and len(value) > 1 and not sets:
            raise RefusedProgramError("the order of a set is not part of the language: sort it")
        if kind in (set, frozenset, range, slice) or isinstance(value, (type, *_NUMPY)):
            if kind is slice:
                return slice(*[self.concrete(v) for v in (value.start, value.stop, value.step)])
            return value
        if kind is LazyBytes:
            return value.data()
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return value
        if value is ... or value is NotImplemented:
            return value
        if isinstance(value, BaseException):
            return value
        if kind is Token:
            raise RefusedProgramError("a returned value is read again after it was made")
        raise RefusedProgramError(f"a {kind.__name__} is given to one of Python's own functions")

    def owned(self, thing: Any, what: str) -> None:
        if id(thing) in self.pins.foreign or isinstance(
            thing, (type, types.ModuleType, types.FunctionType)
        ):
            shown = getattr(thing, "__name__", type(thing).__name__)
            raise RefusedProgramError(
                f"{what} changes a {type(thing).__name__} that outlives the call ({shown}): the "
                "law of one call would depend on the calls before"
            )

    # -- attributes ----------------------------------------------------------------------------
    def attribute(self, owner: Any, name: str) -> Any:
        """owner.name; a property is returned as a Bound of its getter with name None."""
        kind = type(owner)
        if kind is CoinSource:
            if is_draw(name):
                return CoinMethod(owner, name)
            written = _class_attribute(random.SystemRandom, name)
            if isinstance(written, types.FunctionType):
                return Bound(written, owner)
            raise RefusedProgramError(f"the method {name} of a generator of random numbers")
        if kind is Lazy:
            if name == "bit_length" and not lazies.compare("<", owner, 0):
                return NativeMethod(owner, name)
            owner = lazies.force(owner)
            kind = type(owner)
        if kind is Super:
            return self.super_attribute(owner, name)
        if kind is Generator:
            if name in {"__next__", "send", "close"}:
                return NativeMethod(owner, name)
            raise RefusedProgramError(f"the attribute {name} of a generator")
        if isinstance(owner, types.ModuleType):
            return self.module_attribute(owner, name)
        if isinstance(owner, type):
            return self.type_attribute(owner, name)
        if kind is View:
            raise RefusedProgramError(f"the attribute {name} of a dict's view")
        if kind is LazyBytes:
            if name == "hex":
                owner = self.concrete(owner)
                return NativeMethod(owner, name)
            raise RefusedProgramError(f"the attribute {name} of random bytes")
        if kind in METHODS:
            if name in METHODS[kind]:
                found = getattr(owner, name)
                return NativeMethod(owner, name) if callable(found) else found
            if not hasattr(owner, name):
                raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")
            raise RefusedProgramError(f"the attribute {name} of a {kind.__name__}")
        if isinstance(owner, _NUMPY):
            if name in {"item", "is_integer", "bit_count"}:
                return NativeMethod(owner, name)
            if name in {"real", "imag"}:
                return getattr(owner, name)
            raise RefusedProgramError(f"the attribute {name} of a numpy number")
        if isinstance(owner, BaseException):
            if name == "args":
                return owner.args
            if name in owner.__dict__:
                return owner.__dict__[name]
        if isinstance(owner, types.FunctionType) and name in {"__name__", "__qualname__"}:
            return getattr(owner, name)
        if isinstance(owner, (random.Random, np.random.Generator, np.random.RandomState)):
            raise RefusedProgramError(
                why_refused(getattr(owner, name, owner))
                if hasattr(owner, name)
                else f"{kind.__name__}.{name}"
            )
        return self.instance_attribute(owner, name)

    def module_attribute(self, module: types.ModuleType, name: str) -> Any:
        return self.outside(getattr(module, name))

    def type_attribute(self, cls: type, name: str) -> Any:
        if name in {"__name__", "__qualname__", "__module__"}:
            return getattr(cls, name)
        found = _class_attribute(cls, name)
        if found is UNBOUND:
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")
        if isinstance(found, staticmethod):
            return found.__func__
        if isinstance(found, classmethod):
            return Bound(found.__func__, cls)
        if isinstance(found, types.FunctionType):
            return found
        if cls in PURE_TYPES or issubclass(cls, BaseException):
            value = getattr(cls, name)
            return NativeMethod(cls, name) if callable(value) else value
        return self.outside(found if not hasattr(found, "__get__") else getattr(cls, name))

    def super_attribute(self, owner: Super, name: str) -> Any:
        inside = owner.owner
        kind = inside if isinstance(inside, type) else type(inside)
        mro = list(kind.__mro__)
        for cls in mro[mro.index(owner.cls) + 1 :]:
            if name in cls.__dict__:
                return self.bind(cls.__dict__[name], inside, name)
        raise AttributeError(f"'super' object has no attribute '{name}'")

    def bind(self, found: Any, owner: Any, name: str) -> Any:
        if isinstance(found, types.FunctionType):
            return Bound(found, owner)
        if isinstance(found, staticmethod):
            return found.__func__
        if isinstance(found, classmethod):
            return Bound(found.__func__, owner if isinstance(owner, type) else type(owner))
        if isinstance(found, property):
            return _Property(found.fget, owner)
        if name in {"__init__", "__new__", "__init_subclass__"}:
            return NativeMethod(owner, f"object.{name}")
        if isinstance(found, types.MemberDescriptorType):
            return found.__get__(owner)
        if isinstance(found, functools.cached_property):
            raise RefusedProgramError(f"the cached property {name}")
        if hasattr(type(found), "__get__") and not isinstance(found, type):
            raise RefusedProgramError(f"{type(owner).__name__}.{name}, a {type(found).__name__}")
        return self.outside(found)

    def instance_attribute(self, owner: Any, name: str) -> Any:
        kind = type(owner)
        if isinstance(owner, tuple) and hasattr(kind, "_fields") and name in kind._fields:
            return getattr(owner, name)
        if not _python_class(kind) and not isinstance(owner, BaseException):
            raise RefusedProgramError(
                f"the attribute {name} of a {kind.__module__}.{kind.__name__}"
            )
        if name == "__class__":
            return kind
        if _class_attribute(kind, "__getattribute__") is not object.__getattribute__:
            raise RefusedProgramError(f"{kind.__name__}.__getattribute__")
        found = _class_attribute(kind, name)
        if isinstance(found, property):
            return _Property(found.fget, owner)
        if hasattr(type(found), "__set__") and not isinstance(found, types.MemberDescriptorType):
            raise RefusedProgramError(f"{kind.__name__}.{name}, a {type(found).__name__}")
        held = getattr(owner, "__dict__", {})
        if name in held:
            value = held[name]
            return self.outside(value) if id(owner) in self.pins.foreign else value
        if name == "__dict__":
            raise RefusedProgramError("__dict__")
        if found is not UNBOUND:
            return self.bind(found, owner, name)
        fallback = _class_attribute(kind, "__getattr__")
        if isinstance(fallback, types.FunctionType):
            raise RefusedProgramError(f"{kind.__name__}.__getattr__")
        raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")

    # -- calls ---------------------------------------------------------------------------------
    def invoke(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], mode: tuple[Any, ...]
    ) -> None:
        """Call: pushes a frame, or delivers the result of one of Python's own at once."""
        kind = type(function)
        if kind is Bound:
            self.invoke(function.function, [function.owner, *args], kwargs, mode)
        elif kind is types.FunctionType:
            self.invoke_python(function, args, kwargs, mode)
        elif kind is Closure:
            frame = Frame(function.code, function.names)
            n = len(function.code.cells) - len(function.code.free)
            frame.cells = [Cell() for _ in range(n)] + function.cells
            _bind(
                frame,
                args,
                kwargs,
                function.defaults,
                function.keyword_defaults,
                function.code.name,
            )
            self.enter(frame, mode)
        elif kind is types.MethodType:
            self.invoke(function.__func__, [self.outside(function.__self__), *args], kwargs, mode)
        elif kind is CoinMethod:
            plain = [self.concrete(a) for a in args]
            named = {k: self.concrete(v) for k, v in kwargs.items()}
            self.deliver(mode, draw(self, function.source, function.name, plain, named))
        elif kind is NativeMethod:
            self.invoke_method(function, args, kwargs, mode)
        elif isinstance(function, type):
            self.construct(function, args, kwargs, mode)
        elif kind is functools.partial:
            self.pins.adopt(function)
            inside = [self.outside(a) for a in function.args]
            self.invoke(function.func, inside + args, {**function.keywords, **kwargs}, mode)
        elif isinstance(_class_attribute(kind, "__call__"), types.FunctionType):
            self.invoke(_class_attribute(kind, "__call__"), [function, *args], kwargs, mode)
        else:
            self.invoke_native(function, args, kwargs, mode)

    def invoke_python(
        self, function: types.FunctionType, args: list[Any], kwargs: Any, mode: tuple[Any, ...]
    ) -> None:
        special = _SPECIAL.get(id(function))
        if special is not None:
            special(self, args, kwargs, mode)
            return
        code = self.sources.code_of(function)
        frame = Frame(code, function.__globals__)
        n = len(code.cells) - len(code.free)
        frame.cells = [Cell() for _ in range(n)]
        if code.free:
            real = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
            frame.cells += [real[name] for name in code.free]
        defaults = tuple([self.outside(d) for d in function.__defaults__ or ()])
        named = {k: self.outside(v) for k, v in (function.__kwdefaults__ or {}).items()}
        _bind(frame, args, kwargs, defaults, named, function.__name__)
        self.enter(frame, mode)

    def enter(self, frame: Frame, mode: tuple[Any, ...]) -> None:
        if frame.code.is_generator:
            self.deliver(mode, Generator(frame))
        else:
            frame.deliver = mode
            self.push_frame(frame)

    def resume_generator(
        self, generator: Generator, mode: tuple[Any, ...], sent: Any = None
    ) -> None:
        frame = generator.frame
        if frame is None or frame.generator is generator:
            raise ValueError("generator already executing")
        if generator.started:
            frame.stack.append(sent)
        generator.started = True
        frame.deliver = mode
        frame.generator = generator
        self.push_frame(frame)

    def invoke_native(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], mode: tuple[Any, ...]
    ) -> None:
        refuse_large_call(function, args)
        special = _SPECIAL.get(id(function))
        if special is not None:
            special(self, args, kwargs, mode)
            return
        if function is os.urandom:
            plain = [self.concrete(a) for a in args]
            self.deliver(mode, draw(self, CoinSource(), "urandom", plain, {}))
            return
        if id(function) in PRELUDE and (
            id(function) not in PURE or not self.simple([*args, *kwargs.values()])
        ):
            self.invoke(PRELUDE[id(function)], args, kwargs, mode)
            return
        if len(args) == 1 and type(args[0]) is Lazy and not kwargs:
            name = MONOTONE.get(id(function))
            if name is not None:
                self.deliver(mode, lazies.apply(name, args[0]))
                return
            if function is abs:
                self.deliver(mode, lazies.absolute(args[0]))
                return
        if id(function) not in PURE:
            raise RefusedProgramError(why_refused(function))
        if function is len and len(args) == 1 and self.length(args[0], mode):
            return
        if function is hash and not isinstance(args[0], (int, float, Fraction, bool)):
            raise RefusedProgramError(why_refused(function))
        sets = function in (sorted, min, max)
        plain = [self.concrete(a, sets=sets) for a in args]
        named = {k: self.concrete(v) for k, v in kwargs.items()}
        self.deliver(mode, function(*plain, **named))

    def length(self, value: Any, mode: tuple[Any, ...]) -> bool:
        if isinstance(value, (list, tuple, dict, set, frozenset, str, bytes, range)):
            self.deliver(mode, len(value))
        elif type(value) is View:
            self.deliver(mode, len(value.owner))
        elif type(value) is LazyBytes:
            self.deliver(mode, value.length)
        elif isinstance(_class_attribute(type(value), "__len__"), types.FunctionType):
            self.invoke(_class_attribute(type(value), "__len__"), [value], {}, mode)
        else:
            return False
        return True

    def simple(self, args: list[Any]) -> bool:
        """Whether arguments are Python's own values, with no coin or object in them."""
        for value in args:
            kind = type(value)
            if kind in _FAST or kind is range or isinstance(value, _NUMPY):
                continue
            if kind in (list, tuple, View):
                if not self.simple(value.now() if kind is View else value):
                    return False
            elif kind in (set, frozenset):
                continue
            elif kind is dict:
                if not self.simple(list(value)):
                    return False
            else:
                return False
        return True

    def invoke_method(
        self, method: NativeMethod, args: list[Any], kwargs: dict[str, Any], mode: tuple[Any, ...]
    ) -> None:
        owner, name = method.owner, method.name
        if name.startswith("object."):
            if name == "object.__new__":
                self.deliver(mode, object.__new__(args[0]))
            else:
                self.deliver(mode, None)
            return
        if owner is int and name == "from_bytes":
            _from_bytes(self, args, kwargs, mode)
            return
        if type(owner) is Lazy:
            self.deliver(mode, lazies.apply("bit_length", owner))
            return
        if type(owner) is Generator:
            self.generator_method(owner, name, args, mode)
            return
        if name in MUTATORS and isinstance(owner, (list, dict, set)):
            self.owned(owner, f"{type(owner).__name__}.{name}")
        if isinstance(owner, list) and name in {"append", "insert"}:
            where = [self.concrete(a) for a in args[:-1]]
            getattr(owner, name)(*where, self.stored(args[-1]))
            self.deliver(mode, None)
            return
        if isinstance(owner, list) and name == "extend":
            if not isinstance(args[0], _SEQUENCES):
                raise RefusedProgramError("list.extend of an iterator: make it a list first")
            owner.extend([self.stored(a) for a in args[0]])
            self.deliver(mode, None)
            return
        if isinstance(owner, list) and name in {"pop", "reverse", "copy", "clear", "__getitem__"}:
            self.deliver(mode, getattr(owner, name)(*[self.concrete(a) for a in args]))
            return
        if isinstance(owner, list) and name == "sort" and kwargs.get("key") is not None:
            raise RefusedProgramError("list.sort(key=…): use sorted(…, key=…)")
        if isinstance(owner, dict):
            self.dict_method(owner, name, args, kwargs, mode)
            return
        if isinstance(owner, str) and name == "join" and not self.simple(args):
            self.invoke(prelude.join, [owner, *args], kwargs, mode)
            return
        if isinstance(owner, (set, frozenset)) and any(
            type(a) not in (set, frozenset, list, tuple, range) and name != "add" for a in args
        ):
            args = [self.concrete(a) for a in args]
        owner = self.concrete(owner) if isinstance(owner, (list, tuple)) else owner
        plain = [self.concrete(a, sets=isinstance(owner, (set, frozenset))) for a in args]
        named = {k: self.concrete(v) for k, v in kwargs.items()}
        self.deliver(mode, getattr(owner, name)(*plain, **named))

    def stored(self, value: Any) -> Any:
        """A value that is put into a container."""
        return self.hide(value) if self.hides == "stored" else value

    def hide(self, value: Any) -> Any:
        """A token instead of a finished number; the run stops after this instruction."""
        if not _is_number(value):
            return value
        if self.cut is not UNBOUND:
            raise RefusedProgramError("two values are stored at once")
        self.cut = lazies.force(value)
        self.hidden += 1
        return Token(self.hidden - 1)

    def dict_method(
        self, owner: dict[Any, Any], name: str, args: list[Any], kwargs: Any, mode: tuple[Any, ...]
    ) -> None:
        if name in {"keys", "values", "items"}:
            self.deliver(mode, View(owner, name))
            return
        if name == "update":
            if args and not isinstance(args[0], dict):
                raise RefusedProgramError("dict.update of something else than a dict")
            owner.update(*args, **kwargs)
            self.deliver(mode, None)
            return
        if args:
            args = [self.key(args[0]), *args[1:]]
        self.deliver(mode, getattr(owner, name)(*args))

    def key(self, value: Any) -> Any:
        """A value as a key of a dict or an element of a set."""
        if isinstance(value, (type, types.FunctionType)):
            return value
        return self.concrete(value)

    def generator_method(
        self, generator: Generator, name: str, args: list[Any], mode: tuple[Any, ...]
    ) -> None:
        if name == "close":
            if generator.frame is not None and generator.started and generator.frame.blocks:
                raise RefusedProgramError("close() of a generator inside try")
            generator.frame = None
            self.deliver(mode, None)
        elif generator.frame is None:
            raise StopIteration
        else:
            self.resume_generator(generator, ("next", UNBOUND), *args)

    def construct(
        self, cls: type, args: list[Any], kwargs: dict[str, Any], mode: tuple[Any, ...]
    ) -> None:
        if cls is type and len(args) == 1:
            self.deliver(mode, self.type_of(args[0]))
            return
        if cls in (random.SystemRandom,):
            self.deliver(mode, CoinSource())
            return
        if cls is Fraction and self.fraction(args, mode):
            return
        if id(cls) in PRELUDE and (id(cls) not in _BUILDERS or not self.simple(args)):
            if cls is dict and (not args or isinstance(args[0], dict)):
                made: dict[Any, Any] = dict(*args)
                made.update(kwargs)
                self.deliver(mode, made)
                return
            if cls in (list, tuple) and args and type(args[0]) in (list, tuple, View):
                items = args[0].now() if type(args[0]) is View else args[0]
                self.deliver(mode, cls(items))
                return
            self.invoke(PRELUDE[id(cls)], args, kwargs, mode)
            return
        if len(args) == 1 and type(args[0]) is Lazy and not kwargs and id(cls) in MONOTONE:
            self.deliver(mode, lazies.apply(MONOTONE[id(cls)], args[0]))
            return
        if cls is bool and args and _python_class(type(args[0])):
            self.invoke(prelude.bool_, args, kwargs, mode)
            return
        if cls is bool:
            self.deliver(mode, self.truth(args[0]) if args else False)
            return
        if cls in PURE_TYPES or (issubclass(cls, BaseException) and not _has_python_init(cls)):
            if cls in (str,) and args and isinstance(args[0], BaseException):
                self.deliver(mode, str(args[0]))
                return
            if cls is bytes and args and type(args[0]) is LazyBytes:
                self.deliver(mode, args[0])
                return
            plain = [self.concrete(a, sets=cls in (set, frozenset, bool)) for a in args]
            named = {k: self.concrete(v) for k, v in kwargs.items()}
            self.deliver(mode, cls(*plain, **named))
            return
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            plain = [self.concrete(a) for a in args]
            self.deliver(mode, cls(*plain, **{k: self.concrete(v) for k, v in kwargs.items()}))
            return
        if not _python_class(cls):
            raise RefusedProgramError(why_refused(cls))
        self.construct_instance(cls, args, kwargs, mode)

    def fraction(self, args: list[Any], mode: tuple[Any, ...]) -> bool:
        if len(args) == 2 and type(args[0]) is Lazy:
            below = lazies.force(args[1])
            if type(below) is int and below > 0:
                self.deliver(mode, lazies.apply("over", args[0], below))
                return True
        return False

    def construct_instance(
        self, cls: type, args: list[Any], kwargs: dict[str, Any], mode: tuple[Any, ...]
    ) -> None:
        if _class_attribute(type(cls), "__call__") is not type.__call__:
            raise RefusedProgramError(f"{cls.__name__}: its metaclass has a __call__")
        if getattr(cls, "__abstractmethods__", None):
            raise TypeError(f"Can't instantiate abstract class {cls.__name__}")
        if _class_attribute(cls, "__del__") is not UNBOUND:
            raise RefusedProgramError(f"{cls.__name__}.__del__")
        if _class_attribute(cls, "__new__") is not object.__new__:
            raise RefusedProgramError(f"{cls.__name__}.__new__")
        made = object.__new__(cls)
        init = _class_attribute(cls, "__init__")
        if isinstance(init, types.FunctionType):
            if init.__code__.co_filename == "<string>" and hasattr(cls, "__dataclass_fields__"):
                self.dataclass_init(made, args, kwargs, mode)
                return
            self.invoke(init, [made, *args], kwargs, ("init", made) if mode == ("push",) else mode)
        elif args or kwargs:
            raise TypeError(f"{cls.__name__}() takes no arguments")
        else:
            self.deliver(mode, made)

    def dataclass_init(
        self, made: Any, args: list[Any], kwargs: dict[str, Any], mode: tuple[Any, ...]
    ) -> None:
        """What the __init__ that `dataclass` writes does."""
        import dataclasses

        fields = [f for f in dataclasses.fields(made) if f.init]
        positional = [f for f in fields if not f.kw_only]
        if len(args) > len(positional):
            raise TypeError(f"{type(made).__name__}() takes {len(positional)} arguments")
        given = {f.name: a for f, a in zip(positional, args, strict=False)}
        if any(k in given or k not in {f.name for f in fields} for k in kwargs):
            raise TypeError(f"{type(made).__name__}() got an unexpected argument")
        given.update(kwargs)
        for field in dataclasses.fields(made):
            if field.name in given:
                value = given[field.name]
            elif field.default is not dataclasses.MISSING:
                value = self.outside(field.default)
            elif field.default_factory in (list, dict, set, tuple):
                value = field.default_factory()
            else:
                raise TypeError(f"{type(made).__name__}() misses the argument {field.name}")
            object.__setattr__(made, field.name, value)
        after = _class_attribute(type(made), "__post_init__")
        if isinstance(after, types.FunctionType):
            self.invoke(after, [made], {}, ("init", made))
        else:
            self.deliver(mode, made)

    def type_of(self, value: Any) -> type:
        if type(value) is Token:
            raise RefusedProgramError("the type of a value that was hidden")
        if type(value) is Lazy:
            simple = lazies.settled(value)
            return type(simple.ends()[0]) if isinstance(simple, Lazy) else type(simple)
        kinds: dict[type, type] = {
            CoinSource: random.SystemRandom,
            LazyBytes: bytes,
            Closure: types.FunctionType,
            Generator: types.GeneratorType,
            Bound: types.MethodType,
            NativeMethod: types.BuiltinMethodType,
            View: type({}.keys()),
        }
        return kinds.get(type(value), type(value))

    # -- operators -----------------------------------------------------------------------------
    def binary(self, op: str, left: Any, right: Any) -> Any:
        """An operator on Python's own values; UNBOUND where a method of the program's is called."""
        if op in GROWING:
            refuse_large_operator(op, left, right)
        if type(left) in _FAST and type(right) in _FAST:
            return _BINARY[op](left, right)
        if type(left) is Lazy or type(right) is Lazy:
            if type(left) in (list, tuple, str, bytes) or type(right) in (list, tuple, str, bytes):
                return _BINARY[op](lazies.force(left), lazies.force(right))
            if _is_number(left) and _is_number(right):
                return lazies.binary(op, left, right)
        for value in (left, right):
            if _python_class(type(value)):
                return UNBOUND
        if isinstance(left, (list, tuple)) and type(left) is type(right) and op == "+":
            return _BINARY[op](left, right)
        if op == "*" and isinstance(left, (list, tuple)) and isinstance(right, int):
            return left * right
        if op == "*" and isinstance(right, (list, tuple)) and isinstance(left, int):
            return left * right
        if type(left) is View or type(right) is View:
            raise RefusedProgramError("an operator with a dict's view")
        return _BINARY[op](self.concrete(left, sets=True), self.concrete(right, sets=True))

    def operate(self, frame: Frame, op: str, left: Any, right: Any) -> None:
        found = _class_attribute(type(left), f"__{_DUNDER[op]}__")
        del frame.stack[-2:]
        if isinstance(found, types.FunctionType) and _python_class(type(left)):
            self.invoke(found, [left, right], {}, ("operator", op, left, right))
        else:
            self.reflected(op, left, right)

    def reflected(self, op: str, left: Any, right: Any) -> None:
        name = f"__{_MIRROR[op]}__" if op in _MIRROR else f"__r{_DUNDER[op]}__"
        found = _class_attribute(type(right), name)
        if isinstance(found, types.FunctionType) and _python_class(type(right)):
            self.invoke(found, [right, left], {}, ("push",))
        elif op in {"==", "!="}:
            self.deliver(("push",), (left is right) == (op == "=="))
        else:
            raise TypeError(f"unsupported operand type(s) for {op}")

    def compare(self, frame: Frame, op: str, left: Any, right: Any) -> Any:
        kind, other = type(left), type(right)
        if op in _COMPARE:
            if kind in _FAST and other in _FAST:
                return _COMPARE[op](left, right)
            if kind is Lazy or other is Lazy:
                return lazies.compare(op, left, right)
            if _python_class(kind) or _python_class(other):
                return UNBOUND
            if _is_function(left) or _is_function(right):
                if op in {"==", "!="}:
                    return (left is right) == (op == "==")
                raise TypeError(f"'{op}' not supported")
            if kind is View or other is View:
                raise RefusedProgramError("a dict's view is compared")
            return _COMPARE[op](self.concrete(left, sets=True), self.concrete(right, sets=True))
        if op in {"is", "is not"}:
            return self.identical(left, right) == (op == "is")
        found = self.contains(left, right)
        if found is UNBOUND:
            del frame.stack[-2:]
            method = _class_attribute(type(right), "__contains__")
            mode = ("push",) if op == "in" else ("not",)
            self.invoke(method, [right, left], {}, mode)
            return None
        return found == (op == "in")

    def identical(self, left: Any, right: Any) -> bool:
        for one, other in ((left, right), (right, left)):
            if one is None or one is ... or one is NotImplemented or isinstance(one, bool):
                return type(other) is not Lazy and one is other
        if isinstance(left, Lazy) or isinstance(right, Lazy):
            if not (_is_number(left) and _is_number(right)):
                return False
            raise RefusedProgramError("'is' with a coin: use ==")
        if type(left) in _FAST or type(right) in _FAST or isinstance(left, tuple):
            if type(left) is not type(right):
                return False
            if left is right and isinstance(left, tuple) and not left:
                return True
            raise RefusedProgramError("'is' with a value that has no identity: use ==")
        if isinstance(left, (Bound, NativeMethod, CoinMethod, CoinSource, Token)) or (
            type(right) is Token
        ):
            raise RefusedProgramError("'is' with a method: use ==")
        return left is right

    def contains(self, item: Any, container: Any) -> Any:
        if isinstance(container, (dict, set, frozenset)):
            return self.key(item) in container
        if isinstance(container, range):
            return self.concrete(item) in container
        if isinstance(container, (list, tuple, str, bytes, View)):
            return self.concrete(item) in self.concrete(container)
        if isinstance(_class_attribute(type(container), "__contains__"), types.FunctionType):
            return UNBOUND
        raise RefusedProgramError(f"'in' with a {type(container).__name__}")


class _Property:
    """A property's getter that is still to be called."""

    def __init__(self, getter: Any, owner: Any) -> None:
        self.getter, self.owner = getter, owner


_BUILDERS = {id(k) for k in (list, tuple, set, dict)}


def _is_number(value: Any) -> bool:
    return isinstance(value, (Lazy, int, float, Fraction, *_NUMPY))


def _is_function(value: Any) -> bool:
    return isinstance(
        value, (types.FunctionType, types.BuiltinFunctionType, Closure, CoinSource, type)
    )


def _class_attribute(cls: Any, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return UNBOUND


def _has_python_init(cls: type) -> bool:
    return any(
        isinstance(_class_attribute(cls, n), types.FunctionType) for n in ("__init__", "__new__")
    )


_PYTHON_CLASSES: dict[type, bool] = {}
_OURS = frozenset(
    {
        Frame, Generator, Cell, Closure, Bound, NativeMethod, Super, CoinSource, CoinMethod,
        SequenceIterator, View, Lazy, LazyBytes, Symbol, Fraction, type(UNBOUND), Token,
    }
)  # fmt: skip


def _python_class(cls: type) -> bool:
    """Whether a class is written in Python alone, and is not one of this machine's own."""
    known = _PYTHON_CLASSES.get(cls)
    if known is None:
        known = cls not in _OURS and cls not in PURE_TYPES and is_plain_class(cls)
        known = known and not issubclass(cls, BaseException)
        _PYTHON_CLASSES[cls] = known
    return known


def _bind(
    frame: Frame,
    args: list[Any],
    kwargs: dict[str, Any],
    defaults: tuple[Any, ...],
    keyword_defaults: dict[str, Any],
    name: str,
) -> None:
    """Put arguments into a new frame's variables, as Python does."""
    layout = _layout(frame.code)
    variables = frame.locals
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
    first = count - len(defaults)
    for i in range(count):
        if variables[i] is UNBOUND:
            if i < first:
                raise TypeError(f"{name}() missing the argument '{layout.positional[i]}'")
            variables[i] = defaults[i - first]
    for key, at in layout.keyword_only.items():
        if variables[at] is UNBOUND:
            if key not in keyword_defaults:
                raise TypeError(f"{name}() missing the keyword argument '{key}'")
            variables[at] = keyword_defaults[key]


class _Layout:
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


_LAYOUTS: dict[int, tuple[Code, _Layout]] = {}


def _layout(code: Code) -> _Layout:
    found = _LAYOUTS.get(id(code))
    if found is None:
        found = _LAYOUTS[id(code)] = (code, _Layout(code.parameters))
    return found[1]


# -- instructions ----------------------------------------------------------------------------------
def _load_const(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm
    frame.stack.append(arg)


def _load_fast(vm: Machine, frame: Frame, arg: int) -> None:
    del vm
    value = frame.locals[arg]
    if value is UNBOUND:
        raise UnboundLocalError(f"cannot access local variable '{frame.code.slots[arg]}'")
    frame.stack.append(value)


def _store_fast(vm: Machine, frame: Frame, arg: int) -> None:
    del vm
    frame.locals[arg] = frame.stack.pop()


def _del_fast(vm: Machine, frame: Frame, arg: int) -> None:
    del vm
    if frame.locals[arg] is UNBOUND:
        raise UnboundLocalError(f"cannot access local variable '{frame.code.slots[arg]}'")
    frame.locals[arg] = UNBOUND


def _load_cell(vm: Machine, frame: Frame, arg: int) -> None:
    cell = frame.cells[arg]
    if isinstance(cell, Cell):
        value = cell.value
    else:
        try:
            value = vm.outside(cell.cell_contents)
        except ValueError:
            value = UNBOUND
    if value is UNBOUND:
        raise NameError(f"cannot access free variable '{frame.code.cells[arg]}'")
    frame.stack.append(value)


def _store_cell(vm: Machine, frame: Frame, arg: int) -> None:
    del vm
    cell = frame.cells[arg]
    if not isinstance(cell, Cell):
        raise RefusedProgramError(
            f"the closure variable {frame.code.cells[arg]} outlives the call and is changed: the "
            "law of one call would depend on the calls before"
        )
    cell.value = frame.stack.pop()


def _load_global(vm: Machine, frame: Frame, name: str) -> None:
    names = frame.names
    if name in names:
        value = names[name]
    else:
        value = getattr(builtins, name, UNBOUND)
        if value is UNBOUND:
            raise NameError(f"name '{name}' is not defined")
    frame.stack.append(vm.outside(value))


def _store_global(vm: Machine, frame: Frame, name: str) -> None:
    del vm, frame
    raise RefusedProgramError(
        f"the global variable {name} is changed: the law of one call would depend on the calls "
        "before"
    )


def _pop(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm, arg
    frame.stack.pop()


def _dup(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm, arg
    frame.stack.append(frame.stack[-1])


def _rot2(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm, arg
    s = frame.stack
    s[-1], s[-2] = s[-2], s[-1]


def _rot3(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm, arg
    s = frame.stack
    s[-3], s[-2], s[-1] = s[-1], s[-3], s[-2]


def _build(vm: Machine, frame: Frame, arg: tuple[str, int]) -> None:
    kind, count = arg
    s = frame.stack
    items = s[len(s) - count :]
    made: Any
    if kind == "list":
        made = [vm.stored(v) for v in items]
    elif kind == "tuple":
        made = tuple(items)
    elif kind == "set":
        made = {vm.key(v) for v in items}
    else:
        made = {}
    del s[len(s) - count :]
    s.append(made)


def _convert(vm: Machine, frame: Frame, kind: str) -> None:
    items = frame.stack[-1]
    frame.stack[-1] = tuple(items) if kind == "tuple" else {vm.key(v) for v in items}


def _list_append(vm: Machine, frame: Frame, depth: int) -> None:
    value = vm.stored(frame.stack[-1])
    frame.stack.pop()
    frame.stack[-(depth - 1)].append(value)


def _set_add(vm: Machine, frame: Frame, depth: int) -> None:
    value = vm.key(frame.stack[-1])
    frame.stack.pop()
    frame.stack[-(depth - 1)].add(value)


def _map_add(vm: Machine, frame: Frame, depth: int) -> None:
    key = vm.key(frame.stack[-2])
    value = frame.stack[-1]
    del frame.stack[-2:]
    frame.stack[-(depth - 2)][key] = value


def _list_of(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    value = frame.stack[-1]
    if type(value) in (list, tuple, View, range, str):
        frame.stack[-1] = value.now() if type(value) is View else list(value)
        return
    frame.stack.pop()
    vm.invoke(prelude.list_, [value], {}, ("push",))


def _list_extend(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm, arg
    items = frame.stack.pop()
    frame.stack[-1].extend(items)


def _dict_update(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm, arg
    items = frame.stack.pop()
    if not isinstance(items, dict):
        raise RefusedProgramError("** of something else than a dict")
    frame.stack[-1].update(items)


def _binary(vm: Machine, frame: Frame, op: str) -> None:
    s = frame.stack
    left, right = s[-2], s[-1]
    value = vm.binary(op, left, right)
    if value is UNBOUND:
        vm.operate(frame, op, left, right)
        return
    s.pop()
    s[-1] = value


def _inplace(vm: Machine, frame: Frame, op: str) -> None:
    left, right = frame.stack[-2], frame.stack[-1]
    if isinstance(left, (list, set, dict)):
        vm.owned(left, f"{op}=")
        if isinstance(left, list) and op == "+":
            if not isinstance(right, _SEQUENCES):
                raise RefusedProgramError("list += an iterator: make it a list first")
            left.extend([vm.stored(v) for v in right])
            frame.stack.pop()
            return
        if isinstance(left, list) or not isinstance(right, type(left)):
            raise RefusedProgramError(f"{op}= of a {type(left).__name__}")
        if op not in {"|", "&", "-"} or (isinstance(left, dict) and op != "|"):
            raise RefusedProgramError(f"{op}= of a {type(left).__name__}")
        _INPLACE[op](left, right)
        frame.stack.pop()
        return
    if _python_class(type(left)) and isinstance(
        _class_attribute(type(left), f"__i{_DUNDER[op]}__"), types.FunctionType
    ):
        raise RefusedProgramError(f"{type(left).__name__}.__i{_DUNDER[op]}__")
    _binary(vm, frame, op)


def _unary(vm: Machine, frame: Frame, op: str) -> None:
    value = frame.stack[-1]
    result: Any
    if op == "not":
        result = not vm.truth(value)
    elif type(value) is Lazy:
        if op == "neg":
            result = lazies.negative(value)
        else:
            result = value if op == "pos" else lazies.binary("-", -1, value)
    elif _python_class(type(value)):
        method = _class_attribute(type(value), f"__{op}__")
        if not isinstance(method, types.FunctionType):
            raise TypeError(f"bad operand type for unary {op}")
        frame.stack.pop()
        vm.invoke(method, [value], {}, ("push",))
        return
    else:
        plain = vm.concrete(value)
        result = _UNARY[op](plain)
    frame.stack[-1] = result


def _compare(vm: Machine, frame: Frame, op: str) -> None:
    s = frame.stack
    left, right = s[-2], s[-1]
    value = vm.compare(frame, op, left, right)
    if value is UNBOUND:
        if op == "!=" and not isinstance(
            _class_attribute(type(left), "__ne__"), types.FunctionType
        ):
            method = _class_attribute(type(left), "__eq__")
            if isinstance(method, types.FunctionType) and _python_class(type(left)):
                if "__dataclass_fields__" in type(left).__dict__:
                    raise RefusedProgramError("comparison of dataclass objects")
                del s[-2:]
                vm.invoke(method, [left, right], {}, ("not",))
                return
        vm.operate(frame, op, left, right)
    elif value is not None:
        s.pop()
        s[-1] = value


def _jump(vm: Machine, frame: Frame, target: int) -> None:
    del vm
    frame.pc = target


def _conditional(frame: Frame, vm: Machine) -> bool | None:
    """The truth of the value on top; None if a method of the program's decides it."""
    value = frame.stack[-1]
    if value is True or value is False:
        return bool(value)
    if _python_class(type(value)):
        for name in ("__bool__", "__len__"):
            method = _class_attribute(type(value), name)
            if isinstance(method, types.FunctionType):
                frame.stack.pop()
                frame.pc -= 1
                vm.invoke(method, [value], {}, ("push",))
                return None
    return vm.truth(value)


def _jump_if_false(vm: Machine, frame: Frame, target: int) -> None:
    truth = _conditional(frame, vm)
    if truth is None:
        return
    frame.stack.pop()
    if not truth:
        frame.pc = target


def _jump_if_true(vm: Machine, frame: Frame, target: int) -> None:
    truth = _conditional(frame, vm)
    if truth is None:
        return
    frame.stack.pop()
    if truth:
        frame.pc = target


def _jump_if_false_keep(vm: Machine, frame: Frame, target: int) -> None:
    if vm.truth(frame.stack[-1]):
        frame.stack.pop()
    else:
        frame.pc = target


def _jump_if_true_keep(vm: Machine, frame: Frame, target: int) -> None:
    if vm.truth(frame.stack[-1]):
        frame.pc = target
    else:
        frame.stack.pop()


def _load_attr(vm: Machine, frame: Frame, name: str) -> None:
    value = vm.attribute(frame.stack[-1], name)
    if type(value) is _Property:
        frame.stack.pop()
        vm.invoke(value.getter, [value.owner], {}, ("push",))
    else:
        frame.stack[-1] = value


def _store_attr(vm: Machine, frame: Frame, name: str) -> None:
    owner, value = frame.stack[-1], frame.stack[-2]
    vm.owned(owner, f"{name} = …")
    kind = type(owner)
    if not _python_class(kind) and not isinstance(owner, BaseException):
        raise RefusedProgramError(f"an attribute of a {kind.__name__} is set")
    del frame.stack[-2:]
    found = _class_attribute(kind, name)
    if isinstance(found, property):
        if found.fset is None:
            raise AttributeError(f"property '{name}' of '{kind.__name__}' object has no setter")
        vm.invoke(found.fset, [owner, value], {}, ("drop",))
        return
    setter = _class_attribute(kind, "__setattr__")
    if isinstance(setter, types.FunctionType):
        raise RefusedProgramError(f"{kind.__name__}.__setattr__ (a frozen object is changed?)")
    object.__setattr__(owner, name, value)


def _load_sub(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    container, index = frame.stack[-2], frame.stack[-1]
    if isinstance(container, (list, tuple, str, bytes, range)):
        value = container[vm.concrete(index)]
    elif isinstance(container, dict):
        value = container[vm.key(index)]
    elif type(container) is LazyBytes:
        where = vm.concrete(index)
        value = container.item(where) if type(where) is int else vm.concrete(container)[where]
    elif isinstance(container, type):
        value = container  # a generic type's parameters mean nothing when it runs
    else:
        method = _class_attribute(type(container), "__getitem__")
        if not isinstance(method, types.FunctionType):
            raise RefusedProgramError(f"an item of a {type(container).__name__}")
        del frame.stack[-2:]
        vm.invoke(method, [container, index], {}, ("push",))
        return
    del frame.stack[-2:]
    frame.stack.append(value)


def _store_sub(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    value, container, index = frame.stack[-3:]
    if isinstance(container, (list, dict)):
        vm.owned(container, "an item's assignment")
        key = vm.key(index)
        if isinstance(key, slice) and not isinstance(value, (list, tuple)):
            raise RefusedProgramError("a slice is assigned something else than a list")
        container[key] = vm.stored(value)
        del frame.stack[-3:]
        return
    method = _class_attribute(type(container), "__setitem__")
    if not isinstance(method, types.FunctionType):
        raise RefusedProgramError(f"an item of a {type(container).__name__} is assigned")
    del frame.stack[-3:]
    vm.invoke(method, [container, index, value], {}, ("drop",))


def _del_sub(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    container, index = frame.stack[-2:]
    if not isinstance(container, (list, dict)):
        raise RefusedProgramError(f"an item of a {type(container).__name__} is deleted")
    vm.owned(container, "del")
    del container[vm.key(index)]
    del frame.stack[-2:]


def _build_slice(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    parts = [vm.concrete(v) for v in frame.stack[-3:]]
    del frame.stack[-3:]
    frame.stack.append(slice(*parts))


def _call(vm: Machine, frame: Frame, arg: tuple[int, tuple[str, ...]]) -> None:
    count, names = arg
    s = frame.stack
    total = count + len(names)
    begin = len(s) - total
    function, args = s[begin - 1], s[begin : begin + count]
    kwargs = dict(zip(names, s[begin + count :], strict=True)) if names else {}
    held = s[begin - 1 :]
    del s[begin - 1 :]
    try:
        vm.invoke(function, args, kwargs, ("push",))
    except NeedSplit:
        s.extend(held)
        raise


def _call_ex(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    s = frame.stack
    held = s[-3:]
    function, args, kwargs = held
    del s[-3:]
    try:
        vm.invoke(function, list(args), dict(kwargs), ("push",))
    except NeedSplit:
        s.extend(held)
        raise


def _return(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    value = frame.stack[-1]
    if vm.hides == "returned" and len(vm.frames) == 3 and frame.generator is None:
        value = vm.hide(value)
    frame.stack.pop()
    vm.frames.pop()
    mode = frame.deliver
    if frame.generator is not None:
        frame.generator.frame = None
        frame.generator = None
        if mode[0] == "for":
            below = vm.frames[-1]
            below.stack.pop()
            below.pc = mode[1]
        elif mode[1] is UNBOUND:
            vm.unwind(StopIteration())
        else:
            vm.frames[-1].stack.append(mode[1])
        return
    if mode[0] == "init" and value is not None:
        raise TypeError("__init__() should return None")
    vm.deliver(mode, value)


def _yield(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    value = frame.stack.pop()
    generator = frame.generator
    if generator is None:
        raise RefusedProgramError("yield outside a generator")
    if frame.blocks:
        raise RefusedProgramError("yield inside try or with: Python may leave it at any time")
    frame.generator = None
    vm.frames.pop()
    frame.deliver = ("push",)
    vm.frames[-1].stack.append(value)


def _get_iter(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    value = frame.stack[-1]
    if isinstance(value, (SequenceIterator, Generator)):
        return
    if isinstance(value, _SEQUENCES) or type(value) is LazyBytes:
        frame.stack[-1] = SequenceIterator(value)
    elif type(value) is View:
        frame.stack[-1] = SequenceIterator(View(value.owner, value.kind))
    elif isinstance(value, dict):
        frame.stack[-1] = SequenceIterator(View(value, "keys"))
    elif isinstance(value, (set, frozenset)):
        if len(value) > 1:
            raise RefusedProgramError("the order of a set is not part of the language: sort it")
        frame.stack[-1] = SequenceIterator(tuple(value))
    else:
        method = _class_attribute(type(value), "__iter__")
        if not isinstance(method, types.FunctionType):
            if _python_class(type(value)):
                raise TypeError(f"'{type(value).__name__}' object is not iterable")
            raise RefusedProgramError(f"iteration over a {type(value).__name__}")
        frame.stack.pop()
        vm.invoke(method, [value], {}, ("push",))


def _advance(iterator: SequenceIterator) -> Any:
    sequence, index = iterator.sequence, iterator.index
    if type(sequence) is View:
        if not sequence.unchanged():
            if len(sequence.keys) != len(sequence.owner):
                raise RuntimeError("dictionary changed size during iteration")
            raise RefusedProgramError("a dict changes its keys while it is iterated over")
        sequence = sequence.now()
    count = sequence.length if type(sequence) is LazyBytes else len(sequence)
    if index >= count:
        iterator.sequence, iterator.index = (), 0
        return UNBOUND
    value = sequence.item(index) if type(sequence) is LazyBytes else sequence[index]
    iterator.index = index + 1
    return value


def _for_iter(vm: Machine, frame: Frame, target: int) -> None:
    iterator = frame.stack[-1]
    if type(iterator) is SequenceIterator:
        value = _advance(iterator)
        if value is UNBOUND:
            frame.stack.pop()
            frame.pc = target
        else:
            frame.stack.append(value)
    elif type(iterator) is Generator:
        if iterator.frame is None:
            frame.stack.pop()
            frame.pc = target
        else:
            vm.resume_generator(iterator, ("for", target))
    else:
        raise RefusedProgramError(f"iteration with {type(iterator).__name__}.__next__")


def _unpack(vm: Machine, frame: Frame, count: int) -> None:
    value = frame.stack[-1]
    if type(value) is View:
        items = value.now()
    elif isinstance(value, (tuple, list, str)):
        items = list(value)
    elif type(value) is LazyBytes:
        items = [value.item(i) for i in range(value.length)]
    elif isinstance(value, (range, bytes)):
        items = list(value)
    else:
        frame.stack.pop()
        frame.pc -= 1
        vm.invoke(prelude.tuple_, [value], {}, ("push",))
        return
    if len(items) != count:
        few = "not enough" if len(items) < count else "too many"
        raise ValueError(f"{few} values to unpack (expected {count})")
    frame.stack.pop()
    frame.stack.extend(reversed(items))


def _unpack_ex(vm: Machine, frame: Frame, arg: tuple[int, int]) -> None:
    before, after = arg
    value = vm.concrete(frame.stack[-1]) if not isinstance(frame.stack[-1], list) else None
    items = list(frame.stack[-1] if value is None else value)
    if len(items) < before + after:
        raise ValueError("not enough values to unpack")
    middle = items[before : len(items) - after]
    parts = [*items[:before], middle, *items[len(items) - after :]]
    frame.stack.pop()
    frame.stack.extend(reversed(parts))


def _make_function(vm: Machine, frame: Frame, arg: tuple[Code, int, tuple[str, ...], Any]) -> None:
    del vm
    code, defaults, keywords, captured = arg
    s = frame.stack
    named = dict(zip(keywords, s[len(s) - len(keywords) :], strict=True)) if keywords else {}
    del s[len(s) - len(keywords) :]
    given = tuple(s[len(s) - defaults :]) if defaults else ()
    del s[len(s) - defaults :]
    cells = [frame.cells[i] for i in captured]
    s.append(Closure(code, frame.names, given, named, cells))


def _setup(vm: Machine, frame: Frame, target: int) -> None:
    del vm
    frame.blocks.append((target, len(frame.stack)))


def _pop_block(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm, arg
    frame.blocks.pop()


def _raise(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    error = frame.stack.pop()
    if isinstance(error, type) and issubclass(error, BaseException):
        if _has_python_init(error):
            raise RefusedProgramError(f"{error.__name__} with an __init__ in Python")
        error = error()
    if not isinstance(error, Exception):
        raise RefusedProgramError(f"raise of a {type(error).__name__}")
    vm.unwind(error)


def _exc_type(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm, arg
    error = frame.stack[-1]
    frame.stack[-1:] = [type(error), error]
    frame.stack[-2], frame.stack[-1] = type(error), error
    frame.stack.pop()


def _exc_match(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm, arg
    kinds = frame.stack.pop()
    frame.stack[-1] = isinstance(frame.stack[-1], kinds)


def _format(vm: Machine, frame: Frame, conversion: int) -> None:
    value, spec = frame.stack[-2], frame.stack[-1]
    value = str(value) if isinstance(value, BaseException) else vm.concrete(value)
    if conversion != -1:
        value = _CONVERSIONS[conversion](value)
    made = format(value, vm.concrete(spec))
    frame.stack.pop()
    frame.stack[-1] = made


def _build_string(vm: Machine, frame: Frame, count: int) -> None:
    del vm
    s = frame.stack
    text = "".join(s[len(s) - count :])
    del s[len(s) - count :]
    s.append(text)


def _import(vm: Machine, frame: Frame, arg: tuple[str, bool]) -> None:
    name, whole = arg
    module = importlib.import_module(name)
    top = importlib.import_module(name.partition(".")[0])
    frame.stack.append(vm.outside(top if whole else module))


def _import_from(vm: Machine, frame: Frame, arg: tuple[int, str | None, str]) -> None:
    level, module, name = arg
    package = frame.names.get("__package__") or frame.names.get("__name__", "").rpartition(".")[0]
    found = importlib.import_module("." * level + (module or ""), package if level else None)
    try:
        value = getattr(found, name)
    except AttributeError:
        value = importlib.import_module(f"{found.__name__}.{name}")
    frame.stack.append(vm.outside(value))


def _finish(vm: Machine, frame: Frame, arg: Any) -> None:
    del arg
    value = frame.stack[-1]
    if vm.hides and isinstance(value, (list, tuple)):
        frame.stack[-1] = tuple(v if type(v) is Token else vm.concrete(v) for v in value)
    else:
        frame.stack[-1] = vm.concrete(value)


def _super(vm: Machine, frame: Frame, arg: Any) -> None:
    del vm, arg
    cls, owner = frame.stack[-2:]
    del frame.stack[-2:]
    frame.stack.append(Super(cls, owner))


_TABLE: dict[str, Callable[[Machine, Frame, Any], None]] = {
    "LOAD_CONST": _load_const, "LOAD_FAST": _load_fast, "STORE_FAST": _store_fast,
    "DEL_FAST": _del_fast, "LOAD_CELL": _load_cell, "STORE_CELL": _store_cell,
    "LOAD_GLOBAL": _load_global, "STORE_GLOBAL": _store_global, "POP": _pop, "DUP": _dup,
    "ROT2": _rot2, "ROT3": _rot3, "BUILD": _build, "CONVERT": _convert,
    "LIST_APPEND": _list_append, "SET_ADD": _set_add, "MAP_ADD": _map_add, "LIST_OF": _list_of,
    "LIST_EXTEND": _list_extend, "DICT_UPDATE": _dict_update, "BINARY": _binary,
    "INPLACE": _inplace, "UNARY": _unary, "COMPARE": _compare, "JUMP": _jump,
    "JIF": _jump_if_false, "JIT": _jump_if_true, "JIF_KEEP": _jump_if_false_keep,
    "JIT_KEEP": _jump_if_true_keep, "LOAD_ATTR": _load_attr, "STORE_ATTR": _store_attr,
    "LOAD_SUB": _load_sub, "STORE_SUB": _store_sub, "DEL_SUB": _del_sub,
    "BUILD_SLICE": _build_slice, "CALL": _call, "CALL_EX": _call_ex, "RETURN": _return,
    "YIELD": _yield, "GET_ITER": _get_iter, "FOR_ITER": _for_iter, "UNPACK": _unpack,
    "UNPACK_EX": _unpack_ex, "MAKE_FUNCTION": _make_function, "SETUP": _setup,
    "POP_BLOCK": _pop_block, "RAISE": _raise, "EXC_TYPE": _exc_type, "EXC_MATCH": _exc_match,
    "FORMAT": _format, "BUILD_STRING": _build_string, "IMPORT": _import,
    "IMPORT_FROM": _import_from, "SUPER": _super, "FINISH": _finish,
}  # fmt: skip


# -- builtins that the machine itself answers ------------------------------------------------------
def _isinstance(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    del kwargs
    value, classes = args
    for cls in classes if isinstance(classes, tuple) else (classes,):
        check = _class_attribute(type(cls), "__instancecheck__")
        if isinstance(check, types.FunctionType) and check.__module__ not in {"abc", "typing"}:
            raise RefusedProgramError(f"isinstance with {cls.__name__}, whose class decides it")
    kind = vm.type_of(value)
    if kind is type(value):
        vm.deliver(mode, isinstance(value, classes))
    else:
        vm.deliver(mode, issubclass(kind, classes))


def _getattr(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    del kwargs
    try:
        value = vm.attribute(args[0], args[1])
    except AttributeError:
        if len(args) < 3:
            raise
        value = args[2]
    if type(value) is _Property:
        vm.invoke(value.getter, [value.owner], {}, mode)
    else:
        vm.deliver(mode, value)


def _hasattr(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    del kwargs
    try:
        vm.attribute(args[0], args[1])
    except AttributeError:
        vm.deliver(mode, False)
    else:
        vm.deliver(mode, True)


def _next(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    del kwargs
    iterator = args[0]
    default = args[1] if len(args) > 1 else UNBOUND
    if type(iterator) is SequenceIterator:
        value = _advance(iterator)
        if value is UNBOUND:
            if default is UNBOUND:
                raise StopIteration
            value = default
        vm.deliver(mode, value)
    elif type(iterator) is Generator:
        if iterator.frame is None:
            if default is UNBOUND:
                raise StopIteration
            vm.deliver(mode, default)
        else:
            vm.resume_generator(iterator, ("next", default))
    else:
        raise RefusedProgramError(f"next() of a {type(iterator).__name__}")


def _iter(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    del kwargs
    if len(args) != 1:
        raise RefusedProgramError("iter() with a sentinel")
    probe = Frame(_EMPTY, {})
    probe.stack.append(args[0])
    value = args[0]
    if isinstance(_class_attribute(vm.type_of(value), "__iter__"), types.FunctionType):
        vm.invoke(_class_attribute(type(value), "__iter__"), [value], {}, mode)
        return
    _get_iter(vm, probe, None)
    vm.deliver(mode, probe.stack[-1])


def _callable(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    del kwargs
    value = args[0]
    ours = isinstance(value, (Closure, Bound, NativeMethod, CoinMethod))
    vm.deliver(mode, ours or (not isinstance(value, CoinSource) and callable(value)))


def _issubclass(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    del kwargs
    vm.deliver(mode, issubclass(args[0], args[1]))


def _from_bytes(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    order = vm.concrete(args[1] if len(args) > 1 else kwargs.get("byteorder", "big"))
    if type(args[0]) is LazyBytes and not kwargs.get("signed") and order in {"big", "little"}:
        vm.deliver(mode, args[0].whole(order))
    else:
        plain = [vm.concrete(a) for a in args]
        vm.deliver(mode, int.from_bytes(*plain, **{k: vm.concrete(v) for k, v in kwargs.items()}))


def _order(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    del kwargs
    scores, reverse = [vm.concrete(a) for a in args]
    vm.deliver(mode, sorted(range(len(scores)), key=scores.__getitem__, reverse=reverse))


def _sum(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    if isinstance(args[0], (list, tuple, range, View)):
        plain = [vm.concrete(a) for a in args]
        vm.deliver(mode, sum(*plain, **{k: vm.concrete(v) for k, v in kwargs.items()}))
    else:
        vm.invoke(prelude.sum_, args, kwargs, mode)


def _object_setattr(vm: Machine, args: list[Any], kwargs: Any, mode: tuple[Any, ...]) -> None:
    del kwargs
    vm.owned(args[0], f"{args[1]} = …")
    if not _python_class(type(args[0])):
        raise RefusedProgramError("object.__setattr__ of one of Python's own values")
    object.__setattr__(args[0], args[1], args[2])
    vm.deliver(mode, None)


_EMPTY = Code("", "", ast.parse("lambda: 0", mode="eval").body.args, [], [], [])  # type: ignore[attr-defined]
_ROOT = Code("", "", _EMPTY.parameters, [], [], [])
_ROOT.instructions = [("CALL_EX", None), ("FINISH", None), ("RETURN", None)]
_ROOT.lines = [0, 0, 0]
_ROOT.live = [frozenset()] * 4
_SPECIAL: dict[int, Callable[[Machine, list[Any], Any, tuple[Any, ...]], None]] = {
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
