"""Attributes of values, and the methods of Python's own values.

A method answers with a value, a `Call` to make instead, or PENDING.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Set
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import lazy as lazies
from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes
from dpaudit_prove.interpreter.machine import GENERATORS, Machine, coin_attribute
from dpaudit_prove.interpreter.natives import (
    METHODS,
    MUTATORS,
    PURE_TYPES,
    refuse_large_method,
    why_refused,
)
from dpaudit_prove.interpreter.objects import (
    NUMPY,
    SEQUENCES,
    class_attribute,
    concrete,
    has_own_replace,
    is_named_tuple,
    is_python_class,
    is_simple,
    key,
    python_method,
)
from dpaudit_prove.interpreter.values import (
    PENDING,
    UNBOUND,
    Bound,
    Call,
    CoinSource,
    Generator,
    NativeMethod,
    Super,
    View,
)

__all__ = ["attribute", "call_method"]


def attribute(vm: Machine, owner: Any, name: str) -> Any:
    """owner.name; a `Call` of the getter if it is a property."""
    if type(owner) is Lazy:
        if name == "bit_length" and not lazies.compare("<", owner, 0):
            return NativeMethod(owner, name)
        owner = lazies.force(owner)
    kind = type(owner)
    if kind is CoinSource:
        return coin_attribute(owner, name)
    if kind is Super:
        return _super_attribute(vm, owner, name)
    if isinstance(owner, types.ModuleType):
        return vm.adopt_value(getattr(owner, name))
    if isinstance(owner, type):
        return _type_attribute(vm, owner, name)
    if kind in METHODS:
        return _listed_attribute(owner, name)
    if kind is Generator:
        return _allowed_attribute(owner, name, "a generator", methods={"__next__", "send", "close"})
    if kind is View:
        return _allowed_attribute(owner, name, "a dict's view")
    if kind is LazyBytes:
        bits = owner.data() if name == "hex" else owner
        return _allowed_attribute(bits, name, "random bytes", methods={"hex"})
    if isinstance(owner, NUMPY):
        methods, values = {"item", "is_integer", "bit_count"}, {"real", "imag"}
        return _allowed_attribute(owner, name, "a numpy number", methods=methods, values=values)
    return _instance_attribute(vm, owner, name)


def _allowed_attribute(
    owner: Any,
    name: str,
    owner_kind: str,
    *,
    methods: Set[str] = frozenset(),
    values: Set[str] = frozenset(),
) -> Any:
    """One of a few attributes.

    Raises:
        RefusedProgramError: another one.
    """
    if name in methods:
        return NativeMethod(owner, name)
    if name in values:
        return getattr(owner, name)
    raise RefusedProgramError(f"the attribute {name} of {owner_kind}")


def _listed_attribute(owner: Any, name: str) -> Any:
    """An attribute of one of Python's own values."""
    kind = type(owner)
    if name in METHODS[kind]:
        value = getattr(owner, name)
        return NativeMethod(owner, name) if callable(value) else value
    if not hasattr(owner, name):
        raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")
    raise RefusedProgramError(f"the attribute {name} of a {kind.__name__}")


def _type_attribute(vm: Machine, cls: type, name: str) -> Any:
    if name in {"__name__", "__qualname__", "__module__"}:
        return getattr(cls, name)
    member = class_attribute(cls, name)
    if member is UNBOUND:
        raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")
    if isinstance(member, staticmethod):
        return member.__func__
    if isinstance(member, classmethod):
        return Bound(member.__func__, cls)
    if isinstance(member, types.FunctionType):
        return member
    if cls in PURE_TYPES or issubclass(cls, BaseException):
        value = getattr(cls, name)
        return NativeMethod(cls, name) if callable(value) else value
    return vm.adopt_value(member if not hasattr(member, "__get__") else getattr(cls, name))


def _super_attribute(vm: Machine, owner: Super, name: str) -> Any:
    inside = owner.owner
    kind = inside if isinstance(inside, type) else type(inside)
    mro = kind.__mro__
    for cls in mro[mro.index(owner.cls) + 1 :]:
        if name in cls.__dict__:
            return _bind(vm, cls.__dict__[name], inside, name)
    raise AttributeError(f"'super' object has no attribute '{name}'")


def _bind(vm: Machine, member: Any, owner: Any, name: str) -> Any:
    """Bind a class's attribute to one of its objects."""
    if isinstance(member, types.FunctionType):
        return Bound(member, owner)
    if isinstance(member, staticmethod):
        return member.__func__
    if isinstance(member, classmethod):
        return Bound(member.__func__, owner if isinstance(owner, type) else type(owner))
    if isinstance(member, property):
        return Call(member.fget, [owner])
    if name in {"__init__", "__new__", "__init_subclass__"}:
        return NativeMethod(owner, f"object.{name}")
    if isinstance(member, types.MemberDescriptorType):
        return member.__get__(owner)
    if isinstance(member, functools.cached_property):
        raise RefusedProgramError(f"the cached property {name}")
    if hasattr(type(member), "__get__") and not isinstance(member, type):
        raise RefusedProgramError(f"{type(owner).__name__}.{name}, a {type(member).__name__}")
    return vm.adopt_value(member)


