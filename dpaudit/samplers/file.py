"""A recorded file of noise: no foreign code runs, so it is read in this process."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.samplers.check import finite, plain_f64, request

__all__ = ["FileSampler"]

_TYPES = {"f64": "<f8", "f32": "<f4"}


class FileSampler:
    """``file:samples.npy``, ``.csv`` or ``.bin``: rows of noise, handed out once each, in order.

    ``.npy`` holds numbers, shape (rows,) or (rows, dim), and is mapped, not loaded; ``.csv`` has comma-separated
    numbers, one row a line, no header; ``.bin`` is little-endian float64 (or ``dtype="f32"``), dim 1. Nothing is ever
    unpickled. Not claimed: that the file may change while it is read.
    """

    def __init__(self, target: str, *, seed: str, dtype: str = "f64", text_mode: bool = False) -> None:
        """Open the file.

        Raises:
            UsageError: no such file, another ending, or not rows of numbers.
        """
        del seed  # a recording has none
        self.name = f"file:{target}"
        self._target = target
        path = Path(target)
        readers = {".npy": _npy, ".csv": _csv, ".bin": _bin}
        ending = path.suffix.lower()
        if ending == ".parquet":
            raise self._refuse("parquet is not read yet; convert it: numpy.save('samples.npy', table.to_numpy())")
        if ending not in readers:
            raise self._refuse("a recorded file ends in .npy, .csv or .bin; rename or convert it")
        plain_f64(self.name, "f64" if ending == ".bin" and dtype in _TYPES else dtype, text_mode)
        if not path.is_file():
            raise self._refuse(f"{'not a plain file' if path.exists() else 'no such file'}; check the path")
        try:
            rows = readers[ending](path, dtype)
        except (OSError, ValueError, EOFError) as error:
            raise self._refuse(f"cannot be read as {ending} ({' '.join(str(error).split())}); mend it") from None
        if rows.dtype.kind not in "iuf":
            raise self._refuse(f"holds dtype={rows.dtype}, wanted real numbers; save it as float64")
        if rows.ndim not in (1, 2) or not rows.size:
            raise self._refuse(f"has shape={rows.shape}, wanted (rows,) or (rows, dim) and not empty; reshape it")
        self._rows: npt.NDArray[Any] = rows[:, None] if rows.ndim == 1 else rows
        self._next = 0
        self._open = False

    def _refuse(self, why: str) -> UsageError:
        return UsageError(f"file={self._target}: {why}")

    @property
    def dim(self) -> int:
        """Length of a row."""
        return int(self._rows.shape[1])

    @property
    def available(self) -> int:
        """Number of rows in the file."""
        return int(self._rows.shape[0])

    def __enter__(self) -> FileSampler:
        self._open = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._open = False

    def draw(self, n: int, d: int, *, timeout: float) -> npt.NDArray[np.float64]:
        """The next ``n`` rows, shape (n, d), finite; ``timeout`` is not needed.

        Raises:
            UsageError: ``d`` is not :attr:`dim`.
            SamplerOutputError: fewer rows are left, or some values are not finite.
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
        values = np.array(self._rows[self._next : self._next + n], dtype=np.float64, order="C")
        self._next += n
        return finite(values, self.name)


def _npy(path: Path, _: str) -> npt.NDArray[Any]:
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(rows, np.ndarray):
        rows.close()
        raise ValueError("it is an .npz archive")  # noqa: TRY004 the caller tells all unreadable files apart by ValueError
    return rows


def _csv(path: Path, _: str) -> npt.NDArray[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty file: refused by its shape
        return np.loadtxt(path, delimiter=",", dtype=np.float64, ndmin=2, encoding="utf-8")


def _bin(path: Path, dtype: str) -> npt.NDArray[Any]:
    kind = np.dtype(_TYPES[dtype])
    size = path.stat().st_size
    if not size or size % kind.itemsize:
        raise ValueError(f"{size} bytes are not a whole number, above 0, of {dtype} values")
    return np.memmap(path, dtype=kind, mode="r")
