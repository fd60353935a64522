"""What an attribute of a value is: lookup along the classes, binding, super, properties."""

from __future__ import annotations

import functools
import types
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import lazy as lazies
from dpaudit_prove.interpreter.classes import (
    class_attribute,
    has_own_replace,
    is_named_tuple,
    is_python_class,
    python_method,
)
from dpaudit_prove.interpreter.coins import coin_attribute
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes
from dpaudit_prove.interpreter.machine import GENERATORS, Machine
from dpaudit_prove.interpreter.natives import METHODS, PURE_TYPES, why_refused
from dpaudit_prove.interpreter.plain import NUMPY
from dpaudit_prove.interpreter.values import (
    UNBOUND,
    Bound,
    Call,
    CoinSource,
    Generator,
    NativeMethod,
    Super,
    View,
)

__all__ = ["attribute"]


def attribute(vm: Machine, owner: Any, name: str) -> Any:
    """owner.name; a `Call` of the getter if it is a property."""
    kind = type(owner)
    if kind is CoinSource:
        return coin_attribute(owner, name)
    if kind is Lazy:
        if name == "bit_length" and not lazies.compare("<", owner, 0):
            return NativeMethod(owner, name)
        owner = lazies.force(owner)
        kind = type(owner)
    if kind is Super:
        return _super_attribute(vm, owner, name)
    if kind is Generator:
        if name in {"__next__", "send", "close"}:
            return NativeMethod(owner, name)
        raise RefusedProgramError(f"the attribute {name} of a generator")
    if isinstance(owner, types.ModuleType):
        return vm.outside(getattr(owner, name))
    if isinstance(owner, type):
        return _type_attribute(vm, owner, name)
    if kind is View:
        raise RefusedProgramError(f"the attribute {name} of a dict's view")
    if kind is LazyBytes:
        if name == "hex":
            return NativeMethod(owner.data(), name)
        raise RefusedProgramError(f"the attribute {name} of random bytes")
    if kind in METHODS:
        if name in METHODS[kind]:
            found = getattr(owner, name)
            return NativeMethod(owner, name) if callable(found) else found
        if not hasattr(owner, name):
            raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")
        raise RefusedProgramError(f"the attribute {name} of a {kind.__name__}")
    if isinstance(owner, NUMPY):
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
    if isinstance(owner, GENERATORS):
        known = hasattr(owner, name)
        raise RefusedProgramError(
            why_refused(getattr(owner, name, owner)) if known else f"{kind.__name__}.{name}"
        )
    return _instance_attribute(vm, owner, name)


def _type_attribute(vm: Machine, cls: type, name: str) -> Any:
    if name in {"__name__", "__qualname__", "__module__"}:
        return getattr(cls, name)
    found = class_attribute(cls, name)
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
    return vm.outside(found if not hasattr(found, "__get__") else getattr(cls, name))


def _super_attribute(vm: Machine, owner: Super, name: str) -> Any:
    inside = owner.owner
    kind = inside if isinstance(inside, type) else type(inside)
    mro = kind.__mro__
    for cls in mro[mro.index(owner.cls) + 1 :]:
        if name in cls.__dict__:
            return _bind(vm, cls.__dict__[name], inside, name)
    raise AttributeError(f"'super' object has no attribute '{name}'")


def _bind(vm: Machine, found: Any, owner: Any, name: str) -> Any:
    """What a class's attribute is for one of its objects."""
    if isinstance(found, types.FunctionType):
        return Bound(found, owner)
    if isinstance(found, staticmethod):
        return found.__func__
    if isinstance(found, classmethod):
        return Bound(found.__func__, owner if isinstance(owner, type) else type(owner))
    if isinstance(found, property):
        return Call(found.fget, [owner])
    if name in {"__init__", "__new__", "__init_subclass__"}:
        return NativeMethod(owner, f"object.{name}")
    if isinstance(found, types.MemberDescriptorType):
        return found.__get__(owner)
    if isinstance(found, functools.cached_property):
        raise RefusedProgramError(f"the cached property {name}")
    if hasattr(type(found), "__get__") and not isinstance(found, type):
        raise RefusedProgramError(f"{type(owner).__name__}.{name}, a {type(found).__name__}")
    return vm.outside(found)


def _instance_attribute(vm: Machine, owner: Any, name: str) -> Any:
    kind = type(owner)
    if is_named_tuple(kind) and name in kind._fields:
        return getattr(owner, name)
    if is_named_tuple(kind) and name == "_replace" and has_own_replace(kind):
        return NativeMethod(owner, name)
    if not is_python_class(kind) and not isinstance(owner, BaseException):
        raise RefusedProgramError(f"the attribute {name} of a {kind.__module__}.{kind.__name__}")
    if name == "__class__":
        return kind
    if class_attribute(kind, "__getattribute__") is not object.__getattribute__:
        raise RefusedProgramError(f"{kind.__name__}.__getattribute__")
    found = class_attribute(kind, name)
    if isinstance(found, property):
        return Call(found.fget, [owner])
    if hasattr(type(found), "__set__") and not isinstance(found, types.MemberDescriptorType):
        raise RefusedProgramError(f"{kind.__name__}.{name}, a {type(found).__name__}")
    held = getattr(owner, "__dict__", {})
    if name in held:
        value = held[name]
        return vm.outside(value) if id(owner) in vm.pins.foreign else value
    if name == "__dict__":
        raise RefusedProgramError("__dict__")
    if found is not UNBOUND:
        return _bind(vm, found, owner, name)
    if python_method(kind, "__getattr__"):
        raise RefusedProgramError(f"{kind.__name__}.__getattr__")
    raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")
