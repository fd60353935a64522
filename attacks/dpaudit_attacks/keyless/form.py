"""The quadratic form whose short vectors show the hidden direction, and how many rows it takes.

With σ = 1 and rows X (n, d), the whole numbers k_i = round(⟨x_i, u⟩) of a pancake are k = Xu + e,
u = f·w of length f = r²/(γ√(2π)) and e of standard deviation β·r/(√(2π)·γ). Taken as if normal, k
has covariance C = (f²/d)·XXᵀ + (β²/2π)·I, so it is short, |k|² ≈ n, in the form kᵀC⁻¹k, whose other
vectors are longer than (det C)^(−1/2n)·√(n/2πe) or so. C⁻¹ has the eigenvectors of XXᵀ: γ⁻² on the
rows' span and β⁻² off it, up to constants, each direction of the span with its own weight.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Form", "decreasing", "rows_for"]

_FIRST_BETA = 0.2
# ln of the root-Hermite factor of a few tours of BKZ-20, of BKZ-30 and more
_WEAK, _STRONG = 0.0165, 0.0129
_MARGIN = 0.2
_FEWER = 0.92  # of the best number of rows: loses 0.03 of ln β, and saves a quarter of the time

Array = npt.NDArray[np.float64]


def rows_for(d: int, *, beta: float, gamma: float, shrink: float = 1.0) -> int:
    """How many rows n for dimension d.

    k stands out by n·ln δ ≤ ln(1/β) − (d/n)·ln(γ'/β), γ' = γ·shrink·√(n/d), if reduction reaches δ.
    The smallest n at which a weak one does, as LLL takes n^4.5; where none does, a little less than
    the best n for a strong one.
    """
    n = np.arange(d + 6, 8 * d + 64)
    log_margin = -math.log(beta) - d / n * (np.log(n / d) / 2 + math.log(gamma * shrink / beta))
    enough = np.flatnonzero(log_margin - n * _WEAK >= _MARGIN)
    if len(enough):
        return int(n[enough[0]])
    return max(int(n[0]), int(_FEWER * n[(log_margin - n * _STRONG).argmax()]))


def decreasing(beta: float, factor: float) -> list[float]:
    """β·factor^i from about 0.2 down to β.

    Reduced all at once, floating point loses its way earlier.
    """
    steps = max(0, math.ceil(math.log(_FIRST_BETA / beta) / math.log(factor)))
    return [beta * factor**step for step in range(steps, -1, -1)]


class Form:
    """C^(−1/2) for rows x (n, d) in the eigenvectors of XXᵀ, for one γ and any β."""

    def __init__(self, x: Array, *, gamma: float) -> None:
        self._left, self._singular, _ = np.linalg.svd(x, full_matrices=True)
        self.n, self.d = x.shape
        self._gamma = gamma

    def images(self, beta: float) -> Array:
        """Shape (n, n): row i is the image of the i-th unit vector, not rounded."""
        square = beta**2 + self._gamma**2
        frequency = square / (self._gamma * math.sqrt(2 * math.pi))
        variance = np.full(self.n, square / self._gamma**2 * beta**2 / (2 * math.pi))
        variance[: self.d] += (frequency * self._singular) ** 2 / self.d
        return np.asarray(self._left / np.sqrt(variance))
