"""One cell's work: a result, or a failure with its reason; and the placement in this process.

The number of threads is fixed, because sums and products of floats depend on it.
torch and numpy's BLAS split a sum of 2^20 values, or a matrix product, among threads and add it up
part by part, so the number of threads is part of a cell's meaning. It follows from the size of its
vectors alone, never from the machine's cores or from how many cells run at the same time.

To a worker and back a cell goes as JSON text that is checked on arrival; no pickle.
Floats survive exactly (``repr`` and back); NaN and infinities are written as Python's ``json``
does. Numbers depend on the code that makes them, so a worker must have the same version and
sources of dpaudit.
"""

from __future__ import annotations

import functools
import json
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Self

import scipy.linalg  # noqa: F401  # its own BLAS must be loaded before libraries are counted
from msgspec import Struct
from threadpoolctl import ThreadpoolController

from dpaudit.codec import convert_value, to_dict
from dpaudit.errors import MessageError, MissingExtraError, UsageError
from dpaudit.experiments.arm import build_arm
from dpaudit.experiments.measure import Cell, measure_of
from dpaudit.noise.key import PancakeKey
from dpaudit.provenance import collect
from dpaudit.registry import PACKAGES, missing_extra, source_hash
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import error_text, printable
from dpaudit.types import CellFailure, CellResult

__all__ = [
    "LARGE",
    "Here",
    "Outcome",
    "answer",
    "attempt",
    "check_device",
    "difference",
    "failure",
    "identity",
    "parse",
    "request",
    "run_cell",
    "threads",
    "threads_for",
]


@functools.cache
def identity() -> dict[str, str]:
    """The version of dpaudit, and the SHA-256 of the sources of its packages."""
    return {
        "version": version("dpaudit"),
        **{package: source_hash(package) for package in PACKAGES},
    }


def difference(own: Mapping[str, str], worker: Mapping[str, str]) -> str:
    """How a worker's identity differs from the runner's, and the fix; empty if it does not."""
    unlike = next((name for name in own if own[name] != worker.get(name)), None)
    if unlike is None:
        return ""
    if unlike == "version":
        reason = f"has dpaudit {worker.get('version', '?')}, this is {own['version']}"
    else:
        reason = (
            f"has different sources of {unlike} "
            f"(sha256 {worker.get(unlike, '')[:12]}, here {own[unlike][:12]})"
        )
    return f"{reason}; install the same dpaudit on it and restart the worker"


_ENVIRONMENT = ("DPAUDIT_DATA", "DPAUDIT_CACHE", "DPAUDIT_CHECKPOINTS")


class _Answer(Struct, frozen=True, forbid_unknown_fields=True):
    done: CellResult | None = None
    failed: CellFailure | None = None
    refused: str = ""


def request(cell: Cell) -> str:
    """The text for a worker: the cell, the runner's identity, and where the runner has its data."""
    return json.dumps(
        {
            "cell": {"kind": cell.kind, "settings": to_plain(cell.settings)},
            "identity": identity(),
            "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        }
    )


def answer(text: str) -> str:
    """Do the cell of a :func:`request`; runs on a worker, and raises nothing.

    The runner's data folders apply where the worker's own environment names none.
    """
    task = json.loads(text)
    unlike = difference(task["identity"], identity())
    if unlike:
        return json.dumps({"refused": unlike})
    cell = Cell(task["cell"]["kind"], task["cell"]["settings"])
    with _environment(task["environment"]):
        outcome = attempt(cell)
    if isinstance(outcome, CellFailure):
        return json.dumps({"failed": to_dict(outcome)})
    return json.dumps({"done": to_dict(outcome)})


def parse(text: object, cell: Cell) -> Outcome:
    """The outcome of ``cell`` in a worker's :func:`answer`.

    Raises:
        UsageError: the worker is another version of dpaudit.
        MessageError: it does not answer this cell.
    """
    try:
        reply = convert_value(
            json.loads(text) if isinstance(text, str) else None, _Answer, words=False
        )
    except (ValueError, RefusedError) as error:
        raise MessageError(
            f"cell={cell.id}: a worker's answer is not as dpaudit writes it ({error})"
        ) from error
    if reply.refused:
        raise UsageError(f"a worker {reply.refused}")
    outcome = reply.failed if reply.done is None else reply.done
    if outcome is None:
        raise MessageError(f"cell={cell.id}: a worker's answer is neither a result nor a failure")
    if (outcome.cell, outcome.kind) != (cell.id, cell.kind):
        raise MessageError(f"cell={cell.id}: a worker's answer is about another cell")
    if not (math.isfinite(outcome.seconds) and outcome.seconds >= 0):
        raise MessageError(f"cell={cell.id}: a worker's answer took seconds={outcome.seconds}")
    return outcome


def to_plain(value: Any) -> Any:
    """Mappings and sequences as dicts and lists, numbers as they are."""
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    added = {
        name: value
        for name, value in values.items()
        if name in _ENVIRONMENT and name not in os.environ
    }
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


LARGE = 1 << 20
"""Values per vector from which more than one thread is worth it."""
_FEW = 2
_CHILDREN = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def threads_for(dim: int) -> int:
    """Threads for vectors of ``dim`` values: one, or two for large ones, on every machine."""
    return 1 if dim < LARGE else _FEW


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Limit compiled loops, torch, the BLAS of numpy and scipy, and new processes to ``number``.

    Torch that is imported inside keeps to it, too, by the environment.
    """
    torch: Any = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    environment = {name: os.environ.get(name) for name in _CHILDREN}
    if torch is not None:
        torch.set_num_threads(number)
    os.environ.update(dict.fromkeys(_CHILDREN, str(number)))
    try:
        with _blas().limit(limits=number):
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


Outcome = CellResult | CellFailure
_LONGEST = 2000
_LONGEST_TRACE = 100_000


def run_cell(cell: Cell) -> CellResult:
    """Run one cell and return its result, without storing it.

    Formal guarantee: with the same versions on the same kind of processor, the outcome is a
    function of the cell's settings (the seed is one), except for times. The number of threads is
    fixed; see :mod:`~dpaudit.experiments.placement.work`.
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
