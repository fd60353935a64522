"""Projections of whole vectors on directions that the sampler cannot know."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery import detectable_effect
from dpaudit.audit.battery.parts import no_evidence
from dpaudit.audit.block import REACH
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni, chi_square_two_sided, kolmogorov_p
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Projections"]

_DIRECTIONS = 8
_CELLS = 1024
_ROWS = 1 << 14  # per block, at most: other tests see vectors of few dimensions too


class Projections:
    """Each row on 8 random unit vectors per d and on the diagonal: exactly N(0, 1) under the claim.

    Two views of each direction: the variance (exact χ²) and Kolmogorov-Smirnov. Combined by
    Bonferroni. Directions are drawn from the auditor's stream before anything is seen. Not claimed:
    finding a direction hidden among d dimensions; a random one has only 1/√d of it.
    """

    looks_at = "linear combinations of coordinates"
    harm = "strength"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim
        self._stream = stream
        self._directions: dict[int, npt.NDArray[np.float64]] = {}
        self._counts: dict[int, npt.NDArray[np.int64]] = {}
        self._squares: dict[int, npt.NDArray[np.float64]] = {}
        self._rows: dict[int, int] = {}

    def _start(self, d: int) -> None:
        w = self._stream.child("directions", d).numpy().standard_normal((d, _DIRECTIONS + 1))
        w[:, -1] = 1.0
        self._directions[d] = w / np.linalg.norm(w, axis=0)
        self._counts[d] = np.zeros((_DIRECTIONS + 1) * _CELLS, np.int64)
        self._squares[d] = np.zeros(_DIRECTIONS + 1)
        self._rows[d] = 0

    def update(self, block: Block) -> None:
        z = block.z[:_ROWS]
        n, d = z.shape
        if d == 1:
            return
        if d not in self._directions:
            self._start(d)
        x = z @ self._directions[d]
        self._rows[d] += n
        self._squares[d] += np.einsum("ij,ij->j", x, x)
        x *= _CELLS / (2 * REACH)
        x += _CELLS / 2
        np.clip(x, 0, _CELLS - 1, out=x)
        cell = x.astype(np.int64)
        cell += np.arange(_DIRECTIONS + 1) * _CELLS
        self._counts[d] += np.bincount(cell.ravel(), minlength=(_DIRECTIONS + 1) * _CELLS)

    def evidence(self, *, alpha: float) -> Evidence:
        parts: dict[str, float] = {}
        scale: dict[str, float] = {}
        upto = scipy.special.ndtr(np.linspace(-REACH, REACH, _CELLS + 1)[1:-1])
        for d, rows in self._rows.items():
            counts = self._counts[d].reshape(_DIRECTIONS + 1, _CELLS)
            for j in range(_DIRECTIONS + 1):
                name = f"d={d}, {'diagonal' if j == _DIRECTIONS else f'direction {j + 1}'}"
                square = float(self._squares[d][j])
                scale[name] = math.sqrt(square / rows)
                parts[name] = bonferroni(
                    [chi_square_two_sided(square, rows), kolmogorov_p(counts[j], upto)[1]]
                )
        if not parts:
            return no_evidence("one value per call: nothing to project", statistic=1.0)
        worst = min(parts, key=lambda name: parts[name])
        rows = max(self._rows.values())
        d = max(self._rows, key=lambda d: self._rows[d])
        size = detectable_effect(1 / math.sqrt(2 * rows), alpha=alpha / (2 * len(parts)))
        blind = BlindSpot(
            test="projections",
            flaw="a hidden direction",
            size=200 * d * size,
            unit=f"% more variance along one direction of {d}",
            says="a direction whose variance differs by less than about this, "
            "unless it is the diagonal",
        )
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=scale[worst],
            effect=f"most unusual: {worst}, scale {scale[worst]:.4f} × claimed",
            parts=parts,
            blind_spots=(blind,),
        )
