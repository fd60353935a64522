"""LAB SPECIMENS: sums and means that move by more than their claimed sensitivity, and clean ones.

Each is a whole mechanism. The flaws are those of Casacuberta, Shoemate, Vadhan and Wagaman 2022
("Widespread underestimation of sensitivity in differentially private libraries and how to fix it",
arXiv 2207.10635): rounding, order, wrap-around, saturation, and a count that is itself private. A
plain function takes records (m,) and returns their sum as its arithmetic has it; a
:class:`BoundedSum` releases it, e.g. ``dpaudit mechanism
python:dpaudit.noise.floating_point.sums:float32_sum``. Datasets are multisets of a public number of
records: neighbours differ in one record, and their order does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.geometric import GeometricInversion
from dpaudit.randomness import KeyedStream

__all__ = [
    "EPSILON",
    "BoundedSum",
    "filtered_mean",
    "fixed_point",
    "fixed_point_sum",
    "fixed_point_wrapping",
    "fixed_point_wrapping_sum",
    "float32_running",
    "float32_sum",
    "float64_running",
    "float64_sum",
    "fsum_sum",
    "int32_saturating",
    "int32_wrapping",
    "mean_of_nonzero",
    "pairwise",
    "pairwise_sum",
    "rounding_bound",
    "saturating_sum",
    "wrapping_sum",
]

EPSILON = 1.0
"""What every mechanism here claims."""

_FIXED_BITS = 32
_WRAPPING_BITS = 54
_FINER = 8  # bits of the noise's lattice below the sensitivity

Array = npt.NDArray[np.float64]


def float32_running(records: Array) -> float:
    """LAB SPECIMEN. Added up in order in float32; claimed sensitivity: upper − lower."""
    return float(np.cumsum(records.astype(np.float32), dtype=np.float32)[-1])


def float64_running(records: Array) -> float:
    """LAB SPECIMEN. Added up in order in float64; claimed sensitivity: upper − lower."""
    return float(np.cumsum(records)[-1])


def int32_wrapping(records: Array) -> float:
    """LAB SPECIMEN. Rounded, added up in int32, modulo 2^32; claimed sensitivity: upper − lower."""
    return float(np.rint(records).astype(np.int64).astype(np.int32).sum(dtype=np.int32))


def fixed_point_wrapping(records: Array) -> float:
    """LAB SPECIMEN. In units of 2^-54, added up in int64, modulo 2^64 units = 1024.

    Claimed sensitivity: upper − lower.
    """
    return (
        float(np.rint(records * 2.0**_WRAPPING_BITS).astype(np.int64).sum()) * 2.0**-_WRAPPING_BITS
    )


def int32_saturating(records: Array) -> float:
    """LAB SPECIMEN. Rounded to integers, added up in order, held within int32.

    Claimed sensitivity: upper − lower. For records of one sign, or in a known order, the claim is
    true; reordered records of both signs break it.
    """
    total = 0
    for record in np.rint(records).astype(np.int64).tolist():
        total = min(max(total + record, -(2**31)), 2**31 - 1)
    return float(total)


def mean_of_nonzero(records: Array) -> float:
    """LAB SPECIMEN. The mean of the records other than 0, or 0 if there are none.

    Claimed sensitivity: (upper − lower)/m. Zeros stand for rows that a filter leaves out: how many
    are left is private, and the claim divides by all m.
    """
    left = records[records != 0]
    return math.fsum(left) / len(left) if len(left) else 0.0


def fixed_point(records: Array) -> float:
    """Rounded down to multiples of 2^-32 and added up exactly.

    Sensitivity: upper − lower, for bounds on that grid.

    Formal guarantee: the exact sum of the rounded records.

    Raises:
        UsageError: a sum that float64 does not hold exactly.
    """
    total = sum(int(units) for units in np.floor(records * 2.0**_FIXED_BITS))
    if abs(total) > 2**53:
        raise UsageError(
            f"records: {total} units of 2^-{_FIXED_BITS} are too many for float64; "
            "give fewer or smaller ones"
        )
    return total * 2.0**-_FIXED_BITS


def pairwise(records: Array) -> float:
    """Added up in a balanced tree in float64.

    Sensitivity: upper − lower + :func:`rounding_bound` of depth ⌈log2 m⌉.
    """
    while len(records) > 1:
        records = np.append(records, 0.0) if len(records) % 2 else records
        records = records[0::2] + records[1::2]
    return float(records[0])


def rounding_bound(*, depth: int, size: int, lower: float, upper: float) -> Fraction:
    """The most that rounding adds to the sensitivity of a float64 sum of ``size`` records.

    Each record passes at most ``depth`` roundings: |fl(Σx) − Σx| ≤ γ·Σ|x| with γ = depth·u/(1 −
    depth·u), u = 2^-53 (Higham 2002, *Accuracy and Stability of Numerical Algorithms*, Section
    4.2); twice that, for two datasets. A correctly rounded sum has depth 1, a running one size − 1.
    Formal guarantee: holds for any order, without overflow.
    """
    unit = Fraction(depth, 2**53)
    return 2 * unit / (1 - unit) * size * max(abs(Fraction(lower)), abs(Fraction(upper)))


@dataclass(frozen=True, kw_only=True)
class BoundedSum:
    """A mechanism ``f(records, n)``: the total of clipped records, plus noise for ε = 1.

    The total less ``origin`` (public) is rounded to a lattice of a power of two g, and discrete
    Laplace noise is added in whole multiples of g, so that no flaw but the total's is left.
    Randomness comes from the operating system.

    Formal guarantee: 1-DP, but for δ of about 1e-11 (see
    :class:`~dpaudit.noise.geometric.GeometricInversion`), if ``total`` has ``sensitivity``: totals
    at most Δ apart are rounded at most ⌈Δ/g⌉ ≤ 512 multiples apart, the noise's scale. Not claimed:
    that it has; flawed specimens do not.
    """

    total: Callable[[Array], float]
    lower: float
    upper: float
    size: int
    sensitivity: Fraction
    origin: Fraction
    flawed: bool

    def __call__(self, value: Array | float, n: int) -> Array:
        """``n`` releases, shape (n,), of the ``size`` records ``value`` (m,).

        Raises:
            UsageError: another number of records than ``size``, or a total too large for the
                lattice.
        """
        records = np.atleast_1d(np.asarray(value, dtype=np.float64))
        if records.shape != (self.size,):
            raise UsageError(
                f"value of shape {records.shape}: this sum has size={self.size} records, "
                "a public number"
            )
        total = self.total(np.clip(records, self.lower, self.upper))
        spacing = Fraction(2) ** (math.frexp(self.sensitivity)[1] - 1 - _FINER)
        centre = math.floor((Fraction(total) - self.origin) / spacing + Fraction(1, 2))
        if abs(centre) > 2**52:
            raise UsageError(
                f"value: a total of {total} is too large for noise in steps of {float(spacing)}"
            )
        scale = math.ceil(self.sensitivity / spacing) / EPSILON
        steps = centre + GeometricInversion(scale=scale).integers(n, stream=KeyedStream.fresh())
        return np.asarray(steps * float(spacing))


def _sum(
    total: Callable[[Array], float],
    lower: float,
    upper: float,
    *,
    size: int = 1000,
    depth: int = 0,
    flawed: bool = False,
) -> BoundedSum:
    extra = rounding_bound(depth=depth, size=size, lower=lower, upper=upper)
    return BoundedSum(
        total=total,
        lower=lower,
        upper=upper,
        size=size,
        sensitivity=Fraction(upper) - Fraction(lower) + extra,
        origin=size * Fraction(lower),
        flawed=flawed,
    )


float32_sum = _sum(float32_running, 1e6, 1e6 + 1, flawed=True)
"""LAB SPECIMEN. 1000 records in [10^6, 10^6 + 1]: float32 holds their sum to 64."""

float64_sum = _sum(float64_running, 2.0**45, 2.0**45 + 1, flawed=True)
"""LAB SPECIMEN. 1000 records in [2^45, 2^45 + 1]: float64 holds their sum, above 2^53, to 4."""

wrapping_sum = _sum(int32_wrapping, 0.0, 2.0**22, flawed=True)
"""LAB SPECIMEN. 1000 records in [0, 2^22]: int32 wraps at 512 of the largest."""

fixed_point_wrapping_sum = _sum(fixed_point_wrapping, 0.0, 1.0, flawed=True)
"""LAB SPECIMEN. 1000 records in [0, 1] in 54-bit fixed point: int64 wraps at a sum of 512."""

saturating_sum = _sum(int32_saturating, -(2.0**22), 2.0**22, size=2000, flawed=True)
"""LAB SPECIMEN. 2000 records in [−2^22, 2^22]: int32 saturates at 512 of one sign.

What follows starts from there.
"""

filtered_mean = BoundedSum(
    total=mean_of_nonzero,
    lower=0.0,
    upper=1.0,
    size=1000,
    sensitivity=Fraction(1, 1000),
    origin=Fraction(0),
    flawed=True,
)
"""LAB SPECIMEN. The mean of the records in (0, 1] among 1000, with the noise for a mean of 1000."""

fixed_point_sum = _sum(fixed_point, 0.0, 1.0)
"""1000 records in [0, 1] in 32-bit fixed point, added up exactly: ε = 1."""

fsum_sum = _sum(math.fsum, 2.0**45, 2.0**45 + 1, depth=1)
"""1000 records in [2^45, 2^45 + 1], correctly rounded, rounding in the sensitivity: ε = 1."""

pairwise_sum = _sum(pairwise, 2.0**45, 2.0**45 + 1, depth=10)
"""The same added up in a tree of depth 10: ε = 1."""
