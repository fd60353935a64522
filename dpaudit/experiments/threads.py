"""How many threads numbers are made with: a fixed number, because sums and products of floats depend on it.

A sum of 2^20 values, or a matrix product, is split among threads and added up part by part, in
torch as in numpy's BLAS; so the number of threads is part of a cell's meaning. It follows from the
size of its vectors alone, never from the cores of the machine or from how many cells run beside it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import scipy.linalg  # noqa: F401  # has a BLAS of its own, which must be loaded before the libraries are counted
import torch
from threadpoolctl import ThreadpoolController

__all__ = ["LARGE", "threads", "threads_for"]

LARGE = 1 << 20
"""Values of a vector from which on more than one thread is worth it."""
_FEW = 2
_CHILDREN = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def threads_for(dim: int) -> int:
    """Threads for vectors of ``dim`` values: one, or two for large ones; on every machine the same."""
    return 1 if dim < LARGE else _FEW


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def threads(number: int) -> Iterator[None]:
    """torch, numpy's and scipy's BLAS, and processes that are started meanwhile, work with ``number`` threads each."""
    before, environment = (
        torch.get_num_threads(),
        {name: os.environ.get(name) for name in _CHILDREN},
    )
    torch.set_num_threads(number)
    os.environ.update(dict.fromkeys(_CHILDREN, str(number)))
    try:
        with _blas().limit(limits=number):
            yield
    finally:
        torch.set_num_threads(before)
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
