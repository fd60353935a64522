"""ε from below of smoothed noise that carries its own seed: the defender's own noise, no more."""

from __future__ import annotations

import math

from dpaudit.accounting import gaussian_epsilon
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.protocols import Host
from dpaudit.vectors.lattice import lattice_step

__all__ = ["seeded_low"]

_KEYS = 64  # all keys but a share of 2^-64
_MISSED = 1e-9  # of δ, for own noise that is too long


def seeded_low(source: SeedInNoise, delta: float, *, host: Host, tau: float, most: float) -> float:
    """ε towards the key holder is at least this, if own noise is N(0, (``tau``)²), in query units.

    ``most`` is what own noise gives alone, the upper bound. Proof: PROOF.md, Section 6: rows of
    different nonces are further apart than own noise reaches, so that the key holder names the
    nonce. 0 where they may not be, and for laws other than the Gaussian. It takes Δ to be attained.
    """
    claim, g = source.rows.law.claim, lattice_step(source.sigma)
    free = host.dim - source.rows.code.symbols
    if claim.family != "gaussian" or free < 1 or not math.isfinite(most):
        return 0.0
    rounding = g * math.sqrt(host.dim)
    long = math.sqrt(2 * (most + math.log(2 / (_MISSED * delta))))
    radius = tau * (math.sqrt(host.dim) + long) + host.sensitivity + rounding
    share = 2 * (radius / source.sigma) ** 2 / free
    needed = (2 * source.nonce_bits + _KEYS) * math.log(2)
    if share >= 1 or free / 2 * (math.log(share) + 1 - share) > -needed:
        return 0.0
    least = host.sensitivity - 2 * rounding
    if least <= 0:
        return 0.0
    return gaussian_epsilon(delta * (1 + _MISSED), sigma=tau, sensitivity=least)
