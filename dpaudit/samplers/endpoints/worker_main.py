"""The worker process, ``python -P -m dpaudit.samplers.endpoints.worker_main NAME``.

Foreign code runs here and nowhere else. Standard input brings one line of JSON that says what to
call, then one line per question; answers leave on a private copy of standard output. The foreign
code gets an empty standard input, and its standard output goes to standard error.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import math
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dpaudit.errors import DpauditError, SamplerCrashError, SamplerOutputError, UsageError
from dpaudit.results.text import error_text
from dpaudit.samplers.check import answered, raised_at
from dpaudit.samplers.endpoints.targets import OPENERS, Target
from dpaudit.samplers.endpoints.worker import HEADER
from dpaudit.samplers.sandbox.limits import cpu_seconds

_MAGIC = b"dpa1"
_F64 = np.dtype(np.float64)
_SPARE, _SLACK = 1.1, 5  # of the CPU time that was used, and seconds

Array = npt.NDArray[np.float64]
Answer = Array | dict[str, Any]


def _write(fd: int, *parts: bytes | memoryview) -> None:
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(fd, view) :]


def _say(fd: int, answer: Mapping[str, Any]) -> None:
    body = json.dumps(answer).encode()
    _write(fd, HEADER.pack(_MAGIC, 1, len(body)), body)


def _raised(
    error: BaseException, spec: Mapping[str, Any], call: str, *, called: str = ""
) -> DpauditError:
    """What foreign code raised and where, as one of our errors, with the limit it hit, if clear.

    ``called`` is how a function was called, which a ``TypeError`` may be about.
    """
    limit = ""
    if isinstance(error, MemoryError):
        most = resource.getrlimit(resource.RLIMIT_DATA)[0]
        limit = f"; one process may reserve {most / 2**30:g} GiB"
    elif isinstance(error, OSError) and error.errno == errno.EFBIG:
        limit = f"; a file may have {resource.getrlimit(resource.RLIMIT_FSIZE)[0] >> 20} MiB"
    at = "; ".join(filter(None, (raised_at(error), call)))
    how = isinstance(error, TypeError) and called
    remedy = f", or say how to call it with --call (it was {called})" if how else ""
    return SamplerCrashError(
        f"{spec['role']} {spec['name']} raised {error_text(error)}{f' ({at})' if at else ''}"
        f"{limit}; fix the {spec['role']}{remedy}"
    )


class Dispatcher:
    """Answers the auditor's questions about a target."""

    def __init__(self, target: Target, spec: Mapping[str, Any]) -> None:
        self._target = target
        self._spec = spec
        self._name: str = spec["name"]

    def answer(self, question: Mapping[str, Any]) -> Answer:
        """Values of any shape, or an answer in JSON.

        Raises:
            DpauditError: our own, or what describes what the target raised or returned.
        """
        if not question:
            target = self._target
            takes_value = target.draw_at is not None
            about = {"dim": target.dim, "claim": target.claim, "instead": target.instead}
            return {**about, "takes_value": takes_value}
        n, d, call = question["n"], question["d"], question["call"]
        _allow(question["seconds"])
        if "dataset" in question:
            return {"bytes": self._release_any(question["dataset"], n)}
        if "release" in question:
            timed = question.get("timed", False)
            return {"width": self._release(question["release"], n, timed=timed)}
        if "calls" in question:
            return self._calls(question["calls"], n, d, call)
        if "fork_seconds" in question:
            return self._forked(n, d, call, seconds=question["fork_seconds"])
        if "value" in question:
            value, draw_at = float(question["value"]), self._target.draw_at
            assert draw_at is not None  # noqa: S101 the auditor asks only targets that take one
            return self._call(lambda n, d, call: draw_at(value, n, d, call), n, d, call) - value
        return self._call(self._target.draw, n, d, call)

    def _call(self, draw: Callable[[int, int, int], Any], n: int, d: int, call: int) -> Array:
        try:
            given = draw(n, d, call)
        except BaseException as error:  # noqa: BLE001 foreign code may raise anything
            raise self._words(error, n, d) from None
        return answered(given, n, d, self._name)

    def _words(self, error: BaseException, n: int, d: int) -> DpauditError:
        if isinstance(error, DpauditError if self._target.ours else SamplerOutputError):
            return error
        return _raised(error, self._spec, f"call n={n}, d={d}", called=self._target.called)

    def _release(self, value: str, n: int, *, timed: bool) -> int:
        """Release ``value`` (base64 of float64) for the next draw; the length of a release."""
        told = np.frombuffer(base64.b64decode(value)).copy()
        release = self._target.release_timed if timed else self._target.release
        if release is None:
            kind = "timed releases" if timed else "releases"
            raise UsageError(f"mechanism {self._name}: has no {kind}; leave them out")
        try:
            return release(told, n)
        except BaseException as error:  # noqa: BLE001 as above
            raise self._words(error, n, len(told)) from None

    def _release_any(self, dataset: str, n: int) -> int:
        """Release ``dataset`` (base64 of its packed form) for the next draw; the bytes of all."""
        release_any = self._target.release_any
        if release_any is None:
            raise UsageError(f"mechanism {self._name}: takes no data set; give it query results")
        try:
            return release_any(base64.b64decode(dataset), n)
        except BaseException as error:
            if isinstance(error, DpauditError):
                raise
            asked = f"release n={n}"
            raise _raised(error, self._spec, asked, called=self._target.called) from None

    def _calls(self, calls: int, n: int, d: int, first: int) -> Array:
        """``calls`` answers in turn, then the seconds that each call took."""
        answer = np.empty(calls * n * d + calls)
        values, seconds = answer[: calls * n * d].reshape(calls, n, d), answer[calls * n * d :]
        draw, clock, shape = self._target.draw, time.perf_counter_ns, (n, d)
        for i in range(calls):
            started = clock()
            try:
                given = draw(n, d, first + i)
            except BaseException as error:  # noqa: BLE001 as above
                raise self._words(error, n, d) from None
            ended = clock()
            plain = type(given) is np.ndarray and given.dtype is _F64 and given.shape == shape
            values[i] = given if plain else answered(given, n, d, self._name)
            seconds[i] = (ended - started) * 1e-9
        return answer

    def _forked(self, n: int, d: int, call: int, *, seconds: float) -> Answer:
        """The child's values, then the parent's; none if the child gave none within ``seconds``."""
        hear, say = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(hear)
                _write(say, self._call(self._target.draw, n, d, call).data.cast("B"))
            finally:
                os._exit(0)
        os.close(say)
        values = np.empty((2, n, d))
        try:
            whole = _fill(values[0].data.cast("B"), hear, time.monotonic() + seconds)
        finally:
            os.close(hear)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # the target waits for children itself
                os.waitpid(child, 0)
        if not whole:
            return {"forked": False}
        values[1] = self._call(self._target.draw, n, d, call + 1)
        return values


