"""No mitigation: the release is what the source makes of the query. The baseline of every table."""

from __future__ import annotations

import math

from dpaudit.accounting import gaussian_epsilon
from dpaudit.noise.gaussian import Gaussian
from dpaudit.numeric.arrays import device_of
from dpaudit.numeric.normal import check_query
from dpaudit.protocols import Array, Host, NoiseSource, ReleasingSource, Stream
from dpaudit.types import EpsilonBounds

__all__ = ["NoMitigation"]


class NoMitigation:
    """Adds the noise and nothing else; a source that must see the query releases it itself.

    Threat model: the source is trusted. Guarantee: the source's own. Cost: none.
    """

    trusts = "the source, for everything"

    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """``query`` plus noise, shape (n, d), or what a ``ReleasingSource`` releases of it."""
        n, d = check_query(query)
        if isinstance(source, ReleasingSource):
            return source.release(query, stream=stream)
        device = device_of(query)
        return query + source.sample(n, d, stream=stream, dtype=query.dtype, device=device)

    def scale(self, sigma: float) -> float:
        return sigma

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """The source's own."""
        return source.epsilon(delta, host=host)

    def epsilon_after(
        self, source: NoiseSource, delta: float, *, host: Host, releases: int
    ) -> EpsilonBounds:
        """Exact for Gaussian noise: one release at √n·Δ. Else at most n times the ε at δ/n.

        The latter is basic composition.
        """
        if isinstance(source, Gaussian):
            value = gaussian_epsilon(
                delta, sigma=source.sigma / math.sqrt(releases), sensitivity=host.sensitivity
            )
            return EpsilonBounds(
                low=value, high=value, says=f"exact Gaussian profile, {releases} releases"
            )
        low = source.epsilon(delta, host=host).low
        high = source.epsilon(delta / releases, host=host).high
        return EpsilonBounds(
            low=low, high=releases * high, says=f"basic composition of {releases} releases"
        )
