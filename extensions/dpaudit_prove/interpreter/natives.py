# ruff: noqa: SIM905 (lists of names)
"""Which of Python's own functions, types and methods are functions of their arguments alone.

Calls that would take too long are refused here, since no time limit can interrupt them.
"""

from __future__ import annotations

import bisect
import builtins
import fractions
import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.lazy import MONOTONE_STEPS

__all__ = [
    "GROWING",
    "METHODS",
    "MONOTONE",
    "MUTATORS",
    "PRELUDE",
    "PURE",
    "PURE_TYPES",
    "refuse_large_call",
    "refuse_large_method",
    "refuse_large_operator",
    "why_refused",
]

_BUILTINS = (
    "abs all any ascii bin chr divmod format hash hex len max min oct ord pow repr round sorted sum"
).split()
_OPERATOR = (
    "add sub mul truediv floordiv mod pow lshift rshift and_ or_ xor neg pos invert not_ truth lt "
    "le eq ne gt ge abs index contains getitem concat countOf indexOf"
).split()
_NUMPY = (
    "abs add arctan array_equal ceil cos cosh divide exp exp2 expm1 floor isfinite isinf isnan "
    "log log10 log1p log2 maximum minimum mod multiply negative power rint round sign sin sinh "
    "sqrt square subtract tan tanh trunc isscalar"
).split()

PURE: dict[int, Any] = {
    id(f): f
    for f in [
        *(getattr(builtins, n) for n in _BUILTINS),
        *(getattr(operator, n) for n in _OPERATOR),
        *(f for n, f in vars(math).items() if callable(f) and not n.startswith("_")),
        *(getattr(np, n) for n in _NUMPY),
        int.from_bytes,
        float.fromhex,
        bytes.fromhex,
        dict.fromkeys,
        fractions.Fraction.from_float,
    ]
}
"""Functions that may be called on plain values; their results depend on nothing else."""

PURE_TYPES: frozenset[Any] = frozenset(
    {
        int, float, bool, complex, str, bytes, tuple, list, set, frozenset, dict, range, slice,
        Fraction, np.int64, np.int32, np.uint64, np.float64, np.bool_, np.int8, np.uint8, np.uint32,
        object,
    }
)  # fmt: skip

_PRELUDE = (
    "list tuple set dict any all enumerate zip map filter reversed sum max min sorted"
).split()
PRELUDE: dict[int, Any] = {
    **{id(getattr(builtins, n)): getattr(prelude, f"{n}_") for n in _PRELUDE},
    **{
        id(getattr(module, n)): getattr(prelude, n)
        for module, names in [
            (itertools, "count repeat chain islice accumulate"),
            (functools, "reduce partial"),
            (bisect, "bisect_right bisect_left"),
        ]
        for n in names.split()
    },
}
"""Builtins that have Python code for arguments which the native one cannot take."""

MONOTONE: dict[int, str] = {id(native): name for name, native in MONOTONE_STEPS.items()}
"""Functions of one number that never fall as it rises, by name; a coin stays a coin in them."""

MUTATORS: frozenset[str] = frozenset(
    "append extend pop insert reverse sort clear remove setdefault update add discard popitem "
    "difference_update intersection_update symmetric_difference_update".split()
)

METHODS: dict[type, frozenset[str]] = {
    list: frozenset(
        "append extend pop insert index count reverse sort copy clear remove __getitem__ "
        "__len__ __contains__".split()
    ),
    dict: frozenset(
        "get setdefault pop keys values items update copy clear popitem __getitem__".split()
    ),
    set: frozenset(
        "add discard remove copy clear union intersection difference issubset issuperset "
        "isdisjoint symmetric_difference update difference_update intersection_update".split()
    ),
    frozenset: frozenset(
        "copy union intersection difference issubset issuperset isdisjoint".split()
    ),
    tuple: frozenset("index count __getitem__ __len__".split()),
    str: frozenset(n for n in dir(str) if not n.startswith("_")),
    bytes: frozenset(n for n in dir(bytes) if not n.startswith("_")),
    int: frozenset(n for n in dir(int) if not n.startswith("_")) | {"__index__"},
    bool: frozenset(n for n in dir(int) if not n.startswith("_")),
    float: frozenset(n for n in dir(float) if not n.startswith("_")),
    complex: frozenset({"real", "imag", "conjugate"}),
    range: frozenset({"start", "stop", "step", "index", "count"}),
    slice: frozenset({"start", "stop", "step", "indices"}),
    Fraction: frozenset(n for n in dir(Fraction) if not n.startswith("_")),
}

