"""Foreign Python, shared libraries and registered sources in worker processes (parent's side)."""

from __future__ import annotations

import json
import math
import struct
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dpaudit import errors
from dpaudit.errors import (
    SamplerCrashError,
    SamplerError,
    SamplerOutputError,
    SamplerTimeoutError,
    UsageError,
)
from dpaudit.results.text import one_line
from dpaudit.samplers.calls import Call, c_hint
from dpaudit.samplers.check import finite, plain_f64, request
from dpaudit.samplers.sandbox.process import Process
from dpaudit.samplers.sandbox.view import compiled_code, files_of_module, files_of_options
from dpaudit.types import Reference

__all__ = ["HEADER", "LibrarySampler", "PythonSampler", "SourceSampler", "Worker"]

HEADER = struct.Struct("<4sBQ")  # magic, 0: float64 values or 1: JSON, bytes that follow
_LONGEST_REPLY = 1 << 16
_LONGEST_MESSAGE = 2000  # characters of an error from the worker
_FIRST_LINES = 10.0  # seconds for a new worker's pipe to take the specification
_START_LIMIT = 60.0  # seconds to import a source, if its dimension is asked before the first draw
_START_PATIENCE = 2.0  # seconds to import foreign Python, if asked for its parameters before that
_FORK_SECONDS = 5.0  # limit for a forked child, with half of the time limit
_DYING = 2.0  # seconds between closing the channel and the end of all processes

# kinds whose worker calls our code, which may refuse
_MECHANISMS = {"mechanism", "datasets"}
_OURS = {"source", "adapter", *_MECHANISMS}
_NO_END = 1e9  # seconds, in JSON, for a time limit that is infinite

Array = npt.NDArray[np.float64]
Spec = Mapping[str, str | None]


