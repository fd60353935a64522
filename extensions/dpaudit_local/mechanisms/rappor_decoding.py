"""Which candidate strings RAPPOR's reports hold, and how often: a regression on Bloom filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
import scipy.special

from dpaudit.errors import DpauditError, UsageError
from dpaudit.stats import holm
from dpaudit_local.mechanisms.rappor import Rappor, RapporServer
from dpaudit_local.mechanisms.reports import check_objects

__all__ = ["candidate_matrix", "decode", "nonnegative_lasso", "uniform_sum_bound"]


@dataclass(frozen=True, slots=True)
class Decoding:
    """The selected ones of ``tested`` candidates, the most frequent first, one entry each."""

    candidates: npt.NDArray[np.int64]
    estimate: npt.NDArray[np.float64]
    """How many of the reports were made about it."""
    standard_error: npt.NDArray[np.float64]
    """Of the coins and the draw of cohorts, the people being as they are."""
    p_value: npt.NDArray[np.float64]
    """One-sided, of "nobody has it", after Holm's correction over all ``tested``."""
    detected: npt.NDArray[np.bool_]
    """``p_value`` ≤ α."""
    tested: int
    others: float
    """How many reports the regression attributes to other strings, spread evenly over the bits."""
    others_error: float
    overdispersion: float
    """Residual χ² per degree of freedom, at least 1; its root multiplied the standard errors."""


def candidate_matrix(
    mechanism: Rappor, candidates: npt.NDArray[np.int64]
) -> scipy.sparse.csc_matrix:
    """1 where a candidate's Bloom filter has a bit set: sparse (cohorts · bits, candidates).

    Raises:
        UsageError: candidates of another shape or type, or outside the mechanism's universe.
    """
    candidates = check_objects(candidates, mechanism.universe, name="candidates").astype(np.int64)
    rows = [
        mechanism.positions(candidates, c).astype(np.int64) + c * mechanism.bits
        for c in range(mechanism.cohorts)
    ]
    row = np.concatenate(rows, axis=1)
    column = np.broadcast_to(np.arange(len(candidates))[:, None], row.shape)
    shape = (mechanism.cohorts * mechanism.bits, len(candidates))
    matrix = scipy.sparse.csc_matrix(
        (np.ones(row.size), (row.ravel(), column.ravel())), shape=shape
    )
    matrix.data[:] = 1.0  # two hash functions of an object on one bit set it once
    return matrix


