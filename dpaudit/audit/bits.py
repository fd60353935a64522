"""Bits for an external battery of random number tests."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UsageError

__all__ = ["BitWriter"]


class BitWriter:
    """Writes the top 16 bits of Φ(z) of every value, little-endian, to a file or FIFO; without a path, nothing.

    Uniform and independent bits under the claim, for programs such as PractRand (``RNG_test stdin16``) or dieharder.
    Sixteen only: a float32 sampler is honest and has not many more.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> BitWriter:
        if self._path is not None:
            try:
                self._file = self._path.open("wb")
            except OSError as error:
                raise UsageError(f"bits={self._path}: cannot be written ({error.strerror}); choose another") from error
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, z: npt.NDArray[np.float64]) -> None:
        """Append the bits of ``z``.

        Raises:
            UsageError: the disk is full, or the reader of the FIFO went away.
        """
        if self._file is None:
            return
        u = scipy.special.ndtr(z.ravel())
        try:
            self._file.write(np.minimum(u * 65536, 65535).astype("<u2").tobytes())
        except OSError as error:
            raise UsageError(f"bits={self._path}: cannot be written ({error.strerror})") from error
