"""What a terminal shows: consoles of printable text, and the progress of a run and of an audit.

Progress goes to stderr. A run shows a bar if stderr is a terminal, otherwise a line every half
minute; an audit shows a bar for what is drawn and a spinner for what follows, on a terminal only.
"""

from __future__ import annotations

import json
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from rich.console import Console, ConsoleOptions
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment

from dpaudit.results.text import harmless, one_line, tell
from dpaudit.types import CellFailure, CellResult

__all__ = [
    "AuditProgress",
    "Remaining",
    "RunProgress",
    "SafeConsole",
    "duration_text",
    "progress_bar",
]

_PARTS = ("source", "mitigation", "attack")
_LINE_SECONDS = 30.0
_BAR_SECONDS = 0.5
_TURNING = SpinnerColumn("line")  # here, as making it imports, which must not wait for a sampler


class SafeConsole(Console):
    """A console that writes printable text only and takes no text for markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    @property
    def file(self) -> Any:
        """Where rich writes; a live display puts a proxy of its own around ours."""
        file = super().file
        return getattr(file, "rich_proxied_file", file)

    @file.setter
    def file(self, new: Any) -> None:
        self._file = new

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does; control segments, which are rich's own, stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


def progress_bar() -> Progress:
    """A progress bar on stderr; invisible where stderr is not a terminal."""
    return _progress(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())


def _progress(*columns: ProgressColumn, first: ProgressColumn | None = None) -> Progress:
    console, text = SafeConsole(stderr=True), TextColumn("{task.description}", markup=False)
    shown = (text, *columns) if first is None else (first, text, *columns)
    return Progress(*shown, console=console, disable=not console.is_terminal, transient=True)


class AuditProgress:
    """A context manager to call with the number drawn and the total: two stages, one at a time.

    ``drawing`` says what is drawn, ``then`` what follows and how long at most; of that no share is
    known, so it has no bar. What comes before the drawing is a :meth:`stage`. ``kept`` is a file
    that keeps what was drawn, if the audit has one.
    """

    def __init__(self, drawing: str, then: str, *, total: int, kept: Path | None = None) -> None:
        self.kept = kept
        self.what, self._drawing, self._then = drawing, drawing, then
        self.done, self.total = 0, total
        self._stage: Progress | None = None
        self._task: TaskID | None = None
        self._note = ""

    def __call__(self, done: int, total: int) -> None:
        self._show(self._drawing, done, total, bar=done < total)

    def note(self, text: str) -> None:
        """What the drawing shows so far, beside the bar."""
        self._note = f", {text}"

    def stage(self, unit: str) -> Callable[[int, int], None]:
        """What to call with the number of ``unit`` and the total, before anything is drawn."""
        return lambda done, total: self._show(unit, done, total, bar=True)

    def _show(self, unit: str, done: int, total: int, *, bar: bool) -> None:
        another = unit != self.what
        self.what, self.done, self.total = unit, done, total
        if another or bar != (self._task is not None):
            self._enter(drawing=bar)
        if self._stage is not None and self._task is not None:
            shown = unit + (self._note if unit == self._drawing else "")
            self._stage.update(self._task, completed=done, total=total, description=shown)

    def __enter__(self) -> Self:
        self._enter(drawing=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._stage is not None:
            self._stage.stop()

    def _enter(self, *, drawing: bool) -> None:
        if self._stage is not None:
            self._stage.stop()
        self._stage = progress_bar() if drawing else _progress(TimeElapsedColumn(), first=_TURNING)
        task = self._stage.add_task(
            self.what if drawing else self._then, total=self.total if drawing else None
        )
        self._task = task if drawing else None
        self._stage.start()


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
            remaining = duration_text(
                self._remaining.seconds(workers=max(1, self._placement.workers))
            )
            done, failed = self.done, self.failed
        workers = self._placement.workers
        return (
            f"{self._name}: {done} of {self._total} cells"
            + (f", {failed} failed" if failed else "")
            + (f", {workers} workers" if workers != 1 else "")
            + f", time left: {remaining}"
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


class Remaining:
    """Seconds that are left of a run, from what similar cells took.

    Cells differ a thousandfold, so each remaining cell is expected to take what finished cells of
    the same kind, host, source, mitigation and attack took; if there are none, those of the same
    kind and host, or else of the same kind.
    """

    def __init__(self) -> None:
        self._left: dict[tuple[str, ...], int] = defaultdict(int)
        # number, sum, sum of squares
        self._seen: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self._levels: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, kind: str, settings: Mapping[str, Any]) -> None:
        """A cell still to be done."""
        self._left[self._of(kind, settings)] += 1

    def drop(self, kind: str, settings: Mapping[str, Any]) -> None:
        """A cell that need not be done, or is done in an unknown time."""
        self._left[self._of(kind, settings)] -= 1

    def done(self, kind: str, settings: Mapping[str, Any], seconds: float) -> None:
        """A cell that took so many seconds."""
        levels = self._of(kind, settings)
        self._left[levels] -= 1
        for level in levels:
            record = self._seen[level]
            record[0] += 1
            record[1] += seconds
            record[2] += seconds * seconds

    def seconds(self, *, workers: int) -> tuple[float, float] | None:
        """The range of seconds that the rest will probably take with so many workers.

        None while no finished cell is like a remaining one.
        Two standard errors to either side of the expected work, divided by the workers that still
        find some; at least as long as the longest cell. Descriptive: no probability is claimed.
        """
        remaining = {levels: number for levels, number in self._left.items() if number > 0}
        if not remaining:
            return (0.0, 0.0)
        work = variance = longest = 0.0
        for levels, number in remaining.items():
            record = next((self._seen[level] for level in levels if self._seen[level][0]), None)
            if record is None:
                return None
            count, total, squares = record
            mean = total / count
            spread = (
                max(squares / count - mean * mean, 0.0) * count / max(count - 1, 1)
                if count > 1
                else mean * mean
            )
            work += number * mean
            variance += number * spread + number * number * spread / count
            longest = max(longest, mean)
        at_once = max(1, min(workers, sum(remaining.values())))
        error = 2 * math.sqrt(variance)
        return max(longest, (work - error) / at_once), max(longest, (work + error) / at_once)

    def _of(self, kind: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
        host = json.dumps(settings.get("host", {}), sort_keys=True)
        parts = [settings.get(part, {}).get("label", "") for part in _PARTS]
        levels = tuple(_levels(kind, host, parts))
        return self._levels.setdefault(levels, levels)


def _levels(kind: str, host: str, parts: list[str]) -> Iterator[str]:
    yield json.dumps([kind, host, *parts])
    yield json.dumps([kind, host])
    yield json.dumps([kind])


def duration_text(seconds: tuple[float, float] | None) -> str:
    """``unknown``, ``about 40 s`` or ``2–5 min``, rounded up.

    >>> [duration_text(s) for s in (None, (3.2, 3.3), (100, 290), (9000, 9100))]
    ['unknown', 'about 4 s', '2–5 min', 'about 2.6 h']
    """
    if seconds is None:
        return "unknown"
    low, high = seconds
    for unit, size, digits in (("s", 1, 0), ("min", 60, 0), ("h", 3600, 1)):
        if high < 90 * size or unit == "h":
            texts = [
                f"{math.ceil(value / size * 10**digits) / 10**digits:g}" for value in (low, high)
            ]
            return (
                f"about {texts[1]} {unit}"
                if texts[0] == texts[1] or high < 1.5 * low
                else f"{texts[0]}–{texts[1]} {unit}"
            )
    raise AssertionError
