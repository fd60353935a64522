"""The adversary who knows that equal reports of a device are about one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import LocalMechanism
from dpaudit_local.mechanisms.reports import Reports
from dpaudit_local.pool_inference.evidence import likelihoods
from dpaudit_local.pool_inference.posterior import check_prefixes, normalize
from dpaudit_local.pool_inference.settings import Pools

__all__ = ["memoised_posterior"]

_CELLS = 1 << 22  # report-object pairs at a time: 32 MiB


def equal_reports(
    reports: Reports, users: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which reports of each user are equal.

    A number for each report (users·n,), and the first report of each number. Reports are in the
    order of ``users``, each user's n reports together; numbers rise with users, so that a user's
    numbers are consecutive.

    Raises:
        UsageError: reports that do not divide among the users.
    """
    if users < 1 or not len(reports) or len(reports) % users:
        raise UsageError(f"users={users}: {len(reports)} reports do not divide evenly among them")
    owner = np.repeat(np.arange(users, dtype=np.int64), len(reports) // users)
    # big-endian sorts as the number does
    columns = [owner.astype(">i8").view(np.uint8).reshape(len(reports), 8)]
    for name in type(reports).__dataclass_fields__:
        values = np.ascontiguousarray(getattr(reports, name))
        columns.append(values.reshape(len(reports), -1).view(np.uint8))
    rows = np.ascontiguousarray(np.concatenate(columns, axis=1))
    keys = rows.view(np.dtype((np.void, rows.shape[1])))[:, 0]
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    return number.astype(np.int64), first


def memoised_posterior(
    mechanism: LocalMechanism,
    pools: Pools,
    popularity: npt.NDArray[np.float64] | None,
    reports: Any,
    *,
    users: int,
    prefixes: Sequence[int],
    cells: int = 48,
) -> npt.NDArray[np.float64]:
    """Pr[preferred pool = i | the first n reports], shape (users, prefixes, k).

    Equal reports are taken as one object's. ``reports`` (users·n) are in the order of users, each
    user's together in the order of time. The object z of a report that came c times was chosen c
    times and privatised once; no other report is about z. With a_i = γδ for the preferred pool, a_j
    = γ(1 − δ)/(k − 1) for the others, a_0 = 1 − γ, the mean of an object's count is λ_z =
    n·a_j·w_z, and the score of pool i is the integral over (γ, δ) of

        exp(−Σ_z (1 − e^(−λ_z))) · Π over distinct reports x̃ of Σ_z e^(−λ_z) λ_z^c Pr[x̃ | z]:

    counts as independent Poisson numbers, and reports as a Poisson process over objects and counts.
    Without e^(−λ_z), which says that a popular object is chosen often or not at all, each frequent
    report is taken for each pool's most popular object, and the adversary does worse than one who
    knows nothing of memoisation.

    Approximations: the Poisson process (that distinct reports have distinct objects holds in the
    mean only), and the integral by the midpoint rule on ``cells`` cells per side of (a_0, a_i).
    Equal reports of different objects are as improbable as equal noise. In a mechanism of few
    reports they are not; randomised response over 12 objects, ε = 1 and 2, n = 90, makes the
    adversary too sure by 0.04, where one who takes copies for fresh reports is by 0.4. Each
    distinct report costs its likelihood of every object of the universe, times ``cells`` twice.

    Raises:
        UsageError: reports that do not divide among users, prefixes that do not rise within 1 … n,
            or impossible reports.
    """
    number, first = equal_reports(reports, users)
    n = len(reports) // users
    check_prefixes(prefixes, n)
    time = np.arange(len(reports)) % n
    copies = np.stack(
        [np.bincount(number[time < p], minlength=len(first)) for p in prefixes], axis=1
    )
    starts = np.searchsorted(first // n, np.arange(users + 1))
    weights = pools.weights(popularity)
    shares = [weights[group] for group in (pools.neutral, *pools.members)]
    scores = np.empty((users, len(prefixes), pools.k))
    chunk = max(1, _CELLS // (pools.universe * n))
    for start in range(0, users, chunk):
        rows = slice(start, min(start + chunk, users))
        mine = slice(starts[rows.start], starts[rows.stop])
        law = likelihoods(mechanism, reports[first[mine]], pools.universe)
        parts = [np.ascontiguousarray(law[:, group]) for group in (pools.neutral, *pools.members)]
        own_starts = starts[rows.start : rows.stop + 1] - mine.start
        for b, prefix in enumerate(prefixes):
            tables, quiet = _tables(parts, shares, copies[mine, b], prefix, cells)
            _fill(tuple(tables), tuple(quiet), copies[mine, b], own_starts, scores[rows, b])
    return normalize(scores)


def _tables(
    parts: list[npt.NDArray[np.float64]],
    shares: list[npt.NDArray[np.float64]],
    copies: npt.NDArray[np.int64],
    n: int,
    cells: int,
) -> tuple[list[npt.NDArray[np.float64]], list[npt.NDArray[np.float64]]]:
    """Σ_z Poisson(c; n·a·w_z)·P(report | z) at each a of a grid, and Σ_z (1 − e^(−n·a·w_z)).

    For the neutral pool at (u + ½)/cells, for each pool preferred at the same, and not preferred at
    s/(cells·(k − 1)): shapes (reports, 1 or k, cells or cells + 1). Each report's largest is scaled
    to 1.
    """
    k = len(parts) - 1
    middles, edges = (np.arange(cells) + 0.5) / cells, np.arange(cells + 1) / (cells * (k - 1))
    roles = [(middles, [0]), (middles, range(1, k + 1)), (edges, range(1, k + 1))]
    tables = [np.zeros((len(copies), len(js), len(grid))) for grid, js in roles]
    quiet = [
        np.stack([-np.expm1(-n * np.outer(grid, shares[j])).sum(axis=1) for j in js])
        for grid, js in roles
    ]
    for c in np.unique(copies[copies > 0]).tolist():
        rows = np.flatnonzero(copies == c)
        for table, (grid, js) in zip(tables, roles, strict=True):
            for at, j in enumerate(js):
                mean = n * np.outer(shares[j], grid)
                with np.errstate(divide="ignore"):
                    chance = np.exp(c * np.log(mean / c) - mean + c)
                table[rows, at] = parts[j][rows] @ chance
    top = np.maximum.reduce([t.max(axis=(1, 2)) for t in tables])
    top[top == 0] = 1.0
    return [t / top[:, None, None] for t in tables], quiet


_jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


@_jit
def _fill_row(tables, copies, i, u, product, exponent):  # type: ignore[no-untyped-def]
    """Products over the reports of one user in the cells of row ``u``, exponents kept apart.

    A report's factor in a cell below 1e-150 of its largest anywhere counts as 1e-150 of it.
    """
    neutral, own, other = tables
    count, bits = product.size, product.view(np.int64)
    everyone = np.empty(count)
    product[:], exponent[:] = 1.0, 0
    for g in range(copies.size):
        if copies[g] == 0:
            continue
        everyone[:] = neutral[g, 0, u]
        for j in range(own.shape[1]):
            if j != i:
                for s in range(count):
                    everyone[s] += other[g, j, s]
        for v in range(count):
            product[v] *= max(own[g, i, v] + everyone[count - 1 - v], 1e-150)
        for v in range(count):
            e = (bits[v] >> 52) - 1023
            exponent[v] += e
            bits[v] -= e << 52


@_jit
def _expected_reports(quiet, i, u, v, s):  # type: ignore[no-untyped-def]
    """How many distinct reports are expected in a cell."""
    neutral, own, other = quiet
    expected = neutral[0, u] + own[i, v]
    for j in range(own.shape[0]):
        if j != i:
            expected += other[j, s]
    return expected


@_jit
def _fill(tables, quiet, copies, starts, out):  # type: ignore[no-untyped-def]
    """Logarithms of scores into ``out`` (users, k): a sum over cells of products over reports."""
    cells, k = tables[1].shape[2], out.shape[1]
    product, exponent, logs = np.empty(cells), np.empty(cells, np.int64), np.empty((cells, cells))
    for x in range(out.shape[0]):
        mine = slice(starts[x], starts[x + 1])
        reports = (tables[0][mine], tables[1][mine], tables[2][mine])
        for i in range(k):
            top = -np.inf
            for u in range(cells):
                count = cells - u  # cells of a_i up to the edge a_0 + a_i = 1
                _fill_row(reports, copies[mine], i, u, product[:count], exponent[:count])
                for v in range(count):
                    s = count - 1 - v
                    # of the cell, δ > 1/k
                    inside = min(max((v + 0.5 - s / (k - 1)) * (k - 1) / k + 0.5, 0.0), 1.0)
                    if s == 0:
                        inside *= 0.5  # the edge δ = 1 cuts it in two
                    gamma = 1.0 - (u + 0.5) / cells  # dδ = da_i/γ
                    logs[u, v] = (
                        np.log(product[v])
                        + 0.6931471805599453 * exponent[v]
                        - _expected_reports(quiet, i, u, v, s)
                        + np.log(inside / gamma)
                    )
                    top = max(top, logs[u, v])
            mass = 0.0
            for u in range(cells):
                for v in range(cells - u):
                    mass += np.exp(logs[u, v] - top)
            out[x, i] = top + np.log(mass)
