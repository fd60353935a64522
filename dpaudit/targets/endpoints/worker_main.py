"""The worker process, ``python -P -m dpaudit.targets.endpoints.worker_main NAME``.

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
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dpaudit.errors import DpauditError, SamplerCrashError, SamplerOutputError, UsageError
from dpaudit.results.text import error_text
from dpaudit.targets.check import MOST, RELEASES, noise_array, numbers, raised_at, release_array
from dpaudit.targets.endpoints.callees import Callee, open_callee
from dpaudit.targets.endpoints.channel import HEADER
from dpaudit.targets.plain import packed, unpacked_dataset
from dpaudit.targets.sandbox.policy import cpu_seconds

_MAGIC = b"dpa1"
_F64 = np.dtype(np.float64)
_SPARE, _SLACK = 1.1, 5  # of the CPU time that was used, and seconds

Array = npt.NDArray[np.float64]
Answer = Array | bytes | dict[str, Any]


def _write(fd: int, *parts: bytes | memoryview) -> None:
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(fd, view) :]


def _write_json(fd: int, answer: Mapping[str, Any]) -> None:
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
    """Answers the auditor's questions by what it calls."""

    def __init__(self, callee: Callee, spec: Mapping[str, Any]) -> None:
        self._callee = callee
        self._spec = spec
        self._who = f"{spec['role']} {spec['name']}"
        self._dataset: tuple[str, Any] = "", None

    def answer(self, question: Mapping[str, Any]) -> Answer:
        """Numbers of any shape, packed releases, or an answer in JSON.

        Raises:
            DpauditError: our own, or what describes what the target raised or returned.
        """
        if not question:
            names = ("dim", "claim", "instead", "takes_value")
            return {name: getattr(self._callee, name) for name in names}
        n, d, call = question["n"], question["d"], question["call"]
        _allow(question["seconds"])
        if "dataset" in question:
            return self._release_any(question["dataset"], n)
        if "release" in question:
            result = np.frombuffer(base64.b64decode(question["release"])).copy()
            calls = question.get("calls")
            return self._release(result, n) if calls is None else self._timed(result, calls)
        if "calls" in question:
            return self._calls(question["calls"], n, d, call)
        if "fork_seconds" in question:
            return self._forked(n, d, call, seconds=question["fork_seconds"])
        value = float(question.get("value", 0.0))
        values = self._noise(n, d, call, value)
        return values - value if "value" in question else values

    def _noise(self, n: int, d: int, call: int, value: float = 0.0) -> Array:
        with self._reported(f"call n={n}, d={d}"):
            values = self._callee.noise(n, d, call, value)
        return noise_array(values, n, d, self._spec["name"])

    @contextlib.contextmanager
    def _reported(self, call: str) -> Iterator[None]:
        """Describe what the target raises in this block, but for errors that are our own."""
        try:
            yield
        except BaseException as error:  # foreign code may raise anything
            if isinstance(error, DpauditError if self._callee.ours else SamplerOutputError):
                raise
            raise _raised(error, self._spec, call, called=self._callee.called) from None

    def _release(self, value: Array, n: int) -> Array:
        """``n`` releases, shape (n, k)."""
        with self._reported(f"call n={n}, d={len(value)}"):
            releases = self._no_text(self._callee.release(value, n))
            array = release_array(releases, n, len(value), self._spec["name"])
        return self._few(np.asarray(array, dtype=np.float64), n, array.shape[1])

    def _timed(self, value: Array, n: int) -> Array:
        """``n`` releases in as many calls, and each call's seconds as a last column."""
        clock, releases, durations = time.perf_counter_ns, [], np.empty(n, dtype=np.int64)
        with self._reported(f"call n={n}, d={len(value)}"):
            once = self._callee.once(value)
            for i in range(n):
                started = clock()
                one = once()
                durations[i] = clock() - started
                releases.append(one)
            who, call = f"{self._who} returned", RELEASES.format(1, len(value))
            rows = [numbers(self._no_text(one), who, call).ravel() for one in releases]
            lengths = {len(row) for row in rows}
            if len(lengths) != 1 or not rows[0].size:
                raise SamplerOutputError(f"{who} shape {tuple(sorted(lengths))} {call}")
            both = np.column_stack([np.array(rows, dtype=np.float64), durations * 1e-9])
        return self._few(both, n, both.shape[1] - 1)

    def _few(self, releases: Array, n: int, width: int) -> Array:
        if not 0 < width <= MOST // n:
            raise SamplerOutputError(
                f"{self._who} released n={n} rows of {width} numbers; "
                f"1 to {MOST} in all are accepted, ask for fewer"
            )
        return releases

    def _no_text(self, releases: Any) -> Any:
        if isinstance(releases, (str, bytes)):  # whatever was drawn, it will never be numbers
            raise UsageError(
                f"{self._who} returned type={type(releases).__name__}, which is not "
                "numbers; return an array of numbers of shape (n,) or (n, k)"
            )
        return releases

    def _release_any(self, dataset: str, n: int) -> bytes:
        """Releases of ``dataset`` (base64 of its packed form), packed."""
        with self._reported(f"release n={n}"):
            if self._dataset[0] != dataset:
                self._dataset = dataset, unpacked_dataset(base64.b64decode(dataset))
            packed_releases = packed(self._callee.release_any(self._dataset[1], n))
        if len(packed_releases) > 8 * MOST:
            size = len(packed_releases)
            raise SamplerOutputError(
                f"{self._who} released {size} bytes (n={n}); ask for fewer releases"
            )
        return packed_releases

    def _calls(self, calls: int, n: int, d: int, first: int) -> Array:
        """``calls`` answers in turn, then the seconds that each call took."""
        answer = np.empty(calls * n * d + calls)
        values, seconds = answer[: calls * n * d].reshape(calls, n, d), answer[calls * n * d :]
        draw, clock, shape = self._callee.noise, time.perf_counter_ns, (n, d)
        with self._reported(f"call n={n}, d={d}"):
            for i in range(calls):
                started = clock()
                block = draw(n, d, first + i, 0.0)
                ended = clock()
                plain = type(block) is np.ndarray and block.dtype is _F64 and block.shape == shape
                values[i] = block if plain else noise_array(block, n, d, self._spec["name"])
                seconds[i] = (ended - started) * 1e-9
        return answer

    def _forked(self, n: int, d: int, call: int, *, seconds: float) -> Answer:
        """The child's values, then the parent's; none if the child gave none within ``seconds``."""
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(source)
                _write(sink, self._noise(n, d, call).data.cast("B"))
            finally:
                os._exit(0)
        os.close(sink)
        values = np.empty((2, n, d))
        try:
            whole = _fill(values[0].data.cast("B"), source, time.monotonic() + seconds)
        finally:
            os.close(source)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # the target waits for children itself
                os.waitpid(child, 0)
        if not whole:
            return {"forked": False}
        values[1] = self._noise(n, d, call + 1)
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


def _open(spec: Mapping[str, Any]) -> Dispatcher | DpauditError:
    sys.path.insert(0, os.getcwd())
    try:
        return Dispatcher(open_callee(spec), spec)
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
    dispatcher = _open(spec)
    for line in questions:
        try:
            if isinstance(dispatcher, DpauditError):
                raise dispatcher
            answer = dispatcher.answer(json.loads(line))
        except DpauditError as error:
            _write_json(answers, {"error": type(error).__name__, "message": str(error)})
            continue
        except BaseException as error:  # noqa: BLE001 an answer's own __array__ is foreign code
            message = str(_raised(error, spec, ""))
            _write_json(answers, {"error": SamplerCrashError.__name__, "message": message})
            continue
        if isinstance(answer, dict):
            _write_json(answers, answer)
        else:
            body = answer if isinstance(answer, bytes) else np.ascontiguousarray(answer).data
            view = memoryview(body).cast("B")
            _write(answers, HEADER.pack(_MAGIC, 0, len(view)), view)
        del answer
    os._exit(0)  # not through foreign exit handlers


if __name__ == "__main__":
    _main()
