"""Runs a program's instructions until it ends, a coin must be decided, or a deadline comes."""

from __future__ import annotations

import ast
import functools
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import prelude
from dpaudit_prove.interpreter.code import Code
from dpaudit_prove.interpreter.instructions import INSTRUCTIONS
from dpaudit_prove.interpreter.lazy import NeedSplit
from dpaudit_prove.interpreter.machine import Machine
from dpaudit_prove.interpreter.state import freeze, thaw
from dpaudit_prove.interpreter.values import UNBOUND, Frame

__all__ = ["OutOfTimeError", "alarm", "run", "start"]

_LONGEST = 3_000_000
_BETWEEN_LOOKS = 256  # at the clock
_ROOT = Code("", "", ast.parse("lambda: 0", mode="eval").body.args, [], [], [])  # type: ignore[attr-defined]
_ROOT.instructions = [("CALL_EX", None), ("FINISH", None), ("RETURN", None)]
_ROOT.lines = [0, 0, 0]
_ROOT.live = [frozenset()] * 4


def start(vm: Machine, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Call a function, before its first instruction."""
    frame = Frame(_ROOT, {})
    if isinstance(function, functools.partial):
        vm.pins.adopt(function)
    frame.stack = [function, list(args), dict(kwargs)]
    form, _ = freeze([frame], vm.pins)  # the caller's own arguments are never changed
    vm.resume(thaw(form, vm.pins)[0])


def run(vm: Machine, *, deadline: float | None = None) -> NeedSplit | None:
    """Run until a coin must be decided (returned), or to the end: see `Machine.result`.

    Raises:
        RefusedProgramError: the program cannot be followed; the message names file and line.
        OutOfTimeError: the deadline (of `time.monotonic`) came.
    """
    steps = 0
    table = INSTRUCTIONS
    while vm.frames:
        frame = vm.frames[-1]
        code, pc = frame.code, frame.pc
        op, arg = code.instructions[pc]
        frame.pc = pc + 1
        try:
            table[op](vm, frame, arg)
            steps += 1
            if steps % _BETWEEN_LOOKS == 0:
                _look(steps, deadline)
        except NeedSplit as split:
            frame.pc = pc
            return split
        except RefusedProgramError as error:
            raise RefusedProgramError(f"{_place(vm, code, pc)}{error}") from error
        except OutOfTimeError as late:
            late.where = _place(vm, code, pc)
            raise
        except (MemoryError, RecursionError) as error:
            raise RefusedProgramError(
                f"{_place(vm, code, pc)}the interpreter ran out of space"
            ) from error
        except Exception as error:  # noqa: BLE001 (the program's own exception)
            vm.unwind(error)
        if vm.hidden_number is not UNBOUND:
            return None
    return None


def _look(steps: int, deadline: float | None) -> None:
    if deadline is not None and time.monotonic() > deadline:
        raise OutOfTimeError
    if steps > _LONGEST:
        raise RefusedProgramError(
            f"{_LONGEST:,} steps without a decision by a coin; the program may not end"
        )


def _place(vm: Machine, code: Code, pc: int) -> str:
    """File and line, of the program itself where a builtin of `prelude` runs."""
    for frame in reversed(vm.frames):
        if code.filename != prelude.__file__:
            break
        code, pc = frame.code, frame.pc - 1
    return f"{code.filename}:{code.lines[pc]}: " if code.filename else ""


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
