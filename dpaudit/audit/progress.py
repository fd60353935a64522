"""The progress of an audit: its time limit, and a bar in a notebook."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dpaudit.audit.options import Progress
from dpaudit.errors import SamplerTimeoutError

__all__ = ["TimeLimit", "notebook_bar"]

_SECONDS = 0.1  # between two updates


@contextmanager
def notebook_bar(progress: Progress | None, *, unit: str) -> Iterator[Progress | None]:
    """``progress``, or in a Jupyter kernel a bar that counts ``unit``; None elsewhere.

    The bar is below the cell and goes when the audit is over. It needs IPython's own ``display``
    and nothing else: no ipywidgets, no script.
    """
    if progress is not None or not _in_kernel():
        yield progress
        return
    ipython: Any = importlib.import_module("IPython.display")
    area = ipython.display(ipython.HTML(""), display_id=True)
    last = 0.0

    def update(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done < total and now - last < _SECONDS:
            return
        last = now
        text = f"{done:,} of {total:,} {unit}" if done < total else f"{total:,} {unit}: judging"
        bar = f'<progress value="{done}" max="{max(total, 1)}"></progress> {text}'
        area.update({"text/html": bar, "text/plain": text}, raw=True)

    try:
        yield update
    finally:
        area.update({"text/html": "", "text/plain": ""}, raw=True)


def _in_kernel() -> bool:
    """Whether this is a Jupyter kernel; IPython is not imported to see it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """``seconds`` from ``started``, which is on ``time.monotonic``'s clock."""

    seconds: float
    started: float = field(default_factory=time.monotonic)

    @property
    def ends(self) -> float:
        """The end of the limit, on the same clock."""
        return self.started + self.seconds

    def left(self, name: str) -> float:
        """The seconds left for ``name``.

        Raises:
            SamplerTimeoutError: no second is left.
        """
        remaining = self.ends - time.monotonic()
        if remaining <= 0:
            raise SamplerTimeoutError(f"{name}: the time limit of {self.seconds:g} s was reached")
        return remaining
