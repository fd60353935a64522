"""A fresh Haar rotation of every noise vector: the hidden direction changes every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpaudit.errors import UsageError
from dpaudit.protocols import Array, Host, NoiseSource, Stream
from dpaudit.types import EpsilonBounds
from dpaudit.vectors.arrays import device_of
from dpaudit.vectors.lattice import lattice_step
from dpaudit.vectors.normal import check_query
from dpaudit.vectors.passes import row_norms
from dpaudit_mitigations.rotation.bounds import gaussian_on_lattice, haar_rotated
from dpaudit_mitigations.rotation.randomness import Randomness
from dpaudit_mitigations.rotation.release import draw, narrow, publish

__all__ = ["Rotation"]


class Rotation:
    """Each noise vector under its own random rotation (arXiv 2509.23834, Section 6.1), in O(d).

    A Haar rotation applied to one vector is, exactly, its norm times an independent uniform
    direction; no matrix. The turned noise and the query are then each rounded to a lattice of g =
    σ·2^-24 (down to a power of two) and added there.

    ``renorm="keep"`` is that. ``renorm="chi"`` also redraws the norm from σ·χ_d, from the
    defender's own randomness: the release is then fresh Gaussian noise without any of the source's,
    which is not even drawn.

    Threat model: the source may hide anything in the direction of its noise; the defender's
    generator is trusted and its rotation stays secret (never stored). See ``Randomness`` for what
    the generators give, and about two parties.

    Formal guarantee: given its norm, the released noise is uniform on the sphere except for the
    lattice, so only the norm of the source's noise passes; with ``chi`` not even that, and ε is the
    Gaussian mechanism's at sensitivity Δ + g√d. The release is a function of the query's multiple
    of g and of noise that does not depend on it: the low bits reveal nothing more of the query. Not
    claimed: anything about that norm, which a source may use as a channel (``norm-channel``); one
    rotation of several releases, which is another defence (``shared-rotation``).

    Cost: one Gaussian draw and two passes beyond the source's draw, and at most the memory of one
    more float64 vector, also for narrower queries (float32 noise has too few values for the
    lattice: ``add_on_lattice``); the error does not change.
    """

    trusts = "the defender's generator, and that its rotation stays secret"

    def __init__(
        self,
        *,
        renorm: str = "keep",
        randomness: str = "stream",
        second_party: bytes | str | Path | None = None,
    ) -> None:
        """``renorm`` is ``keep`` or ``chi``, ``randomness`` ``stream`` or ``csprng`` (see there).

        Raises:
            UsageError: another value, or an invalid share of the second party.
        """
        if renorm not in ("keep", "chi"):
            raise UsageError(f"renorm={renorm}: must be keep or chi")
        self.renorm = renorm
        self._randomness = Randomness(kind=randomness, second_party=second_party)

    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """``query`` plus rotated noise on the lattice, shape (n, d).

        Raises:
            UsageError: no query (see ``check_query``), values beyond σ·2^28, or that the dtype
                cannot hold.
        """
        n, d = check_query(query)
        keep, unit = self.renorm == "keep", 2.0**24 * lattice_step(source.sigma)
        length = None
        if keep:
            length = row_norms(draw(query, source, stream=stream, dtype=narrow(query)), unit=unit)
        turned = self._randomness.normal(
            n,
            d,
            sigma=1.0 if keep else source.sigma,
            stream=self._randomness.own(stream),
            device=device_of(query),
        )
        factors = np.ones(n) if length is None else length / row_norms(turned)
        return publish(query, turned, sigma=source.sigma, factors=factors)

    def scale(self, sigma: float) -> float:
        return sigma

    def mixes(self, sigma: float) -> tuple[float, float]:
        """Gaussian noise of σ; the source's key fits no turned noise."""
        return 0.0, sigma

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """``chi``: the Gaussian's. ``keep``: that for Gaussian noise, near it for a pancake.

        The latter by a theorem; for any other source it is unknown.
        """
        if self.renorm == "chi":
            return gaussian_on_lattice(delta, sigma=source.sigma, host=host)
        return haar_rotated(source, delta, host=host)
