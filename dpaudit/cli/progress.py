"""Progress of a run and of an audit, on stderr.

A run shows a bar if stderr is a terminal, otherwise a line every half minute; an audit shows a bar
for what is drawn and a spinner for what follows, on a terminal only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from dpaudit.cli.output import SafeConsole, progress_bar
from dpaudit.cli.remaining import Remaining, in_words
from dpaudit.results.text import one_line, tell
from dpaudit.types import CellFailure, CellResult

__all__ = ["AuditProgress", "RunProgress"]

_LINE_SECONDS = 30.0
_BAR_SECONDS = 0.5
_TURNING = SpinnerColumn("line")  # here, as making it imports, which must not wait for a sampler


class AuditProgress:
    """A context manager to call with the number drawn and the total: two stages, one at a time.

    ``drawing`` says what is drawn, ``then`` what follows and how long at most; of that no share is
    known, so it has no bar. What comes before the drawing is a :meth:`stage`.
    """

    def __init__(self, drawing: str, then: str, *, total: int) -> None:
        self.what, self._drawing, self._then = drawing, drawing, then
        self.done, self.total = 0, total
        self._stage: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, done: int, total: int) -> None:
        self._show(self._drawing, done, total, bar=done < total)

    def stage(self, what: str) -> Callable[[int, int], None]:
        """What to call with the number of ``what`` and the total, before anything is drawn."""
        return lambda done, total: self._show(what, done, total, bar=True)

    def _show(self, what: str, done: int, total: int, *, bar: bool) -> None:
        another = what != self.what
        self.what, self.done, self.total = what, done, total
        if another or bar != (self._task is not None):
            self._enter(drawing=bar)
        if self._stage is not None and self._task is not None:
            self._stage.update(self._task, completed=done, total=total)

    def __enter__(self) -> Self:
        self._enter(drawing=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._stage is not None:
            self._stage.stop()

    def _enter(self, *, drawing: bool) -> None:
        if self._stage is not None:
            self._stage.stop()
        self._stage = progress_bar() if drawing else _spinner()
        task = self._stage.add_task(
            self.what if drawing else self._then, total=self.total if drawing else None
        )
        self._task = task if drawing else None
        self._stage.start()


def _spinner() -> Progress:
    console = SafeConsole(stderr=True)
    return Progress(
        _TURNING,
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


class _Cell(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def settings(self) -> Any: ...
    @property
    def label(self) -> str: ...


class _Workers(Protocol):
    @property
    def workers(self) -> int: ...


class RunProgress:
    """A context manager that shows cells done, failed and left, workers and the time left."""

    def __init__(self, name: str, cells: Sequence[_Cell], placement: _Workers) -> None:
        self._name, self._placement = one_line(name, limit=60), placement
        self._total, self.done, self.failed = len(cells), 0, 0
        self._remaining, self._timed = Remaining(), set[str]()
        for cell in cells:
            self._remaining.add(cell.kind, cell.settings)
        self._lock, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True, name="progress")
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._doing = self._name

    def on_start(self, cell: _Cell) -> None:
        """A cell was handed to a worker."""
        self._doing = one_line(cell.label, limit=100)

    def on_result(self, outcome: CellResult | CellFailure) -> None:
        """A cell has a result or failed."""
        with self._lock:
            self._remaining.done(outcome.kind, outcome.settings, outcome.seconds)
            self._timed.add(outcome.cell)
            self.failed += isinstance(outcome, CellFailure)

    def on_done(self, cell: _Cell) -> None:
        """A cell is on disk, from now or from an earlier run."""
        with self._lock:
            self.done += 1
            if cell.id not in self._timed:
                self._remaining.drop(cell.kind, cell.settings)

    def line(self) -> str:
        """The progress in one line."""
        with self._lock:
            left = in_words(self._remaining.seconds(workers=max(1, self._placement.workers)))
            done, failed = self.done, self.failed
        workers = self._placement.workers
        return (
            f"{self._name}: {done} of {self._total} cells"
            + (f", {failed} failed" if failed else "")
            + (f", {workers} workers" if workers != 1 else "")
            + f", time left: {left}"
        )

    def __enter__(self) -> Self:
        console = SafeConsole(stderr=True)
        if console.is_terminal:
            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False),
            )
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task(self._name, total=self._total)
            self._bar.start()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        while not self._end.wait(_LINE_SECONDS if self._bar is None else _BAR_SECONDS):
            if self._bar is None or self._task is None:
                tell(f"dpaudit: {self.line()}")
            else:
                self._bar.update(
                    self._task, completed=self.done, description=f"{self.line()}\n{self._doing}"
                )
