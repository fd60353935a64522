"""A bet on the distribution of single values."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.betting.location_scale import log_mean
from dpaudit.audit.block import CELLS, cell_edges, cell_probabilities
from dpaudit.interfaces import Block

__all__ = ["ShapeBet"]

_GROUPS = (16, 256)
_TAILS = 10.0 ** -np.arange(2, 8)  # one-sided, split off on both sides
_STRENGTH = 32.0  # of the Dirichlet prior, in values a group
Array = npt.NDArray[np.float64]


@functools.cache
def _groups(count: int) -> tuple[npt.NDArray[np.int64], Array]:
    """First cell of each of about ``count`` like groups with the tails apart, and the groups' probabilities."""
    z = np.concatenate(
        [scipy.special.ndtri(np.arange(1, count) / count), *(s * scipy.special.ndtri(_TAILS) for s in (1, -1))]
    )
    first = np.unique(np.concatenate([[0], np.searchsorted(cell_edges(), np.sort(z))]))
    return first, np.add.reduceat(cell_probabilities(), first)


class ShapeBet:
    """That values fall in groups of cells with other probabilities than claimed: Dirichlet-multinomial against multinomial.

    The Bayes factor Γ(A)/Γ(A+n) · Π Γ(a_j+n_j)/(Γ(a_j)·p_j^n_j) with a_j = A·p_j is a martingale whatever A is; 16 and 256
    groups, mean of both.
    """

    looks_at = "the whole distribution of single values"

    def __init__(self) -> None:
        self._counts = np.zeros(CELLS, np.int64)

    def update(self, block: Block) -> None:
        self._counts += block.cells

    def _one(self, count: int) -> float:
        first, p = _groups(count)
        n = np.add.reduceat(self._counts, first)
        a = _STRENGTH * count * p
        total = a.sum()
        gammaln = scipy.special.gammaln
        terms = gammaln(a + n) - gammaln(a) - n * np.log(p)
        return float(gammaln(total) - gammaln(total + n.sum()) + terms.sum())

    @property
    def log_capital(self) -> float:
        return log_mean([self._one(count) for count in _GROUPS])

    @property
    def effect(self) -> str:
        first, p = _groups(_GROUPS[0])
        n = np.add.reduceat(self._counts, first)
        total = max(int(n.sum()), 1)
        worst = int(np.argmax(np.abs(n - total * p) / np.sqrt(total * p)))
        edges = cell_edges()
        low, high = edges[first[worst]], edges[[*first[1:], CELLS][worst]]
        return f"{n[worst] / total:.5f} of the values, not {p[worst]:.5f}, lie in [{low:.3f}, {high:.3f}) σ"
