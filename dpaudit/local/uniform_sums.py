"""How likely large sums of uniformly picked numbers are: a bound that assumes nothing of the numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.optimize

__all__ = ["uniform_sum_bound"]


def uniform_sum_bound(values: npt.NDArray[np.float64], draws: int, total: float) -> float:
    """A bound on P(S ≥ ``total``), S the sum of ``draws`` independent uniform picks from each row of ``values`` (j, m).

    Chernoff 1952: exp(min over t ≥ 0 of K(t) − t·total), K(t) = draws·Σ_rows ln(mean of exp(t·value)). Any t gives a bound,
    so it holds however well the minimum is found.

    >>> round(uniform_sum_bound(np.array([[0.0, 1.0]]), 10, 10.0), 6), 2**-10  # ten heads in a row
    (0.000977, 0.0009765625)
    """
    centred = values - values.mean(axis=1, keepdims=True)
    left = total - draws * float(values.mean(axis=1).sum())
    spread = float(np.abs(centred).max())
    if left <= 0 or spread == 0:
        return 1.0

    def exponent(t: float) -> float:
        row = np.log(np.exp(t * centred / spread).mean(axis=1))  # t is at most e^6, so no exponential overflows
        return float(draws * row.sum() - t * left / spread)

    best = scipy.optimize.minimize_scalar(lambda u: exponent(np.exp(u)), bounds=(-12.0, 6.0), method="bounded")
    return float(np.exp(min(0.0, best.fun)))
