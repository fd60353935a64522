# ruff: noqa: SIM905 (lists of names)
"""Which of Python's own functions, types and methods are functions of their arguments alone."""

from __future__ import annotations

import bisect
import builtins
import fractions
import functools
import itertools
import math
import operator
from fractions import Fraction
from typing import Any

import numpy as np

from dpaudit_prove.interpreter import prelude

__all__ = ["METHODS", "MONOTONE", "MUTATORS", "PRELUDE", "PURE", "PURE_TYPES", "why_refused"]

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

PRELUDE: dict[int, Any] = {
    id(native): written
    for native, written in [
        (list, prelude.list_),
        (tuple, prelude.tuple_),
        (set, prelude.set_),
        (dict, prelude.dict_),
        (any, prelude.any_),
        (all, prelude.all_),
        (enumerate, prelude.enumerate_),
        (zip, prelude.zip_),
        (map, prelude.map_),
        (filter, prelude.filter_),
        (reversed, prelude.reversed_),
        (sum, prelude.sum_),
        (max, prelude.max_),
        (min, prelude.min_),
        (sorted, prelude.sorted_),
        (itertools.count, prelude.count),
        (itertools.repeat, prelude.repeat),
        (itertools.chain, prelude.chain),
        (itertools.islice, prelude.islice),
        (itertools.accumulate, prelude.accumulate),
        (functools.reduce, prelude.reduce),
        (functools.partial, prelude.partial),
        (bisect.bisect_right, prelude.bisect_right),
        (bisect.bisect_left, prelude.bisect_left),
    ]
}
"""Builtins that have Python code for arguments which the native one cannot take."""

MONOTONE: dict[int, str] = {
    id(native): name
    for native, name in [
        (int, "int"),
        (float, "float"),
        (Fraction, "fraction"),
        (math.floor, "floor"),
        (math.ceil, "ceil"),
        (math.trunc, "trunc"),
        (math.sqrt, "sqrt"),
        (math.isqrt, "isqrt"),
        (round, "round"),
        (np.floor, "npfloor"),
        (np.ceil, "npceil"),
        (np.round, "npround"),
        (np.rint, "npint"),
        *((getattr(math, n), n) for n in ("exp", "expm1", "log", "log1p", "log2", "log10")),
        *((getattr(np, n), f"np{n}") for n in ("exp", "expm1", "log", "log1p", "log2", "log10")),
        (np.float64, "float64"),
        (np.int64, "int64"),
    ]
}
"""Functions of one number that never fall as it rises; a coin stays a coin in them."""

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
    "itertools.combinations": "use loops in each other",
    "itertools.permutations": "use loops in each other",
    "itertools.product": "use loops in each other",
    "operator.attrgetter": "use a lambda",
    "operator.itemgetter": "use a lambda",
}
"""What to write in place of some of Python's own classes and functions."""


def why_refused(thing: Any) -> str:
    """The name of a function, and why it cannot be part of a proof."""
    owner = getattr(thing, "__self__", None)
    module = getattr(thing, "__module__", None) or getattr(type(owner), "__module__", "") or ""
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    name = name or type(thing).__qualname__
    shown = name if module in {"builtins", ""} else f"{module}.{name}"
    reason = _NAMES.get(name) if module in {"builtins", "_io", "io"} else None
    if reason is None:
        reason = _REASONS.get(module)
    if reason is None and isinstance(owner, np.random.Generator | np.random.RandomState):
        reason = _REASONS["numpy.random"]
    if reason is None and module.startswith("numpy.random"):
        reason = _REASONS["numpy.random"]
    reason = reason or "not known to be a function of its arguments alone"
    rewrite = _REWRITES.get(f"{module.removeprefix('_')}.{name}")
    return f"{shown}: {reason}" + (f"; {rewrite}" if rewrite else "")