def decode(
    server: RapporServer,
    candidates: npt.NDArray[np.int64],
    *,
    alpha: float = 0.05,
    penalty: float = 2.0,
) -> Decoding:
    """Select candidates by LASSO, fit the selected ones by least squares, test each.

    The method is that of Erlingsson et al. 2014, section 4. Each cohort's shares
    (:meth:`RapporServer.shares`) are regressed on the candidates' bits and on one column for
    everybody else, evenly spread (the paper has none). A candidate enters the LASSO at ``penalty``
    standard deviations of its own noise, no coefficient is negative, and the ordinary least squares
    after it is weighted by cohort. Standard errors come from the covariance of reported bits under
    the fit (bits of one person are correlated), and grow with the residuals where strings that are
    no candidates are spread unevenly.

    The p-value is the larger of two: the normal one of estimate over standard error, and a bound
    that needs no model. If nobody reported a candidate, its hash values are independent of all
    reports. So leave it out of the LASSO and the fit, and add up the residuals at its bits: P(a sum
    as large) ≤ exp(K(t) − t·sum) for any t ≥ 0, where K is the cumulant function of a sum at
    uniform positions (Chernoff 1952). The bound is left out where the normal p-value already says
    no.

    Formal guarantee, for hash functions that are random (``RandomHashes``) and candidates named
    without looking at the reports or, for those that nobody has, at the hash functions: P(any false
    discovery) ≤ ``alpha``, whatever the reports hold, candidates or not, few or many (Holm 1979).
    Not claimed: as much of estimates and standard errors. Selected on the same data, they take some
    of a neighbour's counts: 500 candidates for 256 bits (one-time, f = 0.25) left the three most
    frequent strings 0.4 standard errors low with a scatter of 1.1. Nor power where strings that are
    no candidates are frequent.

    Raises:
        UsageError: no reports; candidates repeated, missing or out of range; ``alpha`` outside (0,
            1); ``penalty`` not above 0; more candidates selected than half the bits there are.
    """
    if not 0 < alpha < 1:
        raise UsageError(f"alpha={alpha}: must lie in (0, 1)")
    if not 0 < penalty < np.inf:
        raise UsageError(f"penalty={penalty}: must be a number above 0, of standard deviations")
    if not server.reports:
        raise UsageError("server.reports=0: must be above 0; add reports first")
    universe = server.mechanism.universe
    candidates = check_objects(candidates, universe, name="candidates").astype(np.int64)
    if not len(candidates) or len(np.unique(candidates)) != len(candidates):
        raise UsageError(
            f"candidates={len(candidates)}: needs at least one, each once; drop repeats"
        )
    regression = _Regression(server, candidates, penalty)
    selected = regression.select(np.ones(len(candidates), dtype=np.bool_))
    fitted = regression.fit(selected)
    variances, overdispersion = regression.variances(selected, fitted)

    n = server.reports
    error = n * np.sqrt(variances)
    estimate = n * fitted
    raw = np.ones(len(candidates))
    raw[selected] = scipy.special.ndtr(-estimate[:-1] / error[:-1])
    # no p-value above it is ever rejected: the others' are 1
    mildest = alpha / (len(candidates) - len(selected) + 1)
    for i in selected[raw[selected] <= mildest].tolist():
        raw[i] = max(raw[i], regression.chance(i))
    adjusted = np.array(holm(raw.tolist()))[selected]
    order = np.argsort(-estimate[:-1], kind="stable")
    return Decoding(
        candidates=candidates[selected][order],
        estimate=estimate[:-1][order],
        standard_error=error[:-1][order],
        p_value=adjusted[order],
        detected=adjusted[order] <= alpha,
        tested=len(candidates),
        others=float(estimate[-1]),
        others_error=float(error[-1]),
        overdispersion=overdispersion,
    )


