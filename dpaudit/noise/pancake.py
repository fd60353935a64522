"""LAB SPECIMEN: the Gaussian pancake, a covert backdoor in place of Gaussian noise (arXiv 2509.23834)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.accounting import pancake_epsilon_lower, pancake_epsilon_upper, peak_spacing, peak_width
from dpaudit.errors import UsageError
from dpaudit.interfaces import Host, Stream
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.normal import check_shape, check_sigma, standard_normal
from dpaudit.types import EpsilonBounds

__all__ = ["Pancake", "discrete_gaussian"]


def discrete_gaussian(n: int, *, scale: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """``n`` integers with P(k) ∝ exp(−k²/(2·scale²)), by rejection from the discrete Laplace law.

    Canonne, Kamath and Steinke 2020 (arXiv 2004.00010), Algorithm 3, vectorised with double-precision acceptance
    probabilities: the law is exact but for their rounding (relative error about 1e-16). Not claimed: exactness in the
    sense of that paper's rational arithmetic.

    Raises:
        UsageError: scale not a finite number above 0.
    """
    check_sigma(scale)
    t = math.floor(scale) + 1
    out = np.empty(n, np.int64)
    filled = 0
    while filled < n:
        size = int((n - filled) * 1.6) + 16
        # two geometric variables' difference is discrete Laplace with parameter exp(−1/t)
        magnitude = rng.geometric(-math.expm1(-1 / t), size) - rng.geometric(-math.expm1(-1 / t), size)
        gap = np.abs(magnitude) - scale * scale / t
        kept = magnitude[rng.random(size) < np.exp(-gap * gap / (2 * scale * scale))][: n - filled]
        out[filled : filled + len(kept)] = kept
        filled += len(kept)
    return out


class Pancake:
    """LAB SPECIMEN. Noise that is N(0, σ²I) across the key's secret direction and thin, evenly spaced pancakes along it.

    Along w the law is Σ_k p_k N(k·P, s²) with P = √(2π)σγ/(β²+γ²), s = σβ/r, p_k ∝ exp(−πk²/r²), r² = β²+γ²
    (Lemma 2.6): ``v = g + (c − ⟨g,w⟩)·w``. It claims to be Gaussian.

    Formal guarantee to its owner: for γ ≥ 2√d nobody without the key tells it from Gaussian noise in polynomial time if
    continuous LWE is hard (Theorem 3.4). What it leaves of privacy towards the owner: :meth:`epsilon`.
    """

    def __init__(self, *, key: PancakeKey | str | Path, sigma: float = 1.0) -> None:
        """Noise of standard deviation ``sigma`` under ``key``, a :class:`PancakeKey` or its file."""
        self.key = key if isinstance(key, PancakeKey) else PancakeKey.load(key)
        self.sigma = check_sigma(sigma)
        self.spacing = peak_spacing(sigma=self.sigma, beta=self.key.beta, gamma=self.key.gamma)
        self.width = peak_width(sigma=self.sigma, beta=self.key.beta, gamma=self.key.gamma)

    @property
    def claim(self) -> str:
        return f"gaussian:sigma={self.sigma!r}"

    @property
    def dim(self) -> int:
        return self.key.dim

    def along_key(self, n: int, *, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """``n`` draws of the law along the secret direction."""
        r = math.hypot(self.key.beta, self.key.gamma)
        peaks = discrete_gaussian(n, scale=r / math.sqrt(2 * math.pi), rng=rng)
        return peaks * self.spacing + self.width * rng.standard_normal(n)

    def sample(
        self, n: int, d: int, *, stream: Stream, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> torch.Tensor:
        """``n`` vectors, shape (n, d): computed in float64, then rounded to ``dtype``.

        Raises:
            UsageError: d is not the key's dimension.
        """
        check_shape(n, d)
        if d != self.key.dim:
            raise UsageError(
                f"d={d}: this key was made for dim={self.key.dim}; make one with dpaudit key new --dim {d}"
            )
        noise = standard_normal(n, d, stream=stream.child("orthogonal"), device=device).mul_(self.sigma)
        w = torch.from_numpy(np.array(self.key.direction)).to(noise.device)
        along = torch.from_numpy(self.along_key(n, rng=stream.child("along").numpy())).to(noise.device)
        noise.addr_(along - noise @ w, w)
        return noise.to(dtype or torch.float64)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Towards the key holder: Theorem 4.2 at the host's most exposed neighbour below, Theorem 4.4 above."""
        beta, gamma = self.key.beta, self.key.gamma
        shift = host.differences(torch.from_numpy(np.array(self.key.direction))) / self.spacing
        return EpsilonBounds(
            low=pancake_epsilon_lower(
                delta, beta=beta, gamma=gamma, fraction=float((shift - shift.round()).abs().max())
            ),
            high=pancake_epsilon_upper(delta, sigma=self.sigma, beta=beta, gamma=gamma, sensitivity=host.sensitivity),
            says="arXiv 2509.23834: Theorem 4.2 at the most exposed neighbour / Theorem 4.4",
        )
