"""Reads a peer's messages in a thread, a few ahead, so that waiting can have a deadline."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

__all__ = ["TICK", "Pump", "Silence"]

TICK = 0.25
"""Seconds between two checks of a wait's length."""

_AHEAD = 4


class Silence(Exception):
    """Nothing arrived for too long."""


class _End:
    def __init__(self, error: Exception | None) -> None:
        self.error = error


class Pump:
    """Iterates over ``source`` in a thread, at most four messages ahead.

    ``next(pump)`` gives the next message, or raises what ``source`` raised, or :class:`Silence`
    once ``too_long(waited)`` is true for the seconds waited; it is called every ``tick``. After
    ``close`` the thread ends as soon as ``source`` does.
    """

    def __init__(
        self, source: Iterator[bytes], *, too_long: Callable[[float], bool], tick: float
    ) -> None:
        self._source, self._too_long, self._tick = source, too_long, tick
        self._queue: queue.Queue[bytes | _End] = queue.Queue(_AHEAD)
        self._closed = threading.Event()
        self._end: _End | None = None
        threading.Thread(target=self._run, name="dpaudit-pump", daemon=True).start()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._end is None:
            item = self._wait()
            if isinstance(item, bytes):
                return item
            self._end = item
        if self._end.error is not None:
            raise self._end.error
        raise StopIteration

    def close(self) -> None:
        """Take nothing more; drop what still arrives."""
        self._closed.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait()

    def _wait(self) -> bytes | _End:
        waited = 0.0
        while True:
            try:
                return self._queue.get(timeout=self._tick)
            except queue.Empty:
                waited += self._tick
                if self._too_long(waited):
                    raise Silence from None

    def _run(self) -> None:
        error: Exception | None = None
        try:
            for item in self._source:
                if not self._put(item):
                    return
        except Exception as raised:  # noqa: BLE001  handed to whoever waits
            error = raised
        self._put(_End(error))

    def _put(self, item: bytes | _End) -> bool:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=0.2)
                return True
        return False
