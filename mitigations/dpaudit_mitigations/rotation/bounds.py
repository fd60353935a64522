"""What a rotated release gives away to the source's owner: theorems where the norm's law is known, nothing elsewhere."""

from __future__ import annotations

import math

from dpaudit.accounting import gaussian_epsilon
from dpaudit.interfaces import Host, NoiseSource
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.lattice import RoundedHost, lattice_step
from dpaudit.noise.norm_channel import NormChannel
from dpaudit.noise.pancake import Pancake
from dpaudit.types import EpsilonBounds
from dpaudit_mitigations.rotation.norms import norm_deviation

__all__ = ["gaussian_on_lattice", "haar_rotated", "orthogonally_turned"]


def gaussian_on_lattice(delta: float, *, sigma: float, host: Host) -> EpsilonBounds:
    """For N(0, σ²I) and the query each rounded to a lattice of g = ``lattice_step(sigma)``, in real arithmetic.

    ``high``: K + rint(N/g) = rint(K + N/g) for integers K, so the release is post-processing of the Gaussian mechanism at
    K·g, whose sensitivity is Δ + g√d. ``low``: with u the neighbours' difference over its length, the two roundings move
    ⟨release, u⟩ by at most g√d, so the test {⟨y − q, u⟩ ≥ c} does as well as on Gaussian noise at Δ − 2g√d. It takes Δ to
    be attained, and a release that no narrower dtype has rounded further.
    """
    high = gaussian_epsilon(delta, sigma=sigma, sensitivity=RoundedHost(host, lattice_step(sigma)).sensitivity)
    near = host.sensitivity - 2 * lattice_step(sigma) * math.sqrt(host.dim)
    low = gaussian_epsilon(delta, sigma=sigma, sensitivity=near) if near > 0 else 0.0
    return EpsilonBounds(low=low, high=high, says="Gaussian profile at Δ − 2g√d and Δ + g√d: rounded to a lattice")


def haar_rotated(source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
    """For one noise vector under a Haar rotation that nobody knows, released on the lattice.

    Exact but for the lattice for Gaussian noise, which no rotation changes. For a pancake of one direction the Gaussian's,
    up to how far the norms' laws differ. Unknown for every other source.
    """
    if isinstance(source, Pancake) and source.key.directions == 1:
        rounded = RoundedHost(host, lattice_step(source.sigma))
        base = gaussian_epsilon(delta / 4, sigma=source.sigma, sensitivity=rounded.sensitivity)
        outside = delta / 8 * math.exp(-min(base, 700.0))
        eta = norm_deviation(dim=host.dim, beta=source.key.beta, gamma=source.key.gamma, outside=outside)
        if not eta < 1:
            return EpsilonBounds(low=0.0, high=math.inf, says="unknown: the norm's law is far from χ")
        return EpsilonBounds(
            low=0.0, high=base + math.log((1 + eta) / (1 - eta)), says="numerical: the norm's density against χ's"
        )
    return orthogonally_turned(source, delta, host=host, says="unknown: rests on the law of the source's norm")


def orthogonally_turned(source: NoiseSource, delta: float, *, host: Host, says: str) -> EpsilonBounds:
    """For noise under any orthogonal map drawn independently of it, released on the lattice; ``says`` where unknown."""
    if isinstance(source, Gaussian):
        return gaussian_on_lattice(delta, sigma=source.sigma, host=host)
    if isinstance(source, NormChannel):  # what its reader looks at is what the map keeps
        own = source.epsilon(delta, host=host)
        return EpsilonBounds(low=own.low, high=math.inf, says=f"the norm passes a rotation: {own.says}")
    return EpsilonBounds(low=0.0, high=math.inf, says=says)
