"""A worker process and the channel to it: lines of JSON go, numbers or JSON come (auditor's side).

An answer is a :data:`HEADER` and as many bytes as it says. Numbers of a known size are read into
the array that is returned, without a copy.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from dpaudit import errors
from dpaudit.errors import (
    SamplerCrashError,
    SamplerError,
    SamplerOutputError,
    SamplerTimeoutError,
    UsageError,
)
from dpaudit.protocols import Facts, Request
from dpaudit.results.text import one_line
from dpaudit.targets.sandbox.process import Process

__all__ = ["HEADER", "Channel"]

HEADER = struct.Struct("<4sBQ")  # magic, 0: bytes or 1: JSON, bytes that follow
_LONGEST_REPLY = 1 << 16
_LONGEST_MESSAGE = 2000  # characters of an error from the worker
_FIRST_LINES = 10.0  # seconds for a new worker's pipe to take the specification
_DYING = 2.0  # seconds between closing the channel and the end of all processes
_OURS = {"source", "adapter"}  # kinds whose worker calls our code, which may refuse
_NO_END = 1e9  # seconds, in JSON, for a time limit that is infinite


class Channel:
    """One worker process: starts with :meth:`open`, is asked in lines of JSON, ends with the block.

    After a timeout or a crash it stays dead; after an exception or a wrong answer it may be asked
    again.
    """

    def __init__(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        facts: Facts,
        needs: Callable[[], Sequence[str]] = list,
        shared: Callable[[], Path | None] = lambda: None,
        interpreter: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """``spec`` says what to call, and its ``role``, sampler or mechanism; ``facts`` are static.

        At the start, ``needs`` gives the files and folders with the code that the worker calls,
        ``shared`` a folder for compiled code that it may write, and ``interpreter`` the command
        line of a worker without its name.
        """
        self.name = name
        self.role = str(spec["role"])
        self._spec = spec
        self._facts = facts
        self._needs, self._shared = needs, shared
        self._interpreter = interpreter or _this_python
        self._process: Process | None = None
        self._dead = ""
        self._calls = 0
        self._about: Mapping[str, Any] = {}
        self._owed = False  # the worker was asked about itself and has not been heard
        self._patience = 0.0  # seconds that its start may take

    @contextmanager
    def open(self, *, timeout: float) -> Iterator[Self]:
        """Start the process; :attr:`facts` of a sampler wait for it, at most ``timeout`` seconds.

        A request waits for it too, within its own time.
        """
        self._launch(timeout)
        try:
            yield self
        finally:
            self._end()

    def _launch(self, patience: float) -> None:
        self._patience = patience
        if self._process is not None:
            return
        self._dead, self._calls, self._about, self._owed = "", 0, {}, True
        argv = [*self._interpreter(), self.name]
        needs, shared = self._needs(), self._shared()
        self._process = Process(argv, talks=True, needs=needs, shared=shared)
        deadline = time.monotonic() + _FIRST_LINES
        spec = json.dumps({"name": self.name, **self._spec}).encode()
        try:
            self._process.send(spec, deadline=deadline)
            self._process.send(b"{}", deadline=deadline)
        except TimeoutError:
            self._dead = f"it did not start within {_FIRST_LINES:g} s"
            self._process.close()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    @property
    def facts(self) -> Facts:
        """What is known of the target; of a sampler, inside ``with``, once it has started.

        Raises:
            UsageError: the worker cannot find or import what it should call.
            SamplerError: it died, or had not started in time.
        """
        unknown = self._owed or _is_error(self._about)
        if unknown and self._process is not None and self.role == "sampler":
            self._start(self._patience)
        return self._stated(self._about)

    def _stated(self, about: Mapping[str, Any]) -> Facts:
        """The facts, with what the worker says ``about`` its target; {} before it started."""
        del about
        return self._facts

    def _start(self, timeout: float) -> None:
        """Wait until the worker has imported what it calls."""
        self._exchange(None, 0, timeout, " while it was opened")

    def _ask(
        self,
        room: memoryview | int,
        request: Request,
        timeout: float,
        *,
        call: str = "",
        used: int = 1,
        **more: Any,
    ) -> Any:
        """Ask for numbers that fill ``room``, or for at most so many bytes, which are returned.

        A dict in JSON may be the answer instead to a question with ``fork_seconds``. ``used`` of
        the worker's call numbers are spent. ``call`` is for messages.
        """
        number, self._calls = self._calls, self._calls + used
        seconds = timeout if math.isfinite(timeout) else _NO_END
        question = {"n": request.n, "d": request.dim, "call": number, "seconds": seconds, **more}
        call = call or f"n={request.n}, d={request.dim}"
        return self._exchange(question, room, timeout, f" (call {call})")

    def _exchange(
        self, question: Mapping[str, Any] | None, room: memoryview | int, timeout: float, call: str
    ) -> Any:
        """Send a question (None: await the start) and return its answer."""
        process = self._process
        if process is None:
            raise UsageError(f"{self.role} {self.name}: not open; ask inside `with`")
        if self._dead:
            raise SamplerCrashError(
                f"{self.role} {self.name}: stopped earlier ({self._dead}); open it again"
            )
        deadline = time.monotonic() + timeout
        try:
            if self._owed:
                self._about = self._answer(process, 0, deadline, call)
                self._owed = False
            answer: Any = self._about
            if question is not None and not _is_error(answer):
                process.send(json.dumps(question).encode(), deadline=deadline)
                answer = self._answer(process, room, deadline, call)
                due = "fork_seconds" not in question  # numbers
                if due and isinstance(answer, dict) and not _is_error(answer):
                    raise self._foreign(call)
        except TimeoutError:
            self._dead = f"no answer within {timeout:g} s"
            process.close()
            raise SamplerTimeoutError(
                f"{self.role} {self.name} gave no answer before timeout={timeout:g} s{call}; "
                "raise the time limit or draw less"
            ) from None
        except SamplerError as error:
            self._dead = str(error)
            process.close()
            raise
        except BaseException:  # between a question and its answer: the channel is out of step
            self._dead = "interrupted"
            process.close()
            raise
        if _is_error(answer):
            raise self._error(answer, opening=answer is self._about)
        return answer

    def _answer(self, process: Process, room: memoryview | int, deadline: float, call: str) -> Any:
        """Bytes, a dict in JSON, or None if ``room`` was filled."""
        header = bytearray(HEADER.size)
        if process.read(memoryview(header), deadline=deadline) < len(header):
            raise self._died(process, call)
        process.note_level()
        magic, kind, size = HEADER.unpack(header)
        right = 0 < size <= room if isinstance(room, int) else 0 < size == len(room)
        if magic != b"dpa1" or not (right if kind == 0 else kind == 1 and size <= _LONGEST_REPLY):
            raise self._foreign(call)
        body = bytearray(size if kind or isinstance(room, int) else 0)
        view = room if kind == 0 and isinstance(room, memoryview) else memoryview(body)
        if process.read(view, deadline=deadline) < size:
            raise self._died(process, call)
        if kind == 0:
            return body or None
        try:
            answer = json.loads(bytes(body))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._foreign(call)
        return answer

    def _foreign(self, call: str) -> SamplerCrashError:
        return SamplerCrashError(
            f"{self.role} {self.name}: something else wrote to the worker's channel{call}; "
            f"fix the {self.role}"
        )

    def _died(self, process: Process, call: str) -> SamplerError:
        try:
            _, how = process.ending(deadline=time.monotonic() + _DYING)
        except TimeoutError:
            how = "its process closed the channel to the auditor"
        except SamplerError as error:  # it was not started
            return error
        return SamplerCrashError(f"{self.role} {self.name}: {how}{call}; {self._remedy()}")

    def _hint(self, message: str) -> str:
        """What to add to an error from the worker."""
        del message
        return ""

    def _remedy(self) -> str:
        """What to do about a process that died."""
        return f"fix the {self.role}"

    def _error(self, answer: Mapping[str, Any], *, opening: bool) -> errors.DpauditError:
        """The error that a worker reports; foreign code can write it, so a sampler error at most.

        Usage errors are accepted while it opens (no such module or symbol) and from our own code in
        the worker.
        """
        kind = getattr(errors, str(answer["error"]), None)
        allowed: tuple[type[errors.DpauditError], ...] = (SamplerCrashError, SamplerOutputError)
        if opening or self.role == "mechanism" or self._spec["kind"] in _OURS:
            allowed = (*allowed, UsageError)
        known = isinstance(kind, type) and issubclass(kind, allowed)
        reported: type[errors.DpauditError] = kind if known else SamplerCrashError  # type: ignore[assignment]
        message = one_line(answer.get("message"), limit=_LONGEST_MESSAGE)
        return reported(f"{message}{self._hint(message)}")


def _this_python() -> list[str]:
    return [sys.executable, "-P", "-m", f"{__package__}.worker_main"]


def _is_error(answer: Any) -> bool:
    return isinstance(answer, dict) and "error" in answer
