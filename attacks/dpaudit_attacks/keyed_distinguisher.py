"""The pancake's owner: which of several databases a release came from, with the key.

Threat model: the attacker knows the key, σ, the candidates (query results of the databases it
considers) and the release; nothing else. Published attack: nearest hyperplane (arXiv 2509.23834,
Section 5). Ours: the exact likelihood. Both serve keys with any number k of orthonormal secret
directions.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.pancake_likelihood import check_candidates, log_density
from dpaudit.numeric.arrays import cast_to, device_of, double, library, to_numpy, zeros
from dpaudit.protocols import Array

__all__ = ["LikelihoodRatio", "NearestPeak", "normalised_posterior", "residuals"]

_PHASE_BINS = 32
_CHUNK = 1 << 22  # values of y − q_i held at once: 32 MiB


def normalised_posterior(likelihood: Array, prior: Array | None) -> Array:
    """Softmax of log-likelihoods (m,) plus the log of ``prior`` (m,), which need not sum to 1.

    Raises:
        UsageError: a prior of another shape, with a negative or non-finite value, or with no value
            above 0.
    """
    if prior is None:
        return _softmax(likelihood)
    if prior.shape != likelihood.shape:
        raise UsageError(
            f"prior of shape {tuple(prior.shape)}: needs one value per candidate, "
            f"shape {tuple(likelihood.shape)}"
        )
    weight, xp = double(prior), library(prior)
    if not bool((xp.isfinite(weight) & (weight >= 0)).all()) or not bool((weight > 0).any()):
        raise UsageError(
            "prior: needs finite values ≥ 0 and one above 0; leave it out for equal ones"
        )
    with np.errstate(divide="ignore"):
        return _softmax(likelihood + xp.log(weight))


def residuals(
    releases: Array, candidates: Array, truth: Array, *, dim: int
) -> npt.NDArray[np.float64]:
    """Releases (t, dim) less their true candidates, whose numbers are ``truth`` (t,).

    Raises:
        UsageError: dimensions that do not fit, or values that are not finite.
    """
    many, right = to_numpy(check_candidates(releases, candidates, dim=dim)), to_numpy(truth)
    row = np.arange(len(right)) if len(many) > 1 else 0
    return np.asarray(to_numpy(double(releases)) - many[row, right])


def _softmax(logs: Array) -> Array:
    shares = library(logs).exp(logs - logs.max())
    return shares / shares.sum()


class _Directions:
    """A key's directions (k, dim), float64: the key's own memory, or one copy per other device."""

    def __init__(self, rows: npt.NDArray[np.float64]) -> None:
        self.rows = rows  # kept: an array that lives shares its id with no other
        self._copies: dict[Any, Any] = {}

    def on_device_of(self, values: Array) -> Array:
        """In the library of ``values``, and on their device."""
        if (device := device_of(values)) is None:
            return self.rows
        if device not in self._copies:
            with warnings.catch_warnings():  # they are read-only, and nothing here writes
                warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
                self._copies[device] = cast_to(self.rows, None, device)
        return self._copies[device]


_in_use: WeakValueDictionary[int, _Directions] = WeakValueDictionary()


def _directions(key: PancakeKey) -> _Directions:
    """The directions of ``key``, shared with keys of the same ``basis`` (:meth:`PancakeKey.at`)."""
    rows = np.asarray(key.basis, dtype=np.float64)
    directions = _in_use.get(id(rows))
    if directions is None:
        directions = _in_use[id(rows)] = _Directions(rows)
    return directions


class _Keyed:
    """What both distinguishers share: the key's geometry and the picture of the phases."""

    def __init__(self, *, key: PancakeKey | str | Path, sigma: float) -> None:
        """Hold ``key`` (or its file) for releases with noise scale ``sigma``."""
        self.source = Pancake(key=key, sigma=sigma)
        self._directions = _directions(self.source.key)

    @property
    def directions(self) -> npt.NDArray[np.float64]:
        """The key's orthonormal directions, shape (k, dim); not to be written to."""
        return self._directions.rows

    def _along(self, releases: Array, candidates: Array) -> Array:
        """Coordinates of y − q_i along the secret directions for all pairs, shape (t, m, k)."""
        return self._coordinates(releases, candidates, squares=False)[0]

    def _coordinates(
        self, releases: Array, candidates: Array, *, squares: bool = True
    ) -> tuple[Array, Array]:
        """Coordinates along the secret directions and squared norm of y − q_i, for all pairs.

        Shapes (t, m, k) and (t, m). Worked out from y − q_0 and q_i − q_0, which are small where
        the queries themselves may be large.
        """
        candidates = check_candidates(releases, candidates, dim=self.source.dim)
        directions, xp = self._directions.on_device_of(releases), library(releases)
        t, m, k = len(releases), candidates.shape[1], len(directions)
        along, square = zeros((t, m, k), beside=directions), zeros((t, m), beside=directions)
        step = max(1, _CHUNK // max(1, m * self.source.dim))
        for start in range(0, t if m else 0, step):
            rows = slice(start, start + step)
            some = double(candidates if len(candidates) == 1 else candidates[rows])
            first = double(releases[rows]) - some[:, 0]
            moved = some[:, 1:] - some[:, :1]
            along[rows, 0] = first @ directions.T
            along[rows, 1:] = along[rows, :1] - moved @ directions.T
            if squares:
                square[rows] = xp.square(first).sum(-1)[:, None]
                cross = xp.einsum("td,amd->tm" if len(moved) == 1 else "td,tmd->tm", first, moved)
                square[rows, 1:] += xp.square(moved).sum(-1) - 2 * cross
        return along, square

    def evidence(self, releases: Array, candidates: Array, truth: Array) -> Mapping[str, Any]:
        """Phases of the true candidate's noise along the key, in peak spacings.

        They are flat for Gaussian noise. Each release counts once for each secret direction.
        ``without_key`` are the same releases along as many directions guessed at random (fixed
        seed): what somebody without the key sees.

        Raises:
            UsageError: dimensions that do not fit the key, or values that are not finite.
        """
        residual = residuals(releases, candidates, truth, dim=self.source.dim)
        guess = np.random.default_rng(0).standard_normal(self.directions.shape)
        guess /= np.linalg.norm(guess, axis=1, keepdims=True)
        counts, edges = self._phases(residual, self.directions)
        return {
            "phases": {
                "edges": edges.tolist(),
                "counts": counts.tolist(),
                "without_key": self._phases(residual, guess)[0].tolist(),
                "what": "phase along the key",
            }
        }

    def _phases(
        self, residual: npt.NDArray[np.float64], directions: npt.NDArray[np.float64]
    ) -> tuple[np.ndarray, np.ndarray]:
        phase = residual @ directions.T / self.source.spacing
        return np.histogram((phase - np.round(phase)).ravel(), bins=_PHASE_BINS, range=(-0.5, 0.5))


class NearestPeak(_Keyed):
    """The paper's distinguisher: the candidate whose noise is nearest to a pancake's middle wins.

    Success with two candidates and one direction is at least 1 − 2Φ(−|f|·P/(2s)), f their distance
    along the key in peak spacings mod 1 (arXiv 2509.23834, Section 5). Uses the peaks only; it
    ignores the envelope and the orthogonal part.
    """

    games = ("scoring",)
    holds = "the pancake's key"

    def score(self, releases: Array, candidates: Array) -> Array:
        """Minus the distances to the nearest peak, summed over directions, in peak spacings.

        Shape (t, m).

        Raises:
            UsageError: dimensions that do not fit the key, or values that are not finite.
        """
        phase = self._along(releases, candidates) / self.source.spacing
        return -abs(phase - library(phase).round(phase)).sum(-1)


class LikelihoodRatio(_Keyed):
    """The optimal distinguisher: the exact log-density of the pancake mechanism at each candidate.

    Formal guarantee: among all rules it has the highest average success when the candidates are
    equally likely (Neyman and Pearson), in exact arithmetic and if the noise is this pancake; its
    posterior is then calibrated. Not claimed: optimality or calibration against noise that
    something else has changed on the way, or whose σ, β or γ are not the key's.
    """

    games = ("scoring",)
    holds = "the pancake's key"

    def score(self, releases: Array, candidates: Array) -> Array:
        """Log-density in R^d of each release under each candidate, shape (t, m).

        Normalised, so scores under keys with different β, γ or k, or different σ, can be compared.

        Raises:
            UsageError: dimensions that do not fit the key, or values that are not finite.
        """
        along, square = self._coordinates(releases, candidates)
        key = self.source.key
        return log_density(
            along, square, dim=key.dim, sigma=self.source.sigma, beta=key.beta, gamma=key.gamma
        )

    def posterior(self, releases: Array, candidates: Array, prior: Array | None = None) -> Array:
        """Probability of each candidate (m,) if all t releases come from the SAME unknown one.

        ``candidates`` (m, d), or (t, m, d) when the releases answer different queries on one
        database. ``prior`` (m,) need not sum to 1; equal if left out. Guarantee: calibrated if the
        noise is this pancake, drawn afresh for each release, and the truth is drawn from the prior.
        Not claimed: anything when the truth is not among the candidates.

        Raises:
            UsageError: no release, no candidate, a bad prior, or as for :meth:`score`.
        """
        likelihood = self.score(releases, candidates)
        if 0 in likelihood.shape:
            raise UsageError(
                f"releases × candidates = {tuple(likelihood.shape)}: a posterior needs one of each"
            )
        return normalised_posterior(likelihood.sum(0), prior)
