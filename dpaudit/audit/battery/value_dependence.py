"""Noise that depends on the value it is added to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery import detectable_effect
from dpaudit.audit.battery.parts import no_evidence, two_sided
from dpaudit.audit.block import cell_probabilities
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni, normal_two_sided
from dpaudit.types import BlindSpot, Evidence, Interval

__all__ = ["ValueDependence"]

_CELLS = 64
_EXPECTED = 20  # least expected count of a cell
_VALUES = 64
# values per group: no more are needed to compare it with others that are mostly smaller
_ENOUGH = 1 << 21
_LOOKED_AT = 4096  # values of a block whose lattice is read off


@cache
def _edges() -> npt.NDArray[np.int64]:
    """Where 64 groups of about equal probability begin among the 2^14 cells."""
    return np.searchsorted(np.cumsum(cell_probabilities()), np.arange(_CELLS) / _CELLS)


@dataclass(slots=True)
class _Group:
    n: int = 0
    total: float = 0.0
    square: float = 0.0
    exponent: int = 9999
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_CELLS, np.int64))


class ValueDependence:
    """Compares the noise added to one value with the noise added to all the others.

    Null: z is N(0, 1) at every value. For each value, exact: the difference of means is normal with
    known variance, the ratio of mean squares has Snedecor's F law (two-sided). The counts in 64
    cells of about equal probability are compared over all values by Pearson's χ² of homogeneity
    (asymptotic; values with fewer than 20 expected per cell are left out). Combined by Bonferroni.
    The lattice of each value's noise (the finest power of two among its last digits) is in the
    details, not in the p-value: adding in floating point alone changes it (Mironov 2012). At most
    64 different values are compared, later ones are left out, and about 2^21 noise values of each
    are used.
    """

    looks_at = "dependence of the noise on the value it is added to"
    harm = "changes"
    causal_order = 12

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._groups: dict[float, _Group] = {}

    def update(self, block: Block) -> None:
        if block.value not in self._groups and len(self._groups) == _VALUES:
            return
        group = self._groups.setdefault(block.value, _Group())
        if group.n >= _ENOUGH:
            return
        z = block.z.ravel()
        group.n += len(z)
        group.total += float(z.sum())
        group.square += float(np.einsum("i,i->", z, z))
        group.counts += np.add.reduceat(block.cells, _edges())
        group.exponent = min(group.exponent, _last_digit(block.values.ravel()[:_LOOKED_AT]))

    def evidence(self, *, alpha: float) -> Evidence:
        groups = self._groups
        if len(groups) < 2:
            return no_evidence("the sampler takes no value")
        n = sum(g.n for g in groups.values())
        total = sum(g.total for g in groups.values())
        square = sum(g.square for g in groups.values())
        parts: dict[str, float] = {}
        for value, g in groups.items():
            rest = n - g.n
            gap = (g.total / g.n - (total - g.total) / rest) / math.sqrt(1 / g.n + 1 / rest)
            parts[f"mean at {value:g}"] = float(normal_two_sided(gap))
            others = (square - g.square) / rest
            ratio = g.square / g.n / others if others > 0 else math.inf
            parts[f"scale at {value:g}"] = two_sided(
                scipy.special.fdtr(g.n, rest, ratio), scipy.special.fdtrc(g.n, rest, ratio)
            )
        parts["cells"] = _homogeneity(np.stack([g.counts for g in groups.values()]))
        worst = min(parts, key=lambda name: parts[name])
        odd = min(groups, key=lambda v: min(parts[f"mean at {v:g}"], parts[f"scale at {v:g}"]))
        g = groups[odd]
        rest = n - g.n
        scale = math.sqrt((g.square / g.n) / max((square - g.square) / rest, 1e-300))
        tail = alpha / 2
        interval = Interval(
            low=scale / math.sqrt(scipy.special.fdtri(g.n, rest, 1 - tail)),
            high=scale / math.sqrt(scipy.special.fdtri(g.n, rest, tail)),
            confidence=1 - alpha,
            method="F",
        )
        error = math.sqrt(0.5 / g.n + 0.5 / rest)
        blind = BlindSpot(
            test="value-dependence",
            flaw="scale that depends on the value",
            size=100 * detectable_effect(error, alpha=alpha / len(parts)),
            unit="% of the scale at the other values",
            says=f"noise for one of the values {', '.join(f'{v:g}' for v in groups)} "
            "that differs less than this, and any dependence on other values",
        )
        details: dict[str, Any] = {
            f"value {v:g}": {
                "samples": g.n,
                "scale": math.sqrt(g.square / g.n),
                "lattice": f"2^{g.exponent}",
            }
            for v, g in groups.items()
        }
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=scale,
            effect=f"strongest: {worst}; "
            f"at value {odd:g} the scale is {scale:.4f} × that at the others",
            parts=parts,
            blind_spots=(blind,),
            interval=interval,
            unit="× the scale at the other values",
            details=details,
        )


def _homogeneity(counts: npt.NDArray[np.int64]) -> float:
    """Pearson's χ² that all rows have the same law; rows with few expected values are left out."""
    # cells may have half of their share under the null
    counts = counts[counts.sum(1) >= 2 * _CELLS * _EXPECTED]
    counts = counts[:, counts.sum(0) > 0]
    if len(counts) < 2 or counts.shape[1] < 2:
        return 1.0
    expected = counts.sum(1, keepdims=True) * (counts.sum(0) / counts.sum())
    x2 = float(((counts - expected) ** 2 / expected).sum())
    return float(scipy.special.chdtrc((len(counts) - 1) * (counts.shape[1] - 1), x2))


def _last_digit(x: npt.NDArray[np.float64]) -> int:
    """Exponent of the finest power of two in the last binary digits of ``x``; 9999 if all are 0."""
    fraction, exponent = np.frexp(x[x != 0])
    if not len(fraction):
        return 9999
    digits = (np.abs(fraction) * 2.0**53).astype(np.int64)
    return int((exponent - 53 + np.log2(digits & -digits).astype(np.int64)).min())
