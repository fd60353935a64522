"""What is asked of a program: its arguments, its claim, and how far to look."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpaudit.errors import UsageError
from dpaudit.results.text import one_line
from dpaudit_prove.exploration.engine import DEFAULT_RESIDUAL

__all__ = ["ProofOptions", "arguments_of", "neighbours_of", "probability_of"]

_FRACTION = re.compile(r"-?[0-9]+/[0-9]+")
_POWER = re.compile(r"2\^-([0-9]{1,4})")


@dataclass(frozen=True, kw_only=True)
class ProofOptions:
    """How to look at a program.

    Attributes:
        args: positional arguments, after the neighbour if there are neighbours.
        kwargs: arguments by name.
        coins: "random", "numpy", or parameters that a generator is passed in by, comma-separated.
        residual: stop when at most this probability is left.
        tolerance: a law is the claimed one if their total variation is at most this; by default
            twice the residual.
        time_limit: seconds.
        disjoint: also decide whether the returned values have coins of their own; a claim is then
            about each value.
        coin_count: also bound what the number of coins tells about the output.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    coins: str = ""
    residual: Fraction = DEFAULT_RESIDUAL
    tolerance: Fraction | None = None
    time_limit: float | None = None
    disjoint: bool = False
    coin_count: bool = False


def arguments_of(text: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read ``--args``: a JSON list, or an object of named arguments; "1/3" is a fraction.

    >>> arguments_of('[1, "1/3"]')
    ((1, Fraction(1, 3)), {})

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return (), {}
    value = _json("args", text)
    if isinstance(value, list):
        return tuple(_exact(v) for v in value), {}
    if isinstance(value, dict):
        return (), {k: _exact(v) for k, v in value.items()}
    raise UsageError(f"args={one_line(text)}: must be a JSON list or object, such as '[1, 2]'")


def neighbours_of(text: str) -> tuple[Any, Any]:
    """Read ``--neighbours a,b``: two JSON values.

    >>> neighbours_of("[0, 1],[1, 1]")
    ([0, 1], [1, 1])

    Raises:
        UsageError: not two values.
    """
    values = _json("neighbours", f"[{text}]")
    if len(values) != 2:
        raise UsageError(
            f"neighbours={one_line(text)}: give two values, such as 0,1 or [0,1],[1,1]"
        )
    return _exact(values[0]), _exact(values[1])


def probability_of(text: str, *, name: str) -> Fraction:
    """Read a probability: ``1e-6``, ``1/3`` or ``2^-40``.

    Raises:
        UsageError: none of these, or not in [0, 1].
    """
    found = _POWER.fullmatch(text.strip())
    try:
        value = Fraction(1, 1 << int(found[1])) if found else Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if not 0 <= value <= 1:
        raise UsageError(f"{name}={one_line(text)}: must be a probability, such as 1e-9 or 2^-40")
    return value


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(
            f"{name}={one_line(text)}: not JSON; quote it for the shell, such as '[1, \"1/3\"]'"
        ) from None


def _exact(value: Any) -> Any:
    if isinstance(value, str) and _FRACTION.fullmatch(value):
        return Fraction(value)
    if isinstance(value, list):
        return [_exact(v) for v in value]
    if isinstance(value, dict):
        return {k: _exact(v) for k, v in value.items()}
    return value
