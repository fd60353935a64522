"""A progress bar for downloads, in the form that pooch asks for, drawn by rich on stderr."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from dpaudit.results.text import one_line

__all__ = ["DownloadBar"]


class DownloadBar:
    """Counts bytes; nothing is drawn where stderr is not a terminal, nor before the first byte."""

    def __init__(self, name: str) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(one_line(name, limit=100), total=None)

    @property
    def total(self) -> float | None:
        """Bytes to come; None where the server does not say."""
        return self._bar.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        self._bar.update(self._task, total=size or None)
        self._bar.start()

    def update(self, count: int) -> None:
        """``count`` more bytes have come."""
        self._bar.advance(self._task, count)

    def reset(self) -> None:
        """Start again at no bytes."""
        self._bar.reset(self._task)

    def close(self) -> None:
        """Take the bar off the screen."""
        self._bar.stop()

    def __enter__(self) -> DownloadBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
