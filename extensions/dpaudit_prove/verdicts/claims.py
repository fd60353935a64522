"""Claimed laws of a program's output, with every probability between two rationals.

Families: ``discrete-gaussian:sigma=`` (or ``variance=``), ``discrete-laplace:scale=``,
``geometric:p=`` (or ``rate=``), ``bernoulli:p=`` (or ``rate=``), ``randomized-response:epsilon=``
(or ``truth=``), ``uniform:low=,high=``, ``categorical:weights=`` and
``exponential-mechanism:scores=,epsilon=``. Each takes ``dim=N`` for tuples of N independent values.
Numbers are read exactly as they are written: 0.1 is 1/10, and 1/3 is a number too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

from dpaudit.errors import MissingExtraError, UnknownNameError, UsageError
from dpaudit.registry import nearest
from dpaudit.results.foreign import quoted
from dpaudit.results.text import one_line
from dpaudit_prove.verdicts.enclosures import Bounds, ball, bounds_of, precision

__all__ = ["EXAMPLES", "FAMILIES", "ClaimedLaw", "Family"]

_LARGEST_SCALE = 10**4
_LARGEST_COUNT = 10**6
_LARGEST_DIMENSION = 64
_TAIL_BITS = 220
_NUMBER = re.compile(r"[+-]?[0-9]{1,200}(/[0-9]{1,200}|(\.[0-9]{0,200})?(e[+-]?[0-9]{1,3})?)", re.I)
_ZERO = Bounds(Fraction(0), Fraction(0))

Probability = Callable[[Hashable], Bounds]


@dataclass(frozen=True)
class ClaimedLaw:
    """A law on discrete outputs: bounds of each output's probability, as rationals.

    >>> law = ClaimedLaw.parse("geometric:p=1/3")
    >>> law.probability(2)
    Bounds(lower=Fraction(4, 27), upper=Fraction(4, 27))
    >>> law.probability(-1).upper
    Fraction(0, 1)
    """

    text: str
    dim: int
    _one: Probability = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> ClaimedLaw:
        """Read ``FAMILY:option=value,…``.

        Raises:
            UnknownNameError: an unknown family or option, with the nearest match.
            UsageError: a missing or malformed value, or one out of range.
        """
        name, _, rest = text.partition(":")
        name = name.strip()
        if name not in FAMILIES:
            raise UnknownNameError(
                f"claim={one_line(text)}: family {quoted(name)} is not known"
                f"{nearest(name, FAMILIES)}; write one of {EXAMPLES}"
            )
        family = FAMILIES[name]
        try:
            options = _Options(name, rest)
            dim = options.whole("dim", default=1, low=1, high=_LARGEST_DIMENSION)
            one = family.law(options)
            options.refuse_unused()
        except MissingExtraError:
            raise
        except UsageError as error:
            raise type(error)(f"{error}; write e.g. {name}:{family.example}") from error
        return cls(f"{name}:{options.text}" if options.text else name, dim, lru_cache(None)(one))

    def __str__(self) -> str:
        return self.text

    def probability(self, output: Hashable) -> Bounds:
        """Bounds of P(output); 0 for anything outside the law's support."""
        if self.dim == 1:
            return self._one(output)
        if not isinstance(output, tuple) or len(output) != self.dim:
            return _ZERO
        factors = [self._one(value) for value in output]
        return Bounds(
            prod((f.lower for f in factors), start=Fraction(1)),
            prod((f.upper for f in factors), start=Fraction(1)),
        )


class _Options:
    """The options of a claim's text; each is read once, and none is left unread."""

    def __init__(self, family: str, rest: str) -> None:
        self._family = family
        self._left: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in rest.split(","))):
            option, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or not option:
                raise UsageError(f"claim: {quoted(part)}: an option is written name=value")
            if option in self._left:
                raise UsageError(f"claim: {one_line(option)}={one_line(value)}: given twice")
            self._left[option] = value
        self.text = ",".join(f"{option}={value}" for option, value in self._left.items())

    def _take(self, name: str) -> str:
        if name not in self._left:
            raise UsageError(f"claim={self._family}: {name} is missing")
        return self._left.pop(name)

    def has(self, name: str) -> bool:
        return name in self._left

    def either(self, first: str, second: str) -> str:
        """Which of two options is given; exactly one must be."""
        present = [name for name in (first, second) if name in self._left]
        if len(present) != 1:
            raise UsageError(f"claim={self._family}: give {first}=… or {second}=…, and one only")
        return present[0]

    def number(self, name: str, *, above: int | None = None, high: int | None = None) -> Fraction:
        return _number(name, self._take(name), above=above, high=high)

    def numbers(self, name: str) -> tuple[Fraction, ...]:
        """Numbers with ``:`` between them."""
        return tuple(_number(name, part) for part in self._take(name).split(":"))

    def whole(self, name: str, *, low: int, high: int, default: int | None = None) -> int:
        if default is not None and name not in self._left:
            return default
        text = self._take(name)
        value = _number(name, text)
        if value.denominator != 1 or not low <= value <= high:
            raise UsageError(
                f"{name}={one_line(text)}: must be a whole number from {low} to {high}"
            )
        return int(value)

    def refuse_unused(self) -> None:
        if self._left:
            option = next(iter(self._left))
            raise UnknownNameError(f"claim: {self._family} has no option {quoted(option)}")


