"""What a sampler claims, and the exact law behind the claim.

Families: ``gaussian:sigma=``, ``laplace:scale=``, ``discrete-gaussian:sigma=``,
``discrete-laplace:scale=``. Every law is mapped to independent N(0, 1) by the probability integral
transform, accurately in both tails; atoms are spread by an auxiliary uniform, so the map is exact
under the claim for discrete laws too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.registry import nearest
from dpaudit.results.foreign import quoted
from dpaudit.results.text import one_line
from dpaudit.types import Reference

__all__ = ["EXAMPLES", "FAMILIES", "Claim", "example_of"]

FAMILIES = {
    "gaussian": "sigma",
    "laplace": "scale",
    "discrete-gaussian": "sigma",
    "discrete-laplace": "scale",
}


def example_of(family: str) -> str:
    """A claim of a family, as users write it."""
    return f"{family}:{FAMILIES[family]}=1"


EXAMPLES = ", ".join(map(example_of, FAMILIES))
"""A claim of each family."""
_LARGEST = 1e150
_LARGEST_DISCRETE = 1e5

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Claim:
    """A noise law: mean 0, independent coordinates, a family and its scale.

    The scale is σ, or b of a density ∝ exp(−|x|/b).

    >>> Claim.parse("laplace:scale=2")
    Claim(family='laplace', scale=2.0)
    """

    family: str
    scale: float

    @classmethod
    def parse(cls, text: str) -> Claim:
        """Read ``FAMILY:sigma=…`` or ``FAMILY:scale=…``.

        Raises:
            UnknownNameError: an unknown family or parameter, with the nearest match.
            UsageError: a missing, non-numeric, zero, negative, infinite or NaN scale, one above
                1e150, or a discrete one too large.
        """
        name, where = text.partition(":")[0].strip(), f"claim={one_line(text)}"
        if name not in FAMILIES:
            raise UnknownNameError(
                f"{where}: family {quoted(name)} is not known{nearest(name, FAMILIES)}; "
                f"write one of {EXAMPLES}"
            )
        scale, example = FAMILIES[name], example_of(name)
        ref = Reference.parse(text, example=f"{scale}=1")
        for option in ref.options:
            if option != scale:
                raise UnknownNameError(
                    f"{where}: {ref.name} has no {quoted(option)}; write e.g. {example}"
                )
        if scale not in ref.options:
            raise UsageError(f"{where}: {scale} is missing; write e.g. {example}")
        value = ref.options[scale]
        if isinstance(value, (str, bool)) or not 0 < value < math.inf:
            raise UsageError(
                f"{where}: {scale}={one_line(value)} must be a finite number > 0; "
                f"write e.g. {example}"
            )
        if value > _LARGEST:
            raise UsageError(
                f"{where}: {scale} above {_LARGEST:g} is not supported: its square overflows"
            )
        if ref.name.startswith("discrete") and value > _LARGEST_DISCRETE:
            raise UsageError(
                f"{where}: {scale} above {_LARGEST_DISCRETE:g} is not supported for discrete laws"
            )
        return cls(ref.name, float(value))

    def __str__(self) -> str:
        short = f"{self.scale:.12g}"
        value = short if float(short) == self.scale else repr(self.scale)
        return f"{self.family}:{FAMILIES[self.family]}={value}"

    @property
    def discrete(self) -> bool:
        """Whether the support is the integers."""
        return self.family.startswith("discrete")

    @cached_property
    def standard_deviation(self) -> float:
        """Standard deviation of one coordinate, in the sampler's own unit."""
        if self.family == "gaussian":
            return self.scale
        if self.family == "laplace":
            return math.sqrt(2) * self.scale
        if self.family == "discrete-laplace":
            return math.exp(-0.5 / self.scale) * math.sqrt(2) / -math.expm1(-1 / self.scale)
        k, mass = self._table
        return math.sqrt(float((mass * k * k).sum()))

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """The discrete Gaussian's support −K…K and probabilities; less than 1e-300 lies outside."""
        reach = math.ceil(self.scale * 38) + 1
        k = np.arange(-reach, reach + 1, dtype=np.float64)
        with np.errstate(over="ignore"):  # a scale near 0: all mass on 0
            mass = np.exp(-0.5 * (k / self.scale) ** 2)
        return k, mass / mass.sum()

    @cached_property
    def _lower_tail(self) -> Array:
        """P(X ≤ k) for k = −K…0, summed from the tail inwards to keep relative precision."""
        k, mass = self._table
        return np.cumsum(mass[: len(k) // 2 + 1])

    def to_normal(self, x: Array, spread: np.random.Generator) -> Array:
        """Map samples to N(0, 1), exactly under the claim.

        ``spread`` supplies the auxiliary uniforms, for atoms only. Off-support values of a discrete
        claim are moved to the nearest integer (the support test reports them).
        """
        if self.family == "gaussian":
            return x / self.scale
        if self.family == "laplace":
            tail = 0.5 * np.exp(-np.abs(x) / self.scale)
            return np.asarray(-np.sign(x) * scipy.special.ndtri(np.maximum(tail, 1e-300)))
        k = np.rint(x)
        if self.family == "discrete-laplace":
            upto = np.exp(-np.abs(k) / self.scale) / (1 + math.exp(-1 / self.scale))  # P(X ≤ −|k|)
            tail = upto * (1 + spread.random(x.shape) * math.expm1(-1 / self.scale))
            z = scipy.special.ndtri(np.clip(tail, 1e-300, 1.0))
            return np.asarray(np.where(k > 0, -z, z))
        lower = self._lower_tail
        depth = np.minimum(np.abs(k), len(lower) - 1).astype(np.int64)
        index = len(lower) - 1 - depth  # position of −|k|
        upto = lower[index]
        below = np.where(index > 0, lower[index - 1], 0.0)
        # uniform on the atom, seen from its own tail
        tail = below + spread.random(x.shape) * (upto - below)
        z = scipy.special.ndtri(np.clip(tail, 1e-300, 1.0))
        return np.asarray(np.where(k > 0, -z, z))
