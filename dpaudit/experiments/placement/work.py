"""One cell's work: a result, or a failure with its reason; and the placement in this process."""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from dpaudit.codec import to_dict
from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.experiments.arm import build_arm
from dpaudit.experiments.measure import Cell, measure_of
from dpaudit.experiments.threads import threads, threads_for
from dpaudit.noise.key import PancakeKey
from dpaudit.provenance import collect
from dpaudit.registry import missing_extra
from dpaudit.results.text import error_text, printable
from dpaudit.types import CellFailure, CellResult

__all__ = ["Here", "Outcome", "attempt", "check_device", "failure", "run_cell"]

Outcome = CellResult | CellFailure
_LONGEST = 2000
_LONGEST_TRACE = 100_000


def run_cell(cell: Cell) -> CellResult:
    """Run one cell and return its result, without storing it.

    Formal guarantee: with the same versions on the same kind of processor, the outcome is a
    function of the cell's settings (the seed is one), except for times. The number of threads is
    fixed; see :mod:`~dpaudit.experiments.threads`.
    """
    began = time.monotonic()
    settings = cell.settings
    measure = measure_of(cell.kind)
    arm = build_arm(settings, cell=cell.id) if measure.needs_arm else None
    with threads(1 if arm is None else threads_for(arm.host.dim)):
        outcome = dict(measure.run(cell, arm))
    if arm is not None:
        if cell.kind in ("attack", "audit"):
            outcome["epsilon_key_holder"] = arm.mitigation.epsilon(
                arm.source, settings["delta"], host=arm.host
            )
        outcome["sigma"] = arm.sigma
        outcome["dim"] = arm.host.dim
        if arm.key is not None:
            shape = (
                {"beta": arm.key.beta, "gamma": arm.key.gamma}
                if isinstance(arm.key, PancakeKey)
                else {"key": "32 secret bytes"}
            )
            outcome["key"] = {**shape, "fingerprint": arm.key.fingerprint}
    own = () if measure.origins is None else tuple(measure.origins(cell))
    return CellResult(
        cell=cell.id,
        kind=cell.kind,
        settings=to_dict(cell.written),
        outcome=to_dict(outcome),
        seconds=time.monotonic() - began,
        provenance=to_dict(
            collect(seed=settings["seed"], plugins=own if arm is None else arm.origins)
        ),
    )


def attempt(cell: Cell) -> Outcome:
    """Run one cell; whatever it raises, also MemoryError, becomes a ``CellFailure``.

    A plug-in's ``SystemExit`` or ``KeyboardInterrupt`` fails its cell; Ctrl-C (SIGINT) is raised.
    """
    began = time.monotonic()
    with _interrupts() as interrupted:
        try:
            return run_cell(cell)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and interrupted():
                raise
            return failure(cell, error, seconds=time.monotonic() - began)


def failure(cell: Cell, error: BaseException, *, seconds: float) -> CellFailure:
    """The record of a cell that raised ``error``; a ``UsageError`` needs no traceback."""
    return CellFailure(
        cell=cell.id,
        kind=cell.kind,
        settings=to_dict(cell.written),
        error=error_text(error, limit=_LONGEST),
        traceback=""
        if isinstance(error, UsageError)
        else printable("".join(traceback.format_exception(error)), limit=_LONGEST_TRACE),
        seconds=seconds,
        provenance=to_dict(collect(seed=str(cell.settings.get("seed", "")), plugins=())),
    )


class _Interrupts:
    """Notes SIGINT, to tell it from a ``KeyboardInterrupt`` that a plug-in raised."""

    seen = False

    def __call__(self) -> bool:
        return self.seen

    def note(self, number: int, frame: object) -> None:
        del number, frame
        self.seen = True
        raise KeyboardInterrupt


@contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    interrupts = _Interrupts()
    ours = threading.current_thread() is threading.main_thread()
    ours = ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, interrupts.note)
    else:
        # someone else's handler takes SIGINT: a KeyboardInterrupt may be the user's
        handled = signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, signal.SIG_DFL)
        interrupts.seen = threading.current_thread() is threading.main_thread() and handled
    try:
        yield interrupts
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class Here:
    """A placement in this process; a crash in a plug-in's C code ends the run (see ``Cores``)."""

    workers = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def run(self, cells: Iterator[tuple[int, Cell]]) -> Iterator[tuple[int, Outcome]]:
        """Each cell's outcome, in order."""
        for position, cell in cells:
            yield position, attempt(cell)


def check_device(device: str) -> None:
    """Whether cells of this process can work on ``device``.

    Raises:
        MissingExtraError: another than the CPU, without torch.
        UsageError: torch sees no such device.
    """
    if device == "cpu":
        return
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"device={device}: {missing_extra(error)}") from None
    if not torch.cuda.is_available():
        raise UsageError(
            f"device={device}: torch {torch.__version__} sees no CUDA device here; "
            "leave --device out, or run where there is one with --where tcp://…"
        )
