"""The pancake's owner reads the query itself from the key, the release, and arithmetic mod P.

No candidates are needed.

Threat model: the attacker knows the key and σ, sees t releases of the SAME query result q, each
with fresh pancake noise, and, for counts, knows all but m bins of q.

What can be recovered. One release shows ⟨q,u_j⟩ modulo the peak spacing P with a normal error s,
for each of the k secret directions; t releases sharpen s to about s/√t. That is log2(P√t/(s√(2πe)))
≈ log2(√t/(1.65β)) bits per direction and not one more, whatever d: 9.2 bits for β = 1e-3 and one
release. Fewer where the unknown part of ⟨q,u_j⟩ varies by less than P (large σ/γ, few bins of small
range): a phase that never wraps gives log2 of that variation over s. In addition every bin shows
itself through the honest-looking noise, within σ/√t. So m integer bins are found if the entropy
that the range and that view leave, at most m·log2(bound), stays below the directions' bits, a few
bits to spare: a closest-vector problem, Σ_i u_{j,i}·q_i ≡ φ_j (mod P).

What cannot. A query of d unknown real values, or more bins than those bits pay for: the answer is
then one of very many that fit equally well, and ``trusted`` is False. Source: ours, on arXiv
2509.23834; nearest plane: Babai 1986.

The closest-vector problem is solved by LLL or BKZ, Babai's nearest plane, then enumeration; that
needs ``fpylll``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.stats
import torch

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.pancake_likelihood import basis, check_rows, log_density
from dpaudit_attacks._library import lattice_library

__all__ = ["MAX_RANK", "LatticePoints", "PhaseReader", "Phases", "Reconstruction", "counts_near"]

MAX_RANK = 48
# bits after the point in the integer basis; rounding moves a point by 2^-40 × its coefficients
_SCALE_BITS = 40
_LLL_RANK = 20  # BKZ from here on
_MOST = 1024  # points that are listed
_TAIL = 1e-6


class LatticePoints:
    """A reduced full-rank lattice in R^n, ready for several targets.

    ``near`` is exact up to double precision: it returns every point within the radius, or the
    ``most`` nearest. Time grows exponentially with the rank, about a second at 44; ranks above
    :data:`MAX_RANK` are refused.
    """

    def __init__(self, rows: npt.NDArray[np.float64]) -> None:
        """Reduce the lattice whose basis vectors are ``rows``, shape (n, n), in units of the noise.

        Raises:
            UsageError: not a square matrix of finite values, or n above :data:`MAX_RANK`.
            MissingExtraError: fpylll is not installed.
        """
        n = len(rows)
        if rows.shape != (n, n) or not np.isfinite(rows).all():
            raise UsageError(
                f"rows of shape {rows.shape}: a lattice basis must be square and finite"
            )
        if n > MAX_RANK:
            raise UsageError(
                f"rank={n}: unknown bins plus secret directions must be at most {MAX_RANK}; "
                "ask for fewer bins at once"
            )
        self._library = lattice_library("reconstruct_counts")
        basis = self._library.IntegerMatrix.from_matrix(
            [[round(math.ldexp(float(x), _SCALE_BITS)) for x in row] for row in rows]
        )
        self._library.LLL.reduction(basis)
        if n > _LLL_RANK:
            self._library.BKZ.reduction(basis, self._library.BKZ.Param(_LLL_RANK))
        self._basis = basis
        self._gso = self._library.GSO.Mat(basis, float_type="long double")
        self._gso.update_gso()
        self.reduced = np.array(
            [[math.ldexp(int(basis[i, j]), -_SCALE_BITS) for j in range(n)] for i in range(n)]
        )

    def nearest_plane(self, target: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Babai's point near ``target`` (n,): the closest if noise fits the Gram–Schmidt box."""
        q, r = np.linalg.qr(self.reduced.T)
        rest, point = target.astype(np.float64), np.zeros(len(target))
        for i in reversed(range(len(target))):
            step = np.rint((q[:, i] @ rest) / r[i, i]) * self.reduced[i]
            rest, point = rest - step, point + step
        return point

    def near(
        self, target: npt.NDArray[np.float64], *, radius: float, most: int
    ) -> npt.NDArray[np.float64]:
        """At most ``most`` lattice points within ``radius`` of ``target`` (n,), shape (found, n).

        The nearest come first. Exactly ``most`` rows mean that there may be more.
        """
        plane = self.nearest_plane(target)
        offset = target - plane  # small, so that the search works on small numbers
        n, unit = len(target), math.ldexp(1.0, _SCALE_BITS)
        search = self._library.Enumeration(
            self._gso, nr_solutions=most, strategy=self._library.EvaluatorStrategy.BEST_N_SOLUTIONS
        )
        goal = self._gso.from_canonical([float(x) * unit for x in offset])
        try:
            solutions = search.enumerate(0, n, (radius * unit) ** 2, 0, target=goal)
        except self._library.EnumerationError:  # nothing within the radius
            return np.empty((0, n))
        points = plane + np.array([coefficients for _, coefficients in solutions]) @ self.reduced
        order = np.argsort(((points - target) ** 2).sum(1), kind="stable")
        return np.asarray(points[order], dtype=np.float64)


