"""Refuses what would take one of Python's own operations too long: no time limit stops it there."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from dpaudit.errors import RefusedProgramError

__all__ = ["GROWING", "refuse_large_call", "refuse_large_operator"]

_MOST_BITS = 1 << 22
_MOST_ITEMS = 1 << 24
_MOST_FACTORS = 100_000
GROWING = frozenset({"*", "**", "<<"})
"""Operators whose result can be much longer than both sides."""

_OPERATORS: dict[int, str] = {
    id(operator.mul): "*",
    id(operator.pow): "**",
    id(operator.lshift): "<<",
    id(pow): "**",
}


def refuse_large_operator(op: str, left: Any, right: Any) -> None:
    """Refuse ``left op right`` if its result has more than 2²² bits, or 2²⁴ items.

    Raises:
        RefusedProgramError: it has.
    """
    if op == "*":
        for items, times in ((left, right), (right, left)):
            if isinstance(items, (str, bytes, list, tuple)) and isinstance(times, int):
                _refuse_if(len(items) * times > _MOST_ITEMS, "*", f"{times} copies")
                return
        bits = _bits(left) + _bits(right)
    elif not isinstance(right, int) or not _bits(left):  # 0, or no exact number
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
    if function is pow and len(args) == 3:
        work = _bits(args[1]) * _bits(args[2])
        _refuse_if(work > _MOST_BITS, "pow", f"{work} steps")
    if function in (math.factorial, math.comb, math.perm):
        n = max((a for a in args if isinstance(a, int)), default=0)
        _refuse_if(n > _MOST_FACTORS, function.__name__, f"up to {n} factors")
    for value in args:
        if isinstance(value, range) and function is not len:
            _refuse_if(_length(value) > _MOST_ITEMS, function.__name__, f"{_length(value)} items")
    if function is bytes and args and isinstance(args[0], int):
        _refuse_if(args[0] > _MOST_ITEMS, "bytes", f"{args[0]} bytes")


def _bits(value: Any) -> int:
    if isinstance(value, int):
        return value.bit_length()
    if isinstance(value, Fraction):
        return max(value.numerator.bit_length(), value.denominator.bit_length())
    return 0


def _length(value: range) -> int:
    return max(0, -(-(value.stop - value.start) // value.step))


def _refuse_if(large: bool, what: str, size: str) -> None:
    if large:
        raise RefusedProgramError(f"{what}: {size} in one operation, which no time limit can stop")
