"""Methods of Python's own values: answered with a value, a `Call` to make instead, or PENDING."""

from __future__ import annotations

from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import lazy as lazies
from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.iteration import SEQUENCES
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes
from dpaudit_prove.interpreter.machine import Machine
from dpaudit_prove.interpreter.natives import MUTATORS
from dpaudit_prove.interpreter.plain import concrete, is_simple, key
from dpaudit_prove.interpreter.sizes import refuse_large_method
from dpaudit_prove.interpreter.values import (
    PENDING,
    UNBOUND,
    Call,
    Generator,
    NativeMethod,
    View,
)

__all__ = ["call_method"]

_MOVES_ITEMS = frozenset({"pop", "reverse", "copy", "clear", "__getitem__"})


def call_method(vm: Machine, method: NativeMethod, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The answer of owner.name(*args, **kwargs)."""
    owner, name = method.owner, method.name
    kind = type(owner)
    refuse_large_method(owner, name, args)
    if name.startswith("object."):
        return object.__new__(args[0]) if name == "object.__new__" else None
    if owner is int and name == "from_bytes":
        return _from_bytes(args, kwargs)
    if kind is Lazy:
        return lazies.apply("bit_length", owner)
    if name == "_replace":
        return owner._replace(**{k: concrete(v) for k, v in kwargs.items()})
    if kind is Generator:
        return _of_generator(vm, owner, name, args)
    if name in MUTATORS and kind in (list, dict, set):
        vm.check_own(owner, f"{kind.__name__}.{name}")
    if kind is list:
        if name in {"append", "insert"}:
            where = [concrete(a) for a in args[:-1]]
            return getattr(owner, name)(*where, vm.stored(args[-1]))
        if name == "extend":
            if type(args[0]) not in SEQUENCES:
                raise RefusedProgramError("list.extend of an iterator: make it a list first")
            return owner.extend([vm.stored(a) for a in args[0]])
        if name in _MOVES_ITEMS:
            return getattr(owner, name)(*[concrete(a) for a in args])
        if name == "sort" and kwargs.get("key") is not None:
            return Call(prelude.sort, [owner], kwargs)
    if kind is dict:
        return _of_dict(owner, name, args, kwargs)
    if kind is str and name == "join" and not is_simple(args):
        return Call(prelude.join, [owner, *args], kwargs)
    of_a_set = kind in (set, frozenset)
    if of_a_set and name != "add":
        args = [a if type(a) in (set, frozenset, list, tuple, range) else concrete(a) for a in args]
    if kind in (list, tuple):
        owner = concrete(owner)
    plain = [concrete(a, sets=of_a_set) for a in args]
    return getattr(owner, name)(*plain, **{k: concrete(v) for k, v in kwargs.items()})


def _of_dict(owner: dict[Any, Any], name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if name in {"keys", "values", "items"}:
        return View(owner, name)
    if name == "update":
        if args and type(args[0]) is not dict:
            raise RefusedProgramError("dict.update of something else than a dict")
        return owner.update(*args, **kwargs)
    if args:
        args = [key(args[0]), *args[1:]]
    return getattr(owner, name)(*args)


def _of_generator(vm: Machine, generator: Generator, name: str, args: list[Any]) -> Any:
    if name == "close":
        if generator.frame is not None and generator.started and generator.frame.blocks:
            raise RefusedProgramError("close() of a generator inside try")
        generator.frame = None
        return None
    if generator.frame is None:
        raise StopIteration
    vm.resume_generator(generator, ("next", UNBOUND), *args)
    return PENDING


def _from_bytes(args: list[Any], kwargs: dict[str, Any]) -> Any:
    order = concrete(args[1] if len(args) > 1 else kwargs.get("byteorder", "big"))
    if type(args[0]) is LazyBytes and not kwargs.get("signed") and order in {"big", "little"}:
        return args[0].whole(order)
    plain = [concrete(a) for a in args]
    return int.from_bytes(*plain, **{k: concrete(v) for k, v in kwargs.items()})
