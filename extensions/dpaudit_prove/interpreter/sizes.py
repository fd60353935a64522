"""Refuses what would take one of Python's own operations too long: no time limit stops it there."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from dpaudit.errors import RefusedProgramError

__all__ = [
    "GROWING",
    "refuse_large_call",
    "refuse_large_method",
    "refuse_large_operator",
    "refuse_many",
]

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
            refuse_many("+", len(left) + _length(right))
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
        refuse_many(name, abs(args[-1]) if isinstance(args[-1], int) else 0)
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
        refuse_many(name, max((a for a in args if isinstance(a, int)), default=0))
    elif name == "extend" and args and isinstance(args[0], (*_WITH_ITEMS, range)):
        refuse_many(name, len(owner) + _length(args[0]))
    elif isinstance(owner, range) and args and not isinstance(args[0], int):
        _refuse_ranges(name, [owner])
    elif isinstance(owner, (str, bytes)) and args:
        if name == "join" and isinstance(args[0], (list, tuple)):
            refuse_many(name, _items(args[0]) + len(owner) * len(args[0]))
        elif name == "replace" and len(args) > 1 and isinstance(args[1], (str, bytes)):
            refuse_many(name, (owner.count(args[0]) + 1) * len(args[1]))
        elif name == "translate" and isinstance(args[0], dict):
            refuse_many(name, len(owner) * _items(args[0].values()))
        elif name == "format":
            _refuse_wide(name, owner, args)


def refuse_many(what: str, count: int) -> None:
    """Refuse to make, or to go through, more than 2²⁴ items.

    Raises:
        RefusedProgramError: there are more.
    """
    _refuse_if(count > _MOST_ITEMS, what, f"{count} items")


def _refuse_ranges(what: str, values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, range):
            refuse_many(what, _length(value))


def _refuse_divisors(what: str, values: Iterable[Any]) -> None:
    """Refuse common divisors of long numbers: the time is a product of their lengths."""
    sizes = sorted(map(_bits, values))[-2:]
    large = len(sizes) == 2 and math.prod(sizes) > _MOST_WORK
    _refuse_if(large, what, f"divisors of a number of {sizes[-1] if sizes else 0} bits")


def _refuse_wide(what: str, template: Any, values: Iterable[Any]) -> None:
    """Refuse a text with a width above 2²⁴: one in the template, or any number it is given."""
    text = template.decode("latin-1") if isinstance(template, bytes) else str(template)
    for digits in _NUMBER.findall(text):
        _refuse_if(len(digits) > 8 or int(digits) > _MOST_ITEMS, what, f"a width of {digits}")
    if "*" in text or re.search(r"\{[^}]*\{", text):
        refuse_many(what, max((abs(v) for v in values if isinstance(v, int)), default=0))


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


def _refuse_if(large: bool, what: str, size: str) -> None:
    if large:
        raise RefusedProgramError(f"{what}: {size} in one operation, which no time limit can stop")
