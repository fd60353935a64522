"""Coins whose value is decided only as far as the program looks at it.

A request for one of n equally likely values gives a `Symbol` with the interval [0, n). A `Lazy` is
a monotone function of a symbol: comparisons with a constant cut the interval, by bisection with
Python's own arithmetic, so roundings of floats are part of the law. Where a program needs more
than that, the value is forced: one branch per value, if there are few.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dpaudit.errors import RefusedProgramError

__all__ = [
    "COMPARISONS",
    "METHODS",
    "MONOTONE_STEPS",
    "PLAIN",
    "Lazy",
    "LazyBytes",
    "NeedSplit",
    "Symbol",
    "absolute",
    "apply",
    "binary",
    "compare",
    "force",
    "simplify",
    "truth",
]

_LARGEST_FORCED = 4096
Origin = tuple[Any, ...]


class NeedSplit(Exception):
    """The program's next step depends on where a symbol lies: cut its interval at these points."""

    def __init__(self, symbol: Symbol, cuts: list[int]) -> None:
        super().__init__()
        self.symbol, self.cuts = symbol, cuts


class Symbol:
    """An integer, uniform on [low, high) given all that was decided.

    `parts` (m, Q, R) replaces it by m·Q + R, with Q and R independent and uniform. `origin` says
    which request it comes from: ("new", i), ("register", i), ("div", origin, m), ("mod", …).
    """

    __slots__ = ("high", "low", "origin", "parts", "swapped")

    def __init__(self, low: int, high: int, origin: Origin) -> None:
        self.low, self.high, self.origin = low, high, origin
        self.swapped = False  # whether bytes of it are in little-endian order
        self.parts: tuple[int, Symbol, Symbol] | None = None

    def bounds(self) -> tuple[int, int]:
        """The least and the largest value."""
        if self.parts is None:
            return self.low, self.high - 1
        m, quotient, rest = self.parts
        (a, b), (c, d) = quotient.bounds(), rest.bounds()
        return m * a + c, m * b + d

    def divide(self, m: int) -> bool:
        """Replace by m·Q + R where the interval allows it: Q and R stay independent."""
        if self.parts is not None or self.low % m or self.high % m:
            return False
        self.parts = (
            m,
            Symbol(self.low // m, self.high // m, ("div", self.origin, m)),
            Symbol(0, m, ("mod", self.origin, m)),
        )
        return True

    def cut(self, at: int) -> None:
        """Raise NeedSplit unless all values are on one side of `at`."""
        if self.parts is None:
            if self.low < at < self.high:
                raise NeedSplit(self, [at])
            return
        m, quotient, rest = self.parts
        q, r = divmod(at, m)
        quotient.cut(q)
        if r:
            quotient.cut(q + 1)
            if quotient.bounds() == (q, q):
                rest.cut(r)


class Lazy:
    """A monotone function of a symbol: `steps` in order, each (name, constant)."""

    __slots__ = ("steps", "symbol")

    def __init__(self, symbol: Symbol, steps: tuple[tuple[str, Any], ...] = ()) -> None:
        self.symbol, self.steps = symbol, steps

    def at(self, x: int) -> Any:
        value: Any = x
        try:
            for name, constant in self.steps:
                value = _STEPS[name](value, constant)
        except Exception as error:
            raise RefusedProgramError(
                f"arithmetic fails for some values of a coin ({type(error).__name__}: {error}): "
                "decide these first"
            ) from error
        return value

    def with_step(self, name: str, constant: Any = None) -> Lazy:
        return Lazy(self.symbol, (*self.steps, (name, constant)))

    def ends(self) -> tuple[Any, Any]:
        low, high = self.symbol.bounds()
        return self.at(low), self.at(high)


class LazyBytes:
    """Bytes of which an integer of 8·length bits is a symbol, big-endian unless it is swapped."""

    __slots__ = ("length", "symbol")

    def __init__(self, symbol: Symbol, length: int) -> None:
        self.symbol, self.length = symbol, length

    def item(self, index: int) -> Any:
        if not -self.length <= index < self.length:
            raise IndexError("index out of range")
        place = index % self.length
        shift = 8 * (place if self.symbol.swapped else self.length - 1 - place)
        shifted = binary(">>", Lazy(self.symbol), shift)
        return binary("&", shifted, 255)

    def whole(self, order: str) -> Any:
        """The bytes as an integer; the first such request chooses the order of the symbol."""
        symbol = self.symbol
        if (order == "little") != symbol.swapped:
            untouched = symbol.parts is None and symbol.bounds() == (0, (1 << 8 * self.length) - 1)
            if not untouched or symbol.swapped:
                raise RefusedProgramError("random bytes are read in both orders: use one")
            symbol.swapped = True
            symbol.origin = ("swap", symbol.origin, self.length)
        return simplify(Lazy(symbol))

    def data(self) -> bytes:
        """The bytes themselves, once they are decided."""
        order: Any = "little" if self.symbol.swapped else "big"
        whole: int = force(Lazy(self.symbol))
        return whole.to_bytes(self.length, order)


_LOGARITHMS = ("log", "log2", "log10")
_SAME_IN_NUMPY = ("floor", "ceil", "round", "exp", "expm1", *_LOGARITHMS, "log1p")
MONOTONE_STEPS: dict[str, Callable[[Any], Any]] = {
    "int": int, "float": float, "fraction": Fraction, "round": round,
    "float64": np.float64, "int64": np.int64, "npint": np.rint,
    **{n: getattr(math, n) for n in _SAME_IN_NUMPY if n != "round"},
    **{n: getattr(math, n) for n in ("trunc", "sqrt", "isqrt")},
    **{f"np{n}": getattr(np, n) for n in _SAME_IN_NUMPY},
}  # fmt: skip
"""Functions of one number that never fall as it rises, each a step of a lazy value."""


def _unary_step(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A step without a constant."""
    return lambda x, _: function(x)


METHODS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
    "<<": "lshift", ">>": "rshift", "&": "and", "|": "or", "^": "xor", "@": "matmul",
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne",
}  # fmt: skip
"""Operators, and the names of their special methods."""
PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    op: getattr(operator, f"__{name}__") for op, name in METHODS.items()
}
COMPARISONS = {op: PLAIN[op] for op in ("<", "<=", ">", ">=", "==", "!=")}
_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    **{op: PLAIN[op] for op in ("+", "-", "*", "/", "//", "**")},
    "radd": lambda x, c: c + x,
    "rsub": lambda x, c: c - x,
    "rmul": lambda x, c: c * x,
    "rdiv": lambda x, c: c / x,
    "rfloordiv": lambda x, c: c // x,
    "over": lambda x, c: Fraction(x, c),
    "bit_length": lambda x, _: x.bit_length(),
    **{name: _unary_step(native) for name, native in MONOTONE_STEPS.items()},
}
# a function's domain begins above or at a number; what lies below is decided before it is applied
_OPEN_ABOVE = {
    **dict.fromkeys((*_LOGARITHMS, *(f"np{n}" for n in _LOGARITHMS)), 0),
    **dict.fromkeys(("log1p", "nplog1p"), -1),
}
_CLOSED_ABOVE = {"sqrt": 0, "isqrt": 0}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_NUMBERS = (int, float, Fraction, np.integer, np.floating, np.bool_)


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b and (a != 0 or str(a) == str(b))


def _differ(a: Any, b: Any) -> bool:
    return not _same(a, b)


def _normalise(lazy: Lazy) -> Lazy:
    """Drop what a division of the symbol has made independent."""
    while lazy.symbol.parts is not None and lazy.steps and lazy.steps[0][0] == "//":
        m, quotient, _ = lazy.symbol.parts
        c = lazy.steps[0][1]
        if type(c) is not int or c % m:
            break
        rest = lazy.steps[1:]
        lazy = Lazy(quotient, (("//", c // m), *rest) if c != m else rest)
    return lazy


def simplify(value: Any) -> Any:
    """The value, if it is decided; else the lazy value in its simplest form."""
    if not isinstance(value, Lazy):
        return value
    lazy = _normalise(value)
    a, b = lazy.ends()
    return a if _same(a, b) else lazy


def _first_point(
    lazy: Lazy, holds: Callable[[Any], bool], ends: tuple[int, int] | None = None
) -> int:
    """The first x whose value satisfies a condition that fails at the low end and holds at last."""
    low, high = ends or lazy.symbol.bounds()
    while high - low > 1:
        middle = (low + high) // 2
        if holds(lazy.at(middle)):
            high = middle
        else:
            low = middle
    return high


def compare(op: str, left: Any, right: Any) -> bool:
    """Compare a lazy value with a number; raises NeedSplit where the symbol must be cut."""
    if not isinstance(left, Lazy):
        left, right, op = right, left, _MIRRORED[op]
    left, right = simplify(left), simplify(right)
    if isinstance(left, Lazy) and isinstance(right, Lazy):
        _force_smaller(left, right)
    if not isinstance(left, Lazy):
        if isinstance(right, Lazy):
            return compare(op, left, right)
        return bool(COMPARISONS[op](left, right))
    if right is None or isinstance(right, (str, bytes, tuple, list, dict)):
        return bool(COMPARISONS[op](left.ends()[0], right))
    if not isinstance(right, _NUMBERS):
        raise RefusedProgramError(
            f"a coin is compared with a {type(right).__name__}: only numbers can be"
        )
    if op == "!=":
        return not compare("==", left, right)
    a, b = left.ends()
    if op != "==":
        test = COMPARISONS[op]
        at_low, at_high = bool(test(a, right)), bool(test(b, right))
        if at_low == at_high:
            return at_low
        left.symbol.cut(_first_point(left, lambda v: bool(test(v, right)) != at_low))
        raise AssertionError("a cut inside the interval always splits")
    return _equal(left, right, a, b)


def _equal(left: Lazy, right: Any, a: Any, b: Any) -> bool:
    rising = a < b
    if not (min(a, b) <= right <= max(a, b)):
        return False
    reached: Callable[[Any], bool] = (lambda v: v >= right) if rising else (lambda v: v <= right)
    passed: Callable[[Any], bool] = (lambda v: v > right) if rising else (lambda v: v < right)
    low, high = left.symbol.bounds()
    begin = low if reached(a) else _first_point(left, reached)
    end = high + 1 if not passed(b) else (low if passed(a) else _first_point(left, passed))
    if begin >= end:
        return False
    cuts = [at for at in (begin, end) if low < at <= high]
    if left.symbol.parts is None:
        raise NeedSplit(left.symbol, cuts)
    for at in cuts:
        left.symbol.cut(at)
    # a sum of parts: values between the ends need not be possible
    force(left)
    raise AssertionError("a value that is not decided always splits")


def truth(lazy: Lazy) -> bool:
    """bool() of a lazy number."""
    return compare("!=", lazy, 0)


def _change_points(lazy: Lazy) -> Iterator[int]:
    """The points where the value of a function of an undivided symbol changes."""
    x, last = lazy.symbol.low, lazy.symbol.high - 1
    final = lazy.at(last)
    value = lazy.at(x)
    while not _same(value, final):
        step = 1
        while x + step < last and _same(lazy.at(x + step), value):
            step *= 2
        ends = x + step // 2, min(x + step, last)
        x = _first_point(lazy, partial(_differ, value), ends)
        value = lazy.at(x)
        yield x


def _cuts(lazy: Lazy) -> list[int] | None:
    """The cuts that leave one value per piece; None if there are too many."""
    if not lazy.steps and lazy.symbol.high - lazy.symbol.low > _LARGEST_FORCED:
        return None
    cuts: list[int] = []
    for at in _change_points(lazy):
        cuts.append(at)
        if len(cuts) >= _LARGEST_FORCED:
            return None
    return cuts


def force(value: Any) -> Any:
    """The value of a lazy number; raises NeedSplit, one piece per value, if it is not decided."""
    value = simplify(value)
    if not isinstance(value, Lazy):
        return value
    symbol = value.symbol
    if symbol.parts is not None:
        _, quotient, rest = symbol.parts
        force(Lazy(quotient))
        force(Lazy(rest))
        raise AssertionError("a divided symbol whose parts are decided is decided")
    cuts = _cuts(value)
    if cuts is None:
        count = symbol.high - symbol.low
        raise RefusedProgramError(
            f"the program needs the whole value of a coin with {count:,} values, more than "
            f"{_LARGEST_FORCED:,}: compare it with constants, or take its bits or a remainder"
        )
    raise NeedSplit(symbol, cuts)


def _force_smaller(left: Lazy, right: Lazy) -> None:
    sizes = [v.symbol.bounds()[1] - v.symbol.bounds()[0] for v in (left, right)]
    try:
        force(left if sizes[0] <= sizes[1] else right)
    except RefusedProgramError:
        force(right if sizes[0] <= sizes[1] else left)


def absolute(lazy: Lazy) -> Any:
    """abs() of a lazy number: the sign is decided first."""
    return lazy.with_step("*", -1) if compare("<", lazy, 0) else lazy


def _refuse_infinite(value: Any) -> Any:
    if isinstance(value, (float, np.floating)) and not math.isfinite(value):
        raise RefusedProgramError(f"arithmetic of a coin with {value}: only finite numbers can be")
    return value


def binary(op: str, left: Any, right: Any) -> Any:
    """An operator of which at least one operand is lazy."""
    left, right = simplify(left), simplify(right)
    if isinstance(left, Lazy) and isinstance(right, Lazy):
        _force_smaller(left, right)
    if isinstance(left, Lazy):
        if not isinstance(right, _NUMBERS):
            return PLAIN[op](force(left), right)
        return _with_constant(op, left, _refuse_infinite(right))
    if isinstance(right, Lazy):
        if not isinstance(left, _NUMBERS):
            return PLAIN[op](left, force(right))
        return _constant_with(op, _refuse_infinite(left), right)
    return PLAIN[op](left, right)


def _whole(lazy: Lazy) -> bool:
    return type(lazy.ends()[0]) is int


def _with_constant(op: str, left: Lazy, c: Any) -> Any:
    whole = _whole(left) and type(c) in (int, bool)
    if op in {"+", "-", "*"} or (op in {"/", "//"} and c != 0):
        if op == "//" and not whole and not isinstance(c, (int, Fraction)):
            return PLAIN[op](force(left), c)  # Python's float floor division may round
        if op == "//" and whole and c == 1:
            return left
        return _normalise(left.with_step(op, c))
    if whole and op == ">>" and c >= 0:
        return _with_constant("//", left, 1 << c) if c else left
    if whole and op == "<<" and c >= 0:
        return left.with_step("*", 1 << c)
    if whole and op == "%" and c > 0:
        return _remainder(left, c)
    if whole and op == "&" and c >= 0 and not compare("<", left, 0):
        if c & (c + 1) == 0:
            return _remainder(left, c + 1) if c else 0
        if c & (c - 1) == 0:
            return binary("*", binary("&", binary(">>", left, c.bit_length() - 1), 1), c)
    if op == "**" and whole and c > 0 and min(left.ends()) >= 0:
        return left.with_step("**", c)
    return PLAIN[op](force(left), c)


def _constant_with(op: str, c: Any, right: Lazy) -> Any:
    names = {"+": "radd", "-": "rsub", "*": "rmul"}
    if op in names:
        return right.with_step(names[op], c)
    if op == "/" or (op == "//" and _whole(right) and type(c) is int):
        if compare("==", right, 0):
            return PLAIN[op](c, 0)
        compare("<", right, 0)
        return right.with_step("rdiv" if op == "/" else "rfloordiv", c)
    if op == "&":
        return binary(op, right, c)
    return PLAIN[op](c, force(right))


def _remainder(lazy: Lazy, m: int) -> Any:
    if m == 1:
        return 0
    a, b = lazy.ends()
    if a // m == b // m:
        return simplify(lazy.with_step("-", m * (a // m)))
    symbol = lazy.symbol
    if not lazy.steps:
        return _symbol_remainder(symbol, m)
    if len(lazy.steps) == 1 and lazy.steps[0][0] == "//":
        return _digit(symbol, lazy.steps[0][1], m)
    force(lazy.with_step("//", m))  # one branch per quotient; then the quotient is constant
    raise AssertionError("a quotient that is not decided always splits")


def _symbol_remainder(symbol: Symbol, m: int) -> Any:
    if symbol.parts is None:
        if symbol.divide(m):
            return _symbol_remainder(symbol, m)
        raise NeedSplit(symbol, _multiples(symbol, m))
    d, quotient, rest = symbol.parts
    if d % m == 0:
        return _remainder(Lazy(rest), m)
    if m % d == 0 and _remainder_is_decided(quotient, m // d):
        known = _remainder(Lazy(quotient), m // d)
        return simplify(Lazy(rest, (("+", d * known),)))
    force(Lazy(quotient))
    return _remainder(Lazy(symbol), m)


def _multiples(symbol: Symbol, m: int) -> list[int]:
    """The first and the last multiple of m inside an interval."""
    ends = {-(-symbol.low // m) * m, symbol.high // m * m}
    return sorted(x for x in ends if symbol.low < x < symbol.high)


def _remainder_is_decided(symbol: Symbol, m: int) -> bool:
    low, high = symbol.bounds()
    return low // m == high // m and low == high


def _digit(symbol: Symbol, c: int, m: int) -> Any:
    """(symbol // c) % m."""
    if symbol.parts is None:
        if symbol.divide(c):
            return _digit(symbol, c, m)
        if cuts := _multiples(symbol, c):
            raise NeedSplit(symbol, cuts)
        force(Lazy(symbol, (("//", c),)))
    else:
        d, quotient, rest = symbol.parts
        if d % (c * m) == 0:
            return _remainder(_normalise(Lazy(rest, (("//", c),))), m)
        if c % d == 0:
            return _remainder(_normalise(Lazy(symbol, (("//", c),))), m)
        force(Lazy(quotient))
    return _remainder(Lazy(symbol, (("//", c),)), m)


def apply(name: str, lazy: Lazy, constant: Any = None) -> Any:
    """Apply a monotone function by its name.

    That a library's logarithms and exponentials never fall as their argument rises is assumed, not
    proved.
    """
    outside = (name in _OPEN_ABOVE and compare("<=", lazy, _OPEN_ABOVE[name])) or (
        name in _CLOSED_ABOVE and compare("<", lazy, _CLOSED_ABOVE[name])
    )
    if outside:
        value = force(lazy) if name.startswith("np") else lazy.ends()[0]
        with np.errstate(all="ignore"):
            return _STEPS[name](value, constant)
    return simplify(lazy.with_step(name, constant))
