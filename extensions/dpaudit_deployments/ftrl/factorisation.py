"""Factorisations A = B·C of prefix sums: the correlated noise of DP-FTRL, by its public matrices.

A is the lower triangle of ones: row t of A·X is the sum of the first t updates X. A server releases
C·X + Z with independent noise Z, and takes its model from B·(C·X + Z) = A·X + B·Z.

Banded matrices C have the least error of prefix sums at equal privacy, by L-BFGS. Where nobody
takes part twice within ``bands`` steps, the columns of one person are orthogonal, and the
sensitivity is the columns' norm times the root of the number of participations. So both are
optimised for columns of norm at most 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular, toeplitz
from scipy.optimize import minimize
from scipy.signal import lfilter

from dpaudit.errors import UsageError
from dpaudit.registry import nearest

__all__ = ["FACTORISATIONS", "Factorisation", "banded_matrix", "factorisation", "root_coefficients"]

_STEPS = {"maxiter": 2_000, "maxfun": 4_000, "ftol": 1e-13, "gtol": 1e-9}


def root_coefficients(count: int) -> Matrix:
    """The first ``count`` of (1 − x)^(−1/2): the Toeplitz root of A (Fichtenberger et al. 2023).

    >>> root_coefficients(3)
    array([1.   , 0.5  , 0.375])
    """
    k = np.arange(1, count)
    return np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))


@lru_cache(maxsize=32)
def _toeplitz(steps: int, bands: int) -> tuple[float, ...]:
    weights = np.arange(steps, 0, -1) / steps
    impulse = np.zeros(steps)
    impulse[0] = 1

    def loss(free: Matrix) -> tuple[float, Matrix]:
        """log(‖c‖² · mean squared error) and its gradient; c₀ = 1."""
        c = np.concatenate([[1.0], free])
        inverse = lfilter([1.0], c, impulse)
        noise = np.cumsum(inverse)  # the series of B, 1/((1 − x)·c(x))
        error, size = weights @ noise**2, c @ c
        # d noise = −(noise · inverse)·dc as series
        twice = np.convolve(noise, inverse)[:steps]
        back = np.correlate(2 * weights * noise, twice, "full")[steps - 1 :][:bands]
        slope = 2 * c / size - back / error
        return float(np.log(error * size)), slope[1:]

    if bands == 1:
        return (1.0,)
    start = root_coefficients(bands)[1:]
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", options=_STEPS)
    c = np.concatenate([[1.0], optimum.x])
    return tuple((c / np.linalg.norm(c)).tolist())


def toeplitz_coefficients(steps: int, bands: int) -> Matrix:
    """The first column of the Toeplitz C with the least mean squared error, of norm 1."""
    return np.array(_toeplitz(steps, bands))


def toeplitz_matrix(steps: int, bands: int) -> Matrix:
    """C, shape (steps, steps), from :func:`toeplitz_coefficients`."""
    column = np.zeros(steps)
    column[:bands] = toeplitz_coefficients(steps, bands)
    return np.asarray(toeplitz(column, np.zeros(steps)))


@lru_cache(maxsize=8)
def banded_matrix(steps: int, bands: int) -> Matrix:
    """C, shape (steps, steps), lower triangular with columns of norm 1: least ‖A·C⁻¹‖².

    A local minimum: L-BFGS from the Toeplitz root, the gradient of ‖B‖² being −2·Bᵀ·B·C⁻ᵀ.
    """
    row, column = np.indices((steps, steps))
    inside = (row >= column) & (row < column + bands)
    ones = np.tril(np.ones((steps, steps)))

    def unit(free: Matrix) -> tuple[Matrix, Matrix]:
        raw = np.zeros((steps, steps))
        raw[inside] = free
        norms = np.linalg.norm(raw, axis=0)
        return raw / norms, norms

    def loss(free: Matrix) -> tuple[float, Matrix]:
        c, norms = unit(free)
        b = solve_triangular(c.T, ones.T, lower=False).T
        error = float(np.square(b).sum())
        slope = -2 * solve_triangular(c, (b.T @ b).T, lower=True).T / error
        slope -= c * (slope * c).sum(0)  # along the sphere of each column
        return float(np.log(error)), (slope / norms)[inside]

    start = toeplitz(root_coefficients(steps), np.zeros(steps))[inside]
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", options=_STEPS)
    matrix = unit(optimum.x)[0]
    matrix.flags.writeable = False  # it is kept
    return matrix


Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Factorisation:
    """C and its left inverse D: step t's noisy update is row t of D·(C·X + Z) = X + D·Z.

    Attributes:
        name: what it is called on the command line.
        strategy: C, shape (m, n): m rows of independent noise for n steps.
        decoder: D, shape (n, m); row t has no part in a row of C that looks past step t.
    """

    name: str
    strategy: Matrix
    decoder: Matrix

    @property
    def steps(self) -> int:
        """n, how many updates there are."""
        return int(self.strategy.shape[1])

    @cached_property
    def due(self) -> npt.NDArray[np.int64]:
        """The step, from 0, after which each row of C·X is known, shape (m,); it never falls."""
        last = self.strategy[:, ::-1] != 0
        completed: npt.NDArray[np.int64] = self.steps - 1 - last.argmax(1)
        return completed

    @cached_property
    def prefix(self) -> Matrix:
        """B = A·D, shape (n, m): the noise of the model after each step."""
        return np.cumsum(self.decoder, axis=0)

    @cached_property
    def whitening(self) -> Matrix:
        """W, shape (n, n), with W·D·Z independent again: C itself where C is square.

        The inverse of the Cholesky factor of D·Dᵀ.
        """
        root = cholesky(self.decoder @ self.decoder.T, lower=True)
        return np.asarray(solve_triangular(root, np.eye(self.steps), lower=True))

    @property
    def mean_error(self) -> float:
        """Mean squared error of a prefix sum at unit noise, ‖B‖²/n; without the sensitivity."""
        return float(np.square(self.prefix).sum() / self.steps)

    @property
    def max_error(self) -> float:
        """The largest squared error of a prefix sum at unit noise; without the sensitivity."""
        return float(np.square(self.prefix).sum(1).max())

    def restarted(self, times: int) -> Factorisation:
        """The same ``times`` one after the other, with noise of their own."""
        blocks = np.eye(times)
        both = self.strategy, self.decoder
        own = (np.asarray(np.kron(blocks, matrix), dtype=np.float64) for matrix in both)
        return Factorisation(self.name, *own)


def factorisation(name: str, *, steps: int, bands: int = 0, restart: int = 0) -> Factorisation:
    """A factorisation of ``steps`` steps by its name.

    =================  ============================================================================
    name               noise
    =================  ============================================================================
    ``identity``       independent in each step: DP-SGD and DP-FedAvg
    ``tree``           binary tree aggregation; of each prefix sum the fewest nodes (Dwork et al.
                       2010; Chan, Shi and Song 2011)
    ``honaker``        the same tree, each node's noise estimated from all nodes below it (Honaker
                       2015, online; the DP-FTRL of Kairouz et al. 2021)
    ``toeplitz``       C banded Toeplitz, optimal for the mean error (McKenna 2024)
    ``banded``         C banded with equal columns, optimal for the mean error (Choquette-Choo et
                       al. 2023, arXiv 2306.08153)
    =================  ============================================================================

    ``bands`` is how many diagonals C has, itself included, for the last two. With ``restart`` the
    factorisation is one of ``restart`` steps, begun anew until there are ``steps``.

    Raises:
        UsageError: an unknown name, a number out of range, or ``bands`` where none apply.
    """
    if name not in FACTORISATIONS:
        raise UsageError(f"factorisation={name}: not known{nearest(name, FACTORISATIONS)}")
    times, rest = divmod(steps, restart) if restart else (1, 0)
    if steps < 1 or restart < 0 or rest:
        raise UsageError(
            f"steps={steps}, restart={restart}: steps must be at least 1 and a multiple of restart"
        )
    length, banded = steps // times, name in ("toeplitz", "banded")
    if not (1 <= bands <= length if banded else bands == 0):
        most = f"takes 1 … {length}" if banded else "takes none; leave it out"
        raise UsageError(f"bands={bands}: {name} {most}")
    base = FACTORISATIONS[name](length, bands)
    return base.restarted(times) if times > 1 else base


def _square(name: str, strategy: Matrix) -> Factorisation:
    inverse = solve_triangular(strategy, np.eye(len(strategy)), lower=True)
    return Factorisation(name, strategy, np.asarray(inverse))


def _tree(steps: int, _: int) -> Factorisation:
    """The dyadic decomposition of 1…t has one node that is in none before: that of t's last bit."""
    strategy = np.zeros((steps, steps))
    for t in range(1, steps + 1):
        strategy[t - 1, t - (t & -t) : t] = 1
    return _square("tree", strategy)


