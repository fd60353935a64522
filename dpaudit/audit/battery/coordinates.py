"""Mean and variance of every single coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery import detectable_effect
from dpaudit.audit.battery.parts import no_evidence
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni, chi_square_two_sided, normal_two_sided
from dpaudit.types import BlindSpot, Evidence, Interval

__all__ = ["Coordinates"]

_COORDINATES = 1 << 20  # kept over all d: two sums each, 16 MiB
_WIDTH = 256  # narrow rows are folded to about this width before they are summed
_CACHED = 1 << 15  # values per step, so that the second pass reads the cache
_CONFIDENCE = 0.95
Array = npt.NDArray[np.float64]


@dataclass(slots=True)
class _Sums:
    """Σz and Σz² of the first coordinates of all rows of one d, shape (min(d, room left),)."""

    rows: int
    total: Array
    square: Array


def _column_sums(z: Array) -> tuple[Array, Array]:
    """Σz and Σz² of each column of ``z`` (n, d), both (d,); narrow rows are folded for speed."""
    n, d = z.shape
    fold = min(max(1, _WIDTH // d), n)
    wide = z[: n - n % fold].reshape(-1, fold * d)
    total, square = np.zeros(fold * d), np.zeros(fold * d)
    step = max(1, _CACHED // (fold * d))
    ones = np.ones(step)
    for start in range(0, len(wide), step):
        part = wide[start : start + step]
        total += ones[: len(part)] @ part
        square += np.einsum("ij,ij->j", part, part)
    total, square = total.reshape(fold, d).sum(0), square.reshape(fold, d).sum(0)
    rest = z[n - n % fold :]
    return total + rest.sum(0), square + np.einsum("ij,ij->j", rest, rest)


class Coordinates:
    """Mean and variance of each coordinate over the rows of its d.

    Null, exact for any number n of rows: Σz ~ N(0, n) and Σz² ~ χ²_n, two-sided. Bonferroni over a
    dimension's coordinates first, then over both statistics of all dimensions, so that d = 1 does
    not pay for d = 4096. Left out: dimensions of which one row was drawn, if there are others,
    and coordinates beyond the first 2^20 in all.
    """

    looks_at = "mean and variance of each coordinate"
    harm = "strength"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._sums: dict[int, _Sums] = {}
        self._room = _COORDINATES

    def update(self, block: Block) -> None:
        z = block.z
        n, d = z.shape
        if d not in self._sums:
            width = min(d, self._room)
            if width == 0:
                return
            self._room -= width
            self._sums[d] = _Sums(0, np.zeros(width), np.zeros(width))
        sums = self._sums[d]
        total, square = _column_sums(z[:, : len(sums.total)])
        sums.rows += n
        sums.total += total
        sums.square += square

    def evidence(self, *, alpha: float) -> Evidence:
        if not self._sums:
            return no_evidence("no rows")
        several = {d: sums for d, sums in self._sums.items() if sums.rows > 1}
        parts: dict[str, float] = {}
        place: dict[str, tuple[int, int, bool]] = {}
        for d, sums in (several or self._sums).items():
            mean = int(np.abs(sums.total).argmax())
            low, high = int(sums.square.argmin()), int(sums.square.argmax())
            p_low, p_high = (
                chi_square_two_sided(float(sums.square[j]), sums.rows) for j in (low, high)
            )
            width = len(sums.total)
            p_mean = float(normal_two_sided(sums.total[mean] / math.sqrt(sums.rows)))
            name = f"d={d}, means"
            parts[name] = min(1.0, width * p_mean)
            place[name] = d, mean, False
            name = f"d={d}, scales"
            parts[name] = min(1.0, width * min(p_low, p_high))
            place[name] = d, low if p_low < p_high else high, True
        worst = min(parts, key=lambda name: parts[name])
        d, j, scale = place[worst]
        return self._describe(d, j, scale=scale, parts=parts, alpha=alpha)

    def _describe(
        self, d: int, j: int, *, scale: bool, parts: dict[str, float], alpha: float
    ) -> Evidence:
        sums = self._sums[d]
        n, width = sums.rows, len(sums.total)
        # simultaneous over coordinates: this one was chosen after a look
        tail = (1 - _CONFIDENCE) / (2 * len(parts) * width)
        if scale:
            square = float(sums.square[j])
            value, unit = math.sqrt(square / n), "× the claimed scale"
            low = math.sqrt(square / scipy.special.chdtri(n, tail))
            high = math.sqrt(square / scipy.special.chdtri(n, 1 - tail))
            effect = f"most unusual: coordinate {j} of {d}, scale {value:.4f} × claimed"
        else:
            value, unit = float(sums.total[j]) / n, "claimed standard deviations"
            reach = -float(scipy.special.ndtri(tail)) / math.sqrt(n)
            low, high = value - reach, value + reach
            effect = f"most unusual: coordinate {j} of {d}, mean {value:+.4f} standard deviations"
        share = alpha / len(parts)
        largest = max(self._sums)
        thin = self._sums[largest]
        error = 1 / math.sqrt(2 * thin.rows)
        blind = [
            BlindSpot(
                test="coordinates",
                flaw="one wrong coordinate",
                size=100 * detectable_effect(error, alpha=min(1.0, share / len(thin.total))),
                unit=f"% of the claimed scale of one coordinate of {largest}",
                says="a single coordinate whose scale is off by less than this",
            )
        ]
        if any(len(s.total) < d for d, s in self._sums.items()):
            blind.append(
                BlindSpot(
                    test="coordinates",
                    flaw="a wrong coordinate far out",
                    size=None,
                    unit="",
                    says=f"single coordinates of d={largest} beyond the first {len(thin.total):,}",
                )
            )
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=value,
            effect=effect,
            parts=parts,
            blind_spots=tuple(blind),
            interval=Interval(
                low=low,
                high=high,
                confidence=_CONFIDENCE,
                method="exact, Bonferroni over coordinates",
            ),
            unit=unit,
            details={"d": d, "coordinate": j},
        )
