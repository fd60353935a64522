"""Operators, comparisons, `is` and `in`, and items of containers."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import lazy as lazies
from dpaudit_prove.interpreter.calls import invoke
from dpaudit_prove.interpreter.lazy import COMPARISONS, METHODS, PLAIN, Lazy, LazyBytes
from dpaudit_prove.interpreter.machine import Machine
from dpaudit_prove.interpreter.natives import (
    GROWING,
    refuse_large_method,
    refuse_large_operator,
)
from dpaudit_prove.interpreter.objects import (
    ATOMS,
    SEQUENCES,
    compared_fields,
    concrete,
    is_named_tuple,
    is_number,
    is_python_class,
    key,
    python_method,
)
from dpaudit_prove.interpreter.values import (
    UNBOUND,
    Bound,
    Closure,
    CoinMethod,
    CoinSource,
    Frame,
    NativeMethod,
    Token,
    View,
)

__all__ = [
    "binary",
    "compare",
    "delete_item",
    "inplace",
    "load_item",
    "reflected",
    "store_item",
    "unary",
]

_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg, "pos": operator.pos, "invert": operator.invert,
}  # fmt: skip
_MIRROR = {"<": "gt", "<=": "ge", ">": "lt", ">=": "le", "==": "eq", "!=": "ne"}
_INPLACE: dict[tuple[str, type], Callable[[Any, Any], Any]] = {
    ("|", set): operator.ior, ("&", set): operator.iand, ("-", set): operator.isub,
    ("|", dict): operator.ior,
}  # fmt: skip
_WITH_ITEMS = frozenset({list, tuple, str, bytes})
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, Closure, CoinSource, type)


def binary(vm: Machine, op: str, left: Any, right: Any) -> Any:
    """The value of ``left op right``; UNBOUND where one of the program's methods is called."""
    kind, other = type(left), type(right)
    if kind is int and other is int and op not in GROWING:
        return PLAIN[op](left, right)
    if kind is not float:
        refuse_large_operator(op, left, right)
    if kind in ATOMS and other in ATOMS:
        return PLAIN[op](left, right)
    if kind is Lazy or other is Lazy:
        if kind in _WITH_ITEMS or other in _WITH_ITEMS:
            return PLAIN[op](lazies.force(left), lazies.force(right))
        if is_number(left) and is_number(right):
            return lazies.binary(op, left, right)
    if is_python_class(kind) or is_python_class(other):
        _by_method(vm, op, left, right)
        return UNBOUND
    if kind in (list, tuple) and other is kind and op == "+":
        return left + right
    if op == "*" and (
        (kind in (list, tuple) and isinstance(right, int))
        or (other in (list, tuple) and isinstance(left, int))
    ):
        return left * right
    if kind is View or other is View:
        raise RefusedProgramError("an operator with a dict's view")
    return PLAIN[op](concrete(left, sets=True), concrete(right, sets=True))


def _by_method(vm: Machine, op: str, left: Any, right: Any) -> None:
    del vm.frames[-1].stack[-2:]
    name = f"__{METHODS[op]}__"
    method = python_method(type(left), name)
    if method and is_python_class(type(left)):
        if op in COMPARISONS and compared_fields(type(left), name) is not None:
            reflected(vm, op, left, right)  # of another class: NotImplemented
            return
        invoke(vm, method, [left, right], {}, ("operator", op, left, right))
    else:
        reflected(vm, op, left, right)


def reflected(vm: Machine, op: str, left: Any, right: Any) -> None:
    """Ask the right side, where the left one has no method or gave NotImplemented."""
    name = f"__{_MIRROR[op]}__" if op in _MIRROR else f"__r{METHODS[op]}__"
    method = python_method(type(right), name)
    written = method and compared_fields(type(right), name) is not None
    if method and is_python_class(type(right)) and not written:
        invoke(vm, method, [right, left], {}, ("push",))
    elif op in {"==", "!="}:
        vm.deliver(("push",), (left is right) == (op == "=="))
    else:
        raise TypeError(f"unsupported operand type(s) for {op}")


def inplace(vm: Machine, op: str, left: Any, right: Any) -> Any:
    """The value of ``left op= right``, as `binary`."""
    kind = type(left)
    if kind in ATOMS or kind is Lazy:
        return binary(vm, op, left, right)
    if kind in (list, set, dict):
        vm.check_own(left, f"{op}=")
        if kind is list and op == "+":
            if type(right) not in (*_WITH_ITEMS, range):
                raise RefusedProgramError("list += an iterator: make it a list first")
            refuse_large_operator(op, left, right)
            left.extend([vm.store_value(v) for v in right])
            return left
        change = _INPLACE.get((op, kind))
        if change is None or type(right) is not kind:
            raise RefusedProgramError(f"{op}= of a {kind.__name__}")
        return change(left, right)
    if python_method(kind, f"__i{METHODS[op]}__"):
        raise RefusedProgramError(f"{kind.__name__}.__i{METHODS[op]}__")
    return binary(vm, op, left, right)


def unary(vm: Machine, op: str, value: Any) -> Any:
    """A sign or ~ of a value, as `binary`."""
    if type(value) is Lazy:
        if op == "neg":
            return value.with_step("*", -1)
        return value if op == "pos" else lazies.binary("-", -1, value)
    if not is_python_class(type(value)):
        return _UNARY[op](concrete(value))
    method = python_method(type(value), f"__{op}__")
    if not method:
        raise TypeError(f"bad operand type for unary {op}")
    vm.frames[-1].stack.pop()
    invoke(vm, method, [value], {}, ("push",))
    return UNBOUND