class Worker:
    """One worker process: starts at ``with``, is asked in lines of JSON, ends with the block.

    After a timeout or a crash it stays dead; after an exception or a wrong answer it may be asked
    again.
    """

    available: int | None = None

    def __init__(self, name: str, spec: Spec) -> None:
        self.name = name
        self.role = "mechanism" if spec["kind"] in _MECHANISMS else "sampler"
        self._spec: Spec = {**spec, "role": self.role}
        self._process: Process | None = None
        self._dead = ""
        self._calls = 0
        self._about: Mapping[str, Any] = {}
        self._owed = False  # the worker was asked about itself and has not been heard

    @property
    def dim(self) -> int | None:
        """None: any dimension can be drawn."""
        return None

    def __enter__(self) -> Self:
        if self._process is None:
            self._dead = ""
            self._calls = 0
            self._owed = True
            argv = [*self._interpreter(), self.name]
            needs, shared = self._needed_paths(), self._shared()
            self._process = Process(argv, talks=True, needs=needs, shared=shared)
            until = time.monotonic() + _FIRST_LINES
            spec = json.dumps({"name": self.name, **self._spec}).encode()
            try:
                self._process.send(spec, deadline=until)
                self._process.send(b"{}", deadline=until)
            except TimeoutError:
                self._dead = f"it did not start within {_FIRST_LINES:g} s"
                self._process.close()
            except BaseException:
                self.__exit__()
                raise
        return self

    def _interpreter(self) -> list[str]:
        """The command line that starts a worker, without its name."""
        return [sys.executable, "-P", "-m", f"{__package__}.worker_main"]

    def _needed_paths(self) -> list[str]:
        """Files and folders with the code that the worker calls, for it to see."""
        return []

    def _shared(self) -> Path | None:
        """A folder for compiled code that the worker may write; only for registered sources."""
        return None

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def start(self, *, timeout: float) -> None:
        """Wait until the worker has imported what it calls; otherwise the first draw waits.

        Raises:
            UsageError: it cannot find or import it.
            SamplerError: it died, or had not started after ``timeout`` seconds.
        """
        self._ask(None, memoryview(b""), timeout, " while it was opened")

    def draw(self, n: int, d: int, *, timeout: float) -> Array:
        """``n`` vectors, shape (n, d), finite; the first draw also waits for the process to start.

        Raises:
            UsageError: the worker cannot find or import what it should call, or it refuses (n, d).
            SamplerTimeoutError: no answer after ``timeout`` seconds; the process is killed.
            SamplerCrashError: it raised, or its process died.
            SamplerOutputError: its answer is not (n, d) finite numbers.
        """
        values = np.empty((n, d)) if n > 0 and d > 0 else np.empty(0)
        self._draw(values, n, d, timeout)
        return finite(values, self.name)

    def draw_calls(self, calls: int, n: int, d: int, *, timeout: float) -> tuple[Array, Array]:
        """``calls`` calls of ``n`` vectors in turn: values (calls·n, d), and each call's seconds.

        The worker makes them in a loop and times the target alone, with the clock of
        ``time.perf_counter_ns``; one message brings all. Raises as :meth:`draw` does.
        """
        size = calls * n * d
        both = np.empty(size + calls) if min(calls, n, d) > 0 else np.empty(0)
        self._draw(both, n, d, timeout, used=calls, calls=calls)
        return finite(both[:size].reshape(calls * n, d), self.name), both[size:]

    def draw_forked(self, n: int, d: int, *, timeout: float) -> tuple[Array, Array] | None:
        """Draw ``n`` vectors in a fork of the worker, then ``n`` in itself: arrays (n, d), or None.

        State that both share gives the same noise twice. The worker draws once before the fork if
        it has not drawn yet, so that a generator seeded at the first call is seeded. None if the
        child gave nothing in half of the time, or a few seconds: not every program survives a fork.
        Raises as :meth:`draw` does.
        """
        deadline = time.monotonic() + timeout
        if not self._calls:
            self.draw(1, d, timeout=timeout)
        left = max(deadline - time.monotonic(), 1e-3)
        both = np.empty((2, n, d)) if n > 0 and d > 0 else np.empty(0)
        answer = self._draw(both, n, d, left, used=2, fork_seconds=min(_FORK_SECONDS, left / 2))
        if answer is not None:
            return None
        return finite(both[0], self.name), finite(both[1], self.name)

    def _draw(
        self, into: Array, n: int, d: int, timeout: float, *, used: int = 1, **more: Any
    ) -> Any:
        """Ask for a draw whose values go ``into`` an array, or, if that is empty, for JSON.

        ``used`` of the worker's call numbers are spent.
        """
        request(n, d, timeout, calls=used)
        call, self._calls = self._calls, self._calls + used
        seconds = timeout if math.isfinite(timeout) else _NO_END
        question = {"n": n, "d": d, "call": call, "seconds": seconds, **more}
        return self._ask(question, into.data.cast("B"), timeout, f" (call n={n}, d={d})")

    def _ask(
        self, question: Mapping[str, Any] | None, view: memoryview, timeout: float, call: str
    ) -> Any:
        """Send a question (None: await the start); values arrive in ``view``, JSON is returned."""
        process = self._process
        if process is None:
            raise UsageError(f"{self.role} {self.name}: not open; draw inside `with`")
        if self._dead:
            raise SamplerCrashError(
                f"{self.role} {self.name}: stopped earlier ({self._dead}); open it again"
            )
        deadline = time.monotonic() + timeout
        try:
            if self._owed:
                self._about = self._answer(process, memoryview(b""), deadline, call)
                self._owed = False
            answer: Any = self._about
            if question is not None and not _is_error(answer):
                process.send(json.dumps(question).encode(), deadline=deadline)
                answer = self._answer(process, view, deadline, call)
                due = view and "fork_seconds" not in question  # values
                if due and answer is not None and not _is_error(answer):
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

    def _answer(self, process: Process, view: memoryview, deadline: float, call: str) -> Any:
        header = bytearray(HEADER.size)
        if process.read(memoryview(header), deadline=deadline) < len(header):
            raise self._died(process, call)
        process.note_level()
        magic, kind, size = HEADER.unpack(header)
        right = 0 < size == len(view) if kind == 0 else kind == 1 and size <= _LONGEST_REPLY
        if magic != b"dpa1" or not right:
            raise self._foreign(call)
        body = view if kind == 0 else memoryview(bytearray(size))
        if process.read(body, deadline=deadline) < size:
            raise self._died(process, call)
        if kind == 0:
            return None
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
        if opening or self._spec["kind"] in _OURS:
            allowed = (*allowed, UsageError)
        known = isinstance(kind, type) and issubclass(kind, allowed)
        found: type[errors.DpauditError] = kind if known else SamplerCrashError  # type: ignore[assignment]
        message = one_line(answer.get("message"), limit=_LONGEST_MESSAGE)
        return found(f"{message}{self._hint(message)}")


