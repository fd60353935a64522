"""How a third-party function is called: as its user says, or as its parameters tell.

It is one call of ``f``, e.g. ``f(value, epsilon=1.0)`` or ``f(2.0) -> double``. The text is read
as a syntax tree and never evaluated: its arguments are the names below, and literals.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Self

import numpy as np

from dpaudit.errors import UsageError
from dpaudit.results.text import one_line

__all__ = ["BOTH", "Argument", "Call", "Cast", "Constant", "c_hint", "python_call"]

GRAMMAR = (
    "write one call of f, e.g. 'f()', 'f(value)', 'f(n)', 'f(size=(n, d))', 'f(n, d)', "
    "'f(value, n)', with constants as 'f(value, epsilon=1.0)'; for library: 'f(1.0) -> double'"
)
C_TYPES = ("double", "float", "int", "long")
_WHOLE = ("int", "long")
_SLOTS = ("n", "d", "value", "dataset", "size", "out", "m")
_SAME = {"size": "n", "dataset": "value"}
BOTH = "(n, d)"
# names of parameters that are passed even if they have a default
_NOISE_NAMES = {"n": "n", "d": "d", "size": BOTH, "value": "value"}
_RELEASE_NAMES = {"value": "value", "n": "n", "size": "n"}
# parameters that say what the noise is, never how much of it
_NOT_COUNTS = frozenset(
    {"scale", "sigma", "std", "stddev", "sd", "beta", "epsilon", "eps", "delta", "sensitivity"}
    | {"loc", "mu", "mean", "var", "variance", "rate", "lam", "lambd", "lower", "upper"}
    | {"rng", "generator", "seed"}
)


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
        parts = [_shown(argument) for argument in self.arguments]
        parts += [f"{name}={_shown(argument)}" for name, argument in self.named]
        return f"f({', '.join(parts)})" + (f" -> {self.returns}" if self.returns else "")

    @property
    def slots(self) -> frozenset[str]:
        """The names of what changes from call to call; ``(n, d)`` is both of its names."""
        names: set[str] = set()
        for argument in self._all:
            name = argument.number if isinstance(argument, Cast) else argument
            if not isinstance(name, Constant):
                names |= {"n", "d"} if name == BOTH else {name}
        return frozenset(names)

    @property
    def any_value(self) -> bool:
        """Whether the function is told the value, and it need not be a whole number."""
        whole = any(isinstance(a, Cast) and a.kind in _WHOLE for a in self._all)
        return "value" in self.slots and not whole

    @property
    def _all(self) -> tuple[Argument, ...]:
        return (*self.arguments, *(argument for _, argument in self.named))

    def bound(self, function: Callable[..., Any], **values: Any) -> Callable[[], Any]:
        """``function`` with these arguments, to be called with none."""

        def filled(argument: Argument) -> Any:
            if isinstance(argument, Constant):
                return argument.value
            if isinstance(argument, Cast):
                return _cast(filled(argument.number), argument.kind)
            return (values["n"], values["d"]) if argument == BOTH else values[argument]

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


def python_call(
    function: Callable[..., Any],
    text: str | None,
    *,
    name: str,
    releases: bool,
    dataset: bool = False,
) -> Call:
    """How to call a Python function: as ``text`` says, or by its parameters where they tell.

    ``releases`` is for a mechanism, which is told a value. By its parameters, noise is ``f()``,
    ``f(n)``, ``f(size=(n, d))``, ``f(n, d)`` or any of them with ``value``; releases are
    ``f(value)`` or ``f(value, n)``. Parameters with a default are left to it, unless they have one
    of these names. Two parameters of other names are ``(n, d)`` or ``(value, n)``. Where the value
    is a ``dataset``, it may be called ``d`` too.

    Raises:
        UsageError: ``text`` does not fit the function, or there is none and its parameters do not
            tell.
    """
    signature = _signature(function)
    if text is None:
        if signature is None:
            return _compiled(function, releases=releases)
        known: Mapping[str, inspect.Parameter] = signature.parameters
        if dataset and next(iter(known), "") == "d":
            known = {"value" if key == "d" else key: p for key, p in known.items()}
        inferred = _inferred(known, releases=releases)
        if inferred is None:
            raise _unclear(name, signature, releases, dataset)
        return inferred
    call = Call.parse(text)
    wrong = call.slots & ({"d", "out", "m"} if releases else {"out", "m"})
    rule = ""
    if wrong or call.returns:
        part = f"-> {call.returns}" if call.returns else ", ".join(sorted(wrong))
        rule = f"{part} does not apply to {name}"
    elif releases and "value" not in call.slots:
        rule = f"the mechanism {name} must be told the value"
    if rule:
        raise UsageError(f"call={call}: {rule}; {GRAMMAR}")
    if signature is not None:
        try:
            signature.bind(*call.arguments, **{key: None for key, _ in call.named})
        except TypeError as error:
            raise UsageError(
                f"call={call}: {name} has the parameters {one_line(signature, limit=200)} "
                f"({one_line(error)}); {GRAMMAR}"
            ) from None
    return call


def _unclear(name: str, signature: inspect.Signature, releases: bool, dataset: bool) -> UsageError:
    form = one_line(signature, limit=200)
    guess = _guess(signature.parameters, releases)
    if dataset and "value" not in guess:
        return UsageError(
            f"mechanism={name}: its parameters {form} take no data set; write f(dataset) or "
            "f(dataset, n)"
        )
    if releases and "value" not in guess:
        return UsageError(
            f"mechanism={name}: its parameters {form} take no value of a query; write "
            "f(value, n) or f(value), or audit the noise alone with dpaudit audit"
        )
    role = "mechanism" if releases else "sampler"
    return UsageError(
        f"{role}={name}: its parameters {form} do not tell how to call it; say it with "
        f"--call, e.g. --call '{guess}' (n, d and value are filled in, other names get a constant)"
    )


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _compiled(function: Callable[..., Any], *, releases: bool) -> Call:
    """The call of a function without a signature; numpy's docstrings begin with one."""
    if releases:
        return Call(("value", "n"))
    first = (getattr(function, "__doc__", None) or "").lstrip().split("\n")[0]
    return Call(named=(("size", BOTH),)) if "size=None" in first else Call(("n", "d"))


