"""Blocks of sampler output, with the derived arrays that tests share; bits for other batteries."""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.claims import Claim
from dpaudit.errors import UsageError

__all__ = ["CELLS", "REACH", "BitWriter", "SampleBlock", "cell_edges", "cell_probabilities"]

CELLS = 1 << 14
REACH = 8.0  # cells lie over [-REACH, REACH); the outer two take the rest
_FARTHEST = 1e8
_PIECE = 1 << 15


@cache
def cell_edges() -> npt.NDArray[np.float64]:
    """The 2^14 + 1 edges of the cells, in units of z; the outer two stand for ±∞."""
    return np.linspace(-REACH, REACH, CELLS + 1)


@cache
def cell_probabilities() -> npt.NDArray[np.float64]:
    """Probability of each cell under N(0, 1), shape (2^14,), accurate in both tails."""
    inner = cell_edges()[1:-1]
    half = scipy.special.ndtr(inner[: CELLS // 2])  # up to 0
    lower = np.diff(half, prepend=0.0)
    return np.concatenate([lower, lower[::-1]])


class SampleBlock:
    """Values (n, d) of one or several calls, and under the claim their N(0, 1) images."""

    def __init__(
        self,
        call: int,
        values: npt.NDArray[np.float64],
        *,
        claim: Claim,
        spread: np.random.Generator,
        calls: int = 1,
        process: int = 0,
        value: float = 0.0,
        seconds: npt.NDArray[np.float64] | None = None,
    ) -> None:
        """``calls`` calls from number ``call``; ``spread`` supplies uniforms for discrete atoms."""
        self.call = call
        self.calls = calls
        self.process = process
        self.value = value
        self.seconds = seconds
        self.values = values
        self.z = claim.to_normal(values, spread)
        if self.extremes[0] < -_FARTHEST or self.extremes[1] > _FARTHEST:
            # beyond anything the tests can distinguish, but sums of squares stay finite
            np.clip(self.z, -_FARTHEST, _FARTHEST, out=self.z)
            del self.extremes

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """Smallest and largest z."""
        return float(self.z.min()), float(self.z.max())

    @cached_property
    def cells(self) -> npt.NDArray[np.int64]:
        """Counts of z in 2^14 equal cells over [-8, 8), shape (2^14,)."""
        total = np.zeros(CELLS, np.int64)
        z = self.z.ravel()
        beyond = self.extremes[0] < -REACH or self.extremes[1] >= REACH
        # small pieces: their copies stay in the cache
        for start in range(0, len(z), _PIECE):
            place = z[start : start + _PIECE] * (CELLS / (2 * REACH))
            place += CELLS / 2
            if beyond:
                np.clip(place, 0, CELLS - 1, out=place)
            total += np.bincount(place.astype(np.int64), minlength=CELLS)
        return total


class BitWriter:
    """Writes the top 16 bits of Φ(z) of every value, little-endian, to a file or FIFO.

    Without a path it writes nothing. Under the claim the bits are uniform and independent, for
    programs such as PractRand (``RNG_test stdin16``) or dieharder. Sixteen only: an honest float32
    sampler has few more.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> BitWriter:
        if self._path is not None:
            try:
                self._file = self._path.open("wb")
            except OSError as error:
                raise UsageError(
                    f"bits={self._path}: cannot be written ({error.strerror}); choose another"
                ) from error
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, z: npt.NDArray[np.float64]) -> None:
        """Append the bits of ``z``.

        Raises:
            UsageError: the disk is full, or the reader of the FIFO has closed it.
        """
        if self._file is None:
            return
        u = scipy.special.ndtr(z.ravel())
        try:
            self._file.write(np.minimum(u * 65536, 65535).astype("<u2").tobytes())
        except OSError as error:
            raise UsageError(f"bits={self._path}: cannot be written ({error.strerror})") from error