_REASONS = {
    "time": "the time is not a coin",
    "random": "it has hidden state; pass --coins random to take its draws as perfect coins",
    "numpy.random": "it has hidden state; pass --coins numpy to take its draws as perfect coins",
    "threading": "threads are not deterministic",
    "posix": "the operating system is not a function of the coins",
    "io": "files are not functions of the coins",
    "_io": "files are not functions of the coins",
}
_NAMES = {
    "id": "addresses differ from run to run",
    "hash": "hashes of text differ from run to run",
    "open": "files are not functions of the coins",
    "input": "input is not a function of the coins",
    "print": "it has an effect outside the program",
    "eval": "code made at run time cannot be followed",
    "exec": "code made at run time cannot be followed",
    "compile": "code made at run time cannot be followed",
    "globals": "it hands out every global variable",
    "locals": "it hands out every local variable",
    "vars": "it hands out every attribute",
}

_REWRITES = {
    "collections.Counter": "use a dict: n[x] = n.get(x, 0) + 1",
    "collections.OrderedDict": "use a dict, which keeps its order",
    "collections.defaultdict": "use a dict: d.setdefault(x, [])",
    "collections.deque": "use a list: append(x), pop(), pop(0)",
    "functools.cached_property": "compute it in __init__",
    "heapq.heappop": "keep a list sorted: bisect and insert",
    "heapq.heappush": "keep a list sorted: bisect and insert",
    "itertools.combinations": "use nested loops",
    "itertools.permutations": "use nested loops",
    "itertools.product": "use nested loops",
    "operator.attrgetter": "use a lambda",
    "operator.itemgetter": "use a lambda",
}
"""Replacements of some of Python's own classes and functions."""


def why_refused(thing: Any) -> str:
    """The name of a function, and why it cannot be part of a proof."""
    owner = getattr(thing, "__self__", None)
    module = getattr(thing, "__module__", None) or getattr(type(owner), "__module__", "") or ""
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    name = name or type(thing).__qualname__
    full_name = name if module in {"builtins", ""} else f"{module}.{name}"
    reason = _NAMES.get(name) if module in {"builtins", "_io", "io"} else None
    if reason is None:
        reason = _REASONS.get(module)
    if reason is None and isinstance(owner, np.random.Generator | np.random.RandomState):
        reason = _REASONS["numpy.random"]
    if reason is None and module.startswith("numpy.random"):
        reason = _REASONS["numpy.random"]
    reason = reason or "not known to be a function of its arguments alone"
    rewrite = _REWRITES.get(f"{module.removeprefix('_')}.{name}")
    return f"{full_name}: {reason}" + (f"; {rewrite}" if rewrite else "")


_MOST_BITS = 1 << 22
_MOST_ITEMS = 1 << 24
_MOST_COPIED = 1 << 30
_MOST_FACTORS = 100_000
_MOST_WORK = 1 << 38  # bits times bits
GROWING = frozenset({"*", "**", "<<"})
"""Operators that make long numbers of short ones."""

_OPERATORS: dict[int, str] = {
    id(operator.mul): "*",
    id(operator.pow): "**",
    id(operator.lshift): "<<",
    id(operator.add): "+",
    id(operator.concat): "+",
    id(operator.mod): "%",
    id(pow): "**",
}
_WITH_ITEMS = (str, bytes, list, tuple)
_WIDE = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "to_bytes"})
_NUMBER = re.compile(r"[0-9]+")


def refuse_large_operator(op: str, left: Any, right: Any) -> None:
    """Refuse ``left op right`` if its result has more than 2²² bits, or 2²⁴ items.

    Raises:
        RefusedProgramError: it has.
    """
    if op == "+" and not isinstance(left, Fraction):
        if isinstance(left, _WITH_ITEMS) and isinstance(right, (*_WITH_ITEMS, range)):
            _refuse_many("+", len(left) + _length(right))
        return
    if op == "%":
        if isinstance(left, (str, bytes)):
            _refuse_wide("%", left, right if isinstance(right, tuple) else (right,))
        return
    if isinstance(left, Fraction):
        _refuse_divisors(op, [left, right])
    if op == "*":
        for items, times in ((left, right), (right, left)):
            if isinstance(items, _WITH_ITEMS) and isinstance(times, int):
                _refuse_if(len(items) * times > _MOST_ITEMS, "*", f"{times} copies")
                return
        bits = _bits(left) + _bits(right)
    elif op not in GROWING or not isinstance(right, int) or not _bits(left):
        return
    elif op == "**":
        bits = _bits(left) * abs(right) if _bits(left) > 1 else 1  # 1 and -1 stay short
    else:
        bits = _bits(left) + right
    _refuse_if(bits > _MOST_BITS, op, f"a number of about {bits} bits")


