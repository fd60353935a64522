"""The number of threads is fixed, because sums and products of floats depend on it.

torch and numpy's BLAS split a sum of 2^20 values, or a matrix product, among threads and add it up
part by part, so the number of threads is part of a cell's meaning. It follows from the size of its
vectors alone, never from the machine's cores or from how many cells run at the same time.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import scipy.linalg  # noqa: F401  # its own BLAS must be loaded before libraries are counted
from threadpoolctl import ThreadpoolController

__all__ = ["LARGE", "threads", "threads_for"]

LARGE = 1 << 20
"""Values per vector from which more than one thread is worth it."""
_FEW = 2
_CHILDREN = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def threads_for(dim: int) -> int:
    """Threads for vectors of ``dim`` values: one, or two for large ones, on every machine."""
    return 1 if dim < LARGE else _FEW


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Limit compiled loops, torch, the BLAS of numpy and scipy, and new processes to ``number``.

    Torch that is imported inside keeps to it, too, by the environment.
    """
    torch: Any = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    environment = {name: os.environ.get(name) for name in _CHILDREN}
    if torch is not None:
        torch.set_num_threads(number)
    os.environ.update(dict.fromkeys(_CHILDREN, str(number)))
    try:
        with _blas().limit(limits=number):
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
