"""The non-private adversary, who sees the objects themselves: incomplete beta functions instead of quadrature."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.errors import UsageError
from dpaudit_attacks.pool_inference.normalizing import normalized

__all__ = ["count_posterior"]

_TINY = 1e-280  # below this scipy's function loses digits to underflow


def count_posterior(
    counts: npt.NDArray[np.integer], *, pool_prior: npt.NDArray[np.float64] | None = None
) -> npt.NDArray[np.float64]:
    """Pr[preferred pool = i | how many objects of each pool], (…, k), for ``counts`` (…, k + 1), the neutral pool first.

    With objects in the clear the score of ``pool_posterior`` separates: γ integrates to the same for all pools, and with
    n_i objects of pool i and N of all pools of interest

        score_i ∝ (k − 1)^(n_i) ∫_{1/k}^1 δ^(n_i) (1 − δ)^(N − n_i) dδ,

    an upper incomplete beta function, taken in logarithms (where it is below 1e-280, by its power series of positive terms).
    The objects' popularity drops out (the paper's footnote 4), so weak and strong are one.

    Raises:
        UsageError: no whole numbers ≥ 0, or fewer than two pools of interest.

    >>> count_posterior(np.array([5, 0, 0, 0])).round(3).tolist()
    [0.333, 0.333, 0.333]
    """
    counts = np.asarray(counts)
    if counts.ndim < 1 or counts.shape[-1] < 3 or not np.issubdtype(counts.dtype, np.integer) or (counts < 0).any():
        raise UsageError(f"counts of shape {counts.shape}: whole numbers ≥ 0, of neutral and two or more pools")
    k = counts.shape[-1] - 1
    here = counts[..., 1:].astype(np.float64)
    others = here.sum(axis=-1, keepdims=True) - here
    upper = scipy.special.betaincc(here + 1, others + 1, 1 / k)
    with np.errstate(divide="ignore"):
        log_upper = np.log(upper)
    for at in np.argwhere(upper < _TINY):
        log_upper[tuple(at)] = _log_tail(here[tuple(at)], others[tuple(at)], k)
    return normalized(here * np.log(k - 1) + scipy.special.betaln(here + 1, others + 1) + log_upper, pool_prior)


def _log_tail(here: float, others: float, k: int) -> float:
    """The logarithm of I_x(b, a) at x = 1 − 1/k, b = others + 1, a = here + 1: a power series.

    I_x(b, a) = x^b (1 − x)^a/(b·B(a, b))·Σ_j (a + b)_j/(b + 1)_j·x^j (DLMF 8.17.8), all terms positive.
    """
    a, b, x = here + 1, others + 1, 1 - 1 / k
    term = total = 1.0
    j = 0
    while term > total * 1e-17:
        term *= x * (a + b + j) / (b + 1 + j)
        total += term
        j += 1
    return float(b * np.log(x) + a * np.log1p(-x) - np.log(b) - scipy.special.betaln(a, b) + np.log(total))
