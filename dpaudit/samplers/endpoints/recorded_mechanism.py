"""Releases recorded at two neighbours, in two files: no foreign code runs."""

from __future__ import annotations

import contextlib
from typing import Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.samplers.endpoints.file import FileSampler

__all__ = ["RecordedReleases"]

Array = npt.NDArray[np.float64]


class RecordedReleases:
    """``file:at-0.npy;at-1.npy``: releases at the first and at the second neighbour, one per row.

    Each file is as for a sampler (:class:`~.file.FileSampler`); both have rows of one length. A
    release is given once, in the order recorded. ``neighbours`` are the query results that the
    releases were made of; without them they are two arrays of length 0, which stand for the files.
    Not claimed: that the releases are independent, or were made as said.
    """

    version: str | None = None
    advice = ""

    def __init__(self, target: str, *, neighbours: tuple[Array, Array] | None = None) -> None:
        """Open both files.

        Raises:
            UsageError: not two files, one of them twice, one that cannot be read, or rows of
                different lengths.
        """
        self.name = f"file:{target}"
        paths = [path.strip() for path in target.split(";")]
        if len(paths) != 2 or "" in paths or paths[0] == paths[1]:
            raise UsageError(
                f"mechanism={self.name}: needs two files, of releases at the first and at the "
                "second neighbour; write 'file:at-0.npy;at-1.npy'"
            )
        self._files = tuple(FileSampler(path, seed="") for path in paths)
        lengths = [file.dim for file in self._files]
        if lengths[0] != lengths[1]:
            raise UsageError(
                f"mechanism={self.name}: rows of {lengths[0]} and of {lengths[1]} numbers; "
                "releases have one length"
            )
        self.named = neighbours is not None
        self.neighbours = neighbours or (np.empty(0), np.empty(0))
        self._held = contextlib.ExitStack()

    @property
    def available(self) -> int:
        """How many releases the shorter file has."""
        return min(file.available for file in self._files)

    def __enter__(self) -> Self:
        for file in self._files:
            self._held.enter_context(file)
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def release(self, value: Array, n: int, *, timeout: float) -> Array:
        """The next ``n`` releases (n, k) at ``value``, one of :attr:`neighbours`.

        Raises:
            UsageError: it is another value.
            SamplerOutputError: fewer are left, they cannot be read, or some are not finite.
        """
        for file, recorded in zip(self._files, self.neighbours, strict=True):
            if value is recorded or (self.named and np.array_equal(value, recorded)):
                return file.draw(n, file.dim, timeout=timeout)
        raise UsageError(
            f"value={value.tolist()}: {self.name} has releases at its two neighbours only"
        )
