"""What two servers' noise gives against someone who knows every secret of the backdoored part."""

from __future__ import annotations

import math
from typing import Literal

from dpaudit.accounting import smoothed_pancake
from dpaudit.accounting.discrete import discrete_gaussian_bounds
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake, key_holder_profile
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.protocols import Host, NoiseSource
from dpaudit.types import EpsilonBounds

__all__ = ["Backdoored", "key_holder_epsilon"]

Backdoored = Literal["answer", "noise", "both"]


def key_holder_epsilon(
    source: NoiseSource,
    delta: float,
    *,
    host: Host,
    backdoored: Backdoored,
    ratio: float,
    step: float,
) -> EpsilonBounds:
    """Bounds for server 1's noise (scale σ) plus server 2's (``ratio``·σ), ``source`` backdoored.

    Where ``source`` is in truth Gaussian, the whole sum is (of two discrete Gaussians of s₁, s₂
    steps, up to a factor of 1 ± 4·exp(−2π²·s₁²s₂²/(s₁²+s₂²)) per coordinate, which is 1 in
    doubles). A pancake plus an honest Gaussian is a pancake again, so its profile is exact
    (``dpaudit.accounting.smoothed_pancake``) except for the lattice, whose rounding adds up to
    ``step``·√d to the sensitivity and is left out there. For anything else only this is used: that
    adding to it is post-processing, and that the honest server's noise protects whatever it is
    added to; that noise is also an upper bound throughout.
    """
    sigma, key = source.sigma, _key(source)

    def gaussian(scale: float) -> EpsilonBounds:
        return discrete_gaussian_bounds(
            delta,
            scale=scale / step,
            sensitivity=host.sensitivity / step,
            dim=host.dim,
            rounded=True,
        )

    if isinstance(source, Gaussian | SecureGaussian):
        own = gaussian(sigma * math.hypot(1.0, ratio))
        return EpsilonBounds(low=own.low, high=own.high, says="Gaussian noise of both servers")
    if backdoored == "both":
        if (
            key is not None
            and ratio == 1
            and (found := _two_pancakes(source, key, delta, host)) is not None
        ):
            return found
        high = source.epsilon(delta, host=host).high
        return EpsilonBounds(
            low=0.0,
            high=high,
            says="no honest server: at most what server 1's noise alone gives away",
        )
    honest, theirs = (ratio * sigma, sigma) if backdoored == "answer" else (sigma, ratio * sigma)
    alone = gaussian(honest).high
    if key is None:
        high = min(alone, source.epsilon(delta, host=host).high) if theirs == sigma else alone
        return EpsilonBounds(low=0.0, high=high, says="the honest server's noise alone")
    total, beta, gamma = smoothed_pancake(honest, sigma=theirs, beta=key.beta, gamma=key.gamma)
    exact = key_holder_profile(key, delta, host=host, sigma=total, beta=beta, gamma=gamma)
    low = max(0.0, exact.value - exact.error)
    return EpsilonBounds(
        low=low,
        high=max(low, min(alone, exact.value + exact.error)),
        says="profile of a pancake with honest noise on top, at the most exposed neighbour",
    )


def _key(source: NoiseSource) -> PancakeKey | None:
    """The source's key, if it is a pancake's with one direction."""
    return source.key if isinstance(source, Pancake) and source.key.directions == 1 else None


def _two_pancakes(
    source: NoiseSource, key: PancakeKey, delta: float, host: Host
) -> EpsilonBounds | None:
    """Two pancakes of one key: the sum has P unchanged and (√2σ, √2β, √2γ), by Lemma 2.6's law.

    The peaks' weights Σ_j exp(−π(j² + (k−j)²)/r²) are exp(−πk²/2r²) times a theta series that
    varies by a factor of 1 ± 2·exp(−πr²/2); None unless that is 1 in doubles.
    """
    r2 = key.beta**2 + key.gamma**2
    if math.pi * r2 / 2 < 40:
        return None
    root = math.sqrt(2.0)
    exact = key_holder_profile(
        key,
        delta,
        host=host,
        sigma=root * source.sigma,
        beta=root * key.beta,
        gamma=root * key.gamma,
    )
    low = max(0.0, exact.value - exact.error)
    return EpsilonBounds(
        low=low,
        high=exact.value + exact.error,
        says="no honest server: exact profile of two pancakes under one key",
    )