def _instance_attribute(vm: Machine, owner: Any, name: str) -> Any:
    kind = type(owner)
    if isinstance(owner, BaseException):
        if name == "args":
            return owner.args
        if name in owner.__dict__:
            return owner.__dict__[name]
    if isinstance(owner, types.FunctionType) and name in {"__name__", "__qualname__"}:
        return getattr(owner, name)
    if isinstance(owner, GENERATORS):
        exists = hasattr(owner, name)
        raise RefusedProgramError(
            why_refused(getattr(owner, name, owner)) if exists else f"{kind.__name__}.{name}"
        )
    if is_named_tuple(kind) and name in kind._fields:
        return getattr(owner, name)
    if is_named_tuple(kind) and name == "_replace" and has_own_replace(kind):
        return NativeMethod(owner, name)
    if not is_python_class(kind) and not isinstance(owner, BaseException):
        raise RefusedProgramError(f"the attribute {name} of a {kind.__module__}.{kind.__name__}")
    return kind if name == "__class__" else _lookup(vm, owner, name)


def _lookup(vm: Machine, owner: Any, name: str) -> Any:
    """An attribute by Python's own order: data descriptors, the object's own, the class's."""
    kind = type(owner)
    if class_attribute(kind, "__getattribute__") is not object.__getattribute__:
        raise RefusedProgramError(f"{kind.__name__}.__getattribute__")
    member = class_attribute(kind, name)
    if isinstance(member, property):
        return Call(member.fget, [owner])
    if hasattr(type(member), "__set__") and not isinstance(member, types.MemberDescriptorType):
        raise RefusedProgramError(f"{kind.__name__}.{name}, a {type(member).__name__}")
    own = getattr(owner, "__dict__", {})
    if name in own:
        value = own[name]
        return vm.adopt_value(value) if id(owner) in vm.pins.foreign else value
    if name == "__dict__":
        raise RefusedProgramError("__dict__")
    if member is not UNBOUND:
        return _bind(vm, member, owner, name)
    if python_method(kind, "__getattr__"):
        raise RefusedProgramError(f"{kind.__name__}.__getattr__")
    raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")


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
        return _generator_answer(vm, owner, name, args)
    if name in MUTATORS and kind in (list, dict, set):
        vm.check_own(owner, f"{kind.__name__}.{name}")
    if kind is list:
        answer = _list_answer(vm, owner, name, args, kwargs)
        if answer is not UNBOUND:
            return answer
    if kind is dict:
        return _dict_answer(owner, name, args, kwargs)
    if kind is str and name == "join" and not is_simple(args):
        return Call(prelude.join, [owner, *args], kwargs)
    of_a_set = kind in (set, frozenset)
    if of_a_set and name != "add":
        args = [a if type(a) in (set, frozenset, list, tuple, range) else concrete(a) for a in args]
    if kind in (list, tuple):
        owner = concrete(owner)
    plain = [concrete(a, sets=of_a_set) for a in args]
    return getattr(owner, name)(*plain, **{k: concrete(v) for k, v in kwargs.items()})


def _list_answer(
    vm: Machine, owner: list[Any], name: str, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """The answer of a method that only moves items; UNBOUND for another one."""
    if name in {"append", "insert"}:
        where = [concrete(a) for a in args[:-1]]
        return getattr(owner, name)(*where, vm.store_value(args[-1]))
    if name == "extend":
        if type(args[0]) not in SEQUENCES:
            raise RefusedProgramError("list.extend of an iterator: make it a list first")
        return owner.extend([vm.store_value(a) for a in args[0]])
    if name in _MOVES_ITEMS:
        return getattr(owner, name)(*[concrete(a) for a in args])
    if name == "sort" and kwargs.get("key") is not None:
        return Call(prelude.sort, [owner], kwargs)
    return UNBOUND


def _dict_answer(owner: dict[Any, Any], name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if name in {"keys", "values", "items"}:
        return View(owner, name)
    if name == "update":
        if args and type(args[0]) is not dict:
            raise RefusedProgramError("dict.update of something other than a dict")
        return owner.update(*args, **kwargs)
    if args:
        args = [key(args[0]), *args[1:]]
    return getattr(owner, name)(*args)


def _generator_answer(vm: Machine, generator: Generator, name: str, args: list[Any]) -> Any:
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
