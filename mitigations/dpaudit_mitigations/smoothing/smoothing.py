"""A little independent Gaussian noise fills the gaps between pancakes."""

from __future__ import annotations

import math

from dpaudit.accounting import (
    gaussian_epsilon,
    peak_width,
    smoothed_pancake,
    smoothing_epsilon,
    smoothing_eta,
    smoothing_tau,
    smoothing_tau_at_ratio,
)
from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake, key_holder_profile
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.numeric.arrays import device_of
from dpaudit.numeric.lattice import RoundedHost, add_on_lattice, lattice_step
from dpaudit.numeric.normal import check_query
from dpaudit.protocols import Array, Host, NoiseSource, ReleasingSource, Stream
from dpaudit.types import EpsilonBounds
from dpaudit_mitigations.smoothing.own_noise import (
    OwnNoise,
    check_own,
    check_positive,
    least_gamma,
    seeded_low,
)

__all__ = ["Smoothing"]

_DEFAULT_ETA = 1e-6


class Smoothing:
    """Adds the defender's own N(0, τ²I), τ much smaller than σ, to the untrusted noise.

    Threat model: the source may be a pancake with any key and any β, and γ at least ``gamma_min``;
    it does not see the query. The defender's own generator is trusted, and its noise stays secret.
    ``tau`` is in units of the source's σ; by default it is the least τ that reaches ``eta``, or the
    ``ratio`` R of :func:`dpaudit.accounting.smoothing_ratio` (1.5 leaves η = 1e-19), at
    ``gamma_min``.

    Formal guarantee: against the key holder the release is (ε + ln((1+η)/(1−η)), (1+η)·δ)-DP
    wherever the Gaussian with variance σ²+τ² is (ε, δ)-DP at sensitivity Δ + g√d; for k secret
    directions k times that ln, and (1+η)^k. Proof: ``PROOF.md`` in this folder (Poisson summation
    over the peaks; ours). The g√d is for the release itself: the query and the sum of both noises
    are each rounded once to multiples of g = ``lattice_step(σ)``, so no bit of the query below g is
    in the release. Against any source that does not see the query, a pancake with γ < ``gamma_min``
    or no pancake at all, what remains is what the defender's own noise gives alone. Both hold in
    real arithmetic; the generators:

    - ``own="fast"``: N(0, τ²) in floating point from a statistical generator that the stream seeds.
      In real arithmetic the above; not claimed: an exact law, or unpredictability to someone who
      sees much of its raw output.
    - ``own="secure"``: exact discrete Gaussians on the lattice, from the stream's bytes
      (``draw_integers``; ChaCha20). What it gives alone is then exact, whatever the source. The
      theorem holds with a few more terms in η: those of PROOF.md, Section 5, which vanish for β
      above about 5e-6 under a random key; below that, and for several directions, :meth:`epsilon`
      counts own noise alone.

    Not claimed: anything beyond own noise against a source with γ < ``gamma_min``, or one that is
    not a pancake: noise that carries its own seed (``seed-in-noise``) leaves the key holder exactly
    own noise, ε = 9 where 0.25 is claimed at 3,143 bins; that the source does not see the query;
    constant time.

    Cost: the L2 error grows by :attr:`l2_factor` = √(1 + τ²), at most 1 + 2/d at R = 1.5 and γ ≥
    2√d (from d = 24 on; two servers cost √2). One more Gaussian draw, and a pass for the lattice;
    ``secure`` draws about 20 million values per second.
    """

    trusts = "the defender's generator, and that the pancakes are no further apart than assumed"

    def __init__(
        self,
        *,
        tau: float | None = None,
        gamma_min: float | None = None,
        eta: float | None = None,
        ratio: float | None = None,
        dim: int | None = None,
        own: str = "fast",
    ) -> None:
        """Smooth by ``tau``·σ, or as ``eta`` (default 1e-6) or ``ratio`` needs at ``gamma_min``.

        ``gamma_min`` is 2√dim by default; ``dim`` has no other use. ``own`` is ``fast`` or
        ``secure``.

        Raises:
            UsageError: neither tau, gamma_min nor dim given, or τ stated twice; one of them not a
                finite number > 0; no τ ≤ σ reaches eta or ratio; another ``own``, or a τ that it
                does not support.
        """
        self.tau = _tau(tau=tau, gamma_min=gamma_min, eta=eta, ratio=ratio, dim=dim)
        self.own = check_own(own, self.tau)

    @property
    def l2_factor(self) -> float:
        """√(1 + τ²): the L2 error of a release against the source's alone."""
        return math.hypot(1.0, self.tau)

    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """``query`` plus source's noise plus N(0, (τσ)²), shape (n, d), on the lattice of σ.

        Both noises are drawn and added in float64, whatever the query's dtype: float32 noise has
        too few values for the lattice (``add_on_lattice``).

        Raises:
            UsageError: no query (see ``check_query``), a value beyond the lattice's range, or one
                that the dtype cannot hold.
        """
        n, d = check_query(query)
        noise = source.sample(n, d, stream=stream.child("source"), device=device_of(query))
        own = self._own(source)
        both = own.added_to(noise, stream=stream.child("own"))
        return add_on_lattice(
            query, both, granularity=own.step, name="smoothing", dtype=query.dtype
        )

    def scale(self, sigma: float) -> float:
        """√(σ² + τ²)."""
        return sigma * self.l2_factor

    def mixes(self, sigma: float) -> tuple[float, float]:
        """Standard deviations of the source's and of the independent noise: σ and τσ."""
        return sigma, self.tau * sigma

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """For a pancake the theorem above, from both sides; for Gaussian noise the same with η = 0.

        For any other source, and where η ≥ 1, what the defender's own noise gives alone, or the
        source's own ``high`` where this release post-processes its. For noise that carries its own
        seed that is also the ``low``, where rows are long enough (``seeded_low``). ``low`` assumes
        that the host's Δ is attained.
        """
        own = self._own(source)
        alone = own.alone(delta, host=host)
        if isinstance(source, Gaussian):
            return self._around_gaussian(
                source, delta, host=host, eta=0.0, alone=alone, statement="Gaussian on a lattice"
            )
        if not isinstance(source, Pancake):
            promised = _as_postprocessing(source, delta, host=host, step=own.step)
            statement, high = _by(alone, promised), min(alone, promised)
            low = 0.0
            if isinstance(source, SeedInNoise) and self.own == "fast":
                tau = self.tau * source.sigma
                low = min(high, seeded_low(source, delta, host=host, tau=tau, most=alone))
            return EpsilonBounds(low=low, high=high, says=statement)
        eta = self._eta(source)
        if eta < 1:
            statement, k = f"smoothing theorem (Poisson), η = {eta:.2g}", source.key.directions
            return self._around_gaussian(
                source, delta, host=host, eta=eta, alone=alone, statement=statement, directions=k
            )
        promised = _as_postprocessing(source, delta, host=host, step=own.step)
        low = _exact_low(source, delta, host=host, tau=self.tau * source.sigma)
        high, by = min(alone, promised), _by(alone, promised)
        statement = f"unknown beyond {by} (η ≥ 1); low: exact profile, the lattice neglected"
        return EpsilonBounds(low=min(low, high), high=high, says=statement)

    def epsilon_after(
        self, source: NoiseSource, delta: float, *, host: Host, releases: int
    ) -> EpsilonBounds:
        """What ``releases`` of the host's query give together, by one ``source`` with one key.

        Noise is independent between releases, so Gaussian noise composes as one release at √n·Δ. A
        pancake of one direction smoothed by N(0, τ²I) is the pancake (σ′, β′, γ′), so ``high`` is
        its exact composition at the most exposed neighbour, rounded up to a grid, with the
        lattice's g√d and g‖w‖₁; ``low`` is the same without the lattice, less the grid's estimated
        share. Where no such composition is known, both come from density ratios within (1 ± η)^n,
        and without these ``high`` is basic composition, n times the ε at δ/n.

        Raises:
            UsageError: fewer than one release.
        """
        if releases < 1:
            raise UsageError(f"releases={releases}: must be a whole number ≥ 1")
        one = self.epsilon(source, delta, host=host)
        if releases == 1:
            return one
        if isinstance(source, Pancake) and (
            composed := self._composed(source, delta, host=host, releases=releases)
        ):
            return composed
        basic = releases * self.epsilon(source, delta / releases, host=host).high
        eta, k = 0.0 if isinstance(source, Gaussian) else math.inf, 1
        if isinstance(source, Pancake):
            eta, k = self._eta(source), source.key.directions
        if not eta < 1:
            return EpsilonBounds(
                low=one.low, high=basic, says=f"basic composition of {releases} releases"
            )
        return self._around_gaussian(
            source,
            delta,
            host=host,
            eta=eta,
            alone=basic,
            statement=f"Gaussian on a lattice, η = {eta:.2g}, {releases} releases",
            directions=k * releases,
            releases=releases,
        )

    def _composed(
        self, source: Pancake, delta: float, *, host: Host, releases: int
    ) -> EpsilonBounds | None:
        key, waves = source.key, self._own(source).waves(source.key)
        if key.directions > 1 or waves is None:
            return None
        # PROOF.md, Section 5
        if math.erfc(math.sqrt(math.pi) * key.beta * waves) / key.beta > 1e-15 / releases:
            return None
        total, beta, gamma = smoothed_pancake(
            self.tau * source.sigma, sigma=source.sigma, beta=key.beta, gamma=key.gamma
        )
        law = {"sigma": total, "beta": beta, "gamma": gamma}
        on_lattice = RoundedHost(host, lattice_step(source.sigma))
        try:
            above = key_holder_profile(key, delta, host=on_lattice, releases=releases, **law)
            below = key_holder_profile(key, delta, host=host, releases=releases, **law)
        except (UsageError, MissingExtraError):
            # losses too large for the grid, one key's whole ball, or no dp-accounting
            return None
        low = max(0.0, min(below.value - 2 * below.error, above.value))
        return EpsilonBounds(
            low=low, high=above.value, says=f"exact composition of {releases} smoothed pancakes"
        )

    def _own(self, source: NoiseSource) -> OwnNoise:
        return OwnNoise(self.tau, source.sigma, secure=self.own == "secure")

    def _eta(self, source: Pancake) -> float:
        key = source.key
        waves = self._own(source).waves(key)
        if waves is None:
            return math.inf
        tau = self.tau * source.sigma
        return smoothing_eta(
            tau=tau, sigma=source.sigma, beta=key.beta, gamma=key.gamma, waves=waves
        )

    def _around_gaussian(
        self,
        source: NoiseSource,
        delta: float,
        *,
        host: Host,
        eta: float,
        alone: float,
        statement: str,
        directions: int = 1,
        releases: int = 1,
    ) -> EpsilonBounds:
        """What a density within 1 ± η of the Gaussian's per direction gives (PROOF.md, 4)."""
        step = lattice_step(source.sigma)
        sigma = self.scale(source.sigma) / math.sqrt(releases)  # n releases at Δ are one at √n·Δ
        more = smoothing_epsilon(eta, directions=directions)
        most = RoundedHost(host, step).sensitivity
        high = more + gaussian_epsilon(
            delta / (1 + eta) ** directions, sigma=sigma, sensitivity=most
        )
        least = host.sensitivity - 2 * step * math.sqrt(host.dim)
        raised = delta / (1 - eta) ** directions
        low = 0.0
        if least > 0 and raised < 1:
            low = gaussian_epsilon(raised, sigma=sigma, sensitivity=least) - more
        if alone < high:
            high = alone
            statement = "the defender's own noise alone" if releases == 1 else "basic composition"
        return EpsilonBounds(low=max(0.0, min(low, high)), high=high, says=statement)


