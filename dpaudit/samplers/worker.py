"""Foreign Python, shared libraries and registered sources, each in a worker process of its own (the parent's side)."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import errors, registry
from dpaudit.errors import SamplerCrashError, SamplerError, SamplerTimeoutError, UsageError
from dpaudit.samplers.check import finite, plain_f64, request
from dpaudit.samplers.process import Process
from dpaudit.types import Reference

__all__ = ["HEADER", "LibrarySampler", "PythonSampler", "SourceSampler"]

HEADER = struct.Struct("<4sBQ")  # magic, 0: float64 values or 1: JSON, bytes that follow
_LONGEST_REPLY = 1 << 16
_START_LIMIT = 60.0  # seconds to import a source, when its dimension is asked before the first draw
_DYING = 1.0  # seconds between closing the channel and the end of the process

Spec = Mapping[str, str | None]


class _Worker:
    """One worker process: it starts at ``with``, gets requests as lines of JSON, and is killed at the end of the block.

    After a time-out or a crash it stays dead; after an exception or a wrong answer it may be asked again.
    """

    available: int | None = None

    def __init__(self, name: str, spec: Spec) -> None:
        self.name = name
        self._spec = spec
        self._process: Process | None = None
        self._dead = ""
        self._calls = 0

    @property
    def dim(self) -> int | None:
        """None: it is asked for any dimension."""
        return None

    def __enter__(self) -> _Worker:
        if self._process is None:
            self._dead = ""
            self._calls = 0
            self._process = Process([sys.executable, "-P", "-m", f"{__package__}.worker_main", self.name], talks=True)
            self._process.send(json.dumps({"name": self.name, **self._spec}).encode())
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def draw(self, n: int, d: int, *, timeout: float) -> npt.NDArray[np.float64]:
        """``n`` vectors, shape (n, d), finite; the first draw waits for the start of the process as well.

        Raises:
            UsageError: the worker cannot find or import what it should call, or it refuses (n, d).
            SamplerTimeoutError: no answer after ``timeout`` seconds; the process is killed.
            SamplerCrashError: it raised, or its process died.
            SamplerOutputError: its answer is not (n, d) finite numbers.
        """
        request(n, d, timeout)
        values = np.empty((n, d))
        call, self._calls = self._calls, self._calls + 1
        self._ask({"n": n, "d": d, "call": call}, values.data.cast("B"), timeout, f" (call n={n}, d={d})")
        return finite(values, self.name)

    def _ask(self, question: Mapping[str, int], view: memoryview, timeout: float, call: str) -> Any:
        """Send a question; values arrive in ``view``, a JSON answer is returned."""
        process = self._process
        if process is None:
            raise UsageError(f"sampler {self.name}: not open; draw inside `with`")
        if self._dead:
            raise SamplerCrashError(f"sampler {self.name}: stopped earlier ({self._dead}); open it again")
        deadline = time.monotonic() + timeout
        try:
            process.send(json.dumps(question).encode())
            answer = self._answer(process, view, deadline, call)
        except TimeoutError:
            self._dead = f"no answer within {timeout:g} s"
            process.close()
            raise SamplerTimeoutError(
                f"sampler {self.name} gave no answer before timeout={timeout:g} s{call}; "
                "raise the time limit or draw less"
            ) from None
        except SamplerCrashError as error:
            self._dead = str(error)
            process.close()
            raise
        except BaseException:  # interrupted between a question and its answer: the channel is out of step
            self._dead = "interrupted"
            process.close()
            raise
        if isinstance(answer, dict) and "error" in answer:
            raise self._error(answer)
        return answer

    def _answer(self, process: Process, view: memoryview, deadline: float, call: str) -> Any:
        header = bytearray(HEADER.size)
        if process.read(memoryview(header), deadline=deadline) < len(header):
            raise self._died(process, deadline, call)
        magic, kind, size = HEADER.unpack(header)
        right = size == len(view) if kind == 0 else kind == 1 and size <= _LONGEST_REPLY
        if magic != b"dpa1" or not right:
            raise SamplerCrashError(f"sampler {self.name}: something else wrote to the worker's channel{call}; mend it")
        body = view if kind == 0 else memoryview(bytearray(size))
        if process.read(body, deadline=deadline) < size:
            raise self._died(process, deadline, call)
        if kind == 0:
            return None
        try:
            return json.loads(bytes(body))
        except ValueError:
            raise SamplerCrashError(f"sampler {self.name}: the worker's answer is not JSON{call}; mend it") from None

    def _died(self, process: Process, deadline: float, call: str) -> SamplerCrashError:
        try:
            _, how = process.ending(deadline=min(deadline, time.monotonic() + _DYING))
        except TimeoutError:
            how = "its process closed the channel to the auditor"
        return SamplerCrashError(f"sampler {self.name}: {how}{call}; mend the sampler")

    def _error(self, answer: Mapping[str, Any]) -> errors.DpauditError:
        kind = str(answer["error"])
        found = getattr(errors, kind) if kind in errors.__all__ else SamplerError
        error: errors.DpauditError = found(str(answer.get("message")))
        return error


class PythonSampler(_Worker):
    """``python:MODULE:FUNCTION``: ``f(n, d)`` → array (n, d), or (n,) when d = 1.

    MODULE is dotted (the working directory is searched first) or the path of a ``.py`` file. A function with a
    parameter ``size`` and none called ``n`` is called as ``f(size=(n, d))``, which fits most of ``numpy.random``.
    """

    def __init__(self, target: str, *, seed: str, dtype: str = "f64", text_mode: bool = False) -> None:
        """Read the target; it is imported in the worker. ``seed`` is not passed on: the function is closed.

        Raises:
            UsageError: no FUNCTION, no such file, or a ``dtype`` or ``text_mode``.
        """
        del seed
        name = f"python:{target}"
        plain_f64(name, dtype, text_mode)
        module, _, function = target.rpartition(":")
        if not module or not function:
            raise UsageError(f"sampler={name}: needs a function; write python:MODULE:FUNCTION")
        if ("/" in module or module.endswith(".py")) and not Path(module).is_file():
            raise UsageError(f"module={module}: no such file (from {Path.cwd()}); check the path")
        super().__init__(name, {"kind": "python", "place": module, "member": function})


class LibrarySampler(_Worker):
    """``library:./libnoise.so:SYMBOL``: ``void f(double *out, size_t n, size_t d)`` fills out[n][d].

    Values it leaves unwritten and (near) writes past the end are found; a segmentation fault ends the worker only.
    """

    def __init__(self, target: str, *, seed: str, dtype: str = "f64", text_mode: bool = False) -> None:
        """Read the target; it is loaded in the worker. ``seed`` is not passed on: the library is closed.

        Raises:
            UsageError: no SYMBOL, no such file, or a ``dtype`` or ``text_mode``.
        """
        del seed
        name = f"library:{target}"
        plain_f64(name, dtype, text_mode)
        path, _, symbol = target.rpartition(":")
        if not path or not symbol:
            raise UsageError(f"sampler={name}: needs a symbol; write library:PATH:SYMBOL")
        if Path(path).is_file():
            path = str(Path(path).resolve())
        elif "/" in path:
            raise UsageError(f"library={path}: no such file (from {Path.cwd()}); check the path")
        super().__init__(name, {"kind": "library", "place": path, "member": symbol})


class SourceSampler(_Worker):
    """``NAME[:opt=value,…]``: a registered noise source, behind a registered mitigation or none, run in the worker.

    Call i draws from ``KeyedStream.from_seed(seed).child("call", i)``, so the same seed and calls give the same
    numbers.
    """

    def __init__(
        self, text: str, *, seed: str, dtype: str = "f64", text_mode: bool = False, mitigation: str | None = None
    ) -> None:
        """Look the names up; nothing is imported here.

        Raises:
            UnknownNameError: no such source or mitigation.
            UsageError: a broken option, or a ``dtype`` or ``text_mode``.
        """
        plain_f64(text, dtype, text_mode)
        registry.plugin("sources", Reference.parse(text).name)
        if mitigation is not None:
            registry.plugin("mitigations", Reference.parse(mitigation).name)
        super().__init__(text, {"kind": "source", "place": text, "member": mitigation, "seed": seed})
        self._dim: tuple[int | None] | None = None

    @property
    def dim(self) -> int | None:
        """What the source says, asked once, inside ``with``; None before.

        Raises:
            UsageError: the source refuses its options.
            SamplerError: it died, or did not start within a minute.
        """
        if self._dim is None and self._process is not None:
            answer = self._ask({}, memoryview(b""), _START_LIMIT, "")
            self._dim = (None if answer is None or answer["dim"] is None else int(answer["dim"]),)
        return self._dim[0] if self._dim else None
