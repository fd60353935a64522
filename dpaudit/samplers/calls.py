"""How a third-party function is called, as its user says.

It is one call of ``f``, e.g. ``f(value, epsilon=1.0)`` or ``f(2.0) -> double``. The text is read
as a syntax tree and never evaluated: its arguments are the names below, and literals.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Self

import numpy as np

from dpaudit.errors import UsageError
from dpaudit.results.text import one_line

__all__ = [
    "BOTH",
    "C_TYPES",
    "GRAMMAR",
    "Argument",
    "Call",
    "Cast",
    "Constant",
    "c_hint",
]

GRAMMAR = (
    "write one call of f, e.g. 'f()', 'f(value)', 'f(n)', 'f(size=(n, d))', 'f(n, d)', "
    "'f(value, n)', with constants as 'f(value, epsilon=1.0)'; for library: 'f(1.0) -> double'"
)
C_TYPES = ("double", "float", "int", "long")
_WHOLE = ("int", "long")
_SLOTS = ("n", "d", "value", "dataset", "size", "out", "m")
_SAME = {"size": "n", "dataset": "value"}
BOTH = "(n, d)"


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: the same in every call."""

    value: Any


@dataclass(frozen=True, slots=True)
class Cast:
    """``long(value)``: a number that is passed as another type than float."""

    kind: str
    number: str | Constant


Argument = str | Constant | Cast
"""The name of what changes from call to call, a constant, or one of them cast to a C type."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: ``arguments`` by position and ``named`` ones; ``returns`` is a C type, or ''.

    An argument is a :class:`Constant`, a :class:`Cast`, or one of ``n`` (how many: vectors, or
    values or releases if there is no ``d``), ``d`` (values per vector), ``(n, d)``, ``value`` (the
    query result, or ``dataset``) and, of C functions, ``out`` (where n or n·d doubles are written)
    and ``m`` (numbers in ``value``).
    """

    arguments: tuple[Argument, ...] = ()
    named: tuple[tuple[str, Argument], ...] = ()
    returns: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what a user wrote; nothing of it is evaluated.

        >>> str(Call.parse("f( value,epsilon = .5 )"))
        'f(value, epsilon=0.5)'
        >>> str(Call.parse("f(-1, size=(n, d))")), str(Call.parse("f(long(value)) -> double"))
        ('f(-1, size=(n, d))', 'f(long(value)) -> double')

        Raises:
            UsageError: it is not one call of ``f`` with names that are known and literals.
        """
        body, arrow, returns = text.partition("->")
        if arrow and returns.strip() not in C_TYPES:
            _refuse(text, f"a C function returns {', '.join(C_TYPES)}")
        try:
            tree = ast.parse(body.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            _refuse(text, "not a call")
        if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
            _refuse(text, "not a call")
        if tree.func.id != "f":
            _refuse(text, f"the function is called f here, not {tree.func.id}")
        names = [keyword.arg for keyword in tree.keywords]
        if None in names or len(set(names)) < len(names):
            _refuse(text, "each name is written once")
        return cls(
            tuple(_argument(node, text) for node in tree.args),
            tuple((str(k.arg), _argument(k.value, text)) for k in tree.keywords),
            returns.strip(),
        )

    def __str__(self) -> str:
        words = [_shown(argument) for argument in self.arguments]
        words += [f"{name}={_shown(argument)}" for name, argument in self.named]
        return f"f({', '.join(words)})" + (f" -> {self.returns}" if self.returns else "")

    @property
    def slots(self) -> frozenset[str]:
        """The names of what changes from call to call; ``(n, d)`` is both of its names."""
        found: set[str] = set()
        for argument in self._all:
            name = argument.number if isinstance(argument, Cast) else argument
            if not isinstance(name, Constant):
                found |= {"n", "d"} if name == BOTH else {name}
        return frozenset(found)

    @property
    def any_value(self) -> bool:
        """Whether the function is told the value, and it need not be a whole number."""
        whole = any(isinstance(a, Cast) and a.kind in _WHOLE for a in self._all)
        return "value" in self.slots and not whole

    @property
    def _all(self) -> tuple[Argument, ...]:
        return (*self.arguments, *(argument for _, argument in self.named))

    def bound(self, function: Callable[..., Any], **given: Any) -> Callable[[], Any]:
        """``function`` with these arguments, to be called with none."""

        def filled(argument: Argument) -> Any:
            if isinstance(argument, Constant):
                return argument.value
            if isinstance(argument, Cast):
                return _cast(filled(argument.number), argument.kind)
            return (given["n"], given["d"]) if argument == BOTH else given[argument]

        named = {name: filled(argument) for name, argument in self.named}
        return partial(function, *map(filled, self.arguments), **named)


def _cast(number: Any, kind: str) -> Any:
    """``number``, or an array of numbers, as whole numbers if ``kind`` is a type of these.

    Raises:
        UsageError: a number is not whole.
    """
    if kind not in _WHOLE:
        return number
    broken = [x for x in np.ravel(number).tolist() if x != int(x)]
    if broken:
        raise UsageError(f"value={broken[0]}: {kind}(…) passes whole numbers; choose one")
    return number.astype(np.int64) if isinstance(number, np.ndarray) else int(number)


def _argument(node: ast.expr, text: str) -> Argument:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in C_TYPES:
        inner = [_argument(one, text) for one in node.args]
        if len(inner) != 1 or node.keywords or isinstance(inner[0], Cast):
            _refuse(text, f"{node.func.id}(…) holds one name or number")
        if inner[0] in ("out", BOTH):
            _refuse(text, f"{inner[0]} is no number")
        return Cast(node.func.id, inner[0])
    if isinstance(node, ast.Name):
        if node.id not in _SLOTS:
            _refuse(text, f"{node.id} is none of {', '.join(_SLOTS)}; a constant is a number")
        return _SAME.get(node.id, node.id)
    if isinstance(node, ast.Tuple) and ast.unparse(node) == BOTH:
        return BOTH
    try:
        return Constant(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        _refuse(text, f"{one_line(ast.unparse(node), limit=40)} is neither a name nor a constant")


def _shown(argument: Argument) -> str:
    if isinstance(argument, Cast):
        return f"{argument.kind}({_shown(argument.number)})"
    return repr(argument.value) if isinstance(argument, Constant) else argument


def _refuse(text: str, why: str) -> NoReturn:
    raise UsageError(f"call={one_line(text, limit=200)}: {why}; {GRAMMAR}")


def c_hint(*, releases: bool) -> str:
    """What to try with a C function that the default call does not fit."""
    default, example, parameter = (
        ("const double *value, size_t m, double *out, size_t n", "value", "value")
        if releases
        else ("double *out, size_t n, size_t d", "1.0", "scale")
    )
    return (
        f"if it is not void f({default}), say how to call it, e.g. --call "
        f"'f({example}) -> double' for double f(double {parameter})"
    )
