"""The primal lattice attack: a short vector of a quadratic form shows the hidden direction.

The form is on Z^n. Needs ``fpylll``. With σ = 1 and rows X (n, d), the whole numbers k_i =
round(⟨x_i, u⟩) of a pancake are k = Xu + e, u = f·w of length f = r²/(γ√(2π)) and e of standard
deviation β·r/(√(2π)·γ). Taken as if normal, k has covariance C = (f²/d)·XXᵀ + (β²/2π)·I, so it is
short, |k|² ≈ n, in the form kᵀC⁻¹k, whose other vectors are longer than (det C)^(−1/2n)·√(n/2πe) or
so. C⁻¹ has the eigenvectors of XXᵀ: γ⁻² on the rows' span and β⁻² off it, up to constants, each
direction of the span with its own weight.

Two choices make it cheap. The n rows of *least norm* of all that were drawn go in: det C shrinks
with them, at no cost in e, since e does not depend on the row (a hundred rows of 10^5 at d = 24 are
0.6 times as long). Rows shorter than 2 stay out: at γ = 2√d their ⟨x, u⟩ would round to 0 (that
matters for d < 10). And n is no larger than it must be (:func:`rows_for`).

A β̂ above the true β is no loss (k only gets shorter), so one search covers all β up to its own;
the same for γ̂.
"""

from __future__ import annotations

import functools
import importlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit_attacks._library import lattice_library
from dpaudit_attacks.keyless.candidates import refine, resonance

__all__ = [
    "BLOCKS",
    "SHORTEST_ROW",
    "Candidate",
    "find_direction",
    "rows_for",
    "stages",
    "vectors_u",
]

BLOCKS = (20, 30, 36, 40, 44, 48, 50, 52, 54, 56, 58, 60, 62, 64)
SHORTEST_ROW = 2.0
# of each block size; a basis of more rows takes longer to level out
_TOURS, _TOURS_LARGE, _LARGE = 3, 6, 150
MOST_ROWS = 230  # above, long double loses its way (seen at n = 240, d = 96, β = 1e-4)
# ln of the root-Hermite factor of a few tours of BKZ-20, of BKZ-30 and more
_WEAK, _STRONG = 0.0165, 0.0129
_MARGIN = 0.2
_SCALE_BITS = 12  # rounding the basis moves a vector by 2^-12 × |k|, against a length of √n
_SHORT = 10  # basis vectors looked at, with the sums and differences of the first few
_PAIRED = 5
_PRUNED_FROM = 30
_NODES = 2.0**18  # cost of a retry as the pruner sees it
_SUCCESS = 0.5  # of one pruned enumeration
_PRECISIONS = ("double", "long double")
_FIRST_BETA = 0.2
_BETA_STEP = 8.0

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


def rows_for(d: int, *, beta: float, gamma: float, shrink: float = 1.0) -> int:
    """How many rows n for dimension d.

    k stands out by n·ln δ ≤ ln(1/β) − (d/n)·ln(γ'/β), γ' = γ·shrink·√(n/d), if reduction reaches δ.
    The smallest n at which a weak one does, as LLL takes n^4.5; where none does, the best n for a
    strong one.
    """

    def left(n: int, log_delta: float) -> float:
        return (
            -math.log(beta)
            - d / n * math.log(gamma * shrink * math.sqrt(n / d) / beta)
            - n * log_delta
        )

    spans = range(d + 6, 8 * d + 64)
    enough = next((n for n in spans if left(n, _WEAK) >= _MARGIN), None)
    return enough if enough is not None else max(spans, key=lambda n: left(n, _STRONG))


class _Form:
    """C^(−1/2)·2^12 for rows x (n, d) in the eigenvectors of XXᵀ, for one γ and any β."""

    def __init__(self, x: Array, gamma: float) -> None:
        self._left, self._singular, _ = np.linalg.svd(x, full_matrices=True)
        self._d, self._gamma = x.shape[1], gamma

    def basis(self, beta: float) -> Whole:
        """Shape (n, n): row i is the image of the i-th unit vector."""
        square = beta**2 + self._gamma**2
        frequency = square / (self._gamma * math.sqrt(2 * math.pi))
        variance = np.full(len(self._left), square / self._gamma**2 * beta**2 / (2 * math.pi))
        variance[: self._d] += (frequency * self._singular) ** 2 / self._d
        return np.asarray(np.rint(self._left / np.sqrt(variance) * 2.0**_SCALE_BITS), np.int64)


def _first_reduction(form: _Form, n: int, beta: float) -> tuple[Any, Any, Array]:
    """LLL for ever smaller β down to the wanted one.

    Returns the reduced matrix, its LLL object, and the map back to Z^n. Each step starts from the
    last one's vectors k. All at once, floating point loses its way earlier; step by step double is
    mostly enough.
    """
    fpylll = lattice_library("keyless search")
    k = np.eye(n, dtype=np.int64)
    steps = max(0, math.ceil(math.log(_FIRST_BETA / beta) / math.log(_BETA_STEP)))
    for step in range(steps, -1, -1):
        basis = form.basis(beta * _BETA_STEP**step)
        back = np.linalg.inv(basis.astype(np.float64))
        for precision in _PRECISIONS:
            matrix = fpylll.IntegerMatrix.from_matrix((k @ basis).tolist())
            lll = fpylll.LLL.Reduction(fpylll.GSO.Mat(matrix, float_type=precision))
            try:
                lll()
                break
            except fpylll.ReductionError:
                if precision == _PRECISIONS[-1]:
                    raise
        k = np.rint(_rows(matrix, n) @ back).astype(np.int64)
    return matrix, lll, back