def _honaker(steps: int, _: int) -> Factorisation:
    """All complete nodes; a node is estimated by itself and, where it has them, its two halves.

    Estimates of variance v for both halves and 1 for the node itself: weight 2v/(2v + 1) on itself.
    """
    rows: list[tuple[int, int]] = []  # (start, end) of each node, as they are completed
    for t in range(1, steps + 1):
        rows += [(t - (1 << h), t) for h in range(int(math.log2(t & -t)) + 1)]
    place = {node: i for i, node in enumerate(rows)}
    strategy, estimate = np.zeros((len(rows), steps)), np.eye(len(rows))
    variance = {1: 1.0}
    for i, (start, end) in enumerate(rows):
        strategy[i, start:end] = 1
        if (size := end - start) > 1:
            halves = variance[size // 2] * 2
            variance[size] = halves / (halves + 1)
            middle = start + size // 2
            below = estimate[place[start, middle]] + estimate[place[middle, end]]
            estimate[i] = variance[size] * estimate[i] + below / (halves + 1)
    prefix = np.zeros((steps + 1, len(rows)))
    for t in range(1, steps + 1):
        before = t - (t & -t)
        prefix[t] = prefix[before] + estimate[place[before, t]]
    return Factorisation("honaker", strategy, np.diff(prefix, axis=0))


FACTORISATIONS: dict[str, Callable[[int, int], Factorisation]] = {
    "identity": lambda steps, _: _square("identity", np.eye(steps)),
    "tree": _tree,
    "honaker": _honaker,
    "toeplitz": lambda steps, bands: _square("toeplitz", toeplitz_matrix(steps, bands)),
    "banded": lambda steps, bands: _square("banded", banded_matrix(steps, bands)),
}