def refuse_large_call(function: Callable[..., Any], args: Sequence[Any]) -> None:
    """The same for a call of one of Python's own functions.

    Raises:
        RefusedProgramError: it would make or go through too much.
    """
    op = _OPERATORS.get(id(function))
    if op and len(args) == 2:
        refuse_large_operator(op, *args)
    if function is len:
        return
    name = getattr(function, "__name__", "")
    _refuse_ranges(name, args)
    if function is pow and len(args) == 3:
        work = _bits(args[1]) * _bits(args[2])
        _refuse_if(work > _MOST_BITS, "pow", f"{work} steps")
    elif function in (math.factorial, math.comb, math.perm):
        n = max((a for a in args if isinstance(a, int)), default=0)
        _refuse_if(n > _MOST_FACTORS, name, f"up to {n} factors")
    elif function in (math.gcd, math.lcm, Fraction):
        _refuse_divisors(name, args)
    elif (function is bytes and len(args) == 1) or (function is round and len(args) == 2):
        _refuse_many(name, abs(args[-1]) if isinstance(args[-1], int) else 0)
    elif function is format and len(args) == 2:
        _refuse_wide(name, args[1], ())
    elif function is sum and args and isinstance(args[0], (list, tuple)):
        copied = _items(args[0]) * len(args[0])  # lists are added one by one
        _refuse_if(copied > _MOST_COPIED, name, f"{copied} items")


def refuse_large_method(owner: Any, name: str, args: Sequence[Any]) -> None:
    """The same for a method of one of Python's own values.

    Raises:
        RefusedProgramError: it would make or go through too much.
    """
    _refuse_ranges(name, args)
    if name in _WIDE:
        _refuse_many(name, max((a for a in args if isinstance(a, int)), default=0))
    elif name == "extend" and args and isinstance(args[0], (*_WITH_ITEMS, range)):
        _refuse_many(name, len(owner) + _length(args[0]))
    elif isinstance(owner, range) and args and not isinstance(args[0], int):
        _refuse_ranges(name, [owner])
    elif isinstance(owner, (str, bytes)) and args:
        if name == "join" and isinstance(args[0], (list, tuple)):
            _refuse_many(name, _items(args[0]) + len(owner) * len(args[0]))
        elif name == "replace" and len(args) > 1 and isinstance(args[1], (str, bytes)):
            _refuse_many(name, (owner.count(args[0]) + 1) * len(args[1]))
        elif name == "translate" and isinstance(args[0], dict):
            _refuse_many(name, len(owner) * _items(args[0].values()))
        elif name == "format":
            _refuse_wide(name, owner, args)


def _refuse_many(operation: str, count: int) -> None:
    """Refuse to make, or to go through, more than 2²⁴ items.

    Raises:
        RefusedProgramError: there are more.
    """
    _refuse_if(count > _MOST_ITEMS, operation, f"{count} items")


def _refuse_ranges(operation: str, values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, range):
            _refuse_many(operation, _length(value))


def _refuse_divisors(operation: str, values: Iterable[Any]) -> None:
    """Refuse common divisors of long numbers: the time is a product of their lengths."""
    sizes = sorted(map(_bits, values))[-2:]
    large = len(sizes) == 2 and math.prod(sizes) > _MOST_WORK
    _refuse_if(large, operation, f"divisors of a number of {sizes[-1] if sizes else 0} bits")


def _refuse_wide(operation: str, template: Any, values: Iterable[Any]) -> None:
    """Refuse a text with a width above 2²⁴: one in the template, or any number it is given."""
    text = template.decode("latin-1") if isinstance(template, bytes) else str(template)
    for digits in _NUMBER.findall(text):
        _refuse_if(len(digits) > 8 or int(digits) > _MOST_ITEMS, operation, f"a width of {digits}")
    if "*" in text or re.search(r"\{[^}]*\{", text):
        _refuse_many(operation, max((abs(v) for v in values if isinstance(v, int)), default=0))


def _items(values: Iterable[Any]) -> int:
    return sum(len(v) for v in values if isinstance(v, _WITH_ITEMS))


def _bits(value: Any) -> int:
    if isinstance(value, int):
        return value.bit_length()
    if isinstance(value, Fraction):
        return max(value.numerator.bit_length(), value.denominator.bit_length())
    return 0


def _length(value: Any) -> int:
    """The length; of a range also where Python's own is limited."""
    if isinstance(value, range):
        return max(0, -(-(value.stop - value.start) // value.step))
    return len(value)


def _refuse_if(large: bool, operation: str, size: str) -> None:
    if large:
        raise RefusedProgramError(
            f"{operation}: {size} in one operation, which no time limit can stop"
        )
