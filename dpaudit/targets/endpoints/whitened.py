"""Recorded noise that claims to be correlated over steps: made independent again, then audited."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.results.text import one_line
from dpaudit.targets.check import request
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
        with FileTarget(paths[1]) as file:
            steps = file.available
            if steps != file.dim or steps > _MOST_STEPS:
                raise UsageError(
                    f"file={paths[1]}: shape={(steps, file.dim)}, wanted a square C of at most "
                    f"{_MOST_STEPS:,} steps"
                )
            self._strategy = file.draw(steps, steps, timeout=1.0)
        if np.linalg.matrix_rank(self._strategy) < steps:
            raise UsageError(f"file={paths[1]}: C has no inverse; save the C of N = C⁻¹·Z")
        if self._noise.available % steps:
            raise UsageError(
                f"file={paths[0]}: {self._noise.available} rows are not a multiple of the "
                f"{steps} steps of C; record whole runs"
            )
        self._left = np.empty((0, steps))

    @property
    def dim(self) -> int:
        """How many steps C has."""
        return len(self._strategy)

    @property
    def available(self) -> int:
        """Coordinates of all runs."""
        return self._noise.available // self.dim * self._noise.dim

    def __enter__(self) -> Self:
        self._noise.__enter__()
        self._left = np.empty((0, self.dim))
        return self

    def __exit__(self, *exc: object) -> None:
        self._noise.__exit__(*exc)

    def draw(self, n: int, d: int, *, timeout: float) -> Array:
        """The next ``n`` coordinates, shape (n, d); ``d`` is :attr:`dim`.

        Raises:
            UsageError: another ``d``.
            SamplerOutputError: fewer are left, or the recording cannot be read.
        """
        request(n, d, timeout)
        if d != self.dim:
            raise UsageError(f"d={d}: {self.name} has {self.dim} steps; ask for d={self.dim}")
        parts = [self._left]
        while (held := sum(map(len, parts))) < n:
            try:
                run = self._noise.draw(self.dim, self._noise.dim, timeout=timeout)
            except SamplerOutputError as error:
                raise SamplerOutputError(
                    f"sampler {self.name} has {held} coordinates left, wanted n={n} ({error})"
                ) from None
            parts.append(_moved(self._strategy @ run, run, self._strategy).T)
        values = np.concatenate(parts)
        self._left = values[n:].copy()
        return np.ascontiguousarray(values[:n])


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
