# ruff: noqa: ARG001, ARG005 (functions of one signature)
"""The effect of each instruction on the machine; their meaning is that of Python's statements.

An instruction that needs a coin to be decided raises NeedSplit before it changes anything.
"""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.attributes import attribute
from dpaudit_prove.interpreter.calls import invoke, settle
from dpaudit_prove.interpreter.code import Code
from dpaudit_prove.interpreter.lazy import LazyBytes, NeedSplit
from dpaudit_prove.interpreter.machine import Machine
from dpaudit_prove.interpreter.natives import refuse_large_call, refuse_large_method
from dpaudit_prove.interpreter.objects import (
    SEQUENCES,
    advance,
    class_attribute,
    concrete,
    is_named_tuple,
    is_plain_exception,
    is_python_class,
    iterator_of,
    key,
    python_method,
    truth,
)
from dpaudit_prove.interpreter.operators import (
    binary,
    compare,
    delete_item,
    inplace,
    load_item,
    reflected,
    store_item,
    unary,
)
from dpaudit_prove.interpreter.values import (
    UNBOUND,
    Call,
    Cell,
    Closure,
    Frame,
    Generator,
    SequenceIterator,
    Super,
    Token,
    View,
)

__all__ = ["INSTRUCTIONS"]

Instruction = Callable[[Machine, Frame, Any], Any]
_CONVERSIONS: dict[int, Callable[[Any], str]] = {115: str, 114: repr, 97: ascii}


def _load_fast(vm: Machine, frame: Frame, arg: int) -> None:
    value = frame.locals[arg]
    if value is UNBOUND:
        raise UnboundLocalError(f"cannot access local variable '{frame.code.slots[arg]}'")
    frame.stack.append(value)


def _store_fast(vm: Machine, frame: Frame, arg: int) -> None:
    frame.locals[arg] = frame.stack.pop()


def _del_fast(vm: Machine, frame: Frame, arg: int) -> None:
    if frame.locals[arg] is UNBOUND:
        raise UnboundLocalError(f"cannot access local variable '{frame.code.slots[arg]}'")
    frame.locals[arg] = UNBOUND


def _load_cell(vm: Machine, frame: Frame, arg: int) -> None:
    cell = frame.cells[arg]
    if isinstance(cell, Cell):
        value = cell.value
    else:
        try:
            value = vm.adopt_value(cell.cell_contents)
        except ValueError:
            value = UNBOUND
    if value is UNBOUND:
        raise NameError(f"cannot access free variable '{frame.code.cells[arg]}'")
    frame.stack.append(value)