def compare(vm: Machine, op: str, left: Any, right: Any) -> Any:
    """The value of a comparison, of `is` and of `in`, as `binary`."""
    kind, other = type(left), type(right)
    if op in COMPARISONS:
        if kind in ATOMS and other in ATOMS:
            return COMPARISONS[op](left, right)
        if kind is Lazy or other is Lazy:
            return lazies.compare(op, left, right)
        if is_python_class(kind) or is_python_class(other):
            answer = _compare_fields(op, left, right)
            if answer is UNBOUND:
                _compare_by_method(vm, op, left, right)
            return answer
        if isinstance(left, _FUNCTIONS) or isinstance(right, _FUNCTIONS):
            if op in {"==", "!="}:
                return (left is right) == (op == "==")
            raise TypeError(f"'{op}' not supported")
        if kind is View or other is View:
            raise RefusedProgramError("a dict's view is compared")
        return COMPARISONS[op](concrete(left, sets=True), concrete(right, sets=True))
    if op in {"is", "is not"}:
        return _identical(left, right) == (op == "is")
    answer = _contains(left, right)
    if answer is not UNBOUND:
        return answer == (op == "in")
    del vm.frames[-1].stack[-2:]
    method = python_method(other, "__contains__")
    invoke(vm, method, [right, left], {}, ("push",) if op == "in" else ("not",))
    return UNBOUND


def _compare_fields(op: str, left: Any, right: Any) -> Any:
    """The result of a comparison that `dataclass` wrote, of the fields' tuples; or UNBOUND."""
    kind = type(left)
    if type(right) is not kind or not is_python_class(kind):
        return UNBOUND
    by_default = op == "!=" and not python_method(kind, "__ne__")
    fields = compared_fields(kind, "__eq__" if by_default else f"__{METHODS[op]}__")
    if fields is None:
        return UNBOUND
    sides = [concrete(tuple([getattr(x, name) for name in fields])) for x in (left, right)]
    if any(value != value for side in sides for value in side):
        raise RefusedProgramError("comparison of dataclass objects that hold NaN")
    return COMPARISONS[op](*sides)


def _compare_by_method(vm: Machine, op: str, left: Any, right: Any) -> None:
    kind = type(left)
    if op == "!=" and not python_method(kind, "__ne__") and is_python_class(kind):
        method = python_method(kind, "__eq__")
        if method:
            if compared_fields(kind, "__eq__") is not None:
                raise RefusedProgramError("!= of a dataclass object and another: use not and ==")
            del vm.frames[-1].stack[-2:]
            invoke(vm, method, [left, right], {}, ("not",))
            return
    _by_method(vm, op, left, right)


def _identical(left: Any, right: Any) -> bool:
    for one, other in ((left, right), (right, left)):
        if one is None or one is ... or one is NotImplemented or isinstance(one, bool):
            return type(other) is not Lazy and one is other
    if isinstance(left, Lazy) or isinstance(right, Lazy):
        if not (is_number(left) and is_number(right)):
            return False
        raise RefusedProgramError("'is' with a coin: use ==")
    if type(left) in ATOMS or type(right) in ATOMS or isinstance(left, tuple):
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


def _contains(item: Any, container: Any) -> Any:
    kind = type(container)
    if kind in (dict, set, frozenset):
        return key(item) in container
    if kind in (list, tuple, str, bytes, range, View) or is_named_tuple(kind):
        item = concrete(item)
        if kind is range:
            refuse_large_method(container, "in", [item])
        return item in concrete(container)
    if python_method(kind, "__contains__"):
        return UNBOUND
    raise RefusedProgramError(f"'in' with a {kind.__name__}")


def load_item(vm: Machine, frame: Frame, _: Any) -> None:
    """The item of a container, with an index on top, in their place."""
    container, index = frame.stack[-2], frame.stack[-1]
    kind = type(container)
    if kind in SEQUENCES or is_named_tuple(kind):
        value = container[concrete(index)]
    elif kind is dict:
        value = container[key(index)]
    elif kind is LazyBytes:
        where = concrete(index)
        value = container.item(where) if type(where) is int else container.data()[where]
    elif isinstance(container, type):
        value = container  # a generic type's parameters mean nothing when it runs
    else:
        _item_method(vm, frame, "__getitem__", 2, "an item of a {}", ("push",))
        return
    frame.stack[-2:] = [value]


def _item_method(
    vm: Machine, frame: Frame, name: str, count: int, refusal: str, mode: tuple[str]
) -> None:
    """Call a method of the program's for an item, with the `count` values on top."""
    *value, container, index = frame.stack[-count:]
    method = python_method(type(container), name)
    if not method:
        raise RefusedProgramError(refusal.format(type(container).__name__))
    del frame.stack[-count:]
    invoke(vm, method, [container, index, *value], {}, mode)


def store_item(vm: Machine, frame: Frame, _: Any) -> None:
    """Assign an item: the value, the container and the index are on top."""
    value, container, index = frame.stack[-3:]
    if type(container) not in (list, dict):
        _item_method(vm, frame, "__setitem__", 3, "an item of a {} is assigned", ("drop",))
        return
    vm.check_own(container, "an item's assignment")
    where = key(index)
    if type(where) is slice and type(value) not in (list, tuple):
        raise RefusedProgramError("a slice is assigned something other than a list")
    container[where] = vm.store_value(value)
    del frame.stack[-3:]


def delete_item(vm: Machine, frame: Frame, _: Any) -> None:
    """Delete an item: the container and the index are on top."""
    container, index = frame.stack[-2:]
    if type(container) not in (list, dict):
        raise RefusedProgramError(f"an item of a {type(container).__name__} is deleted")
    vm.check_own(container, "del")
    del container[key(index)]
    del frame.stack[-2:]
