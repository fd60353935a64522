"""Flaws of the marginal law: place, scale, shape, tails, holes. Values are independent."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import scipy

from dpaudit_studies.zoo.specimen import Array, Make, Specimen, each

__all__ = ["SPECIMENS", "cut", "scaled", "shifted", "student"]


def scaled(factor: float) -> Make:
    """Every value times ``factor``."""
    return each(lambda _, z: z * factor)


def shifted(mean: float) -> Make:
    """Every value plus ``mean``."""
    return each(lambda _, z: z + mean)


def student(df: float, *, unit: bool) -> Make:
    """Student's t, of variance 1 with ``unit``."""
    scale = math.sqrt((df - 2) / df) if unit else 1.0
    return each(lambda rng, z: rng.standard_t(df, z.shape) * scale)


def _skew_normal(skewness: float) -> Make:
    """Azzalini's skew normal of the given skewness, standardised."""
    root = (2 * skewness / (4 - math.pi)) ** (1 / 3)
    lean = root / math.sqrt(1 + root * root)  # δ·√(2/π)
    delta = lean * math.sqrt(math.pi / 2)

    def change(rng: np.random.Generator, z: Array) -> Array:
        x = delta * np.abs(rng.standard_normal(z.shape)) + math.sqrt(1 - delta * delta) * z
        return np.asarray((x - lean) / math.sqrt(1 - lean * lean))

    return each(change)


def _contaminated(share: float, scale: float) -> Make:
    return each(lambda rng, z: z * np.where(rng.random(z.shape) < share, scale, 1.0))


def _mixture(spread: float) -> Make:
    """Half of the values with variance 1 + spread, half with 1 - spread."""
    scales = np.sqrt([1 - spread, 1 + spread])
    return each(lambda rng, z: z * scales[rng.integers(0, 2, z.shape)])


def _uniform_sum(rng: np.random.Generator, z: Array) -> Array:
    total = np.full(z.shape, -6.0)
    for _ in range(12):
        total += rng.random(z.shape)
    return total


def _hole_below_zero(width: float) -> Make:
    return each(lambda _, z: np.where((z > -width) & (z < 0), -z, z))


def _gap(low: float, width: float) -> Make:
    return each(lambda _, z: np.where((z >= low) & (z < low + width), z + width, z))


def cut(limit: float, *, upper_only: bool = False) -> Make:
    """Values beyond the limit are drawn again."""

    def change(rng: np.random.Generator, z: Array) -> Array:
        while (beyond := (z if upper_only else np.abs(z)) > limit).any():
            z[beyond] = rng.standard_normal(int(beyond.sum()))
        return z

    return each(change)


def _clipped(limit: float) -> Make:
    return each(lambda _, z: np.clip(z, -limit, limit))


def _fattened(limit: float) -> Make:
    """Twice as many values lie beyond the limit as should."""
    tail = float(scipy.special.ndtr(-limit))

    def change(rng: np.random.Generator, z: Array) -> Array:
        moved = rng.random(z.shape) < 2 * tail
        m = int(moved.sum())
        z[moved] = scipy.special.ndtri(tail * (1 - rng.random(m))) * rng.choice([-1.0, 1.0], m)
        return z

    return each(change)


def _thinned(limit: float, share: float) -> Make:
    """A share of the values beyond the limit is drawn again."""

    def change(rng: np.random.Generator, z: Array) -> Array:
        again = (np.abs(z) > limit) & (rng.random(z.shape) < share)
        z[again] = rng.standard_normal(int(again.sum()))
        return z

    return each(change)


def _outliers(rate: float, at: float) -> Make:
    return each(lambda rng, z: np.where(rng.random(z.shape) < rate, np.copysign(at, z), z))


def _biased_sign(bias: float) -> Make:
    return each(lambda rng, z: np.where(rng.random(z.shape) < 0.5 + bias, np.abs(z), -np.abs(z)))


def _rescaled_branch(factor: float) -> Make:
    """Negative values wider, positive ones narrower: the variance is right."""
    other = math.sqrt(2 - factor * factor)
    return each(lambda _, z: np.where(z < 0, factor * z, other * z))


