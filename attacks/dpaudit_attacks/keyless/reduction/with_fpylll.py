"""LLL and BKZ by ``fpylll``: integers, GSO in double or long double; up to 230 rows."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpaudit_attacks._library import lattice_library
from dpaudit_attacks.keyless.form import Array, Form, decreasing
from dpaudit_attacks.keyless.reduction.interface import ReductionFailed, Stage, Whole

__all__ = ["FpylllReducer"]

_BLOCKS = (20, 30, 36, 40, 44, 48, 50, 52, 54, 56, 58, 60, 62, 64)
# of each block size; a basis of more rows takes longer to level out
_TOURS, _TOURS_LARGE, _LARGE = 3, 6, 150
_PRUNED_FROM = 30
_NODES = 2.0**18  # cost of a retry as the pruner sees it
_SUCCESS = 0.5  # of one pruned enumeration
_PRECISIONS = ("double", "long double")
_BETA_STEP = 8.0
_SCALE_BITS = 12  # rounding the basis moves a vector by 2^-12 × |k|, against a length of √n


class FpylllReducer:
    """LLL in double precision, in long double where that fails, then pruned BKZ."""

    name = "fpylll"
    most_rows = 230  # above, long double loses its way (seen at n = 240, d = 96, β = 1e-4)

    def stages(
        self, form: Form, *, beta: float, block: int, resume: Stage | None = None
    ) -> Iterator[Stage]:
        """See :class:`~dpaudit_attacks.keyless.reduction.interface.Reducer`."""
        fpylll = lattice_library("keyless search")
        n = form.n
        if resume is None:
            k, betas = np.eye(n, dtype=np.int64), decreasing(beta, _BETA_STEP)
        else:
            k, betas = resume.k, [beta]
        for each in betas:
            basis = _rounded(form, each)
            back = np.linalg.inv(basis.astype(np.float64))
            matrix, lll = _lll(fpylll, k @ basis)
            k = _vectors(matrix, back)
        if resume is None:
            yield Stage("LLL", 1, k)
        bkz = importlib.import_module("fpylll.fplll.bkz").BKZReduction
        done = 1
        for size in (b for b in _BLOCKS if b <= min(block, n)):
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
                done += 1
                if resume is not None and done <= resume.done:
                    continue
                reduction.tour(tour, parameters, 0, n)
                yield Stage(f"BKZ-{size}", done, _vectors(matrix, back))


def _rounded(form: Form, beta: float) -> Whole:
    return np.asarray(np.rint(form.images(beta) * 2.0**_SCALE_BITS), np.int64)


def _lll(fpylll: Any, basis: Whole) -> tuple[Any, Any]:
    """The LLL-reduced matrix of ``basis`` and its LLL object."""
    for precision in _PRECISIONS:
        matrix = fpylll.IntegerMatrix.from_matrix(basis.tolist())
        lll = fpylll.LLL.Reduction(fpylll.GSO.Mat(matrix, float_type=precision))
        try:
            lll()
            return matrix, lll
        except fpylll.ReductionError as error:
            failed = error
    raise ReductionFailed(f"fpylll: LLL of {len(basis)} rows fails in long double") from failed


def _vectors(matrix: Any, back: Array) -> Whole:
    rows = [[matrix[i, j] for j in range(matrix.ncols)] for i in range(matrix.nrows)]
    return np.rint(np.array(rows, dtype=np.float64) @ back).astype(np.int64)


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