def counts_near(
    phases: npt.NDArray[np.float64],
    part: npt.NDArray[np.float64],
    *,
    error: float,
    modulus: float,
    mean: npt.NDArray[np.float64],
    width: npt.NDArray[np.float64],
    hopeless: bool = False,
) -> tuple[npt.NDArray[np.float64], float]:
    """Integer vectors n (…, m) near their mean with Σ_i part_{j,i}·n_i near phases_j.

    The sums are taken modulo ``modulus``. ``phases`` (k,) have the standard error ``error``, n_i
    the standard deviation ``width`` (m,) around ``mean`` (m,): in those units they are the points
    of a lattice of rank m + k near a target. Returns them and the share of all points' Gaussian
    weight that they hold, the others' being estimated from the lattice's density. ``hopeless``:
    nearest plane only, share 0.

    Raises:
        UsageError: m + k above :data:`MAX_RANK`.
        MissingExtraError: fpylll is not installed.
    """
    k, m = part.shape
    rows = np.zeros((m + k, m + k))
    rows[:m, :k] = part.T / error
    rows[:m, k:] = np.diag(1 / width)
    rows[m:, :k] = np.eye(k) * modulus / error
    target = np.concatenate([phases / error, mean / width])
    lattice = LatticePoints(rows)
    points = lattice.nearest_plane(target)[None]
    share = 0.0
    if not hopeless:
        # values spread evenly over a range lie at most √3 deviations from its middle;
        # the rest is χ²
        radius = math.sqrt(float(scipy.stats.chi2.isf(_TAIL, m + k)) + 2 * m)
        nearby = lattice.near(target, radius=radius, most=_MOST)
        distance = np.linalg.norm(nearby - target, axis=1)
        horizon = radius if len(nearby) < _MOST else float(distance[-1])
        log_volume = k * math.log(modulus / error) - float(np.log(width).sum())
        beyond = (
            (m + k) / 2 * math.log(2 * math.pi)
            + float(scipy.stats.chi2.logsf(horizon**2, m + k))
            - log_volume
        )
        listed = float(np.exp(-(distance**2) / 2).sum())
        share = listed / (listed + math.exp(beyond)) if listed > 0 else 0.0
        points = np.concatenate([nearby, points])
    return np.unique(np.rint(points[:, k:] * width), axis=0), share


_SHORT = 10.0  # bits short at which no search is tried: a thousand counts would fit equally well
_ALL = 1 << 16  # so many possible counts are simply all weighed
_CONFIDENCE = 0.99
_MISFIT = 1e-5
_ENTROPY = math.log2(2 * math.pi * math.e) / 2  # of N(0, 1), in bits


@dataclass(frozen=True)
class Phases:
    """Averaged ⟨q,u_j⟩ mod ``modulus``: ``value`` (k,), its ``standard_error``, its ``bits``."""

    value: torch.Tensor
    standard_error: float
    modulus: float
    bits: float


@dataclass(frozen=True)
class Reconstruction:
    """What the key holder concludes about the unknown bins.

    ``counts`` (m,) int64, the most probable ones found; ``confidence``, their posterior probability
    among all counts in range (0 where far too many fit); ``residual``, their distance from what was
    seen in standard errors, root mean square, about 1 for the truth; ``bits_needed`` and
    ``bits_available``, the information limit; ``trusted``, whether the confidence is at least 0.99
    and the residual no misfit.
    """

    counts: torch.Tensor
    residual: float
    confidence: float
    bits_needed: float
    bits_available: float
    trusted: bool


