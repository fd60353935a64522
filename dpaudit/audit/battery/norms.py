"""Lengths of whole vectors against χ."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.parts import Part, no_evidence, strongest
from dpaudit.audit.battery.resolution import on_a_grid, repeats_p
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni, kolmogorov_p
from dpaudit.types import Evidence

__all__ = ["Norms"]

_CELLS = 4096
# cells lie over √d ± this: a χ_d variable has standard deviation < 0.71 and a mean just below √d
_REACH = 5.0
_MOST_DIMS = 64
_FEWEST_ROWS = 100
_KEPT = 1 << 16  # lengths of one dimension
_ALL_KEPT = 1 << 19
_ROUNDED = 1e-11  # squared lengths are compared to 11 digits
_FINE = 2.0**-32  # what one length may be as likely as, apart from that
_BLUR = 2.0**-42  # of a length's probability as computed
_ON_GRIDS = 1 << 14  # lengths of one dimension; a grid takes the first 4,096 that are fine enough
_SHOWN = 1e-3

Array = npt.NDArray[np.float64]


class Norms:
    """Lengths of rows: their law, equal ones, and uniforms of few bits behind them.

    Kolmogorov-Smirnov of the rows' |z| in 4096 cells against the exact χ_d law, for each d. Only
    the cells' edges are compared, which errs towards no finding. The first 64 dimensions with at
    least 100 rows; d = 1 repeats what other tests see and is left out.

    Of each dimension's first 2^16 rows (2^19 in all) also how many squared lengths are equal to 11
    digits. Null: the logarithm of χ²_d has a density below 0.3·√d, so lengths agree to 11 digits
    with probability at most 0.3e-11·√d, and 2^-32 more is allowed for what lies behind them; the
    number of repeats is at most Poisson, exactly (as for granularity). And whether lengths, or
    their probabilities under χ_d, lie on a grid of 2^-16 to 2^-37
    (:func:`~dpaudit.audit.battery.resolution.on_a_grid`). Rows of float32 numbers have lengths much
    finer than both. Combined by Bonferroni.
    """

    looks_at = "lengths of whole vectors"
    harm = "strength"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._counts: dict[int, npt.NDArray[np.int64]] = {}
        self._squares: dict[int, list[Array]] = {}
        self._rows = dict[int, int]()
        self._looked: dict[int, tuple[int, Part, Part]] = {}  # at so many of them

    def update(self, block: Block) -> None:
        d = block.z.shape[1]
        if d == 1 or (d not in self._counts and len(self._counts) >= _MOST_DIMS):
            return
        square = np.einsum("ij,ij->i", block.z, block.z)
        self._keep(d, square)
        length = np.sqrt(square)
        length -= math.sqrt(d) - _REACH
        length *= _CELLS / (2 * _REACH)
        np.clip(length, 0, _CELLS - 1, out=length)
        counts = np.bincount(length.astype(np.int64), minlength=_CELLS)
        self._counts[d] = self._counts[d] + counts if d in self._counts else counts

    def _keep(self, d: int, square: Array) -> None:
        rows = self._rows.get(d, 0)
        room = min(_KEPT - rows, _ALL_KEPT - sum(self._rows.values()))
        if room > 0:
            self._squares.setdefault(d, []).append(square[:room].copy())
            self._rows[d] = rows + len(square[:room])

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        law = {
            d: kolmogorov_p(counts, _below(d))
            for d, counts in self._counts.items()
            if counts.sum() >= _FEWEST_ROWS
        }
        if not law:
            return no_evidence("too few vectors")
        worst = min(law, key=lambda d: law[d][1])
        distance, rows = law[worst][0], int(self._counts[worst].sum())
        for d in law:
            if d in self._squares and self._looked.get(d, (0,))[0] < self._rows[d]:
                square = np.concatenate(self._squares[d])
                self._looked[d] = len(square), _equal(square, d), _on_grids(square, d)
        looked = [self._looked[d] for d in law if d in self._looked]
        alike, alike_says = strongest(sorted(equal for _, equal, _ in looked))
        grid, grid_says = strongest(sorted(on_grids for _, _, on_grids in looked))
        effect = (
            f"largest distance of distribution functions {distance:.2e} "
            f"over {rows:,} vectors of {worst}"
        )
        if min(alike, grid) < _SHOWN:
            effect = grid_says if grid < alike else alike_says
        parts = {f"d={d}": p for d, (_, p) in law.items()}
        return Evidence(
            p=bonferroni([bonferroni(list(parts.values())), alike, grid]),
            statistic=distance,
            effect=effect,
            parts={**parts, "equal lengths": alike, "grid of lengths": grid},
        )


@functools.cache
def _below(d: int) -> Array:
    """P(|z| < each inner edge of the cells) for vectors of d."""
    edges = math.sqrt(d) - _REACH + np.arange(1, _CELLS) * (2 * _REACH / _CELLS)
    return np.asarray(scipy.special.chdtr(d, np.maximum(edges, 0.0) ** 2))


def _equal(square: Array, d: int) -> Part:
    """A p-value of equal lengths, and how many there are."""
    ordered = np.sort(np.floor(np.log(np.maximum(square, 1e-300)) / _ROUNDED))
    repeats = int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    effect = f"{repeats:,} of {len(square):,} lengths of vectors of {d} occurred before"
    atom = _FINE + 0.3 * math.sqrt(d) * _ROUNDED
    return Part(repeats_p(repeats, len(square), 1 / atom), effect)


def _on_grids(square: Array, d: int) -> Part:
    """A p-value of grids of the lengths, and of their probabilities in the nearer tail."""
    square = square[:_ON_GRIDS]
    below = square < d
    blur = np.full(len(square), _BLUR)
    length = np.sqrt(square)
    grids = {
        "the length": on_a_grid(length, blur * length),
        "P(length < |z|)": on_a_grid(scipy.special.chdtr(d, square[below]), blur[below]),
        "P(length > |z|)": on_a_grid(scipy.special.chdtrc(d, square[~below]), blur[~below]),
    }
    vectors = f"for vectors of {d}"
    return strongest(
        sorted(Part(g.p, f"{g.describe(name)}, {vectors}") for name, g in grids.items())
    )
