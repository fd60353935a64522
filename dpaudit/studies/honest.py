"""What the best attacker wins against honest Gaussian noise: (ε, δ)-DP is no promise of coin tossing."""

from __future__ import annotations

import numpy as np
import scipy
import torch

__all__ = ["best_bin", "best_of_two"]

_BINS = 1 << 12
_STEP = 1 / 64


def best_of_two(pairs: torch.Tensor, *, sigma: float) -> torch.Tensor:
    """Φ(|q − q′|/2σ) for each of ``pairs`` (n, 2, d), shape (n,): no rule tells equally likely q, q′ apart more often."""
    apart = torch.linalg.vector_norm(pairs[:, 0] - pairs[:, 1], dim=1)
    won: torch.Tensor = torch.special.ndtr(apart / (2 * sigma))
    return won


def best_bin(counts: torch.Tensor, *, sigma: float) -> float:
    """How often the best rule names the bin that lacks one record, drawn uniformly, of ``counts`` (d,) behind N(0, σ²I).

    The rule takes the largest a_j + x_j, a_j = σ·ln(share of bin j), x_j = −(release − count)_j/σ, which is N(0, 1), or
    N(1/σ, 1) for the bin in question; an integral over that sum, by the trapezium rule.
    """
    share = counts[counts > 0].double().numpy()
    share = share / share.sum()
    a = sigma * np.log(share)
    t = np.arange(a.max() - 9, a.max() + 10 + 1 / sigma, _STEP)
    below = np.zeros_like(t)
    for at in range(0, len(a), _BINS):
        below += scipy.special.log_ndtr(t - a[at : at + _BINS, None]).sum(0)
    total = 0.0
    for at in range(0, len(a), _BINS):
        away = t - a[at : at + _BINS, None]
        log_density = -((away - 1 / sigma) ** 2) / 2 + below - scipy.special.log_ndtr(away)
        total += float(share[at : at + _BINS] @ np.exp(log_density).sum(1))
    return total * _STEP / float(np.sqrt(2 * np.pi))