def _number(name: str, text: str, *, above: int | None = None, high: int | None = None) -> Fraction:
    try:
        if not _NUMBER.fullmatch(text):
            raise ValueError
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise UsageError(
            f"{name}={one_line(text, limit=60)}: must be a number such as 2, 0.1 or 1/3"
        ) from None
    if above is not None and value <= above:
        raise UsageError(f"{name}={one_line(text, limit=60)}: must be above {above}")
    if high is not None and value > high:
        raise UsageError(f"{name}={one_line(text, limit=60)}: must be at most {high}")
    return value


def _integer(output: Hashable) -> int | None:
    """The output as an integer, if it equals one."""
    if isinstance(output, (int, Fraction)) or (isinstance(output, float) and output.is_integer()):
        return int(output) if output == int(output) else None
    return None


def _point(value: Fraction) -> Bounds:
    return Bounds(value, value)


def _integer_law(of: Callable[[int], Bounds]) -> Probability:
    """A law on integers."""

    def probability(output: Hashable) -> Bounds:
        k = _integer(output)
        return _ZERO if k is None else of(k)

    return probability


def _finite_law(masses: Mapping[int, Bounds]) -> Probability:
    """A law on finitely many integers."""
    return _integer_law(lambda k: masses.get(k, _ZERO))


def _ball_law(of: Callable[[Any, int], Any]) -> Probability:
    """A law on integers whose probabilities are balls: of the module ``flint``, and the integer."""

    def bounds(k: int) -> Bounds:
        with precision() as module:
            return bounds_of(of(module, k))

    return _integer_law(bounds)


def _discrete_gaussian(options: _Options) -> Probability:
    """P(k) ∝ exp(−k²/2σ²)."""
    if options.either("sigma", "variance") == "sigma":
        sigma = options.number("sigma", above=0, high=_LARGEST_SCALE)
        variance = sigma * sigma
    else:
        variance = options.number("variance", above=0, high=_LARGEST_SCALE**2)
    half = 1 / (2 * variance)

    @lru_cache(1)
    def normaliser() -> Bounds:
        return _gaussian_sum(half)

    return _ball_law(
        lambda module, k: ball(module, -half * k * k).exp() / _hull(module, normaliser())
    )


def _gaussian_sum(half: Fraction) -> Bounds:
    """Bounds for Σ exp(−half·k²) over all integers k.

    Beyond K, a term is at most exp(−half·(2K + 3)) times the one before, so what is left out on
    each side is less than exp(−half·(K + 1)²) / (1 − exp(−half·(2K + 3))).
    """
    with precision() as module:
        last = 0
        while half * (last + 1) ** 2 < _TAIL_BITS:  # e^−220 < 2^−300
            last += 1
        total = module.arb(0)
        for k in range(1, last + 1):
            total += ball(module, -half * k * k).exp()
        ratio = ball(module, -half * (2 * last + 3)).exp()
        rest = ball(module, -half * (last + 1) ** 2).exp() / (1 - ratio)
        low, high = bounds_of(1 + 2 * total), bounds_of(1 + 2 * (total + rest))
        return Bounds(low.lower, high.upper)


def _hull(module: Any, bounds: Bounds) -> Any:
    """A ball that holds all of the bounds."""
    return ball(module, bounds.lower).union(ball(module, bounds.upper))


def _discrete_laplace(options: _Options) -> Probability:
    """P(k) = (1 − q)/(1 + q)·q^|k| with q = exp(−1/scale)."""
    rate = 1 / options.number("scale", above=0, high=_LARGEST_SCALE)

    def mass(module: Any, k: int) -> Any:
        q = ball(module, -rate).exp()
        return (1 - q) / (1 + q) * ball(module, -rate * abs(k)).exp()

    return _ball_law(mass)