def _rows(matrix: Any, most: int) -> Array:
    return np.array(
        [[matrix[i, j] for j in range(matrix.ncols)] for i in range(most)], dtype=np.float64
    )


@functools.cache
def _strategy(size: int) -> Any:
    """One pruned enumeration in a block of this size; the wheel ships no pruning parameters."""
    fpylll = lattice_library("keyless search")
    strategy = importlib.import_module("fpylll.fplll.bkz_param").Strategy
    if size < _PRUNED_FROM:
        return strategy(size)
    unit = ((math.pi * size) ** (1 / size) * size / (2 * math.pi * math.e)) ** (
        1 / (2 * (size - 1))
    )
    delta = unit if size >= 45 else 1.0128
    profile = [delta ** (2 * (size - 1 - 2 * i)) for i in range(size)]
    ball = 2 / size * math.lgamma(size / 2 + 1) - math.log(math.pi)
    radius = 1.1 * math.exp(ball + sum(map(math.log, profile)) / size)
    pruning = fpylll.Pruning.run(
        min(radius, 0.99 * profile[0]), _NODES, [profile], _SUCCESS, flags=fpylll.Pruning.GRADIENT
    )
    return strategy(size, preprocessing_block_sizes=[], pruning_parameters=[pruning])


def stages(x: Array, *, beta: float, gamma: float, block: int) -> Iterator[tuple[str, Whole]]:
    """Reduce the form of rows x (n, d) further and further.

    LLL, then tours of BKZ up to ``block`` (0: LLL only). Yields after each the name of the
    reduction and short whole-number vectors k, shape (m, n). In double precision, in long double
    where that fails.

    Raises:
        MissingExtraError: fpylll is not installed.
    """
    fpylll = lattice_library("keyless search")
    n = len(x)
    matrix, lll, back = _first_reduction(_Form(x, gamma), n, beta)

    def short() -> Whole:
        k = np.rint(_rows(matrix, min(n, _SHORT)) @ back).astype(np.int64)
        pairs = [k[i] + sign * k[j] for i in range(_PAIRED) for j in range(i) for sign in (1, -1)]
        return np.concatenate([k, pairs])

    yield "LLL", short()
    bkz = importlib.import_module("fpylll.fplll.bkz").BKZReduction
    for size in (b for b in BLOCKS if b <= min(block, n)):
        parameters = fpylll.BKZ.Param(
            size,
            strategies=[_strategy(i) for i in range(size + 1)],
            flags=fpylll.BKZ.MAX_LOOPS | fpylll.BKZ.GH_BND,
            gh_factor=1.1,
            max_loops=1,
            # one try a block: another tour does more than another try
            min_success_probability=1e-3,
        )
        reduction = bkz(lll.M, lll, parameters)
        for tour in range(_TOURS if n < _LARGE else _TOURS_LARGE):
            reduction.tour(tour, parameters, 0, n)
            yield f"BKZ-{size}", short()


def vectors_u(x: Array, k: Whole) -> Array:
    """The vectors u = (Xᵀ)⁺k for each row of k (m, n), shape (m, d)."""
    return np.asarray(np.linalg.lstsq(x, k.T.astype(np.float64), rcond=None)[0].T)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposed u = f·w (d,), its resonance on rows outside the lattice, and what it took."""

    u: Array
    score: float
    reduction: str
    rows: int
    seconds: float


def find_direction(
    x: Array,
    *,
    beta: float,
    gamma: float,
    samples: int | None = None,
    reduction: int = 40,
    check: Array | None = None,
) -> Iterator[Candidate]:
    """Search the hidden direction in normalised rows x (N, d).

    Yields the best candidate of each stage of reduction. The ``samples`` rows of least norm enter
    the lattice (None: the best number for β and γ, or all there are), reduced up to
    BKZ-``reduction``. Candidates are ranked by their resonance on ``check`` (m, d), or on x without
    it, and refined there; |u| < 1 scores 0 (see :mod:`~dpaudit_attacks.keyless.candidates`).
    Nothing is confirmed: for that see :func:`~dpaudit_attacks.keyless.candidates.confirm` and rows
    that are in neither x nor ``check``. Stop reading when satisfied.

    Raises:
        UsageError: fewer rows than the lattice needs (d + 2), or β, γ not above 0.
        MissingExtraError: fpylll is not installed.
    """
    d = x.shape[1]
    for name, value in (("beta", beta), ("gamma", gamma)):
        if not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value}: must be a finite number > 0, e.g. 0.1")
    began = time.monotonic()
    norm = np.einsum("ij,ij->i", x, x)
    usable = np.flatnonzero(norm >= SHORTEST_ROW**2)
    if min(len(usable), samples or len(x)) < d + 2:
        raise UsageError(
            f"rows={len(usable)}, samples={samples}: the lattice needs at least d + 2 = {d + 2} "
            "rows of norm 2 or more; draw more rows"
        )
    order = usable[np.argsort(norm[usable])]
    if samples is None:
        shrink = math.sqrt(float(norm[order[: 4 * d]].mean()) / d)
        samples = rows_for(d, beta=beta, gamma=gamma, shrink=shrink)
    samples = min(samples, len(usable), MOST_ROWS)
    rows = x[order[:samples]]
    judge = x if check is None else check
    for name, k in stages(rows, beta=beta, gamma=gamma, block=reduction):
        u = vectors_u(rows, k)
        score = np.where(np.linalg.norm(u, axis=1) >= 1, resonance(judge, u), 0.0)
        best = int(score.argmax())
        yield Candidate(
            refine(judge, u[best]), float(score[best]), name, samples, time.monotonic() - began
        )
