"""ε of a rotated release against the source's owner: proven where the norm's law is known."""

from __future__ import annotations

import math

from dpaudit.accounting import gaussian_epsilon
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.norm_channel import NormChannel
from dpaudit.noise.pancake import Pancake
from dpaudit.protocols import Host, NoiseSource
from dpaudit.types import EpsilonBounds
from dpaudit.vectors.lattice import RoundedHost, lattice_step
from dpaudit_mitigations.rotation.radial import norm_deviation, rotated_epsilon

__all__ = [
    "gaussian_on_lattice",
    "haar_rotated",
    "haar_rotated_together",
    "orthogonally_turned",
    "pancake_under_haar",
]

_SHARES = (0.1, 1e-3, 1e-6, 1e-9)
_TIGHT = 1e-3  # nats between the theorem's bounds: tight enough


def gaussian_on_lattice(delta: float, *, sigma: float, host: Host) -> EpsilonBounds:
    """N(0, σ²I) and the query, each rounded to the lattice of g = ``lattice_step(sigma)``.

    In real arithmetic.

    ``high``: K + rint(N/g) = rint(K + N/g) for integers K, so the release is post-processing of the
    Gaussian mechanism at K·g, whose sensitivity is Δ + g√d. ``low``: with u the neighbours'
    difference over its length, the two roundings move ⟨release, u⟩ by at most g√d, so the test {⟨y
    − q, u⟩ ≥ c} does as well as on Gaussian noise at Δ − 2g√d. It takes Δ to be attained, and a
    release that no narrower dtype has rounded further.
    """
    high = gaussian_epsilon(
        delta, sigma=sigma, sensitivity=RoundedHost(host, lattice_step(sigma)).sensitivity
    )
    near = host.sensitivity - 2 * lattice_step(sigma) * math.sqrt(host.dim)
    low = gaussian_epsilon(delta, sigma=sigma, sensitivity=near) if near > 0 else 0.0
    return EpsilonBounds(
        low=low, high=high, says="Gaussian profile at Δ − 2g√d and Δ + g√d: rounded to a lattice"
    )


def haar_rotated(source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
    """ε of one noise vector under a secret Haar rotation, released on the lattice.

    Exact but for the lattice for Gaussian noise, which no rotation changes. For a pancake the
    Gaussian's, up to how far the norms' laws differ (:func:`pancake_under_haar`). Unknown for every
    other source.
    """
    if isinstance(source, Pancake):
        return pancake_under_haar(source, delta, host=host)
    return orthogonally_turned(
        source, delta, host=host, says="unknown: rests on the law of the source's norm"
    )


def haar_rotated_together(source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
    """ε of one vector of a call with one Haar rotation, against somebody who may know the others.

    Gaussian vectors stay independent. A pancake's share a secret direction, which the others can
    reveal, so that nothing bounds ε from above except in a call of one release, where it is
    :func:`haar_rotated`'s.
    """
    own = haar_rotated(source, delta, host=host)
    if isinstance(source, Gaussian) or own.high == math.inf:
        return own
    says = (
        "unknown: others of the call tell of the direction; "
        f"≤ {own.high:.4g} in a call of one release"
    )
    return EpsilonBounds(low=own.low, high=math.inf, says=says)


def pancake_under_haar(source: Pancake, delta: float, *, host: Host) -> EpsilonBounds:
    """ε by a theorem where the norm's law is near χ; else by integration over the radius.

    The theorem uses the density's ratio to the Gaussian's, within 1 ± η except on a set A of short
    noise (``norm_deviation``). With κ = P(A) at most, F the rotated pancake's law at a query, G the
    Gaussian's (ε, δ′), and a prime for the neighbour's: F(S) ≤ κ + (1+η)·G(S∖A) ≤ κ + (1+η)·(δ′ +
    e^ε·(κ + F′(S)/(1−η))), and from below, for S with G(S) = δ′ + e^ε·G′(S), F(S) ≥ (1−η)·(G(S) −
    κ) ≥ (1−η)·(δ′ − κ + e^ε·(F′(S) − κ)/(1+η)). κ ≤ share·δ·e^−ε/4, for the share that leaves the
    bounds closest: a smaller A costs η, a larger one δ.

    The exact profile (``rotated_epsilon``) is numerical, for one direction and a host whose
    neighbours are all Δ apart.
    """
    proven = min(
        (_by_theorem(source, delta, host=host, share=s) for s in _SHARES),
        key=lambda b: b.high - b.low,
    )
    if proven.high - proven.low <= _TIGHT or source.key.directions > 1 or hasattr(host, "slack"):
        return proven
    exact = rotated_epsilon(
        delta,
        dim=host.dim,
        sigma=source.sigma,
        beta=source.key.beta,
        gamma=source.key.gamma,
        sensitivity=host.sensitivity,
    )
    if not 2 * exact.error < proven.high - proven.low:
        return proven
    low, high = max(0.0, exact.value - exact.error), exact.value + exact.error
    return EpsilonBounds(
        low=low, high=high, says="exact profile by radial integration; the lattice neglected"
    )


def _by_theorem(source: Pancake, delta: float, *, host: Host, share: float) -> EpsilonBounds:
    g, k = lattice_step(source.sigma), source.key.directions

    def gaussian(at: float, sensitivity: float) -> float:
        return gaussian_epsilon(at, sigma=source.sigma, sensitivity=sensitivity)

    most = RoundedHost(host, g).sensitivity
    least = host.sensitivity - 2 * g * math.sqrt(host.dim)
    outside = share / 4 * delta * math.exp(-min(gaussian(0.45 * delta, most), 700.0))
    eta = norm_deviation(
        dim=host.dim, beta=source.key.beta, gamma=source.key.gamma, outside=outside, directions=k
    )
    if not eta < 1:
        return EpsilonBounds(
            low=0.0, high=math.inf, says="unknown: the norm's law may be far from χ"
        )
    more = math.log1p(eta) - math.log1p(-eta)
    high = more + gaussian((1 - share) * delta / (1 + eta), most)
    raised = delta / (1 - eta) + share / 2 * delta
    low = gaussian(raised, least) - more if least > 0 and raised < 1 else 0.0
    return EpsilonBounds(
        low=max(0.0, low), high=high, says=f"Poisson summation on spheres, η = {eta:.2g}"
    )


def orthogonally_turned(
    source: NoiseSource, delta: float, *, host: Host, says: str
) -> EpsilonBounds:
    """ε of noise under an independent orthogonal map, on the lattice; ``says`` where unknown."""
    if isinstance(source, Gaussian):
        return gaussian_on_lattice(delta, sigma=source.sigma, host=host)
    if isinstance(source, NormChannel):  # its reader uses what the map keeps
        own = source.epsilon(delta, host=host)
        return EpsilonBounds(
            low=own.low, high=math.inf, says=f"the norm passes a rotation: {own.says}"
        )
    return EpsilonBounds(low=0.0, high=math.inf, says=says)
