"""Reports of sketches by their hash function, so that each function's table is made once a call."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit_attacks.pool_inference.tables import PoolTables

__all__ = ["by_function"]

_FUNCTIONS = 1 << 12  # hash functions at a time: bounds what is computed anew where rows are too many to keep


def by_function(
    function: npt.NDArray[np.uint32], tables: PoolTables, work: Callable[..., None], *, threads: int
) -> None:
    """Call ``work(order, starts, positions, at, neutral, neutral_at)`` for parts of the reports, in ``threads`` threads.

    ``function`` (n,) are some of the family's, as the mechanism's ``check`` makes sure.
    ``order[starts[f]:starts[f + 1]]`` are the reports of the part's f-th function, ``positions[at[f]]`` and
    ``neutral[neutral_at[f]]`` its rows.
    """
    if not len(function):
        return
    short = tables.hashes.count <= 1 << 16
    order = np.argsort(function.astype(np.uint16) if short else function, kind="stable")
    distinct, starts = np.unique(function[order], return_index=True)
    starts = np.append(starts, len(order))
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(distinct), _FUNCTIONS):
            part = distinct[first : first + _FUNCTIONS].astype(np.int64)
            borders = starts[first : first + len(part) + 1]
            rows: tuple[Any, ...] = (*tables.positions.rows(part), *tables.neutral.rows(part))
            cuts = np.linspace(0, len(part), threads + 1).astype(int)
            tasks = [
                pool.submit(work, order, borders[a : b + 1], rows[0], rows[1][a:b], rows[2], rows[3][a:b])
                for a, b in itertools.pairwise(cuts.tolist())
                if a < b
            ]
            for task in tasks:
                task.result()
