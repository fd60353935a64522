"""A foreign program under a supervisor: limited, read under a deadline, killed with its tree."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dpaudit.errors import SamplerError, UsageError
from dpaudit.results.text import one_line
from dpaudit.targets.sandbox import policy, process_tree, view
from dpaudit.targets.sandbox.policy import DEFAULT, Limits, cpu_seconds

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Process"]

_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_KEPT = 4096  # bytes of standard error
_QUOTED = 200  # characters of it in a message
_PIPE = 1 << 20
_REPORT = 4096  # bytes of the supervisor's report that are read
_LONGEST_POLL = 3600.0
_PATIENCE = 3.5  # seconds for the supervisor to end its process tree, before this process does
_SOON = 1.0  # seconds to wait for what has ended
_LAST_PATIENCE = 5.0  # seconds for the supervisor itself to be gone
_APART = True  # False in tests: as on a kernel that refuses namespaces
_GIB = 1 << 30


class Process:
    """Runs ``argv`` (no shell) in the sandbox; :meth:`close` ends it and all that it started.

    The surrounding :func:`~dpaudit.targets.sandbox.policy.sandbox_policy` sets the level and
    records the level reached. If this process dies, however it dies, so does all that it started.
    Every wait has a deadline. This process becomes undumpable when it starts the first program:
    debuggers of the same user can no longer attach to it, and neither can the program. Not claimed:
    that a program held without namespaces which attacks its supervisor leaves nothing behind.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        talks: bool = False,
        limits: Limits = DEFAULT,
        seconds: float | None = None,
        needs: Sequence[str] = (),
        shared: Path | None = None,
    ) -> None:
        """Start; ``talks`` opens a pipe to the program's standard input, which is empty otherwise.

        ``seconds`` is the wall time that it may take, if known: it limits the CPU time. ``needs``
        are the files and folders that it must see: its code. ``shared`` is a folder for compiled
        code that it may write.

        Raises:
            UsageError: this system has no ``fcntl``, ``fork`` and ``poll`` (Windows).
        """
        if fcntl is None:
            raise UsageError(
                f"platform={sys.platform}: programs are run on Linux and macOS only; record their "
                "values and audit file:samples.npy, or serve them and audit http://HOST:PORT/PATH"
            )
        self._limits = limits
        self._policy = policy.current()
        self._popen = self._started(argv, seconds, needs, shared, talks=talks)
        assert self._popen.stdout  # noqa: S101 for mypy: a pipe
        assert self._popen.stderr  # noqa: S101 for mypy: a pipe
        self._out, self._err = self._popen.stdout.fileno(), self._popen.stderr.fileno()
        self._tail = b""
        self._end: tuple[int, str] | None = None
        os.set_blocking(self._err, False)
        os.set_blocking(self._report, False)
        if self._popen.stdin is not None:
            os.set_blocking(self._popen.stdin.fileno(), False)
        self._report_text = b""  # the supervisor's report so far
        self._noted = False
        self._ended = -1
        self._poll = select.poll()
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # only speed is lost
                fcntl.fcntl(self._out, fcntl.F_SETPIPE_SZ, _PIPE)
            with contextlib.suppress(OSError):  # an old kernel: the pipe's end mostly says the same
                self._ended = os.pidfd_open(self._popen.pid)
                self._poll.register(self._ended, select.POLLIN)
        self._poll.register(self._out, select.POLLIN)
        self._poll.register(self._err, select.POLLIN)

    def _started(
        self,
        argv: Sequence[str],
        seconds: float | None,
        needs: Sequence[str],
        shared: Path | None,
        *,
        talks: bool,
    ) -> subprocess.Popen[bytes]:
        """The supervisor, told what to start and within which limits."""
        bounds = {name: int(value) for name, value in dataclasses.asdict(self._limits).items()}
        if seconds is not None and math.isfinite(seconds):
            bounds["cpu"] = cpu_seconds(seconds)
        plan = view.plan(needs, self._policy.visible)
        self._report, report = os.pipe()
        configuration = {
            "parent": os.getpid(),
            "report": report,
            "limits": bounds,
            "level": self._policy.level,
            "apart": _APART,
            **dataclasses.asdict(plan),
            "shared": None if shared is None else str(shared),
            "scratch": tempfile.gettempdir(),
        }
        variables = view.environment(os.environ, self._policy.passed)
        if shared is not None:
            variables["NUMBA_CACHE_DIR"] = str(shared)
        _protect()
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", _SUPERVISOR, json.dumps(configuration), *argv],
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                pass_fds=(report,),
                env=variables,
            )
        finally:
            os.close(report)

    def send(self, line: bytes, *, deadline: float) -> None:
        """Write one line to the program; that it is dead shows in reading.

        Raises:
            TimeoutError: ``deadline`` (of ``time.monotonic``) passed before it took all of it.
        """
        assert self._popen.stdin  # noqa: S101 for mypy: started with talks=True
        fd, rest = self._popen.stdin.fileno(), memoryview(line + b"\n")
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        poll.register(self._err, select.POLLIN)
        with contextlib.suppress(BrokenPipeError):
            while rest:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                ready = dict(poll.poll(math.ceil(1000 * min(left, _LONGEST_POLL))))
                if self._err in ready and not self._listen():
                    poll.unregister(self._err)
                if fd in ready:
                    with contextlib.suppress(BlockingIOError):
                        rest = rest[os.write(fd, rest) :]

    def read(self, view: memoryview, *, deadline: float) -> int:
        """Fill ``view`` (bytes) from standard output; fewer bytes mean that the program ended.

        Raises:
            TimeoutError: ``deadline`` (of ``time.monotonic``) passed.
        """
        got = 0
        while got < len(view):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            ready = {fd for fd, _ in self._poll.poll(math.ceil(1000 * min(left, _LONGEST_POLL)))}
            if self._err in ready:
                self._listen()
            if self._out in ready:
                more = os.readv(self._out, [view[got:]])
                if not more:
                    break
                got += more
            elif self._ended in ready:  # its pipe is empty, though a child may hold it open
                break
        return got

    def ready(self, *, deadline: float) -> bool:
        """Whether standard output has something to read (or has ended) before ``deadline``."""
        while (left := deadline - time.monotonic()) > 0:
            ready = {fd for fd, _ in self._poll.poll(math.ceil(1000 * min(left, _LONGEST_POLL)))}
            if self._err in ready:
                self._listen()
            if ready & {self._out, self._ended}:
                return True
        return False

    def _listen(self) -> bool:
        """Read what is on standard error without waiting; False if there was nothing."""
        try:
            new = os.read(self._err, 1 << 16)
        except BlockingIOError:
            return False
        if not new:
            with contextlib.suppress(KeyError):
                self._poll.unregister(self._err)
        self._tail = (self._tail + new)[-_KEPT:]
        return bool(new)

    def ending(self, *, deadline: float) -> tuple[int, str]:
        """Wait for the program to end, then close; its exit status (minus the signal) and why.

        Raises:
            TimeoutError: it did not end before ``deadline``.
            SamplerError: it was not started, because the required sandbox is not available here.
        """
        if self._end is None:
            if not self._wait(deadline - time.monotonic()):
                raise TimeoutError
            self.close()
            lines = self._report_text.decode(errors="replace").splitlines()
            report = lines[1].split() if len(lines) > 1 else []
            try:
                code, how = self._fate(*report)
            except (TypeError, ValueError):  # the supervisor was killed before its second line
                code, how = -int(signal.SIGKILL), "the process that held it was killed"
            tail = self._tail.decode(errors="replace").strip().splitlines()
            last = one_line(tail[-1], limit=_QUOTED) if tail else ""
            self._end = code, how + (f"; stderr ends with {last!r}" if last else "")
        self._note_level()
        return self._end

    def _wait(self, seconds: float) -> bool:
        """Whether the supervisor ends within ``seconds``.

        By its descriptor, if there is one: ``Popen.wait`` polls every 50 ms only.
        """
        if self._ended >= 0:
            ended = select.poll()
            ended.register(self._ended, select.POLLIN)
            until = time.monotonic() + seconds
            left = seconds
            while not ended.poll(math.ceil(1000 * max(0.0, min(left, _LONGEST_POLL)))):
                left = until - time.monotonic()
                if left <= 0:
                    return False
        try:
            self._popen.wait(_SOON if self._ended >= 0 else max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        return True

    def note_level(self) -> None:
        """Note in the policy the level that the supervisor reports before the program starts.

        Raises:
            SamplerError: it was not started, because the required sandbox is not available here.
        """
        if not self._noted and self._popen.stdout is not None and not self._popen.stdout.closed:
            self._read_report()
        self._note_level()

    def _note_level(self) -> None:
        if self._noted or b"\n" not in self._report_text:
            return
        level = one_line(self._report_text.partition(b"\n")[0].decode(errors="replace"), limit=500)
        refused, _, reached = level.partition("refused: ")
        if reached and not refused:
            raise SamplerError(
                f"sandbox=require: only «{reached}» is available here, and nothing was started; "
                "use --sandbox full to audit with that, on code that you trust enough"
            )
        self._noted = True
        self._policy.note(level)

    def _read_report(self) -> None:
        """Read what the supervisor has reported, without waiting."""
        with contextlib.suppress(BlockingIOError):
            while len(self._report_text) < _REPORT and (new := os.read(self._report, _REPORT)):
                self._report_text += new

    def _fate(
        self, status: str, peak: str, cpu: str, blocks: str, passed: str, amount: str
    ) -> tuple[int, str]:
        """Exit status and reason, from the supervisor's line.

        It has the status, peak in KiB, CPU seconds, blocks written, limit passed, and amount.
        """
        del blocks
        if killed := self._killed(passed, amount):
            return -9, killed
        if status == "-":
            return -9, "it, or the process that held it, was killed"
        code = int(status)
        if code == -signal.SIGXFSZ:
            most = f"{self._limits.file_size >> 20} MiB"
            return code, f"it wrote a file longer than the limit of {most} (signal SIGXFSZ)"
        used = f"after {float(cpu):.2g} s of CPU time, {int(peak) >> 10} MiB at its peak"
        if code == -signal.SIGXCPU:
            late = "it ran longer than its time limit allows on all cores"
            return code, f"{late} (signal SIGXCPU {used})"
        if code >= 0:
            return code, f"its process ended with exit status {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:  # a real-time signal has no name
            name = str(-code)
        return code, f"its process ended with signal {name} {used}"

    def _killed(self, passed: str, amount: str) -> str:
        """Why the supervisor killed it, by the limit passed; empty if it passed none."""
        limits = self._limits
        match passed:
            case "unreadable":
                return "it hid its counters, so that no limit could be checked, and was killed"
            case "files":
                return f"it had {amount} files in its scratch and was killed"
            case "memory":
                size = int(amount)
                usage = (
                    f"{size / _GIB:.3g} GiB of memory" if size else "more memory than is allowed"
                )
                return (
                    f"its processes held {usage} and were killed, above the limit of "
                    f"{limits.memory / _GIB:g} GiB"
                )
            case "written":
                return (
                    f"it wrote {int(amount) / _GIB:.3g} GiB and was killed, above the limit of "
                    f"{limits.written / _GIB:g} GiB"
                )
            case "processes":
                return (
                    f"it had {amount} processes and all were killed, above the limit of "
                    f"{limits.processes}"
                )
        return ""

    def close(self) -> None:
        """Kill all that the program started and close the pipes; closing twice is harmless."""
        if self._popen.stdout is None or self._popen.stdout.closed:
            return
        self._popen.terminate()  # the supervisor then ends its process tree, itself last
        if not self._wait(_PATIENCE):  # it is stopped, or cannot keep up
            if sys.platform == "linux":
                process_tree.end_below(self._popen.pid, patience=1.0)
            # all gone; macOS says so with PermissionError
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            # stuck in the kernel; it is still killed
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(_LAST_PATIENCE)
        if sys.platform == "linux":
            process_tree.Group.forget(self._popen.pid)
        self._read_report()
        with contextlib.suppress(SamplerError):  # ending() raises it
            self._note_level()
        for _ in range(64):  # bounded: something may still be writing
            if not self._listen():
                break
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        os.close(self._report)
        if self._ended >= 0:
            os.close(self._ended)


def _protect() -> None:
    """Keep this process' memory from others of its user (Linux)."""
    if sys.platform == "linux":
        from dpaudit.targets.sandbox.confinement import undumpable

        undumpable()
