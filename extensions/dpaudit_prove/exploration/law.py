"""The exact law of a program's output, with the probability that was not explored."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from dpaudit.errors import UsageError

__all__ = ["ExactLaw", "canonical_output"]


@dataclass(frozen=True)
class ExactLaw:
    """A program's law: for every output x, P(x) is within [mass[x], mass[x] + residual].

    Formal guarantee: the lower bounds are exact rationals and sum, with the residual, to 1.
    An output that is absent from `mass` has a probability of at most `residual`, and so has any
    set of such outputs: P(S) is within [mass(S), mass(S) + residual] for every set S.

    Outputs are in the form of `canonical_output`. Equal Python values (True, 1, 1.0) are one
    output.

    Attributes:
        mass: a lower bound of each output's probability, each above 0.
        residual: the probability of all paths that were cut off.
        states: how many different states the program had at a request for coins.
        coins: a lower bound of the probability of each number of coin bits read, or None.
    """

    mass: Mapping[Hashable, Fraction]
    residual: Fraction
    states: int
    coins: Mapping[int, Fraction] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mass", MappingProxyType(dict(self.mass)))
        if self.coins is not None:
            object.__setattr__(self, "coins", MappingProxyType(dict(self.coins)))
        if any(mass <= 0 for mass in self.mass.values()) or self.residual < 0:
            raise UsageError("mass: every probability is above 0, and the residual is not below 0")
        if sum(self.mass.values()) + self.residual != 1:
            raise UsageError("mass: the probabilities and the residual add up to exactly 1")

    def lower(self, output: Hashable) -> Fraction:
        """A lower bound for the probability of an output."""
        return self.mass.get(output, Fraction(0))

    def upper(self, output: Hashable) -> Fraction:
        """An upper bound for the probability of an output."""
        return self.lower(output) + self.residual


def canonical_output(value: Any) -> Hashable:
    """A hashable form of an output: exact numbers, strings, None, and tuples of these.

    Lists become tuples, NumPy's numbers Python's. The floats -0.0 and NaN, which Python's
    equality gets wrong, become the strings "-0.0" and "nan".

    >>> canonical_output([1, (True, None), -0.0])
    (1, (True, None), '-0.0')

    Raises:
        UsageError: a value of another type.
    """
    if value is None or isinstance(value, (bool, int, str, bytes, Fraction)):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return "-0.0" if value == 0 and math.copysign(1, value) < 0 else value
    if isinstance(value, (tuple, list)):
        return tuple(canonical_output(item) for item in value)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return canonical_output(value.tolist())
    raise UsageError(
        f"output={type(value).__name__}: return numbers, strings, None, or lists of these"
    )
