"""A recorded file of noise: no foreign code runs, so it is read in this process."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MissingExtraError, SamplerOutputError, UsageError
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import one_line
from dpaudit.samplers.check import finite, plain_f64, request
from dpaudit.samplers.endpoints.recordings import READERS, TYPES, Recording

__all__ = ["FileSampler"]

_UNREADABLE = (RefusedError, OSError, ValueError, NotImplementedError)


class FileSampler:
    """``file:samples.npy``: rows of noise from a file, each given once, in order.

    ``.npy`` holds numbers, shape (rows,) or (rows, dim), and is mapped, not loaded; ``.npz`` holds
    one such array, or one called ``samples``; ``.csv`` has comma-separated numbers, one row per
    line, after one header row or none (a row without any number in it; the file is read through
    once when it is opened, to count); ``.parquet`` has numeric
    columns only (``pip install 'dpaudit[parquet]'``); ``.bin`` is little-endian float64 (or
    ``dtype="f32"``), dim 1, mapped. Memory does not grow with the file, and nothing is ever
    unpickled. The file must not change while it is read.
    """

    def __init__(
        self, target: str, *, seed: str, dtype: str = "f64", text_mode: bool = False
    ) -> None:
        """Open the file.

        Raises:
            UsageError: no such file, another ending, or not rows of numbers.
            MissingExtraError: ``.parquet`` without pyarrow.
        """
        del seed
        self.name = f"file:{target}"
        self._target = target
        path = Path(target)
        ending = path.suffix.lower()
        if ending not in READERS:
            *most, last = READERS
            raise self._refuse(
                f"a recorded file ends in {', '.join(most)} or {last}; rename or convert it"
            )
        plain_f64(self.name, "f64" if ending == ".bin" and dtype in TYPES else dtype, text_mode)
        if not path.is_file():
            lacks = "not a plain file" if path.exists() else "no such file"
            raise self._refuse(f"{lacks}; check the path")
        self._path, self._dtype = path, dtype
        self._recording = self._read()
        self._next = 0
        self._open = self._used = False

    def _read(self) -> Recording:
        ending = self._path.suffix.lower()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # an empty .csv: refused by its shape
                return READERS[ending](self._path, self._dtype)
        except MissingExtraError:
            raise
        except _UNREADABLE as error:
            raise self._refuse(f"cannot be read as {ending} ({one_line(error)}); fix it") from None

    def _refuse(self, why: str) -> UsageError:
        return UsageError(f"file={self._target}: {why}")

    @property
    def dim(self) -> int:
        """Length of a row."""
        return self._recording.dim

    @property
    def available(self) -> int:
        """Number of rows in the file."""
        return self._recording.rows

    def __enter__(self) -> FileSampler:
        if self._used:
            self._recording, self._next = self._read(), 0
        self._open = self._used = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._open = False
        self._recording.close()

    def draw(self, n: int, d: int, *, timeout: float) -> npt.NDArray[np.float64]:
        """The next ``n`` rows, shape (n, d), finite; ``timeout`` is not needed.

        Raises:
            UsageError: ``d`` is not :attr:`dim`.
            SamplerOutputError: fewer rows are left, they cannot be read, or some values are not
                finite.
        """
        request(n, d, timeout)
        if not self._open:
            raise UsageError(f"sampler {self.name}: not open; draw inside `with`")
        if d != self.dim:
            raise UsageError(f"d={d}: {self.name} has rows of {self.dim}; ask for d={self.dim}")
        left = self.available - self._next
        if n > left:
            raise SamplerOutputError(
                f"sampler {self.name} has {left} of its {self.available} rows left, wanted n={n}; "
                "ask for fewer samples or record more"
            )
        try:
            values = self._recording.take(n)
        except _UNREADABLE as error:
            raise SamplerOutputError(
                f"sampler {self.name} cannot be read from row {self._next} on ({one_line(error)}); "
                "fix it"
            ) from None
        self._next += n
        return finite(values, self.name)
