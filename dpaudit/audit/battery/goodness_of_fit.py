"""Goodness of fit against the exact distribution function."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.block import CELLS
from dpaudit.claims import Claim
from dpaudit.interfaces import Block, Stream
from dpaudit.stats import bonferroni, kolmogorov_p, normal_two_sided
from dpaudit.types import BlindSpot, Evidence

__all__ = ["GoodnessOfFit"]

_GROUPS = 256
_ORDERS = 8


class GoodnessOfFit:
    """Three views of Φ(z) in 2^14 equal cells: Kolmogorov-Smirnov, Pearson's χ² in 256 cells, Neyman's smooth test.

    Null: the counts are multinomial with equal cells. Kolmogorov-Smirnov errs towards no finding (the cells' edges only);
    χ² uses its asymptotic law (expected counts ≥ 5, else left out); each of the 8 smooth components is a sum of bounded
    variables with exactly known variance, taken as normal. Combined by Bonferroni.
    """

    looks_at = "the whole distribution of single values"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del stream
        self._claim = claim
        self._counts = np.zeros(CELLS, np.int64)

    def update(self, block: Block) -> None:
        self._counts += block.cells

    def evidence(self, *, alpha: float) -> Evidence:
        n = int(self._counts.sum())
        d, p_ks = kolmogorov_p(self._counts)
        parts = {"Kolmogorov-Smirnov": p_ks}
        if n >= 5 * _GROUPS:
            groups = self._counts.reshape(_GROUPS, -1).sum(1)
            expected = n / _GROUPS
            x2 = float(((groups - expected) ** 2).sum() / expected)
            parts["chi-square"] = float(scipy.special.chdtrc(_GROUPS - 1, x2))
        if n >= 100:
            parts["smooth"] = self._smooth(n)
        width = math.sqrt(-math.log(alpha / 6) / 2 / n)  # where KS at α/3 starts, by Dvoretzky, Kiefer and Wolfowitz
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
            effect=f"largest distance of distribution functions {d:.2e}",
            parts=parts,
            blind_spots=(blind,),
        )

    def _smooth(self, n: int) -> float:
        """Neyman's smooth test (1937): Legendre polynomials of Φ(z), here of the cell's middle."""
        basis = _legendre()
        return bonferroni(normal_two_sided(basis @ self._counts / math.sqrt(n)).tolist())


@functools.cache
def _legendre() -> npt.NDArray[np.float64]:
    """Orders 1…8 at the cells' middles, centred and scaled to mean square 1, shape (8, cells)."""
    x = (np.arange(CELLS) + 0.5) / CELLS * 2 - 1
    basis = np.stack([scipy.special.eval_legendre(order, x) for order in range(1, _ORDERS + 1)])
    basis -= basis.mean(1, keepdims=True)
    return np.asarray(basis / np.sqrt((basis * basis).mean(1, keepdims=True)))
