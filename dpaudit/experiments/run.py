"""Running an experiment: cells go to a placement, outcomes to the store, as they end."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpaudit import errors
from dpaudit.codec import to_dict
from dpaudit.errors import StoreError, UsageError
from dpaudit.experiments.measure import Cell
from dpaudit.experiments.placement import Item, Placement, place
from dpaudit.experiments.placement.work import Outcome, run_cell
from dpaudit.experiments.spec import Spec
from dpaudit.experiments.store import Store
from dpaudit.types import CellFailure, CellResult

__all__ = ["RunOptions", "run_cell", "run_experiment", "run_with"]

_USAGE_ERRORS = 8
_TOGETHER_SECONDS = 0.05
_QUICK_SECONDS = 0.02

OnCell = Callable[[Cell], None]
OnResult = Callable[[CellResult | CellFailure], None]
OnOpen = Callable[[Store], None]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of :func:`run_experiment`, as one value; nothing here changes a number.

    Attributes:
        out: the run's folder.
        resume: whether ``out`` may hold the beginning of this run.
        where: ``local``, a Dask scheduler's address, or a placement
            (:func:`~dpaudit.experiments.placement.place`).
        jobs: processes on this machine, or ``all``; with ``local`` only.
        command: what the user typed, kept with the run.
        on_open: called with the store, first.
        on_start: called with a cell when a worker can have it.
        on_done: called with a cell when its outcome is on disk, also from an earlier start.
        on_result: called with that outcome.
    """

    out: Path
    resume: bool = False
    where: str | Placement = "local"
    jobs: int | str = 1
    command: str = ""
    on_open: OnOpen | None = None
    on_start: OnCell | None = None
    on_done: OnCell | None = None
    on_result: OnResult | None = None


def run_experiment(spec: Spec, *, out: Path, **options: Any) -> Path:
    """Run every cell of ``spec`` that ``out`` lacks; return ``out``.

    ``options`` are those of :class:`RunOptions`, which
    :func:`run_with` takes as one value. A cell that fails is kept as a failure and the others go
    on; ``resume`` tries it again.

    Formal guarantee: a cell's numbers depend on the spec's seed and the cell's settings only, so
    neither where nor in which order cells were done, nor how often the run was killed and resumed,
    changes a result (times apart). That is for one kind of processor: a pancake's noise may differ
    in its last bit between those with and without fused multiply-add, and sums by BLAS by some
    1e-13 of their size between kernels (``make portable`` measures both). What took 0.02 s or more
    is on disk before the next outcome is asked for; quicker ones are kept together, every 0.05 s.

    Raises:
        StoreError: ``out`` holds another run, or this one and ``resume`` is False; or the disk is
            full.
        UsageError: the spec's device, or the place, is not there; or the first eight cells to end
            (all, if fewer) failed by a usage error, which is then raised and not recorded.
        PeerError: a cluster went away during the run.
    """
    return run_with(spec, RunOptions(out=out, **options))


def run_with(spec: Spec, options: RunOptions) -> Path:
    """As :func:`run_experiment`."""
    where, cells = options.where, tuple(enumerate(spec.cells()))
    if isinstance(where, str):
        where = place(where, jobs=options.jobs, device=spec.device)
    described = to_dict(dataclasses.asdict(spec))
    with (
        where,
        Store.open(
            options.out,
            spec=described,
            command=options.command,
            cells=len(cells),
            resume=options.resume,
        ) as store,
    ):
        done = store.finished()
        if options.on_open is not None:
            options.on_open(store)
        if options.on_done is not None:
            for _, cell in cells:
                if cell.id in done:
                    options.on_done(cell)
        keeper = _Recorder(store, cells, options, fresh=not done)
        todo = _unfinished(cells, done, options.on_start)
        with closing(where.run(todo)) as outcomes, keeper:  # type: ignore[type-var]
            for position, outcome in outcomes:
                keeper.take(position, outcome)
    return options.out


def _unfinished(cells: tuple[Item, ...], done: Set[str], on_start: OnCell | None) -> Iterator[Item]:
    for position, cell in cells:
        if cell.id not in done:
            if on_start is not None:
                on_start(cell)
            yield position, cell


class _Recorder:
    """Outcomes on their way to the disk, small ones together; callbacks run once stored."""

    def __init__(
        self, store: Store, cells: tuple[Item, ...], options: RunOptions, *, fresh: bool
    ) -> None:
        self._store, self._cells, self._options = store, dict(cells), options
        self._waiting: list[tuple[int, Outcome]] = []
        self._doubtful = fresh  # nothing but usage errors so far
        self._kept = time.monotonic()

    def take(self, position: int, outcome: Outcome) -> None:
        """Keep an outcome, now or together with the next."""
        self._waiting.append((position, outcome))
        self._doubtful = (
            self._doubtful and isinstance(outcome, CellFailure) and not outcome.traceback
        )
        if self._doubtful:
            if len(self._waiting) == min(_USAGE_ERRORS, len(self._cells)):
                first, self._waiting = self._waiting[0][1], []
                raise _error_of(first)
            return
        late = time.monotonic() - self._kept >= _TOGETHER_SECONDS
        if late or outcome.seconds >= _QUICK_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Put on disk what waits."""
        if not self._waiting:
            return
        self._store.add_all(self._waiting)
        batch, self._waiting = self._waiting, []
        self._kept = time.monotonic()
        for position, outcome in batch:
            if self._options.on_result is not None:
                self._options.on_result(outcome)
            if self._options.on_done is not None:
                self._options.on_done(self._cells[position])

    def __enter__(self) -> _Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: object
    ) -> None:
        if not isinstance(value, StoreError):
            self.flush()


def _error_of(outcome: Outcome) -> UsageError:
    """The error that a cell failed with."""
    if not isinstance(outcome, CellFailure):
        raise TypeError(type(outcome))
    name, _, reason = outcome.error.partition(": ")
    kind = getattr(errors, name, UsageError)
    return (
        kind(reason)
        if isinstance(kind, type) and issubclass(kind, UsageError)
        else UsageError(outcome.error)
    )