def _store_cell(vm: Machine, frame: Frame, arg: int) -> None:
    cell = frame.cells[arg]
    if not isinstance(cell, Cell):
        raise RefusedProgramError(
            f"the closure variable {frame.code.cells[arg]} outlives the call and is changed: the "
            "law of one call would depend on earlier calls"
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
    frame.stack.append(vm.adopt_value(value))


def _build(vm: Machine, frame: Frame, arg: tuple[str, int]) -> None:
    kind, count = arg
    s = frame.stack
    items = s[len(s) - count :]
    container: Any
    if kind == "list":
        container = [vm.store_value(v) for v in items]
    elif kind == "tuple":
        container = tuple(items)
    elif kind == "set":
        container = {key(v) for v in items}
    else:
        container = {}
    del s[len(s) - count :]
    s.append(container)


def _add_to(convert: Callable[[Machine, Any], Any], method: str) -> Instruction:
    """The instruction that puts the value on top into a container at some depth."""

    def run(vm: Machine, frame: Frame, depth: int) -> None:
        value = convert(vm, frame.stack[-1])
        frame.stack.pop()
        getattr(frame.stack[-(depth - 1)], method)(value)

    return run


def _map_add(vm: Machine, frame: Frame, depth: int) -> None:
    name, value = key(frame.stack[-2]), frame.stack[-1]
    del frame.stack[-2:]
    frame.stack[-(depth - 2)][name] = value


def _jump(vm: Machine, frame: Frame, target: int) -> None:
    frame.pc = target


def _jump_if(condition: bool, *, keeps: bool = False) -> Instruction:
    """The instruction that jumps if the value on top, which it takes off, has this truth.

    With `keeps` the value stays where it jumps.
    """

    def run(vm: Machine, frame: Frame, target: int) -> None:
        answer = truth(frame.stack[-1]) if keeps else _pop_truth(vm, frame)
        if answer is condition:
            frame.pc = target
        elif keeps:
            frame.stack.pop()

    return run


def _build_slice(vm: Machine, frame: Frame, arg: Any) -> None:
    parts = [concrete(v) for v in frame.stack[-3:]]
    del frame.stack[-3:]
    frame.stack.append(slice(*parts))


def _call(vm: Machine, frame: Frame, arg: tuple[int, tuple[str, ...]]) -> None:
    count, names = arg
    s = frame.stack
    begin = len(s) - count - len(names)
    kwargs = dict(zip(names, s[begin + count :], strict=True)) if names else {}
    _call_top(vm, frame, begin - 1, s[begin : begin + count], kwargs)


def _call_ex(vm: Machine, frame: Frame, arg: Any) -> None:
    _, args, kwargs = frame.stack[-3:]
    _call_top(vm, frame, len(frame.stack) - 3, list(args), dict(kwargs))


def _call_top(
    vm: Machine, frame: Frame, begin: int, args: list[Any], kwargs: dict[str, Any]
) -> None:
    """Call the function at a place of the stack; all stays where it is if a coin is needed."""
    s = frame.stack
    operands = s[begin:]
    del s[begin:]
    try:
        invoke(vm, operands[0], args, kwargs, ("push",))
    except NeedSplit:
        s.extend(operands)
        raise


def _yield(vm: Machine, frame: Frame, arg: Any) -> None:
    value = frame.stack.pop()
    if frame.blocks:
        raise RefusedProgramError("yield inside try or with: Python may leave it at any time")
    frame.generator = None
    vm.frames.pop()
    frame.mode = ("push",)
    vm.frames[-1].stack.append(value)


def _make_function(vm: Machine, frame: Frame, arg: tuple[Code, int, tuple[str, ...], Any]) -> None:
    code, defaults, keywords, captured = arg
    s = frame.stack
    named = dict(zip(keywords, s[len(s) - len(keywords) :], strict=True)) if keywords else {}
    del s[len(s) - len(keywords) :]
    values = tuple(s[len(s) - defaults :]) if defaults else ()
    del s[len(s) - defaults :]
    cells = [frame.cells[i] for i in captured]
    s.append(Closure(code, frame.names, values, named, cells))


def _raise(vm: Machine, frame: Frame, arg: Any) -> None:
    error = frame.stack.pop()
    if isinstance(error, type) and issubclass(error, BaseException):
        if not is_plain_exception(error):
            raise RefusedProgramError(f"{error.__name__} with an __init__ in Python")
        error = error()
    if not isinstance(error, Exception):
        raise RefusedProgramError(f"raise of a {type(error).__name__}")
    vm.unwind(error)


def _exc_match(vm: Machine, frame: Frame, arg: Any) -> None:
    kinds = frame.stack.pop()
    frame.stack[-1] = isinstance(frame.stack[-1], kinds)


def _format(vm: Machine, frame: Frame, conversion: int) -> None:
    value, spec = concrete(frame.stack[-2]), frame.stack[-1]
    if conversion != -1:
        value = _CONVERSIONS[conversion](value)
    spec = concrete(spec)
    refuse_large_call(format, [value, spec])
    text = format(value, spec)
    frame.stack.pop()
    frame.stack[-1] = text


def _build_string(vm: Machine, frame: Frame, count: int) -> None:
    s = frame.stack
    parts = s[len(s) - count :]
    refuse_large_method("", "join", [parts])
    s[len(s) - count :] = ["".join(parts)]


def _import(vm: Machine, frame: Frame, arg: tuple[str, bool]) -> None:
    name, whole = arg
    module = importlib.import_module(name)
    top = importlib.import_module(name.partition(".")[0])
    frame.stack.append(vm.adopt_value(top if whole else module))


def _import_from(vm: Machine, frame: Frame, arg: tuple[int, str | None, str]) -> None:
    level, module, name = arg
    package = frame.names.get("__package__") or frame.names.get("__name__", "").rpartition(".")[0]
    source = importlib.import_module("." * level + (module or ""), package if level else None)
    try:
        value = getattr(source, name)
    except AttributeError:
        value = importlib.import_module(f"{source.__name__}.{name}")
    frame.stack.append(vm.adopt_value(value))


def _finish(vm: Machine, frame: Frame, arg: Any) -> None:
    value = frame.stack[-1]
    if vm.hiding and isinstance(value, (list, tuple)):
        frame.stack[-1] = tuple(v if type(v) is Token else concrete(v) for v in value)
    else:
        frame.stack[-1] = concrete(value)


def _list_of(vm: Machine, frame: Frame, arg: Any) -> None:
    value = frame.stack[-1]
    if type(value) in (list, tuple, View, range, str):
        refuse_large_call(list, [value])
        frame.stack[-1] = value.current_items() if type(value) is View else list(value)
        return
    frame.stack.pop()
    invoke(vm, prelude.list_, [value], {}, ("push",))


def _dict_update(vm: Machine, frame: Frame, arg: Any) -> None:
    items = frame.stack.pop()
    if type(items) is not dict:
        raise RefusedProgramError("** of something other than a dict")
    frame.stack[-1].update(items)


def _operate(operate: Callable[[Machine, str, Any, Any], Any]) -> Instruction:
    """The instruction of an operator on the two values on top."""

    def run(vm: Machine, frame: Frame, op: str) -> None:
        stack = frame.stack
        value = operate(vm, op, stack[-2], stack[-1])
        if value is not UNBOUND:
            stack.pop()
            stack[-1] = value

    return run


def _unary(vm: Machine, frame: Frame, op: str) -> None:
    value = frame.stack[-1]
    result = not truth(value) if op == "not" else unary(vm, op, value)
    if result is not UNBOUND:
        frame.stack[-1] = result


def _pop_truth(vm: Machine, frame: Frame) -> bool | None:
    """The truth of the value on top, which is taken off; None if a method is asked first."""
    value = frame.stack[-1]
    if value is not True and value is not False:
        if is_python_class(type(value)):
            method = python_method(type(value), "__bool__") or python_method(type(value), "__len__")
            if method:
                frame.stack.pop()
                frame.pc -= 1
                invoke(vm, method, [value], {}, ("push",))
                return None
        value = truth(value)
    frame.stack.pop()
    return bool(value)


def _load_attr(vm: Machine, frame: Frame, name: str) -> None:
    value = attribute(vm, frame.stack[-1], name)
    if type(value) is Call:
        frame.stack.pop()
        settle(vm, value, ("push",))
    else:
        frame.stack[-1] = value


def _store_attr(vm: Machine, frame: Frame, name: str) -> None:
    owner, value = frame.stack[-1], frame.stack[-2]
    vm.check_own(owner, f"{name} = …")
    kind = type(owner)
    if not is_python_class(kind) and not isinstance(owner, BaseException):
        raise RefusedProgramError(f"an attribute of a {kind.__name__} is set")
    del frame.stack[-2:]
    member = class_attribute(kind, name)
    if isinstance(member, property):
        if member.fset is None:
            raise AttributeError(f"property '{name}' of '{kind.__name__}' object has no setter")
        invoke(vm, member.fset, [owner, value], {}, ("drop",))
        return
    if python_method(kind, "__setattr__"):
        raise RefusedProgramError(f"{kind.__name__}.__setattr__ (a frozen object is changed?)")
    object.__setattr__(owner, name, value)


def _return(vm: Machine, frame: Frame, arg: Any) -> None:
    value = frame.stack[-1]
    if vm.hiding == "returned" and len(vm.frames) == 3 and frame.generator is None:
        value = vm.hide(value)
    frame.stack.pop()
    vm.frames.pop()
    mode = frame.mode
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
    elif mode[0] == "init" and value is not None:
        raise TypeError("__init__() should return None")
    elif mode[0] == "operator" and value is NotImplemented:
        reflected(vm, *mode[1:])
    else:
        vm.deliver(mode, value)


def _get_iter(vm: Machine, frame: Frame, arg: Any) -> None:
    iterator = iterator_of(frame.stack[-1])
    frame.stack.pop()
    settle(vm, iterator, ("push",))


def _for_iter(vm: Machine, frame: Frame, target: int) -> None:
    iterator = frame.stack[-1]
    value: Any = UNBOUND
    if type(iterator) is SequenceIterator:
        value = advance(iterator)
    elif type(iterator) is not Generator:
        raise RefusedProgramError(f"iteration with {type(iterator).__name__}.__next__")
    elif iterator.frame is not None:
        vm.resume_generator(iterator, ("for", target))
        return
    if value is UNBOUND:
        frame.stack.pop()
        frame.pc = target
    else:
        frame.stack.append(value)


def _unpack(vm: Machine, frame: Frame, count: int) -> None:
    value = frame.stack[-1]
    kind = type(value)
    if kind is View:
        items = value.current_items()
    elif kind is LazyBytes:
        items = [value.item(i) for i in range(value.length)]
    elif kind in SEQUENCES or is_named_tuple(kind):
        refuse_large_call(list, [value])
        items = list(value)
    else:
        frame.stack.pop()
        frame.pc -= 1
        invoke(vm, prelude.tuple_, [value], {}, ("push",))
        return
    if len(items) != count:
        few = "not enough" if len(items) < count else "too many"
        raise ValueError(f"{few} values to unpack (expected {count})")
    frame.stack.pop()
    frame.stack.extend(reversed(items))


def _unpack_ex(vm: Machine, frame: Frame, arg: tuple[int, int]) -> None:
    before, after = arg
    value = frame.stack[-1]
    refuse_large_call(list, [value])
    items = list(value if type(value) is list else concrete(value))
    if len(items) < before + after:
        raise ValueError("not enough values to unpack")
    middle = items[before : len(items) - after]
    frame.stack.pop()
    frame.stack.extend(reversed([*items[:before], middle, *items[len(items) - after :]]))


def _rotate(frame: Frame, count: int) -> None:
    """The value on top goes below the others of the first `count`."""
    frame.stack.insert(-count, frame.stack.pop())


def _convert(frame: Frame, kind: str) -> None:
    items = frame.stack[-1]
    frame.stack[-1] = tuple(items) if kind == "tuple" else {key(v) for v in items}


def _refuse(why: str) -> None:
    raise RefusedProgramError(why)


INSTRUCTIONS: dict[str, Instruction] = {
    "LOAD_CONST": lambda vm, frame, value: frame.stack.append(value),
    "LOAD_FAST": _load_fast,
    "STORE_FAST": _store_fast,
    "DEL_FAST": _del_fast,
    "LOAD_CELL": _load_cell,
    "STORE_CELL": _store_cell,
    "LOAD_GLOBAL": _load_global,
    "STORE_GLOBAL": lambda vm, frame, name: _refuse(
        f"the global variable {name} is changed: the law of one call would depend on earlier "
        "calls"
    ),
    "POP": lambda vm, frame, arg: frame.stack.pop(),
    "DUP": lambda vm, frame, arg: frame.stack.append(frame.stack[-1]),
    "ROT2": lambda vm, frame, arg: _rotate(frame, 1),
    "ROT3": lambda vm, frame, arg: _rotate(frame, 2),
    "BUILD": _build,
    "CONVERT": lambda vm, frame, kind: _convert(frame, kind),
    "LIST_APPEND": _add_to(Machine.store_value, "append"),
    "SET_ADD": _add_to(lambda vm, v: key(v), "add"),
    "MAP_ADD": _map_add, "LIST_OF": _list_of,
    "LIST_EXTEND": lambda vm, frame, arg: frame.stack[-2].extend(frame.stack.pop()),
    "DICT_UPDATE": _dict_update,
    "BINARY": _operate(binary), "INPLACE": _operate(inplace), "COMPARE": _operate(compare),
    "UNARY": _unary,
    "JUMP": _jump,
    "JIF": _jump_if(False), "JIT": _jump_if(True),
    "JIF_KEEP": _jump_if(False, keeps=True), "JIT_KEEP": _jump_if(True, keeps=True),
    "LOAD_ATTR": _load_attr, "STORE_ATTR": _store_attr,
    "LOAD_SUB": load_item, "STORE_SUB": store_item, "DEL_SUB": delete_item,
    "BUILD_SLICE": _build_slice, "CALL": _call, "CALL_EX": _call_ex, "RETURN": _return,
    "YIELD": _yield, "GET_ITER": _get_iter, "FOR_ITER": _for_iter, "UNPACK": _unpack,
    "UNPACK_EX": _unpack_ex, "MAKE_FUNCTION": _make_function,
    "SETUP": lambda vm, frame, target: frame.blocks.append((target, len(frame.stack))),
    "POP_BLOCK": lambda vm, frame, arg: frame.blocks.pop(),
    "RAISE": _raise, "EXC_MATCH": _exc_match,
    "EXC_TYPE": lambda vm, frame, arg: frame.stack.append(type(frame.stack.pop())),
    "FORMAT": _format, "BUILD_STRING": _build_string, "IMPORT": _import,
    "IMPORT_FROM": _import_from,
    "SUPER": lambda vm, frame, arg: frame.stack.append(
        Super(owner=frame.stack.pop(), cls=frame.stack.pop())
    ),
    "FINISH": _finish, "REFUSE": lambda vm, frame, why: _refuse(why),
}  # fmt: skip
