"""The pancake's owner at work: tells which of several databases a release came from, with the key.

Threat model: the attacker knows the key, σ, the candidates (query results of the databases it considers) and the
release; nothing else. Published attack: nearest hyperplane (arXiv 2509.23834, Section 5). Ours: the exact likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake

__all__ = ["LikelihoodRatio", "NearestPeak"]

_PHASE_BINS = 32


class _Keyed:
    """What both distinguishers share: the key's geometry and the picture of the phases."""

    def __init__(self, *, key: PancakeKey | str | Path, sigma: float) -> None:
        """Hold ``key`` (or its file) for releases with noise scale ``sigma``."""
        self.source = Pancake(key=key, sigma=sigma)
        self.direction = torch.from_numpy(np.array(self.source.key.direction))

    def _residuals(self, releases: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Y − q_i for all pairs, shape (t, m, d), float64.

        Raises:
            UsageError: dimensions that do not fit the key, or values that are not finite.
        """
        if candidates.ndim == 2:
            candidates = candidates.unsqueeze(0)
        for name, tensor, axes in (("releases", releases, 2), ("candidates", candidates, 3)):
            if tensor.ndim != axes or tensor.shape[-1] != self.source.dim:
                raise UsageError(
                    f"{name} of shape {tuple(tensor.shape)}: rows must have the key's {self.source.dim} values"
                )
            if not bool(torch.isfinite(tensor).all()):
                raise UsageError(f"{name}: contain NaN or infinity; an attack needs finite values")
        if len(candidates) not in (1, len(releases)):
            raise UsageError(f"candidates for {len(candidates)} releases: there are {len(releases)} releases")
        return releases.double().unsqueeze(1) - candidates.double()

    def evidence(self, releases: torch.Tensor, candidates: torch.Tensor, truth: torch.Tensor) -> Mapping[str, Any]:
        """The phase of the true candidate's noise along the key, in peak spacings: flat for Gaussian noise."""
        residual = self._residuals(releases, candidates)[torch.arange(len(releases)), truth]
        phase = residual @ self.direction / self.source.spacing
        counts, edges = np.histogram((phase - phase.round()).numpy(), bins=_PHASE_BINS, range=(-0.5, 0.5))
        return {"phases": {"edges": edges.tolist(), "counts": counts.tolist(), "what": "phase along the key"}}


class NearestPeak(_Keyed):
    """The paper's distinguisher: the candidate whose noise lies nearest to the middle of a pancake wins.

    Success with two candidates is at least 1 − 2Φ(−|f|·P/(2s)), f their distance along the key in peak spacings mod 1
    (arXiv 2509.23834, Section 5). Uses the peaks only; it ignores the envelope and the orthogonal part.
    """

    def score(self, releases: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Minus the distance to the nearest peak, shape (t, m), in peak spacings.

        Raises:
            UsageError: dimensions that do not fit the key, or values that are not finite.
        """
        phase = self._residuals(releases, candidates) @ self.direction / self.source.spacing
        return -(phase - phase.round()).abs()


class LikelihoodRatio(_Keyed):
    """The optimal distinguisher: the exact log-density of the pancake mechanism at each candidate.

    Formal guarantee: among all rules it has the highest average success when the candidates are equally likely
    (Neyman and Pearson), in exact arithmetic and if the noise is this pancake. Softmax of the scores is then the
    posterior. Not claimed: optimality against noise that something else has changed on the way.
    """

    def score(self, releases: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Log-likelihoods up to a constant of each release, shape (t, m).

        Raises:
            UsageError: dimensions that do not fit the key, or values that are not finite.
        """
        residual = self._residuals(releases, candidates)
        along = residual @ self.direction
        across = residual.square().sum(-1) - along.square()
        return self._log_mixture(along) - across / (2 * self.source.sigma**2)

    def _log_mixture(self, x: torch.Tensor) -> torch.Tensor:
        """Log Σ_k exp(−πk²/r²)·exp(−(x−kP)²/(2s²)) over the peaks that matter.

        As a function of k the exponent is a parabola of curvature 2π/r² + P²/s² = 2πγ²... around its maximum; terms
        more than 9 of its standard deviations away are below 1e-17 of the largest.
        """
        spacing, width = self.source.spacing, self.source.width
        r2 = self.source.key.beta**2 + self.source.key.gamma**2
        curvature = 2 * math.pi / r2 + (spacing / width) ** 2
        top = x * spacing / width**2 / curvature
        reach = math.ceil(9 / math.sqrt(curvature)) + 1
        k = top.round().unsqueeze(-1) + torch.arange(-reach, reach + 1, dtype=torch.float64)
        exponent = -math.pi * k.square() / r2 - (x.unsqueeze(-1) - k * spacing).square() / (2 * width**2)
        return torch.logsumexp(exponent, -1)
