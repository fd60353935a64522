"""Run logs for other tools: plug-ins of ``dpaudit.loggers``, and the relay that isolates them.

Each logger has its own thread; one that fails or hangs is reported once, and the run continues.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.experiments.store import Store
from dpaudit.protocols import RunLogger
from dpaudit.results.text import error_text
from dpaudit.types import CellFailure, CellResult, Reference, RunStart

__all__ = ["Relay", "open_loggers", "run_start"]

Trouble = Callable[[str], None]
PATIENCE = 60.0
"""Seconds that all loggers have to finish after the run; ``HASTE`` after an error."""
HASTE = 5.0


def open_loggers(references: Sequence[str], *, trouble: Trouble) -> Relay:
    """Loggers by reference, ``NAME[:option=value,…]``; ``trouble`` is told once of each failure.

    Raises:
        UsageError: an unknown name or option, a missing one, or one name twice; loggers fail the
            run only here.
    """
    made: dict[str, RunLogger] = {}
    for text in references:
        if text in made:
            raise UsageError(f"log={text}: given twice; keep one")
        logger = registry.create("loggers", Reference.parse(text))
        if not isinstance(logger, RunLogger):
            raise UsageError(
                f"log={text}: the plug-in is no RunLogger; "
                "see dpaudit.protocols and check_run_logger"
            )
        made[text] = logger
    return Relay(made, trouble=trouble)


def run_start(store: Store, *, cells: int, command: str) -> RunStart:
    """What loggers are told first about the run of ``store``."""
    spec = store.spec
    return RunStart(
        name=spec["name"],
        title=spec["title"],
        run_id=store.run_id,
        folder=str(store.folder.resolve()),
        command=command,
        spec=spec,
        cells=cells,
        earlier=tuple(store.results()),
    )


class Relay:
    """Passes a run's events on, as a context manager; only leaving it waits for loggers.

    No method raises what a logger raises. Leaving waits for what loggers still have to do,
    ``PATIENCE`` seconds at most; later ones are left behind.
    """

    def __init__(self, loggers: Mapping[str, RunLogger], *, trouble: Trouble) -> None:
        self._lanes = [_Lane(name, logger, trouble) for name, logger in loggers.items()]

    def start(self, run: RunStart) -> None:
        """The run begins, or is resumed."""
        self._tell("start", run)

    def outcome(self, cell: CellResult | CellFailure) -> None:
        """A cell is done or failed, and on disk."""
        self._tell("failure" if isinstance(cell, CellFailure) else "result", cell)

    def end(self, document: Mapping[str, Any]) -> None:
        """All is done."""
        self._tell("end", document)

    def _tell(self, what: str, about: Any) -> None:
        for lane in self._lanes:
            lane.tell(what, about)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        until = time.monotonic() + (PATIENCE if kind is None else HASTE)
        for lane in self._lanes:
            lane.finish()
        for lane in self._lanes:
            lane.wait(until)


class _Lane:
    """One logger, its thread, and what it has not been told yet."""

    def __init__(self, name: str, logger: RunLogger, trouble: Trouble) -> None:
        self._name, self._logger, self._trouble = name, logger, trouble
        self._waiting: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._failed = self._left = False
        self._thread = threading.Thread(
            target=self._work, name=f"dpaudit logger {name}", daemon=True
        )
        self._thread.start()

    def tell(self, what: str, about: Any) -> None:
        if not self._failed:
            self._waiting.put((what, about))

    def finish(self) -> None:
        self._waiting.put(None)

    def wait(self, until: float) -> None:
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._left = True
            self._report(
                "is still busy after the run's end and was left behind; what it did not pass on"
            )

    def _work(self) -> None:
        while (told := self._waiting.get()) is not None:
            if not self._failed:
                self._call(told[0], told[1])
        self._call("close")

    def _call(self, what: str, *about: Any) -> None:
        try:
            getattr(self._logger, what)(*about)
        except BaseException as error:  # noqa: BLE001 (a plug-in may raise anything)
            self._report(
                f"failed at {what} ({error_text(error)}) and is told no more; what it missed"
            )

    def _report(self, problem: str) -> None:
        if not self._failed and (not self._left or self._thread.is_alive()):
            self._failed = True
            self._trouble(f"log={self._name}: {problem} is in the store; the run is not affected")
