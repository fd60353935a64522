"""A little independent Gaussian noise fills the gaps between pancakes."""

from __future__ import annotations

import math

import torch

from dpaudit.accounting import gaussian_epsilon, smoothing_eta, smoothing_tau
from dpaudit.errors import UsageError
from dpaudit.interfaces import Host, NoiseSource, Stream
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.normal import check_query, check_sigma
from dpaudit.types import EpsilonBounds

__all__ = ["Smoothing"]


class Smoothing:
    """Adds the defender's own N(0, τ²I), τ much smaller than σ, to the untrusted noise.

    Threat model: the source may be a pancake with any key and any β, and γ at least ``gamma_min``; the defender's own
    generator is trusted. ``tau`` is in units of the source's σ; without it the least τ that reaches ``eta`` at
    ``gamma_min`` is taken.

    Formal guarantee: towards the key holder the release is (ε + ln((1+η)/(1−η)), (1+η)·δ)-DP wherever the Gaussian with
    variance σ²+τ² is (ε, δ)-DP (Poisson summation over the peaks; ``dpaudit.accounting.smoothing_eta``). Not claimed:
    anything against a source with γ < ``gamma_min``, or one that is not a pancake; nor the sum's last bits: both noises are
    added in floating point, so a source that releases on a lattice (``secure-gaussian``) loses that guarantee.

    Cost: error grows by √(1 + τ²/σ²); one more Gaussian draw. The release claims √(σ²+τ²).
    """

    trusts = "the defender's generator, and that the pancakes are no further apart than assumed"

    def __init__(
        self, *, tau: float | None = None, gamma_min: float | None = None, eta: float = 1e-6, dim: int | None = None
    ) -> None:
        """Smoothing of ``tau``·σ, or as much as ``gamma_min`` (default 2√dim) and ``eta`` ask for.

        Raises:
            UsageError: neither tau, gamma_min nor dim given; one of them not > 0; or no τ ≤ σ reaches eta.
        """
        if tau is None and gamma_min is None and dim is None:
            raise UsageError("smoothing: needs tau=…, gamma_min=… or dim=… (γ ≥ 2√dim), e.g. smoothing:tau=0.05")
        if tau is None:
            gamma = gamma_min if gamma_min is not None else 2 * math.sqrt(float(dim or 0))
            tau = smoothing_tau(eta, sigma=1.0, gamma=gamma)
        self.tau = check_sigma(tau)

    def release(self, query: torch.Tensor, source: NoiseSource, *, stream: Stream) -> torch.Tensor:
        """``query`` plus the source's noise plus N(0, (τσ)²), shape (n, d)."""
        n, d = check_query(query)
        noise = source.sample(n, d, stream=stream.child("source"), dtype=query.dtype, device=query.device)
        own = Gaussian(sigma=self.tau * source.sigma)
        return query + noise + own.sample(n, d, stream=stream.child("own"), dtype=query.dtype, device=query.device)

    def scale(self, sigma: float) -> float:
        """√(σ² + τ²)."""
        return sigma * math.hypot(1.0, self.tau)

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """For a pancake the theorem above; for any other source, what the defender's own noise gives alone."""
        key = getattr(source, "key", None)
        if key is None:
            alone = gaussian_epsilon(delta, sigma=self.scale(source.sigma), sensitivity=host.sensitivity)
            own = source.epsilon(delta, host=host)
            if own.low == own.high:  # an exact Gaussian stays one
                return EpsilonBounds(low=alone, high=alone, says=own.says)
            rest = gaussian_epsilon(delta, sigma=self.tau * source.sigma, sensitivity=host.sensitivity)
            return EpsilonBounds(low=0.0, high=min(rest, own.high), says="the defender's own noise alone")
        eta = smoothing_eta(tau=self.tau * source.sigma, sigma=source.sigma, beta=key.beta, gamma=key.gamma)
        if eta >= 1:
            rest = gaussian_epsilon(delta, sigma=self.tau * source.sigma, sensitivity=host.sensitivity)
            return EpsilonBounds(low=0.0, high=rest, says="the defender's own noise alone: eta ≥ 1")
        base = gaussian_epsilon(delta / (1 + eta), sigma=self.scale(source.sigma), sensitivity=host.sensitivity)
        return EpsilonBounds(low=0.0, high=base + math.log((1 + eta) / (1 - eta)), says="smoothing theorem (Poisson)")
