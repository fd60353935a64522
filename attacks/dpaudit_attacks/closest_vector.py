"""Lattice points near a target: LLL or BKZ, Babai's nearest plane, then enumeration.

Needs ``fpylll``. No attack by itself: what :mod:`dpaudit_attacks.reconstruction` solves its
closest-vector problem with.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy.stats

from dpaudit.errors import UsageError
from dpaudit_attacks._library import lattice_library

__all__ = ["MAX_RANK", "LatticePoints", "counts_near"]

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
            found = search.enumerate(0, n, (radius * unit) ** 2, 0, target=goal)
        except self._library.EnumerationError:  # nothing within the radius
            return np.empty((0, n))
        points = plane + np.array([coefficients for _, coefficients in found]) @ self.reduced
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
        found = lattice.near(target, radius=radius, most=_MOST)
        distance = np.linalg.norm(found - target, axis=1)
        horizon = radius if len(found) < _MOST else float(distance[-1])
        log_volume = k * math.log(modulus / error) - float(np.log(width).sum())
        beyond = (
            (m + k) / 2 * math.log(2 * math.pi)
            + float(scipy.stats.chi2.logsf(horizon**2, m + k))
            - log_volume
        )
        listed = float(np.exp(-(distance**2) / 2).sum())
        share = listed / (listed + math.exp(beyond)) if listed > 0 else 0.0
        points = np.concatenate([found, points])
    return np.unique(np.rint(points[:, k:] * width), axis=0), share
