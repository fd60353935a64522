"""Puts a call's arguments into variables, as Python does."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable
from typing import Any

from dpaudit_prove.interpreter.code import Code
from dpaudit_prove.interpreter.values import UNBOUND, Frame

__all__ = ["bind", "fill_dataclass"]


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


def bind(
    frame: Frame,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    defaults: tuple[Any, ...],
    keyword_defaults: dict[str, Any],
    name: str,
) -> None:
    """Fill a new frame's parameters.

    Raises:
        TypeError: the arguments do not fit, as in Python.
    """
    layout = _LAYOUTS.get(frame.code)
    if layout is None:
        layout = _LAYOUTS[frame.code] = _Layout(frame.code.parameters)
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


def fill_dataclass(
    made: Any, args: list[Any], kwargs: dict[str, Any], *, outside: Callable[[Any], Any]
) -> None:
    """What the __init__ that `dataclass` writes does, before __post_init__.

    Raises:
        TypeError: the arguments do not fit, as in Python.
    """
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
            value = outside(field.default)
        elif field.default_factory in (list, dict, set, tuple):
            value = field.default_factory()
        else:
            raise TypeError(f"{type(made).__name__}() misses the argument {field.name}")
        object.__setattr__(made, field.name, value)