class PhaseReader:
    """Reads phases, and from them integer counts, out of pancake releases.

    Formal guarantee: if the noise is this pancake and the known counts are right, ``confidence`` is
    the exact posterior of the counts within the range (uniform prior), but for the share of the
    counts that the search did not list, which is estimated from the lattice's density; so
    ``trusted`` answers are right in about 99 of 100 cases or more. Not claimed: anything when a
    known count is wrong, or the noise was changed on the way (a misfit is reported as untrusted
    where it shows).
    """

    games = ("reconstruction",)
    holds = "the pancake's key"

    def __init__(self, *, key: PancakeKey | str | Path, sigma: float) -> None:
        """Hold ``key`` (or its file) for releases with noise scale ``sigma``."""
        self.source = Pancake(key=key, sigma=sigma)
        self.directions = torch.from_numpy(basis(self.source.key))

    def phases(self, releases: torch.Tensor) -> torch.Tensor:
        """⟨y,u_j⟩ mod P in [0, P), shape (t, k), float64.

        Each is ⟨q,u_j⟩ mod P with a normal error s, wrapped.

        Raises:
            UsageError: dimensions that do not fit the key, or values that are not finite.
        """
        check_rows("releases", releases, dim=self.source.dim, axes=2)
        return torch.remainder(
            releases.double() @ self.directions.to(releases.device).T, self.source.spacing
        )

    def _average(self, phases: torch.Tensor) -> Phases:
        """The circular average of the phases of t releases of the SAME query result.

        The standard error is s/√t while s is far below P (β far below 1), and the wrapped normal's
        large-t value beyond; ``bits`` is log2(P / (standard error·√(2πe))), 0 where that is
        negative.
        """
        if not len(phases):
            raise UsageError("releases of 0 rows: an average needs at least 1")
        spacing, turn = self.source.spacing, self.source.spacing / (2 * math.pi)
        angle = phases / turn
        mean = torch.atan2(angle.sin().sum(0), angle.cos().sum(0)) * turn
        exponent = (self.source.width / turn) ** 2  # −2·log of the mean resultant length
        spread = turn * math.sqrt(-math.expm1(-2 * exponent) / 2)
        error = spread * math.exp(min(exponent / 2, 300.0)) / math.sqrt(len(phases))
        return Phases(
            value=torch.remainder(mean, spacing),
            standard_error=error,
            modulus=spacing,
            bits=max(0.0, math.log2(spacing / error) - _ENTROPY),
        )

    def reconstruct_counts(
        self,
        releases: torch.Tensor,
        known: torch.Tensor,
        unknown_index: torch.Tensor,
        *,
        bound: int,
        lowest: int | torch.Tensor = 0,
    ) -> Reconstruction:
        """The m counts ``q[unknown_index]`` of one integer query q, the others known.

        From ``releases`` (t, d). ``known`` (d,) holds q; its values at ``unknown_index`` (m,) are
        ignored (but must be finite). Each unknown count is one of ``bound`` integers from
        ``lowest`` on (one number, or (m,)): for "mean ± width" give mean − width and 2·width + 1.

        Raises:
            UsageError: shapes that do not fit, indices out of range or repeated, bound < 2, or m +
                k too large.
            MissingExtraError: fpylll is not installed.
        """
        index, low = self._check_counts(releases, known, unknown_index, bound, lowest)
        t, m = len(releases), len(index)
        base = known.double().cpu().clone()
        base[index] = 0
        rest = releases.double().cpu() - base
        view, blur = rest[:, index].mean(0).numpy(), self.source.sigma / math.sqrt(t)
        mean, width, needed = _plain_view(view, blur, low, bound)
        centre = np.rint(mean)  # below, n is a deviation from it
        rest[:, index] -= torch.from_numpy(centre)
        along = rest @ self.directions.T
        phase = self._average(torch.remainder(along, self.source.spacing))
        part = self.directions[:, index].numpy()
        available = _bits(phase, part, width)
        listed = 1.0  # share of the posterior's weight that the listed deviations hold
        if m * math.log2(bound) <= math.log2(_ALL):
            axes = [np.arange(bound) + x for x in low - centre]
            deviations = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, m)
        else:
            deviations, listed = counts_near(
                phase.value.numpy(),
                part,
                error=phase.standard_error,
                modulus=phase.modulus,
                mean=mean - centre,
                width=width,
                hopeless=needed > available + _SHORT,
            )
            candidates = deviations + centre
            inside = ((candidates >= low) & (candidates <= low + bound - 1)).all(1)
            if inside.any():
                deviations = deviations[inside]
            else:
                deviations = np.clip(deviations[:1] + centre, low, low + bound - 1) - centre
                listed = 0.0
        weight = self._weigh(along, rest[:, index], part, deviations)
        best = int(weight.argmax())
        confidence = float(weight[best]) * listed
        residual, fits = _misfit(phase, part, deviations[best], (view - centre) / blur, blur)
        return Reconstruction(
            counts=torch.from_numpy(deviations[best] + centre).long(),
            residual=residual,
            confidence=confidence,
            bits_needed=needed,
            bits_available=available,
            trusted=confidence >= _CONFIDENCE and fits,
        )

    def _check_counts(
        self,
        releases: torch.Tensor,
        known: torch.Tensor,
        unknown: torch.Tensor,
        bound: int,
        lowest: int | torch.Tensor,
    ) -> tuple[torch.Tensor, npt.NDArray[np.float64]]:
        """The unknown bins' index (m,) and the lowest value of each (m,)."""
        check_rows("releases", releases, dim=self.source.dim, axes=2)
        check_rows("known", known, dim=self.source.dim, axes=1)
        if not len(releases):
            raise UsageError("releases of 0 rows: a reconstruction needs at least 1")
        index = torch.as_tensor(unknown).cpu()
        if (
            index.ndim != 1
            or not len(index)
            or index.is_floating_point()
            or index.dtype == torch.bool
        ):
            raise UsageError(
                f"unknown_index of shape {tuple(index.shape)}, {index.dtype}: "
                "give a list of bin numbers"
            )
        if (
            int(index.min()) < 0
            or int(index.max()) >= self.source.dim
            or len(set(index.tolist())) < len(index)
        ):
            raise UsageError(
                f"unknown_index={index.tolist()[:8]}: must be different numbers "
                f"from 0 to {self.source.dim - 1}"
            )
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < 2:
            raise UsageError(
                f"bound={bound}: must be a whole number ≥ 2, "
                "how many values an unknown count can have"
            )
        low = torch.as_tensor(lowest, dtype=torch.float64).cpu()
        if low.shape not in ((), index.shape) or not bool((low == low.round()).all()):
            raise UsageError(
                f"lowest={lowest}: must be one whole number, "
                f"or one for each of the {len(index)} bins"
            )
        return index.long(), low.expand(len(index)).numpy()

    def _weigh(
        self,
        along: torch.Tensor,
        rest: torch.Tensor,
        part: npt.NDArray[np.float64],
        deviations: npt.NDArray[np.float64],
    ) -> npt.NDArray[np.float64]:
        """Posterior of the deviations (n, m), shape (n,), by the exact density of all releases."""
        key, options = self.source.key, torch.from_numpy(deviations)
        shift = options @ torch.from_numpy(part).T
        total = torch.zeros(len(options), dtype=torch.float64)
        for x, r in zip(along, rest, strict=True):
            total += log_density(
                x - shift,
                (r - options).square().sum(-1),
                dim=key.dim,
                sigma=self.source.sigma,
                beta=key.beta,
                gamma=key.gamma,
            )
        return np.asarray(torch.softmax(total, 0).numpy(), dtype=np.float64)