def _is_error(answer: Any) -> bool:
    return isinstance(answer, dict) and "error" in answer


class _Function(Worker):
    """A third-party function, written ``KIND:FILE:NAME``."""

    _kind, _form, _file, _name = "", "", "", ""

    def __init__(
        self,
        target: str,
        *,
        seed: str,
        dtype: str = "f64",
        text_mode: bool = False,
        call: str | None = None,
    ) -> None:
        """Read the target; the worker opens it. ``seed`` is not used: the function is closed.

        ``call`` says how to call it, e.g. ``f(value)``; see :mod:`dpaudit.samplers.calls`.

        Raises:
            UsageError: no name of a function, no such file, a ``dtype`` or ``text_mode``, or a
                ``call`` that is none.
        """
        del seed
        if call is not None:
            Call.parse(call)  # before anything starts
        name = f"{self._kind}:{target}"
        plain_f64(name, dtype, text_mode)
        place, _, member = target.rpartition(":")
        if not place or not member:
            from dpaudit.samplers.hints import offers  # not at the top: the worker needs none

            raise UsageError(
                f"target={name}: needs a {self._name}; write {self._kind}:{self._form}"
                f"{offers(place or member)}"
            )
        if self._is_path(place) and not Path(place).is_file():
            raise UsageError(
                f"{self._file}={place}: no such file (from {Path.cwd()}); check the path"
            )
        spec = {"kind": self._kind, "place": self._place(place), "member": member, "call": call}
        super().__init__(name, spec)
        self._target = target

    def _is_path(self, place: str) -> bool:
        return "/" in place

    def _place(self, place: str) -> str:
        return place

    def again(self) -> Self:
        """The same function for a process of its own."""
        return type(self)(self._target, seed="", call=self._spec["call"])


class PythonSampler(_Function):
    """``python:MODULE:FUNCTION``: ``f(n, d)``, ``f(size=(n, d))``, …, or what ``--call`` says.

    MODULE is dotted (the working directory is searched first) or the path of a ``.py`` file. The
    function's parameters tell how it is called (:mod:`dpaudit.samplers.signatures`), or ``call``
    does. It returns an array (n, d), or (n,) when d = 1; ``f(n)`` returns n values and
    ``f()`` one. ``f(size=(n, d))`` fits most of ``numpy.random``. One with a parameter ``value``
    returns value + noise.
    """

    _kind, _form, _file, _name = "python", "MODULE:FUNCTION", "module", "function"

    def _is_path(self, place: str) -> bool:
        return "/" in place or place.endswith(".py")

    def _needed_paths(self) -> list[str]:
        return files_of_module(str(self._spec["place"]))

    @property
    def takes_value(self) -> bool:
        """Whether the function has a parameter ``value``; False outside ``with``.

        It is known once the module is imported: before, this waits a few seconds for that, and then
        is False. Not claimed: that the function distinguishes values.

        Raises:
            UsageError: the function cannot be found or imported.
            SamplerCrashError: the process died.
        """
        process = self._process
        if process is not None and self._owed and not self._dead:
            if not process.ready(deadline=time.monotonic() + _START_PATIENCE):
                return False
            self.start(timeout=_START_PATIENCE)
        return bool(self._about.get("takes_value"))

    def draw_at(self, value: float, n: int, d: int, *, timeout: float) -> Array:
        """``n`` noise vectors (n, d) made for ``value``: what was returned, less ``value``.

        The difference carries the rounding of value + noise, as the release itself does.

        Raises:
            UsageError: the function takes no value, or ``value`` is not finite; otherwise as
                :meth:`draw`.
        """
        if not math.isfinite(value):
            raise UsageError(f"value={value}: noise is added to a finite number; choose one")
        self.start(timeout=timeout)
        if not self._about.get("takes_value"):
            raise UsageError(
                f"value={value}: {self.name} has no parameter `value`; write f(n, d, value)"
            )
        values = np.empty((n, d)) if n > 0 and d > 0 else np.empty(0)
        self._draw(values, n, d, timeout, value=value)
        return finite(values, self.name)


