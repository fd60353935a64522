"""Goodness of fit against the exact distribution function."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.tails import SHOWN
from dpaudit.audit.block import CELLS, cell_edges, cell_probabilities
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import anderson_darling_p, bonferroni, kolmogorov_p, normal_two_sided
from dpaudit.types import BlindSpot, Evidence

__all__ = ["GoodnessOfFit"]

_GROUPS = 256
# one-sided: where the outermost groups are split, if enough values are expected
_TAIL_GROUPS = 1e-3, 1e-4, 1e-5, 1e-6
_EXPECTED = 10
_UNUSUAL = 2.5  # standard deviations of a cell's count
_ORDERS = 8
_LIKE = ("mean", "scale", "skewness", "tails", *["shape"] * (_ORDERS - 4))
Array = npt.NDArray[np.float64]


class GoodnessOfFit:
    """Five views of z in 2^14 cells, combined by Bonferroni.

    Kolmogorov-Smirnov, Anderson-Darling, χ² with separate tails, smooth components, single cells.
    Null: the counts are multinomial with the exact cell probabilities of N(0, 1).
    Kolmogorov-Smirnov errs towards no finding (the cells' edges only). Anderson-Darling sums over
    cells, its p errs upwards (see :func:`~dpaudit.stats.anderson_darling_p`). χ² has 256 groups of
    about equal probability, the outer ones split at 10^-3 … 10^-6 where 10 values are expected, and
    uses its asymptotic law. Each of the 8 smooth components (Legendre polynomials of Φ(z), Neyman
    1937) is a sum of bounded variables with exactly known variance, taken as normal. Each single
    cell's count is exactly binomial: it detects gaps and atoms.
    """

    looks_at = "the whole distribution of single values"
    harm = "law"
    causal_order = 10

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._counts = np.zeros(CELLS, np.int64)

    def update(self, block: Block) -> None:
        self._counts += block.cells

    def evidence(self, *, alpha: float) -> Evidence:
        n = int(self._counts.sum())
        upto = np.cumsum(cell_probabilities())[:-1]
        d, p_ks = kolmogorov_p(self._counts, upto)
        parts = {"Kolmogorov-Smirnov": p_ks}
        effects = {"Kolmogorov-Smirnov": self._below(n, upto)}
        if n >= 100:
            parts["Anderson-Darling"] = self._anderson_darling(n, upto)
            effects["Anderson-Darling"] = effects["Kolmogorov-Smirnov"]
            components = _smooth() @ self._counts / math.sqrt(n)
            parts["smooth"] = bonferroni(normal_two_sided(components).tolist())
            order = int(np.argmax(np.abs(components)))
            off = f"{components[order]:+.1f} standard errors"
            effects["smooth"] = f"component {order + 1} ({_LIKE[order]}) off by {off}"
        if n >= _EXPECTED * _GROUPS:
            parts["chi-square"], effects["chi-square"] = self._chi_square(n)
        parts["single cells"], effects["single cells"] = _single_cells(self._counts, n)
        worst = min(parts, key=lambda name: parts[name])
        # the distance that KS finds at α/5, by Dvoretzky, Kiefer and Wolfowitz
        width = math.sqrt(-math.log(alpha / 10) / 2 / n)
        blind = BlindSpot(
            test="goodness-of-fit",
            flaw="difference of distribution functions",
            size=width + math.sqrt(0.25 / n) * 1.2816,
            unit="probability",
            says="a distribution that nowhere differs from the claimed one by more than this",
        )
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=d,
            effect=f"largest distance of distribution functions {d:.2e}"
            + (f"; {worst}: {effects[worst]}" if parts[worst] < SHOWN else ""),
            parts=parts,
            blind_spots=(blind,),
        )

    def _below(self, n: int, upto: Array) -> str:
        """Where the distribution functions differ most, with the counts."""
        counts = np.cumsum(self._counts)[:-1]
        at = int(np.argmax(np.abs(counts / n - upto)))
        edge = cell_edges()[at + 1]
        return f"{counts[at]:,} values below {edge:.4f} σ, expected {n * upto[at]:,.1f}"

    def _anderson_darling(self, n: int, upto: Array) -> float:
        """A² = n ∫ (F_n − F)² / (F(1−F)) dF, by the midpoint rule on the edges of the cells."""
        inside = (upto > 0) & (upto < 1)
        u = upto[inside]
        gap = (np.cumsum(self._counts)[:-1] / n)[inside] - u
        step = np.gradient(u)
        return anderson_darling_p(float(n * (gap * gap / (u * (1 - u)) * step).sum()))

    def _chi_square(self, n: int) -> tuple[float, str]:
        """The p-value, and the group with the largest term of the statistic."""
        edges = _group_edges()
        expected = np.add.reduceat(cell_probabilities(), edges) * n
        counts = np.add.reduceat(self._counts, edges)
        # merge the outermost groups with their neighbours
        while expected[0] < _EXPECTED or expected[-1] < _EXPECTED:
            for values in (expected, counts):
                values[1] += values[0]
                values[-2] += values[-1]
            expected, counts = expected[1:-1], counts[1:-1]
            edges = np.concatenate([edges[:1], edges[2:-1]])
        off = (counts - expected) ** 2 / expected
        worst = int(np.argmax(off))
        low, high = [-np.inf, *cell_edges()[edges[1:]], np.inf][worst : worst + 2]
        effect = (
            f"{counts[worst]:,} values in {low:.4f} … {high:.4f} σ, expected {expected[worst]:,.1f}"
        )
        return float(scipy.special.chdtrc(len(expected) - 1, float(off.sum()))), effect


def _single_cells(counts: npt.NDArray[np.int64], n: int) -> tuple[float, str]:
    """The most unusual count of one cell: its p-value for all cells tried, and an explanation."""
    p = cell_probabilities()
    # any other cell's tail is above 1/CELLS
    off = np.abs(counts - n * p) / np.sqrt(np.maximum(n * p, 1e-300))
    some = np.flatnonzero(off >= min(_UNUSUAL, float(off.max())))
    count = counts[some]
    lower = scipy.special.bdtr(count, n, p[some])
    upper = np.where(count > 0, scipy.special.bdtrc(np.maximum(count - 1, 0), n, p[some]), 1.0)
    tail = 2 * np.minimum(lower, upper)
    worst = int(some[np.argmin(tail)])
    low, high = cell_edges()[worst : worst + 2]
    effect = f"{counts[worst]:,} values in [{low:.4f}, {high:.4f}) σ, expected {n * p[worst]:,.1f}"
    return min(1.0, CELLS * float(tail.min())), effect


@functools.cache
def _group_edges() -> npt.NDArray[np.int64]:
    """First cell of each group, from the left."""
    at = [*_TAIL_GROUPS, *(np.arange(1, _GROUPS) / _GROUPS)]
    quantiles = np.concatenate([scipy.special.ndtri(at), -scipy.special.ndtri(_TAIL_GROUPS)])
    return np.unique(np.concatenate([[0], np.searchsorted(cell_edges(), np.sort(quantiles))]))


@functools.cache
def _smooth() -> Array:
    """Legendre polynomials 1…8 of Φ at the cells' middles, shape (8, cells).

    Centred and of mean square 1 under N(0, 1).
    """
    p = cell_probabilities()
    x = 2 * (np.cumsum(p) - p / 2) - 1
    basis = np.stack([scipy.special.eval_legendre(order, x) for order in range(1, _ORDERS + 1)])
    basis -= (basis @ p)[:, None]
    return np.asarray(basis / np.sqrt((basis * basis) @ p)[:, None])
