"""What a Haar rotation leaves of a pancake: how far its norm's law is from honest noise's."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.accounting import peak_spacing, peak_width

__all__ = ["norm_deviation"]


def norm_deviation(*, dim: int, beta: float, gamma: float, outside: float) -> float:
    """Largest relative deviation η of the density of a pancake's squared norm from χ²'s, on all but ``outside`` of χ².

    For one secret direction. The squared norm is c² + χ²_{d−1} with c from the pancakes; its density is summed peak by peak
    (9-point Gauss-Hermite within a peak) at 257 points. If η < 1, the rotated release is (ε + ln((1+η)/(1−η)), δ)-DP where
    the Gaussian is (ε, δ/4)-DP and ``outside`` ≤ δ·e^−ε/8. A numerical statement, not a proof: it trusts the grid. Returns
    inf for d < 4, where the density is not smooth enough to be summed so.
    """
    if dim < 4:
        return math.inf
    spacing, width = (f(sigma=1.0, beta=beta, gamma=gamma) for f in (peak_spacing, peak_width))
    reach = math.ceil(12 / spacing)
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    weight = np.exp(-math.pi * k * k / (beta * beta + gamma * gamma))
    node, node_weight = np.polynomial.hermite_e.hermegauss(9)
    c2 = (k[:, None] * spacing + width * node).ravel() ** 2
    mass = np.outer(weight / weight.sum(), node_weight / node_weight.sum()).ravel()
    low = 2 * scipy.special.gammaincinv(dim / 2, outside / 2)
    high = 2 * scipy.special.gammainccinv(dim / 2, outside / 2)

    def log_density(x: npt.NDArray[np.float64], df: int) -> npt.NDArray[np.float64]:
        return np.asarray(
            (df / 2 - 1) * np.log(x) - x / 2 - df / 2 * math.log(2) - float(scipy.special.gammaln(df / 2))
        )

    worst = 0.0
    for s in np.linspace(low, high, 257):
        inside = c2 < s
        against = log_density(s - c2[inside], dim - 1) - log_density(np.asarray(s), dim)
        worst = max(worst, abs(float((mass[inside] * np.exp(against)).sum()) - 1))
    return worst
