"""Calls in turn of a sampler that is asked for one at a time, and the seconds of each."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpaudit.samplers.check import request

__all__ = ["timed_draws"]

_LEAST = 1e-3  # seconds; a draw with less left times out

Array = npt.NDArray[np.float64]


def timed_draws(
    draw: Callable[..., Array], calls: int, n: int, d: int, *, timeout: float
) -> tuple[Array, Array]:
    """``calls`` times ``draw(n, d, timeout=…)``: values (calls·n, d), and each call's seconds.

    All of them have ``timeout`` seconds together.

    Raises:
        UsageError, SamplerError: as ``draw`` does.
    """
    request(n, d, timeout, calls=calls)
    deadline = time.monotonic() + timeout
    values, seconds = np.empty((calls, n, d)), np.empty(calls)
    for i in range(calls):
        started = time.perf_counter()
        values[i] = draw(n, d, timeout=max(deadline - time.monotonic(), _LEAST))
        seconds[i] = time.perf_counter() - started
    return values.reshape(calls * n, d), seconds
