"""Cells in processes of their own on this machine, each behind a loky pool of one process.

The death of a process breaks its pool, so with one process per pool it is known under which cell
it died, and the others continue. A free process gets the next cell; a second cell waits with it, so
that no process waits for the disk.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from typing import Any, Self

import loky

from dpaudit.experiments.measure import Cell
from dpaudit.experiments.placement.work import Outcome, answer, failure, parse, request

__all__ = ["Cores", "available"]

_DEATHS = 3
_AHEAD = 2
_WATCH_SECONDS = 0.5


def available() -> int:
    """Cores that this process may use."""
    return int(loky.cpu_count())


class WorkerDiedError(Exception):
    """The name of the failure of a cell under which processes died."""


@dataclass
class _Task:
    position: int
    cell: Cell
    future: Future[str] | None = None
    began: float = 0.0
    deaths: int = 0


@dataclass
class _Worker:
    pool: Any = None
    tasks: deque[_Task] = field(default_factory=deque)


class Cores:
    """A placement of ``jobs`` processes; a cell that kills a process three times in a row fails.

    The processes end with this one, however it ends (they check twice a second), and ignore SIGINT.
    """

    def __init__(self, jobs: int) -> None:
        self.workers = jobs
        self._all = [_Worker() for _ in range(jobs)]
        self._ended: queue.SimpleQueue[tuple[_Worker, _Task, Future[str]]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.tasks.clear()
        pools = [worker.pool for worker in self._all if worker.pool is not None]
        stopping = [threading.Thread(target=_stop, args=(pool,)) for pool in pools]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()

    def run(self, cells: Iterator[tuple[int, Cell]]) -> Iterator[tuple[int, Outcome]]:
        """Each cell's outcome, in the order in which they end."""
        for _ in range(_AHEAD):
            for worker in self._all:
                self._next(worker, cells)
        while any(worker.tasks for worker in self._all):
            try:
                worker, task, future = self._ended.get(timeout=1)
            except queue.Empty:
                continue
            if task.future is not future:  # of a pool that broke meanwhile
                continue
            try:
                outcome: Outcome | None = parse(future.result(), task.cell)
                worker.tasks.remove(task)
            except BrokenProcessPool as error:
                task = worker.tasks[0]  # in order: it is the first that the process was at
                outcome = self._handle_death(worker, error)
            if outcome is not None:
                yield task.position, outcome
            self._next(worker, cells)

    def _next(self, worker: _Worker, cells: Iterator[tuple[int, Cell]]) -> None:
        if len(worker.tasks) < _AHEAD and (item := next(cells, None)) is not None:
            task = _Task(*item)
            worker.tasks.append(task)
            self._submit(worker, task)

    def _submit(self, worker: _Worker, task: _Task) -> None:
        if worker.pool is None:
            worker.pool = loky.ProcessPoolExecutor(
                max_workers=1, initializer=_begin, initargs=(os.getpid(),)
            )
        task.began = time.monotonic()
        try:
            with _ignore_interrupts():
                task.future = worker.pool.submit(answer, request(task.cell))
        except BrokenProcessPool as error:  # the process died idle
            task.future = Future()
            task.future.set_exception(error)
        task.future.add_done_callback(lambda future: self._ended.put((worker, task, future)))

    def _handle_death(self, worker: _Worker, error: BaseException) -> Outcome | None:
        """Replace a worker's dead process; a failure if its cell has killed enough of them."""
        blamed = worker.tasks[0]
        blamed.deaths += 1
        outcome = None
        if blamed.deaths >= _DEATHS:
            codes = re.search(r"exit codes? of the workers? (?:is|are) \{?([^}]*)\}?", str(error))
            died = WorkerDiedError(
                f"{blamed.deaths} processes died at this cell, one after another"
                + (f", the last with {codes[1]}" if codes else "")
                + "; out of memory, or a crash in a plug-in"
            )
            outcome = failure(blamed.cell, died, seconds=time.monotonic() - blamed.began)
            worker.tasks.popleft()
        if worker.pool is not None:
            _stop(worker.pool)
            worker.pool = None
        for task in worker.tasks:
            self._submit(worker, task)
        return outcome


def _stop(pool: Any) -> None:
    with contextlib.suppress(OSError):
        pool.shutdown(wait=True, kill_workers=True)


@contextlib.contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ctrl-C waits for the end: a process that starts meanwhile blocks SIGINT from the first.

    Blocking it in this thread is not enough for this process: another thread may take the signal,
    for the main one to raise. The standard library's tracker of resources, which loky starts before
    its first process, unblocks SIGINT as it starts (Python 3.11), so it is started before.
    """
    came: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and handler is not None
    if ours:
        signal.signal(signal.SIGINT, lambda *_: came.append(1))
    try:
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        if ours:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def _begin(parent: int) -> None:
    """In the new process: leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()