def _fill(view: memoryview, fd: int, deadline: float) -> bool:
    got = 0
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while got < len(view) and (left := deadline - time.monotonic()) > 0:
        if poll.poll(math.ceil(1000 * left)):
            more = os.readv(fd, [view[got:]])
            if not more:
                break
            got += more
    return got == len(view)


def _allow(seconds: float) -> None:
    """Limit the CPU time of one question, for a target that runs on after the auditor gave up."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if math.isfinite(seconds):
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = used.ru_utime + used.ru_stime
        # spare: the kernel's own count may run ahead of this one
        soft = math.ceil(_SPARE * spent) + cpu_seconds(seconds) + _SLACK
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def open_target(spec: Mapping[str, Any]) -> Target:
    """Import or load what the specification names.

    Raises:
        UsageError: it does not exist, or cannot be imported.
    """
    sys.path.insert(0, os.getcwd())
    kind = spec["kind"]
    if kind in OPENERS:
        return OPENERS[kind](spec)
    from dpaudit.samplers.endpoints import mechanism_targets  # a sampler starts without it

    openers = {"adapter": mechanism_targets.adapter, "datasets": mechanism_targets.on_datasets}
    return openers.get(kind, mechanism_targets.whole_mechanism)(spec)


def _open(spec: Mapping[str, Any]) -> Dispatcher | DpauditError:
    try:
        return Dispatcher(open_target(spec), spec)
    except DpauditError as error:
        return error
    except BaseException as error:  # noqa: BLE001 foreign code may raise anything
        return _raised(error, spec, "while it was opened")


def _main() -> NoReturn:
    questions = os.fdopen(os.dup(0), "rb")
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    del sys.argv[1:]  # a module that reads its command line finds none
    spec = json.loads(questions.readline())
    asked = _open(spec)
    for line in questions:
        try:
            if isinstance(asked, DpauditError):
                raise asked
            answer = asked.answer(json.loads(line))
        except DpauditError as error:
            _say(answers, {"error": type(error).__name__, "message": str(error)})
            continue
        except BaseException as error:  # noqa: BLE001 an answer's own __array__ is foreign code
            words = str(_raised(error, spec, ""))
            _say(answers, {"error": SamplerCrashError.__name__, "message": words})
            continue
        if isinstance(answer, dict):
            _say(answers, answer)
        else:
            values = np.ascontiguousarray(answer).data.cast("B")
            _write(answers, HEADER.pack(_MAGIC, 0, len(values)), values)
        del answer
    os._exit(0)  # not through foreign exit handlers


if __name__ == "__main__":
    _main()
