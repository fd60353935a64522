"""Others' tests on the same values: scipy's two, and NIST's SP 800-22 if it is installed."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy

from dpaudit.stats import bonferroni
from dpaudit_studies.zoo.specimen import Array

__all__ = ["NOT_INSTALLED", "PEERS", "anderson_darling", "kolmogorov_smirnov", "sp800_22"]

NOT_INSTALLED = "not installed"

_BITS = 8  # of Φ(z), the leading ones: of honest single-precision noise too these are uniform
_SEQUENCE = 1_000_000  # bits; the length that SP 800-22 was tested with
_SEQUENCES = 2  # at about a second each
_TESTS: Mapping[str, tuple[int, ...]] = {
    "frequency": (),
    "block_frequency": (128,),
    "cumulative_sums": (),
    "runs": (),
    "longest_run_of_ones": (),
    "rank": (),
    "discrete_fourier_transform": (),
    "universal": (),
    "approximate_entropy": (10,),
    "serial": (16,),
    "overlapping_template_matchings": (9,),
    "linear_complexity": (500,),
}


def kolmogorov_smirnov(z: Array, alpha: float) -> bool:
    """The one-sample test of scipy against N(0, 1), two-sided."""
    return bool(scipy.stats.kstest(z, "norm", method="asymp").pvalue <= alpha)


def anderson_darling(z: Array, alpha: float) -> bool:
    """Anderson and Darling's A² against exactly N(0, 1).

    p from the limit law (Marsaglia and Marsaglia 2004, their adinf, off by less than 2e-6), which
    is close enough for n ≥ 1,000. ``z`` is sorted.
    """
    n = len(z)
    weights = np.arange(1, 2 * n, 2, dtype=np.float64)
    logs = scipy.special.log_ndtr(z) + scipy.special.log_ndtr(-z[::-1])
    square = -n - float(weights @ logs) / n
    return 1 - _adinf(square) <= alpha


def _adinf(x: float) -> float:
    """P(A² < x) for n → ∞ (Marsaglia and Marsaglia 2004)."""
    if x <= 0:
        return 0.0
    if x < 2:
        low = np.polyval([-0.00168691, 0.0116720, -0.0347962, 0.0649821, -0.247105, -2.00012], x)
        return float(-low * math.exp(-1.2337141 / x) / math.sqrt(x))
    high = np.polyval([-0.0003146, 0.008056, -0.082433, 0.43424, -2.30695, 1.0776], x)
    return math.exp(-math.exp(float(high)))


def anderson_darling_fitted(z: Array, alpha: float) -> bool | None:
    """``scipy.stats.anderson``, which fits mean and σ, so tests neither; None at other levels."""
    with warnings.catch_warnings():
        # about the form of its answer in versions to come
        warnings.simplefilter("ignore", FutureWarning)
        result = scipy.stats.anderson(z, "norm")
    for level, critical in zip(result.significance_level, result.critical_values, strict=True):
        if math.isclose(level / 100, alpha):
            return bool(result.statistic > critical)
    return None


def sp800_22(z: Array, alpha: float) -> bool | str:
    """NIST's SP 800-22 (NIST's own C code, in sp80022suite) on the leading 8 bits of each Φ(z).

    Twelve of its tests on up to two sequences of 10^6 bits from the beginning (250,000 values),
    Bonferroni over them all. Left out: non-overlapping templates, which wants files that the
    package lacks, and the random excursions, whose answer there is the least of several p-values.
    ``z`` is in the order drawn. A test that refuses a sequence counts as passed.
    """
    try:
        suite: Any = importlib.import_module("sp80022suite")
    except ImportError:
        return NOT_INSTALLED
    values = z[: _SEQUENCES * _SEQUENCE // _BITS]
    cells = np.minimum(scipy.special.ndtr(values) * (1 << _BITS), (1 << _BITS) - 1).astype(np.uint8)
    bits = np.unpackbits(cells)
    p: list[float] = []
    for start in range(0, max(1, len(bits) // _SEQUENCE) * _SEQUENCE, _SEQUENCE):
        sequence = bits[start : start + _SEQUENCE].tobytes()
        for name, options in _TESTS.items():
            try:
                p.append(float(getattr(suite, name)(*options, sequence)))
            except ValueError:
                p.append(1.0)
    return bonferroni([min(max(value, 0.0), 1.0) for value in p]) <= alpha


PEERS: Mapping[str, Callable[[Array, float], bool | str | None]] = {
    "sp800_22": sp800_22,
    "ks": lambda z, alpha: kolmogorov_smirnov(np.sort(z), alpha),
    "ad": lambda z, alpha: anderson_darling(np.sort(z), alpha),
    "ad_fitted": anderson_darling_fitted,
}
"""Each takes N(0, 1) images in the order drawn, shape (n,), and α; returns a finding or not."""