class _Regression:
    """Shares of bits (cohorts with reports · m) on candidates' bits and a column for others."""

    def __init__(
        self, server: RapporServer, candidates: npt.NDArray[np.int64], penalty: float
    ) -> None:
        law = server.mechanism
        self.law, self.candidates, self.penalty = law, candidates, penalty
        self.cohorts = np.flatnonzero(server.sizes)
        self.sizes = server.sizes[self.cohorts]
        self.shares = server.shares()[self.cohorts]
        rows = (self.cohorts[:, None] * law.bits + np.arange(law.bits)).ravel()
        fill = 1 - (1 - 1 / law.bits) ** law.per_object
        others = np.full((len(rows), 1), fill)
        self.design = scipy.sparse.hstack(
            [candidate_matrix(law, candidates)[rows], others], format="csc"
        )
        # One weight per cohort, from its mean share: weights from single bits would depend on the
        # very noise they weigh.
        self.precision = self.sizes / _variance(law, np.clip(self.shares.mean(axis=1), 0, 1))
        root = np.repeat(np.sqrt(self.precision), law.bits)
        self.weighted = scipy.sparse.diags(root) @ self.design
        self.target = root * self.shares.ravel()
        self.cost = penalty * scipy.sparse.linalg.norm(self.weighted, axis=0)
        self.cost[-1] = 0.0

    def select(self, offered: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Which of the ``offered`` candidates (all,) the LASSO selects, from them alone."""
        columns = np.flatnonzero(np.append(offered, True))
        shares = nonnegative_lasso(self.weighted[:, columns], self.target, self.cost[columns])
        selected = columns[:-1][shares[:-1] > 0]
        if 2 * len(selected) > self.shares.size:
            raise UsageError(
                f"penalty={self.penalty}: selects {len(selected)}, "
                f"more than half of {self.shares.size} bits; raise it"
            )
        return np.asarray(selected)

    def _columns(self, selected: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Their columns and the last, (cohorts, m, selected + 1)."""
        columns = self.design[:, np.append(selected, len(self.candidates))].toarray()
        return np.asarray(columns.reshape(*self.shares.shape, -1))

    def fit(self, selected: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Weighted least squares: the share of people with each selected candidate, and others."""
        chosen = self.weighted[:, np.append(selected, len(self.candidates))].toarray()
        return np.asarray(np.linalg.lstsq(chosen, self.target, rcond=None)[0])

    def variances(
        self, selected: npt.NDArray[np.int64], fitted: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Of :meth:`fit`, and the overdispersion that it was multiplied by.

        In a cohort of N people Cov(share_i, share_k) is (P(both bits) − θ_i·θ_k)/N off the
        diagonal, and on it chance·(1 − chance)/(N·(q* − p*)²): people's strings, a matrix of low
        rank, and independent coins. That is for a sample of people; what a multinomial sample adds
        to anything unbiased is taken off, as the people are as they are, and never more than leaves
        the coins' variance.
        """
        columns = self._columns(selected)
        scores = columns.transpose(0, 2, 1) * self.precision[:, None, None]
        grams = scores @ columns
        inverse = np.linalg.pinv(grams.sum(axis=0), hermitian=True)
        frequency = np.clip(fitted, 0, 1)
        theta = np.clip(columns @ frequency, 0, 1)
        variance = _variance(self.law, theta)
        least = variance - theta * (1 - theta)  # of the coins, where everybody's bit is known
        coins = (
            np.maximum(variance - np.square(columns) @ frequency + theta**2, least)
            / self.sizes[:, None]
        )
        pull = (scores @ theta[:, :, None])[:, :, 0]
        lied = ((scores * coins[:, None, :]) @ scores.transpose(0, 2, 1)).sum(axis=0)
        met = (grams * frequency) @ grams.transpose(0, 2, 1) - pull[:, :, None] * pull[:, None, :]
        met = (met / self.sizes[:, None, None]).sum(axis=0)
        sample = frequency * (1 - frequency) / self.sizes.sum()
        by_people = np.maximum(np.diag(inverse @ met @ inverse) - sample, 0.0)
        residual = self.shares - columns @ fitted
        freedom = max(1, residual.size - len(fitted))
        overdispersion = max(
            1.0, float((residual**2 * self.sizes[:, None] / variance).sum() / freedom)
        )
        return (np.diag(inverse @ lied @ inverse) + by_people) * overdispersion, overdispersion

    def chance(self, candidate: int) -> float:
        """A bound on P(residuals as large as those at this candidate's bits), if nobody has it."""
        offered = np.ones(len(self.candidates), dtype=np.bool_)
        offered[candidate] = False
        selected = self.select(offered)
        residual = self.shares - self._columns(selected) @ self.fit(selected)
        values = residual * self.precision[:, None]
        total = 0.0
        for row, cohort in zip(values, self.cohorts.tolist(), strict=True):
            total += float(
                row[self.law.positions(self.candidates[candidate : candidate + 1], cohort)].sum()
            )
        return uniform_sum_bound(values, self.law.per_object, total)


def _variance(law: Rappor, share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """N times the variance of an estimated share where ``share`` of the people have the bit set."""
    chance = law.p_star + (law.q_star - law.p_star) * share
    return np.asarray(chance * (1 - chance) / (law.q_star - law.p_star) ** 2)


_TOLERANCE = 1e-9
_BATCH = 100


def nonnegative_lasso(
    matrix: Any,
    target: npt.NDArray[np.float64],
    penalty: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """β ≥ 0 that minimises ½‖target − matrix·β‖² + Σ penalty·β.

    Tibshirani 1996, without negative coefficients. ``matrix`` (n, c) sparse, no column of it zero;
    ``target`` (n,); ``penalty`` (c,) ≥ 0. The dual is the projection of ``target`` onto a
    polyhedron, which is one non-negative least squares problem (Lawson and Hanson 1974, chapter
    23): with h = matrixᵀ·target − penalty and y ≥ 0 that minimises ‖matrix·y‖² + (1 − h·y)², β =
    y/(1 − h·y). scipy's ``nnls`` solves it on a working set of columns, which grows by those that
    break the conditions of optimality.

    Guarantee: on columns scaled to length 1 and a target of length 1, the gradient is ≥ −1e-9
    everywhere and ≤ 1e-9 where β > 0. At most n coefficients are above 0; of equal columns, one.
    Not claimed: which one.

    Raises:
        DpauditError: scipy's solver stopped, or the conditions do not hold on the working set.
    """
    length = scipy.sparse.linalg.norm(matrix, axis=0)
    scaled = (matrix @ scipy.sparse.diags(1 / length)).tocsc()
    size = float(np.linalg.norm(target)) or 1.0
    goal = target / size
    cost = penalty / length / size
    beta = np.zeros(len(length))
    working = np.zeros(0, dtype=np.int64)
    while True:
        gradient = scaled.T @ (scaled @ beta - goal) + cost
        broken = np.setdiff1d(np.flatnonzero(gradient < -_TOLERANCE), working)
        if not len(broken):
            break
        working = np.append(working, broken[np.argsort(gradient[broken], kind="stable")[:_BATCH]])
        beta[working] = _solve(scaled[:, working], goal, cost[working])
    if not np.where(beta > 0, np.abs(gradient), -gradient).max(initial=0.0) <= _TOLERANCE:
        raise DpauditError(
            f"non-negative lasso of {len(length)} columns: not converged; "
            "fewer candidates, or more reports"
        )
    return np.asarray(beta * size / length)


def _solve(
    matrix: Any, goal: npt.NDArray[np.float64], cost: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The same problem on few columns; ``goal`` at most 1 long, so that 1 − h·y ≥ 1/2."""
    pull = matrix.T @ goal - cost
    rows = np.vstack([np.linalg.qr(matrix.toarray(), mode="r"), pull])
    aim = np.zeros(len(rows))
    aim[-1] = 1.0
    try:
        y, _ = scipy.optimize.nnls(rows, aim)
    except RuntimeError as error:
        raise DpauditError(
            f"non-negative lasso of {len(cost)} columns: {error}; fewer candidates, or more reports"
        ) from error
    return np.asarray(y / (1 - pull @ y))


def uniform_sum_bound(values: npt.NDArray[np.float64], draws: int, total: float) -> float:
    """A bound on P(S ≥ ``total``), S a sum of independent uniform picks.

    There are ``draws`` picks from each row of ``values`` (j, m). Chernoff 1952: exp(min over t ≥ 0
    of K(t) − t·total), K(t) = draws·Σ_rows ln(mean of exp(t·value)). Any t gives a bound, so it
    holds however well the minimum is found.

    >>> round(uniform_sum_bound(np.array([[0.0, 1.0]]), 10, 10.0), 6), 2**-10  # ten heads in a row
    (0.000977, 0.0009765625)
    """
    centred = values - values.mean(axis=1, keepdims=True)
    left = total - draws * float(values.mean(axis=1).sum())
    spread = float(np.abs(centred).max())
    if left <= 0 or spread == 0:
        return 1.0

    def exponent(t: float) -> float:
        # t is at most e^6, so no exponential overflows
        row = np.log(np.exp(t * centred / spread).mean(axis=1))
        return float(draws * row.sum() - t * left / spread)

    best = scipy.optimize.minimize_scalar(
        lambda u: exponent(np.exp(u)), bounds=(-12.0, 6.0), method="bounded"
    )
    return float(np.exp(min(0.0, best.fun)))
