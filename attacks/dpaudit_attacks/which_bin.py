"""The pancake's owner finds which of d bins of a histogram is one short, all bins at once.

Threat model: the attacker knows the key, σ and the full histogram q; the release is q, or q with
exactly one record taken from an unknown bin j, plus pancake noise, once or several times. It is
:class:`LikelihoodRatio` with the d candidates q − e_j, in O(k·d) time and O(d) memory per release:
with r = y − q, ⟨r+e_j, u⟩ = ⟨r,u⟩ + u_j and |r+e_j|² = |r|² + 2r_j + 1. Ours; the published attack
compares two candidates (arXiv 2509.23834, Section 5).
"""

from __future__ import annotations

from pathlib import Path

import torch

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.pancake_likelihood import basis, check_rows, log_density
from dpaudit.numeric.arrays import on_tensors
from dpaudit.protocols import Array, MissingRecord
from dpaudit_attacks.keyed_distinguisher import normalised_posterior

__all__ = ["WhichBin"]

_CHUNK = 1 << 16


class WhichBin:
    """Exact log-likelihood of "a record of bin j is missing" for every bin j of a counting query.

    Formal guarantee: the most probable bin is the best guess any rule can make, and the posterior
    is calibrated, if exactly one record is missing (or none, where asked for) and the noise is this
    pancake. What k directions can tell apart is limited: about k·log2(P/(s·√(2πe))) bits per
    release, so log2(d) beyond that is not found. Not claimed: anything when two records are
    missing, or one was added or moved.
    """

    games = ("identification",)
    holds = "the pancake's key"

    def __init__(self, *, key: PancakeKey | str | Path, sigma: float) -> None:
        """Hold ``key`` (or its file) for releases with noise scale ``sigma``."""
        self.source = Pancake(key=key, sigma=sigma)
        self.directions = torch.from_numpy(basis(self.source.key))

    def score(self, releases: Array, hypotheses: MissingRecord) -> Array:
        """Log-density (t, d) or (t, d + 1) of each release (t, d) if a record of bin j is missing.

        The result is float64. Equal to ``LikelihoodRatio.score(releases, histogram - eye(d))``
        without the (d, d) matrix.

        Raises:
            UsageError: dimensions that do not fit the key, or values that are not finite.
        """
        return self._scores(releases, hypotheses.histogram, hypotheses.none)

    def posterior(
        self, releases: Array, hypotheses: MissingRecord, prior: Array | None = None
    ) -> Array:
        """Probability of each hypothesis (d,) or (d + 1,), if all t releases are of ONE query.

        ``prior`` has the shape of the answer and need not sum to 1: the histogram itself where
        every record is equally likely to be the missing one. Equal if left out.

        Raises:
            UsageError: no release, a bad prior, or as for :meth:`score`.
        """
        return self._posterior(releases, hypotheses.histogram, hypotheses.none, prior)

    @on_tensors
    def _scores(self, releases: torch.Tensor, base: torch.Tensor, none: bool) -> torch.Tensor:
        self._check(releases, base)
        scores = self.directions.new_empty(
            (len(releases), self.source.dim + none), device=releases.device
        )
        for row, release in zip(scores, releases, strict=True):
            self._one(release, base, row)
        return scores

    @on_tensors
    def _posterior(
        self, releases: torch.Tensor, base: torch.Tensor, none: bool, prior: torch.Tensor | None
    ) -> torch.Tensor:
        self._check(releases, base)
        if not len(releases):
            raise UsageError("releases of 0 rows: a posterior needs at least 1")
        total = self.directions.new_zeros(self.source.dim + none, device=releases.device)
        one = torch.empty_like(total)
        for release in releases:
            total += self._one(release, base, one)
        posterior: torch.Tensor = normalised_posterior(total, prior)
        return posterior

    def _check(self, releases: torch.Tensor, base: torch.Tensor) -> None:
        check_rows("releases", releases, dim=self.source.dim, axes=2)
        check_rows("histogram", base, dim=self.source.dim, axes=1)

    def _one(self, release: torch.Tensor, base: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Fill ``out`` (d,) or (d + 1,) with one release's scores."""
        key, dim = self.source.key, self.source.dim
        directions = self.directions.to(release.device)
        r = release.double() - base.double()
        along, square = directions @ r, r.square().sum()
        for start in range(0, dim, _CHUNK):
            part = slice(start, min(dim, start + _CHUNK))
            out[part] = log_density(
                along + directions[:, part].T,
                square + 2 * r[part] + 1,
                dim=dim,
                sigma=self.source.sigma,
                beta=key.beta,
                gamma=key.gamma,
            )
        if len(out) > dim:
            out[dim] = log_density(
                along, square, dim=dim, sigma=self.source.sigma, beta=key.beta, gamma=key.gamma
            )
        return out