def _tau(
    *,
    tau: float | None,
    gamma_min: float | None,
    eta: float | None,
    ratio: float | None,
    dim: int | None,
) -> float:
    """τ in units of σ, as given or as needed."""
    if tau is not None:
        check_positive(tau=tau)
        others = {"gamma_min": gamma_min, "eta": eta, "ratio": ratio}
        if twice := [f"{name}={value}" for name, value in others.items() if value is not None]:
            raise UsageError(f"tau={tau} and {', '.join(twice)}: tau alone suffices; give one")
        return float(tau)
    gamma = least_gamma(gamma_min=gamma_min, dim=dim)
    if gamma is None:
        raise UsageError("smoothing: needs tau=…, gamma_min=… or dim=…, e.g. smoothing:tau=0.05")
    if ratio is not None:
        if eta is not None:
            raise UsageError(f"ratio={ratio} and eta={eta}: each sets the smoothing; give one")
        check_positive(ratio=ratio)
        return smoothing_tau_at_ratio(ratio, sigma=1.0, gamma=gamma)
    if eta is not None:
        check_positive(eta=eta)
    return smoothing_tau(_DEFAULT_ETA if eta is None else eta, sigma=1.0, gamma=gamma)


def _as_postprocessing(source: NoiseSource, delta: float, *, host: Host, step: float) -> float:
    """The source's own ε where this release only post-processes its release; else infinite."""
    # noise that is added to any query: here to the rounded one
    if not isinstance(source, ReleasingSource):
        return source.epsilon(delta, host=RoundedHost(host, step)).high
    # a source that rounds the query to the same lattice itself
    if getattr(source, "granularity", None) == step:
        return source.epsilon(delta, host=host).high
    return math.inf


def _by(alone: float, promised: float) -> str:
    if alone <= promised:
        return "the defender's own noise alone"
    return "the source's own, post-processed"


def _exact_low(source: Pancake, delta: float, *, host: Host, tau: float) -> float:
    """The exact ε of the smoothed pancake, less its numerical error; 0 where it is not known.

    That is for several directions, and where the lattice, which blurs the peaks by about its step
    and is neglected here, is above a tenth of their width.
    """
    width = peak_width(sigma=source.sigma, beta=source.key.beta, gamma=source.key.gamma)
    if source.key.directions > 1 or lattice_step(source.sigma) > math.hypot(width, tau) / 10:
        return 0.0
    sigma, beta, gamma = smoothed_pancake(
        tau, sigma=source.sigma, beta=source.key.beta, gamma=source.key.gamma
    )
    exact = key_holder_profile(source.key, delta, host=host, sigma=sigma, beta=beta, gamma=gamma)
    return max(0.0, exact.value - exact.error)