class LibrarySampler(_Function):
    """``library:./x.so:SYMBOL``: ``void f(double *out, size_t n, size_t d)``, or see ``--call``.

    Values are out[n][d]. ``call`` may say otherwise, e.g. ``f(1.0) -> double``
    (:class:`~.symbols.Symbol`). Values that it does not write and (near) writes past the end are
    detected; a segmentation fault ends the worker only.
    """

    _kind, _form, _file, _name = "library", "PATH:SYMBOL", "library", "symbol"

    def _place(self, place: str) -> str:
        return str(Path(place).resolve()) if Path(place).is_file() else place

    def _needed_paths(self) -> list[str]:
        path = str(self._spec["place"])
        return [path] if "/" in path else []

    def _hint(self, message: str) -> str:
        from dpaudit.samplers.hints import offers  # as above

        return offers(str(self._spec["place"])) if message.startswith("symbol=") else ""

    def _remedy(self) -> str:
        if self._spec["call"] is not None:
            return f"fix the {self.role}, or --call"
        return f"fix the {self.role} or, {c_hint(releases=self.role == 'mechanism')}"


class SourceSampler(Worker):
    """``NAME[:opt=value,…]``: a registered noise source, behind a mitigation or none, in a worker.

    Call i draws from ``KeyedStream.from_seed(seed).child("call", i)``, so the same seed and calls
    give the same numbers.
    """

    def __init__(
        self,
        text: str,
        *,
        seed: str,
        dtype: str = "f64",
        text_mode: bool = False,
        mitigation: str | None = None,
    ) -> None:
        """Look the names up; nothing is imported here.

        Raises:
            UnknownNameError: no such source or mitigation.
            UsageError: a broken option, or a ``dtype`` or ``text_mode``.
        """
        from dpaudit import registry  # not at the top: the worker imports this module too

        plain_f64(text, dtype, text_mode)
        registry.plugin("sources", Reference.parse(text).name)
        if mitigation is not None:
            registry.plugin("mitigations", Reference.parse(mitigation).name)
        spec = {"kind": "source", "place": text, "member": mitigation, "seed": seed}
        super().__init__(text, spec)
        self._given = (text, seed, mitigation)
        self._others = 0
        self._prepared: deque[SourceSampler] = deque()

    def _needed_paths(self) -> list[str]:
        return files_of_options(self._given[0], self._given[2])

    def _shared(self) -> Path | None:
        from dpaudit import registry

        source = registry.plugin("sources", Reference.parse(self._given[0]).name)
        return compiled_code(source.origin.distribution)

    def again(self) -> SourceSampler:
        """The same source for a process of its own, with a seed that follows from this one's.

        An honest source has no randomness but its stream, so with the same seed we would cause the
        same noise ourselves.
        """
        return self._prepared.popleft() if self._prepared else self._next()

    def prepare(self, others: int) -> None:
        """Start the processes of the next ``others`` calls of :meth:`again` now; inside ``with``.

        It saves the wait for each, and changes no number: a source's noise follows from its seed,
        not from when it started. Unused ones end with this sampler.
        """
        for _ in range(others):
            self._prepared.append(self._next().__enter__())

    def __exit__(self, *exc: object) -> None:
        while self._prepared:
            self._prepared.popleft().__exit__()
        super().__exit__(*exc)

    def _next(self) -> SourceSampler:
        text, seed, mitigation = self._given
        self._others += 1
        return SourceSampler(text, seed=f"{seed}/again/{self._others}", mitigation=mitigation)

    @property
    def dim(self) -> int | None:
        """The source's own dimension, asked once, inside ``with``; None before.

        Raises:
            UsageError: the source refuses its options.
            SamplerError: it died, or did not start within a minute.
        """
        dim = self._told("dim")
        return None if dim is None else int(dim)

    @property
    def claim(self) -> str | None:
        """What the source claims to be, asked as its dimension is; None behind a mitigation.

        Also None if its noise has no law apart from the value; :attr:`instead` has the audit then.

        Raises:
            UsageError, SamplerError: as for :attr:`dim`.
        """
        claim = self._told("claim")
        return None if claim is None else str(claim)

    @property
    def instead(self) -> str | None:
        """Options of ``dpaudit mechanism`` that audit a source without a law of noise, or None.

        Raises:
            UsageError, SamplerError: as for :attr:`dim`.
        """
        instead = self._told("instead")
        return None if instead is None else str(instead)

    def _told(self, what: str) -> Any:
        if self._owed and self._process is not None:
            self.start(timeout=_START_LIMIT)
        return self._about.get(what)
