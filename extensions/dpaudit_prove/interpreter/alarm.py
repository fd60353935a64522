"""Stops a program at a deadline, also inside one of Python's own operations."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["OutOfTimeError", "alarm"]

_LATER = 0.5


class OutOfTimeError(BaseException):
    """The deadline came while a program ran; no program may catch this. `where` says which line."""

    where = ""


@contextmanager
def alarm(deadline: float | None) -> Iterator[None]:
    """Raise OutOfTimeError soon after a deadline (of `time.monotonic`).

    The machine looks at the clock between instructions. This is for one that does not end: it
    reaches all of Python's own operations that look for signals. It does nothing outside the main
    thread, or where somebody else has set an alarm.
    """
    if (
        deadline is None
        or threading.current_thread() is not threading.main_thread()
        or not hasattr(signal, "setitimer")
        or signal.getitimer(signal.ITIMER_REAL)[0]
    ):
        yield
        return
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 0) + _LATER)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _ring(*_: Any) -> None:
    raise OutOfTimeError
