"""Recorded noise that claims to be correlated over steps: made independent again, then audited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.protocols import Facts, Reply, Request
from dpaudit.results.text import one_line
from dpaudit.targets.check import check_request
from dpaudit.targets.endpoints.file import FileTarget

__all__ = ["WhitenedSampler"]

Array = npt.NDArray[np.float64]

_MOST_STEPS = 4_096


class WhitenedSampler:
    """``whitened:'noise.npy;C.npy'``: the rows of C·N, coordinate by coordinate.

    The first file holds the noise N of one run, or of several with the same C one after the other
    (restarts of a tree): a row per step, a column per coordinate. It is in any format of
    :class:`~.file.FileTarget`. The second holds the public C, square, a row per step. N = C⁻¹·Z
    claims that C·N = Z is independent over steps and coordinates. Each coordinate then gives one
    row of as many values as C has steps: first all coordinates of the first run, then of the next.
    So a wrong C, or a seed used in two steps, shows as a correlation between columns, and a seed
    used in two runs as rows that repeat.

    The last digits of C·N are those of N's rounding, seen through C, and say nothing about the
    noise. So each value is moved by less than the error that rounding N may have caused, by an
    amount that follows from the coordinate's values: a run that is repeated gives the same again,
    and the tests of last digits see nothing. N whose values all fit float32 counts as rounded.

    C is lower triangular in DP-FTRL; any invertible C will do. For restarts give the C of all of
    them, block by block, so that they are compared step by step. A run is held in memory.
    """

    def __init__(
        self, target: str, *, seed: str = "", dtype: str = "f64", text_mode: bool = False
    ) -> None:
        """Open both files.

        Raises:
            UsageError: not two files, one that cannot be read, a C that is not square, finite and
                invertible, or a number of rows that is not a multiple of C's.
        """
        del seed
        self.name = f"whitened:{target}"
        paths = [path.strip() for path in target.split(";")]
        if len(paths) != 2 or "" in paths:
            raise UsageError(
                f"sampler={one_line(self.name)}: needs two files, the recorded noise and the "
                "public C; write whitened:'noise.npy;C.npy'"
            )
        self._noise = FileTarget(paths[0], dtype=dtype, text_mode=text_mode)
        with FileTarget(paths[1]).open(timeout=1.0) as file:
            steps, width = file.facts.available or 0, file.facts.dim
            if steps != width or steps > _MOST_STEPS:
                raise UsageError(
                    f"file={paths[1]}: shape={(steps, width)}, wanted a square C of at most "
                    f"{_MOST_STEPS:,} steps"
                )
            self._strategy = file.read(steps, steps)
        if np.linalg.matrix_rank(self._strategy) < steps:
            raise UsageError(f"file={paths[1]}: C has no inverse; save the C of N = C⁻¹·Z")
        rows, self._width = self._noise.facts.available or 0, self._noise.facts.dim or 0
        if rows % steps:
            raise UsageError(
                f"file={paths[0]}: {rows} rows are not a multiple of the "
                f"{steps} steps of C; record whole runs"
            )
        self.facts = Facts({"noise"}, dim=steps, available=rows // steps * self._width)
        self._left = np.empty((0, steps))

    @contextmanager
    def open(self, *, timeout: float) -> Iterator[Self]:
        """From the first run on; ``timeout`` is not needed."""
        with self._noise.open(timeout=timeout):
            self._left = np.empty((0, len(self._strategy)))
            yield self

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """The next ``n`` coordinates, shape (n, steps of C).

        Raises:
            UsageError: another ``dim``.
            SamplerOutputError: fewer are left, or the recording cannot be read.
        """
        check_request(request, {"noise"}, timeout=timeout, name=self.name, role="sampler")
        n, d, steps = request.n, request.dim, len(self._strategy)
        if d != steps:
            raise UsageError(f"d={d}: {self.name} has {steps} steps; ask for d={steps}")
        parts = [self._left]
        while (rows := sum(map(len, parts))) < n:
            try:
                run = self._noise.read(steps, self._width)
            except SamplerOutputError as error:
                raise SamplerOutputError(
                    f"sampler {self.name} has {rows} coordinates left, wanted n={n} ({error})"
                ) from None
            parts.append(_moved(self._strategy @ run, run, self._strategy).T)
        values = np.concatenate(parts)
        self._left = values[n:].copy()
        return Reply(np.ascontiguousarray(values[:n]))


def _moved(values: Array, recorded: Array, strategy: Array) -> Array:
    """``values`` moved within the rounding of ``recorded``, by a hash of both."""
    unit = 2.0**-23 if (recorded.astype(np.float32) == recorded).all() else 2.0**-52
    key = np.bitwise_xor.reduce(_mixed(recorded), axis=0)
    uniform = ((_mixed(values) ^ key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    sizes = np.abs(strategy) @ np.abs(recorded)
    return np.asarray(values + (uniform - 0.5) * unit * sizes)


def _mixed(values: Array) -> npt.NDArray[np.uint64]:
    """Each value's bits through the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(bits ^ (bits >> np.uint64(31)))
