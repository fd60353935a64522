"""A fresh Haar rotation of every noise vector: the hidden direction is somewhere else each time."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy
import torch

from dpaudit.accounting import gaussian_epsilon, peak_spacing, peak_width
from dpaudit.interfaces import Host, NoiseSource, Stream
from dpaudit.noise.normal import check_query, standard_normal
from dpaudit.types import EpsilonBounds

__all__ = ["Rotation", "norm_deviation"]


class Rotation:
    """Each noise vector under its own uniformly random rotation (arXiv 2509.23834, Section 6.1), in O(d).

    A Haar rotation applied to one vector is, exactly, its norm times an independent uniform direction; no matrix.

    Threat model: the source may hide anything in the direction of its noise; the defender's generator is trusted and its
    rotation stays secret (never stored).

    Formal guarantee: given its norm, the released noise is uniform on the sphere, so nothing but the norm of the source's
    noise passes. Not claimed: anything about that norm, which a source may use as a channel of its own; the shared
    rotation of several releases, which is another defence; nor the sum's last bits: the turned noise is added in floating
    point, so a source that releases on a lattice (``secure-gaussian``) loses that guarantee.

    Cost: one Gaussian draw and two passes; the error stays what it was.
    """

    trusts = "the defender's generator, and that its rotation stays secret"

    def release(self, query: torch.Tensor, source: NoiseSource, *, stream: Stream) -> torch.Tensor:
        """``query`` plus rotated noise, shape (n, d)."""
        n, d = check_query(query)
        noise = source.sample(n, d, stream=stream.child("source"), dtype=query.dtype, device=query.device)
        turned = standard_normal(n, d, stream=stream.child("rotation"), dtype=query.dtype, device=query.device)
        length = torch.linalg.vector_norm(noise.double(), dim=1) / torch.linalg.vector_norm(turned.double(), dim=1)
        return query + turned.mul_(length.to(turned.dtype).unsqueeze(1))

    def scale(self, sigma: float) -> float:
        return sigma

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """Exact for Gaussian noise; for a pancake the Gaussian's, up to how far the norms' laws differ."""
        own = source.epsilon(delta, host=host)
        if own.low == own.high:  # rotation invariant already
            return own
        key = getattr(source, "key", None)
        if key is None:
            return EpsilonBounds(low=0.0, high=math.inf, says="unknown: rests on the law of the source's norm")
        base = gaussian_epsilon(delta / 4, sigma=source.sigma, sensitivity=host.sensitivity)
        outside = delta / 8 * math.exp(-min(base, 700.0))
        eta = norm_deviation(dim=host.dim, beta=key.beta, gamma=key.gamma, outside=outside)
        if not eta < 1:
            return EpsilonBounds(low=0.0, high=math.inf, says="unknown: the norm's law is far from χ")
        return EpsilonBounds(
            low=0.0, high=base + math.log((1 + eta) / (1 - eta)), says="numerical: the norm's density against χ's"
        )


def norm_deviation(*, dim: int, beta: float, gamma: float, outside: float) -> float:
    """Largest relative deviation η of the density of a pancake's squared norm from χ²'s, on all but ``outside`` of χ².

    The squared norm is c² + χ²_{d−1} with c from the pancakes; its density is summed peak by peak (9-point Gauss-Hermite
    within a peak) at 257 points. If η < 1, the rotated release is (ε + ln((1+η)/(1−η)), δ)-DP where the Gaussian is
    (ε, δ/4)-DP and ``outside`` ≤ δ·e^−ε/8. A numerical statement, not a proof: it trusts the grid. Returns inf for
    d < 4, where the density is not smooth enough to be summed so.
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
