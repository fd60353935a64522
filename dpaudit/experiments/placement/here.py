"""Cells one after another in this process."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

import torch

from dpaudit.errors import UsageError
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.placement.work import Outcome, attempt

__all__ = ["Here", "check_device"]


class Here:
    """A placement without workers. What kills the process (a crash in a plug-in's C code) ends the run: see Cores."""

    workers = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def run(self, cells: Iterator[tuple[int, Cell]]) -> Iterator[tuple[int, Outcome]]:
        """Each cell's outcome, in order."""
        for position, cell in cells:
            yield position, attempt(cell)


def check_device(device: str) -> None:
    """Whether cells of this process can work on ``device``.

    Raises:
        UsageError: torch sees no such device.
    """
    if device != "cpu" and not torch.cuda.is_available():
        raise UsageError(
            f"device={device}: torch {torch.__version__} sees no CUDA device here; leave --device out, or run where there "
            "is one with --where tcp://…"
        )