def _inferred(parameters: Mapping[str, inspect.Parameter], *, releases: bool) -> Call | None:
    """The one call that the parameters allow; None if they do not tell."""
    plain = {k: p for k, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    required = _required(parameters)
    anything = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    slots = _release_slots(required, anything) if releases else _noise_slots(required, anything)
    if slots is None:
        return None
    used = set(slots.values())
    for name, slot in (_RELEASE_NAMES if releases else _NOISE_NAMES).items():
        parts = {"n", "d"} if slot == BOTH else {slot}
        mine = plain.get(name)
        if mine is None or mine.kind is mine.POSITIONAL_ONLY or name in slots or parts & used:
            continue
        slots[name] = slot
        used |= parts
    if releases and "value" not in used:
        return None
    named = {k for k in slots if k in plain and not _positional(plain[k], k in required)}
    if required == ["size"] and plain["size"].kind is not inspect.Parameter.POSITIONAL_ONLY:
        named.add("size")
    return Call(
        tuple(slot for k, slot in slots.items() if k not in named),
        tuple((k, slot) for k, slot in slots.items() if k in named),
    )


def _required(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Names of the parameters without a default."""
    return [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]


def _positional(parameter: inspect.Parameter, required: bool) -> bool:
    return required and parameter.kind is not parameter.KEYWORD_ONLY


def _noise_slots(required: Sequence[str], anything: bool) -> dict[str, str] | None:
    others = [name for name in required if name != "value"]
    value = {"value": "value"} if "value" in required else {}
    if anything and not value and len(others) < 2 and not _NOT_COUNTS & set(others):
        return {(others or ["0"])[0]: "n", "1": "d"}  # f(*args), f(rows, *more)
    if set(others) <= {"n", "d", "size"}:
        if "size" in others and len(others) > 1:
            return None
        return {name: BOTH if name == "size" else name for name in required}
    if _NOT_COUNTS & set(others) or "size" in others:
        return None
    if len(others) == 2:
        n, d = reversed(others) if others[1] == "n" or others[0] == "d" else others
        slots = {n: "n", d: "d", **value}
        return {name: slots[name] for name in required}
    return None


def _release_slots(required: Sequence[str], anything: bool) -> dict[str, str] | None:
    if _NOT_COUNTS & set(required) or "d" in required or len(required) > 2:
        return None
    if anything and len(required) < 2:  # f(*args), f(value, *more)
        return {(list(required) or ["0"])[0]: "value", "1": "n"}
    if not required:
        return {}
    counts = [name for name in required if name in ("n", "size")]
    values = [name for name in required if name not in counts]
    if len(required) == 2 and not counts:
        return {required[0]: "value", required[1]: "n"}
    if len(values) != 1:
        return None
    return {name: "n" if name in counts else "value" for name in required}


def _guess(parameters: Mapping[str, inspect.Parameter], releases: bool) -> str:
    """A call to adapt, for a message: constants for parameters that no name fits."""
    arguments, value = list[str](), releases and "value" not in parameters
    for name in _required(parameters):
        if name in ("n", "value") or (name == "d" and not releases):
            arguments.append(name)
        elif name == "size":
            arguments.append("size=n")
        elif value and name != "d" and name not in _NOT_COUNTS:
            arguments, value = [*arguments, "value"], False
        else:
            arguments.append(f"{name}=1.0")
    positional = [word for word in arguments if "=" not in word]
    return f"f({', '.join([*positional, *(word for word in arguments if '=' in word)])})"
