"""A foreign program on a leash: started within limits, read under a deadline, and killed with all it started."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dpaudit.samplers import family
from dpaudit.samplers.limits import DEFAULT, Limits, cpu_seconds

__all__ = ["Process"]

_LEASH = str(Path(__file__).with_name("leash.py"))
_KEPT = 4096  # bytes of standard error
_QUOTED = 200  # characters of it in a message
_PIPE = 1 << 20
_LONGEST_POLL = 3600.0
_PATIENCE = 3.5  # seconds for the leash to end its family, before it is done from here
_GIB = 1 << 30
_SCRUBBED = "DPAUDIT_"


class Process:
    """Runs ``argv`` (no shell) within ``limits`` until closed; nothing that it started is left after :meth:`close`.

    If this process dies, however it dies, so does all that it started. Not claimed: that a program without namespaces
    around it (see :mod:`~dpaudit.samplers.leash`) which hunts for its leash leaves nothing. Environment variables that
    begin with ``DPAUDIT_`` are not passed on; ``DPAUDIT_NAMESPACES=0`` makes do without namespaces, for a sampler that
    needs the network, or a kernel where they get in the way.
    """

    def __init__(
        self, argv: Sequence[str], *, talks: bool = False, limits: Limits = DEFAULT, seconds: float | None = None
    ) -> None:
        """Start; ``talks`` opens a pipe to the program's standard input, which is empty otherwise.

        ``seconds`` is the wall time that it may take, if it is known: its CPU time is limited by it.
        """
        self._limits = limits
        bounds = {name: int(value) for name, value in dataclasses.asdict(limits).items()}
        if seconds is not None and math.isfinite(seconds):
            bounds["cpu"] = cpu_seconds(seconds)
        self._report, report = os.pipe()
        try:
            self._popen = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", _LEASH, str(os.getpid()), str(report)),
                    ",".join(f"{name}={value}" for name, value in bounds.items()),
                    str(int(os.environ.get("DPAUDIT_NAMESPACES") != "0")),
                    *argv,
                ],
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                pass_fds=(report,),
                env={name: value for name, value in os.environ.items() if not name.startswith(_SCRUBBED)},
            )
        finally:
            os.close(report)
        assert self._popen.stdout  # noqa: S101 for mypy: a pipe
        assert self._popen.stderr  # noqa: S101 for mypy: a pipe
        self._out, self._err = self._popen.stdout.fileno(), self._popen.stderr.fileno()
        self._tail = b""
        self._end: tuple[int, str] | None = None
        os.set_blocking(self._err, False)
        self._ended = -1
        self._poll = select.poll()
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # only speed is lost
                fcntl.fcntl(self._out, fcntl.F_SETPIPE_SZ, _PIPE)
            with contextlib.suppress(OSError):  # an old kernel: the end of the pipe says the same, mostly
                self._ended = os.pidfd_open(self._popen.pid)
                self._poll.register(self._ended, select.POLLIN)
        self._poll.register(self._out, select.POLLIN)
        self._poll.register(self._err, select.POLLIN)

    def send(self, line: bytes) -> None:
        """Write one line (shorter than a pipe holds) to the program; a dead program is found out by reading."""
        assert self._popen.stdin  # noqa: S101 for mypy: started with talks=True
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.write(line + b"\n")

    def read(self, view: memoryview, *, deadline: float) -> int:
        """Fill ``view`` (bytes) from the program's standard output; fewer bytes than that mean that it ended.

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
            elif self._ended in ready:  # ended, and its pipe is empty, though a child of it may hold the pipe open
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
        """Take what is on standard error, never waiting; False if there was nothing."""
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
        """Wait for the program to end, then close: its exit status (minus the signal) and the same in words.

        Raises:
            TimeoutError: it did not end before ``deadline``.
        """
        if self._end is None:
            try:
                self._popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise TimeoutError from None
            said = os.read(self._report, 200).decode().split()
            self.close()
            code, how = self._fate(*said) if said else (-int(signal.SIGKILL), "the process that held it was killed")
            words = self._tail.decode(errors="replace").split("\n")
            last = next((" ".join(line.split()) for line in reversed(words) if line.strip()), "")
            last = "".join(c if c.isprintable() else "?" for c in last)[:_QUOTED]
            self._end = code, how + (f"; its last words: {last!r}" if last else "")
        return self._end

    def _fate(self, status: str, peak: str, cpu: str, passed: str, amount: str) -> tuple[int, str]:
        """From the leash's line: status, peak in KiB, CPU seconds, the limit that was passed, and by how much."""
        limits = self._limits
        if passed == "memory":
            size = f"{int(amount) / _GIB:.3g} GiB"
            return (
                -9,
                f"its processes held {size} of memory and were killed, above the limit of {limits.memory / _GIB:g} GiB",
            )
        if passed == "written":
            size = f"{int(amount) / _GIB:.3g} GiB"
            return -9, f"it wrote {size} to disk and was killed, above the limit of {limits.written / _GIB:g} GiB"
        if passed == "processes":
            return -9, f"it had {amount} processes and all were killed, above the limit of {limits.processes}"
        if status == "-":
            return -9, "it, or the process that held it, was killed"
        code = int(status)
        if code == -signal.SIGXFSZ:
            return code, f"it wrote a file longer than the limit of {limits.file_size >> 20} MiB (signal SIGXFSZ)"
        used = f"after {float(cpu):.2g} s of CPU time, {int(peak) >> 10} MiB at its peak"
        if code == -signal.SIGXCPU:
            return code, f"it ran longer than its time limit allows on all cores (signal SIGXCPU {used})"
        if code >= 0:
            return code, f"its process ended with exit status {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:  # a real-time signal has no name
            name = str(-code)
        return code, f"its process ended with signal {name} {used}"

    def close(self) -> None:
        """Kill all that the program started and let go of the pipes; closing twice is harmless."""
        if self._popen.stdout is None or self._popen.stdout.closed:
            return
        self._popen.terminate()  # the leash then ends its family, itself last
        try:
            self._popen.wait(_PATIENCE)
        except subprocess.TimeoutExpired:  # it is stopped, or cannot keep up
            if sys.platform == "linux":
                family.end_below(self._popen.pid, patience=1.0)
            with contextlib.suppress(ProcessLookupError, PermissionError):  # all gone; macOS says so with the latter
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
        for _ in range(64):  # bounded: somebody may still be writing
            if not self._listen():
                break
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        os.close(self._report)
        if self._ended >= 0:
            os.close(self._ended)