_law = partial(Specimen, family="law")

SPECIMENS = (
    _law("sigma-plus-0.1pc", "σ is 0.1 % too large", scaled(1.001), expected="borderline",
         why="4.5 standard errors at 10^7 values, where a battery of 20 families asks for about 4: "
             "power near 0.7"),
    _law("sigma-minus-0.1pc", "σ is 0.1 % too small", scaled(0.999), expected="borderline",
         why="4.5 standard errors at 10^7 values, where a battery of 20 families asks for about 4: "
             "power near 0.7"),
    _law("sigma-plus-0.3pc", "σ is 0.3 % too large", scaled(1.003)),
    _law("sigma-minus-1pc", "σ is 1 % too small", scaled(0.99)),
    _law("mean-0.001", "every value is 0.001 too large", shifted(0.001), expected="missed",
         why="3.2 standard errors at 10^7 values, where a battery of 20 families asks for about 4: "
             "power near 0.2"),
    _law("mean-0.003", "every value is 0.003 too large", shifted(0.003)),
    _law("sign-bias-0.002", "positive with probability 0.502", _biased_sign(0.002)),
    _law("halves-1pc", "negative values 1 % wider, positive ones 1 % narrower",
         _rescaled_branch(1.01)),
    _law("t30", "Student's t with 30 degrees of freedom", student(30, unit=False)),
    _law("t30-unit", "Student's t with 30 degrees of freedom, scaled to variance 1",
         student(30, unit=True)),
    _law("t200-unit", "Student's t with 200 degrees of freedom, scaled to variance 1",
         student(200, unit=True)),
    _law("skew-0.01", "skew normal of skewness 0.01, mean 0 and variance 1", _skew_normal(0.01)),
    _law("contaminated-1e-3", "one value in 1,000 has σ = 3", _contaminated(1e-3, 3.0)),
    _law("contaminated-1e-4", "one value in 10,000 has σ = 3", _contaminated(1e-4, 3.0)),
    _law("mixture-6pc", "variance 0.94 or 1.06 with equal chance", _mixture(0.06)),
    _law("uniform-sum-12", "sum of twelve uniforms less six", each(_uniform_sum)),
    _law("logistic", "logistic of variance 1",
         each(lambda rng, z: rng.logistic(scale=math.sqrt(3) / math.pi, size=z.shape))),
    _law("laplace", "Laplace of variance 1",
         each(lambda rng, z: rng.laplace(scale=math.sqrt(0.5), size=z.shape))),
    _law("hole-below-zero", "nothing in (-0.001, 0): mirrored to the other side",
         _hole_below_zero(1e-3)),
    _law("gap-at-0.5", "nothing in [0.5, 0.501): moved up by 0.001", _gap(0.5, 1e-3)),
    _law("gap-at-0.5-fine", "nothing in [0.5, 0.5001): moved up by 0.0001", _gap(0.5, 1e-4),
         expected="borderline",
         why="352 values of 10^7 moved from a spot of 352 to the next: only cells as fine as that "
             "see it"),
    _law("cut-at-4", "beyond 4σ drawn again", cut(4.0)),
    _law("cut-at-4.5", "beyond 4.5σ drawn again", cut(4.5)),
    _law("cut-at-4.5-upper", "above 4.5σ drawn again, below -4.5σ not", cut(4.5, upper_only=True)),
    _law("cut-at-5", "beyond 5σ drawn again", cut(5.0), expected="missed",
         why="of 10^7 honest values 5.7 lie beyond 5σ, none of them with probability 0.003: no "
             "p-value can be below that"),
    _law("clipped-at-4.5", "beyond 4.5σ set to exactly ±4.5", _clipped(4.5)),
    _law("fattened-beyond-4", "twice as much beyond 4σ", _fattened(4.0)),
    _law("thinned-beyond-3", "5 % of what lies beyond 3σ is missing", _thinned(3.0, 0.05)),
    _law("outlier-1e-6", "one value in a million is ±8", _outliers(1e-6, 8.0)),
)  # fmt: skip