def _bits(phase: Phases, part: npt.NDArray[np.float64], width: npt.NDArray[np.float64]) -> float:
    """Most that the k phases can say about the counts.

    Each gives at most its own bits, and all together what a Gaussian channel gives. The second
    matters where the unknown part of ⟨q,u_j⟩ varies by less than P: what does not wrap fills no
    phase.
    """
    k = len(part)
    signal = (part * width**2) @ part.T / phase.standard_error**2 + np.eye(k)
    each = np.minimum(phase.bits, np.log2(np.diag(signal)) / 2).sum()
    return float(min(each, np.linalg.slogdet(signal)[1] / math.log(4)))


def _plain_view(
    view: npt.NDArray[np.float64], blur: float, low: npt.NDArray[np.float64], bound: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]:
    """What the range and the plain view of each bin, y_i ~ N(q_i, σ²/t), leave open of the counts.

    Mean and scale of each (m,), and the bits of all together.
    """
    law = scipy.stats.truncnorm(
        (low - 0.5 - view) / blur, (low + bound - 0.5 - view) / blur, loc=view, scale=blur
    )
    # NaN: a view absurdly far outside
    mean = np.clip(np.nan_to_num(law.mean(), nan=0.0), low, low + bound - 1)
    width = np.maximum(np.nan_to_num(law.std()), 0.2)
    entropy = np.nan_to_num(law.entropy(), neginf=0.0) / math.log(2)
    return mean, width, float(np.maximum(entropy, 0.0).sum())


def _misfit(
    phase: Phases,
    part: npt.NDArray[np.float64],
    deviation: npt.NDArray[np.float64],
    view: npt.NDArray[np.float64],
    blur: float,
) -> tuple[float, bool]:
    """Root mean square distance in standard errors, and whether noise explains it (χ²)."""
    gap = phase.value.numpy() - part @ deviation
    gap -= phase.modulus * np.rint(gap / phase.modulus)
    parts = np.concatenate([gap / phase.standard_error, view - deviation / blur])
    square = float(parts @ parts)
    return math.sqrt(square / len(parts)), bool(scipy.stats.chi2.sf(square, len(parts)) > _MISFIT)
