"""A progress bar below the cell of a notebook, removed when the audit is over.

It needs IPython's own ``display`` and nothing else: no ipywidgets, no script.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpaudit.audit.options import Progress

__all__ = ["notebook_bar"]

_SECONDS = 0.1  # between two updates


@contextmanager
def notebook_bar(given: Progress | None, *, unit: str) -> Iterator[Progress | None]:
    """``given``, or in a Jupyter kernel a bar that counts ``unit``; None elsewhere."""
    if given is not None or not _in_kernel():
        yield given
        return
    ipython: Any = importlib.import_module("IPython.display")
    shown = ipython.display(ipython.HTML(""), display_id=True)
    last = 0.0

    def update(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done < total and now - last < _SECONDS:
            return
        last = now
        text = f"{done:,} of {total:,} {unit}" if done < total else f"{total:,} {unit}: judging"
        bar = f'<progress value="{done}" max="{max(total, 1)}"></progress> {text}'
        shown.update({"text/html": bar, "text/plain": text}, raw=True)

    try:
        yield update
    finally:
        shown.update({"text/html": "", "text/plain": ""}, raw=True)


def _in_kernel() -> bool:
    """Whether this is a Jupyter kernel; IPython is not imported to see it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