def _geometric(options: _Options) -> Probability:
    """P(k) = p·(1 − p)^k for k ≥ 0; with ``rate``, 1 − p = exp(−rate)."""
    if options.either("p", "rate") == "p":
        p = options.number("p", above=0, high=1)
        return _integer_law(lambda k: _ZERO if k < 0 else _point(p * (1 - p) ** k))
    rate = options.number("rate", above=0, high=_LARGEST_SCALE)

    def mass(module: Any, k: int) -> Any:
        if k < 0:
            return module.arb(0)
        return -(ball(module, -rate).expm1()) * ball(module, -rate * k).exp()

    return _ball_law(mass)


def _bernoulli(options: _Options) -> Probability:
    """P(1) = p, or exp(−rate)."""
    if options.either("p", "rate") == "p":
        p = options.number("p", above=-1, high=1)
        if p < 0:
            raise UsageError(f"p={p}: must be a probability")
        return _finite_law({0: _point(1 - p), 1: _point(p)})
    rate = options.number("rate", above=-1, high=_LARGEST_SCALE)
    if rate < 0:
        raise UsageError(f"rate={rate}: must not be negative")
    with precision() as module:
        one = ball(module, -rate).exp()
        return _finite_law({0: _clip(bounds_of(1 - one)), 1: _clip(bounds_of(one))})


def _clip(bounds: Bounds) -> Bounds:
    return Bounds(max(Fraction(0), bounds.lower), min(Fraction(1), bounds.upper))


def _randomized_response(options: _Options) -> Probability:
    """The truth, ``value``, with probability e^ε/(e^ε + k − 1), or ``truth``; others alike."""
    categories = options.whole("categories", default=2, low=2, high=_LARGEST_COUNT)
    value = options.whole("value", default=0, low=0, high=categories - 1)
    if options.either("epsilon", "truth") == "truth":
        truth = options.number("truth", above=0, high=1)
        truthful, lie = _point(truth), _point((1 - truth) / (categories - 1))
    else:
        epsilon = options.number("epsilon", above=0, high=_LARGEST_COUNT)
        with precision() as module:
            other = 1 / (ball(module, epsilon).exp() + (categories - 1))
            truthful, lie = bounds_of(1 - (categories - 1) * other), bounds_of(other)
    return _finite_law({k: truthful if k == value else lie for k in range(categories)})


def _uniform(options: _Options) -> Probability:
    """Every integer from ``low`` to ``high``, both included, with the same probability."""
    low = options.whole("low", default=0, low=-(10**18), high=10**18)
    high = options.whole("high", low=low, high=10**18)
    share = _point(Fraction(1, high - low + 1))
    return _integer_law(lambda k: share if low <= k <= high else _ZERO)


def _categorical(options: _Options) -> Probability:
    """P(i) ∝ the i-th of ``weights``, counted from 0."""
    weights = options.numbers("weights")
    if min(weights) < 0 or not sum(weights):
        raise UsageError("weights: must not be negative, nor all 0")
    return _finite_law({i: _point(w / sum(weights)) for i, w in enumerate(weights)})


def _exponential_mechanism(options: _Options) -> Probability:
    """P(i) ∝ exp(ε·score_i / (2·sensitivity)) (McSherry and Talwar 2007)."""
    scores = options.numbers("scores")
    epsilon = options.number("epsilon", above=0, high=_LARGEST_SCALE)
    sensitivity = options.number("sensitivity", above=0) if options.has("sensitivity") else 1
    best = max(scores)
    with precision() as module:
        weights = [ball(module, epsilon * (s - best) / (2 * sensitivity)).exp() for s in scores]
        total = sum(weights, module.arb(0))
        return _finite_law({i: bounds_of(w / total) for i, w in enumerate(weights)})


class Family(NamedTuple):
    """A family of laws: its probabilities from its options, and options that are right."""

    law: Callable[[_Options], Probability]
    example: str


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "discrete-gaussian": Family(_discrete_gaussian, "sigma=1"),
        "discrete-laplace": Family(_discrete_laplace, "scale=2"),
        "geometric": Family(_geometric, "p=1/2"),
        "bernoulli": Family(_bernoulli, "p=1/3"),
        "randomized-response": Family(_randomized_response, "epsilon=1"),
        "uniform": Family(_uniform, "low=0,high=9"),
        "categorical": Family(_categorical, "weights=1:2:4"),
        "exponential-mechanism": Family(_exponential_mechanism, "scores=0:1:3,epsilon=1"),
    }
)
"""The families by name."""

EXAMPLES = " | ".join(f"{name}:{family.example}" for name, family in FAMILIES.items())
"""A claim of each family."""
