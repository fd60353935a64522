"""The defender's own noise N(0, (τσ)²) on a lattice: two generators, and what each gives alone.

Of noise that carries its own seed, smoothing leaves just that: :func:`seeded_low`. Besides, the
options that smoothing and rounding share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpaudit.accounting import gaussian_epsilon
from dpaudit.accounting.discrete import discrete_gaussian_bounds
from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.numeric.arrays import device_of, double, library
from dpaudit.numeric.exact_integers import IntegerLaw, draw_integers
from dpaudit.numeric.lattice import RoundedHost, in_dtype, lattice_step
from dpaudit.numeric.normal import standard_normal
from dpaudit.protocols import Array, Host, Stream

__all__ = ["OwnNoise", "check_own", "check_positive", "least_gamma", "seeded_low"]


def check_positive(**values: float) -> None:
    """Raise a UsageError that names the value that is not a finite number above 0."""
    for name, value in values.items():
        if isinstance(value, (str, bool)) or not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value}: must be a finite number > 0")


def least_gamma(*, gamma_min: float | None, dim: int | None) -> float | None:
    """The smallest γ to defend against: as given, else 2√dim (continuous LWE is hard), or None.

    Raises:
        UsageError: the value used is not a finite number above 0.
    """
    if gamma_min is not None:
        check_positive(gamma_min=gamma_min)
        return float(gamma_min)
    if dim is not None:
        check_positive(dim=dim)
        return 2 * math.sqrt(dim)
    return None


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


_SECURE_TAU = (1e-5, 90.0)  # 167 (the proof's Section 5 needs 64) to 2^32 steps of the lattice


def check_own(own: str, tau: float) -> str:
    """Return ``own``, the generator's name.

    Raises:
        UsageError: no such generator, or a τ that it cannot serve.
    """
    if own not in ("fast", "secure"):
        raise UsageError(f"own={own}: must be fast (statistical) or secure (exact, CSPRNG)")
    low, high = _SECURE_TAU
    if own == "secure" and not low <= tau <= high:
        raise UsageError(f"tau={tau}: own=secure takes [{low}, {high:g}] (lattice σ·2^-24)")
    return own


@dataclass(frozen=True)
class OwnNoise:
    """Noise of standard deviation τσ, independent of a source's (σ), on the source's lattice.

    Fast: normals from a generator seeded with 256 bits of the stream, float64. ``secure``: exact
    discrete Gaussians on the lattice, from the stream's bytes; the other noise is rounded to the
    lattice first.
    """

    tau: float
    sigma: float
    secure: bool

    @property
    def step(self) -> float:
        """``lattice_step`` of the source's σ."""
        return lattice_step(self.sigma)

    @property
    def _scale(self) -> float:
        return self.tau * self.sigma / self.step

    def added_to(self, noise: Array, *, stream: Stream) -> Array:
        """``noise`` (n, d) plus own noise, the sum not yet rounded; the argument is unchanged."""
        (n, d), g, device = noise.shape, self.step, device_of(noise)
        if not self.secure:
            own = standard_normal(n, d, stream=stream, sigma=self.tau * self.sigma, device=device)
            own += noise
            return own
        law = IntegerLaw.gaussian(self._scale)
        own = in_dtype(draw_integers(n * d, law, stream=stream).reshape(n, d) * g, None, device)
        own += library(noise).round(double(noise) / g) * g
        return own

    def alone(self, delta: float, *, host: Host) -> float:
        """This noise's ε at ``delta`` whatever the source's noise, if independent of the query."""
        if not self.secure:
            sensitivity = RoundedHost(host, self.step).sensitivity
            return gaussian_epsilon(delta, sigma=self.tau * self.sigma, sensitivity=sensitivity)
        in_steps = host.sensitivity / self.step
        return discrete_gaussian_bounds(
            delta, scale=self._scale, sensitivity=in_steps, dim=host.dim, rounded=True
        ).high

    def waves(self, key: PancakeKey) -> float | None:
        """How many terms of W it smooths as N(0, (τσ)²I) would (``smoothing_eta``), if known.

        Fast noise all; secure noise those of frequency at most a quarter of the lattice's in every
        coordinate: see PROOF.md, Section 5.
        """
        if not self.secure:
            return math.inf
        if key.directions > 1:
            return None
        period = math.sqrt(2 * math.pi) * self.sigma / key.gamma
        return math.floor(period / (4 * self.step * float(np.abs(key.direction).max())))
