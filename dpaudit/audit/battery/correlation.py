"""Dependence between neighbouring values, coordinates and calls."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery import detectable_effect
from dpaudit.audit.battery.parts import no_evidence
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni, normal_two_sided
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Correlation"]

_LAGS = 32
_MAGNITUDES = 1 << 16  # values per block
Array = npt.NDArray[np.float64]


class Correlation:
    """Products of z with z a lag away in draw order (1…32), a row away, and in the call before.

    The last are at the same place of the call. The same for |z| less its mean (the first 2^16
    values of a block), which detects shared magnitudes without shared signs. Null: each sum of N
    products of independent variables of unit variance has mean 0 and variance N; taken as normal.
    Different lags are uncorrelated; combined by Bonferroni.
    """

    looks_at = "correlation across coordinates, rows and calls"
    harm = "dependence"
    causal_order = 15

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._sums: dict[str, float] = {}
        self._numbers: dict[str, int] = {}
        self._before: Array | None = None
        self._within, self._across = np.zeros((2, _LAGS, _LAGS))
        self._rows = np.zeros(2, np.int64)  # pairs in one of them, and in two consecutive ones

    def _add(self, name: str, a: Array, b: Array) -> None:
        if len(a):
            self._sums[name] = self._sums.get(name, 0.0) + float(a @ b)
            self._numbers[name] = self._numbers.get(name, 0) + len(a)

    def _add_lags(self, z: Array) -> None:
        """Add all lags at once: in rows of 32, pairs lie in one row or in two consecutive ones.

        In float32: a product of two rows errs by 1e-7 of itself, chance by 1/√(number of rows).
        """
        rows = len(z) // _LAGS
        if rows < 2:
            return
        a = z[: rows * _LAGS].reshape(rows, _LAGS).astype(np.float32)
        self._within += a.T @ a
        self._across += a[:-1].T @ a[1:]
        self._rows += np.array([rows, rows - 1])

    def _lags(self) -> Iterator[tuple[str, float, int]]:
        """Each lag, the sum of its products and their number."""
        for lag in range(1, _LAGS + 1) if self._rows[0] else ():
            total = np.trace(self._within, lag) + np.trace(self._across, lag - _LAGS)
            yield f"lag {lag}", float(total), int(self._rows @ (_LAGS - lag, lag))

    def update(self, block: Block) -> None:
        z = block.z.ravel()
        d = block.z.shape[1]
        self._add_lags(z)
        size = np.abs(z[:_MAGNITUDES])
        size -= math.sqrt(2 / math.pi)
        size *= 1 / math.sqrt(1 - 2 / math.pi)
        self._add("magnitude, lag 1", size[1:], size[:-1])
        if d > _LAGS:
            self._add("next row", z[d:], z[:-d])
            self._add("magnitude, next row", size[d:], size[:-d])
        if self._before is not None:
            m = min(len(z), len(self._before))
            self._add("call before", z[:m], self._before[:m])
        self._before = z

    def evidence(self, *, alpha: float) -> Evidence:
        lags = list(self._lags())
        sums = {name: total for name, total, _ in lags} | self._sums
        numbers = {name: pairs for name, _, pairs in lags} | self._numbers
        rho = {name: sums[name] / n for name, n in numbers.items()}
        parts = {
            name: float(normal_two_sided(rho[name] * math.sqrt(n))) for name, n in numbers.items()
        }
        if not parts:
            return no_evidence("too few values to correlate")
        worst = min(parts, key=lambda name: parts[name])
        n = max(numbers.values())
        blind = BlindSpot(
            test="correlation",
            flaw="correlation",
            size=detectable_effect(1 / math.sqrt(n), alpha=alpha / len(parts)),
            unit="correlation coefficient",
            says="dependence between values up to 32 apart that is weaker than this, "
            "and any at other distances",
        )
        reach = 1.96 / math.sqrt(numbers[worst])
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=rho[worst],
            effect=f"strongest: {worst}, correlation {rho[worst]:+.2e} ± {reach:.1e}",
            parts=parts,
            blind_spots=(blind,),
        )
