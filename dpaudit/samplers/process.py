"""A foreign program in its own process group: started, read under a deadline, and killed with all its children."""

from __future__ import annotations

import contextlib
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

__all__ = ["Process"]

_LEASH = str(Path(__file__).with_name("leash.py"))
_KEPT = 4096  # bytes of standard error
_QUOTED = 200  # characters of it in a message
_PIPE = 1 << 20
_LONGEST_POLL = 3600.0


class Process:
    """Runs ``argv`` (no shell) until closed; nothing of its process group is left after :meth:`close`.

    If this process dies, however it dies, so does the group. Not claimed: that a program which leaves its group
    (``setsid``) is caught.
    """

    def __init__(self, argv: Sequence[str], *, talks: bool = False) -> None:
        """Start; ``talks`` opens a pipe to the program's standard input, which is empty otherwise."""
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", _LEASH, str(os.getpid()), *argv],
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._popen.stdout  # noqa: S101 for mypy: a pipe
        assert self._popen.stderr  # noqa: S101 for mypy: a pipe
        self._out, self._err = self._popen.stdout.fileno(), self._popen.stderr.fileno()
        self._tail = b""
        self._code: int | None = None
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
        if self._code is None:
            try:
                self._code = self._popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise TimeoutError from None
        self.close()
        how = f"exit status {self._code}"
        if self._code < 0:
            with contextlib.suppress(ValueError):  # a real-time signal has no name
                how = signal.Signals(-self._code).name
            how = f"signal {how.removeprefix('exit status -')}"
        words = self._tail.decode(errors="replace").split("\n")
        last = next((" ".join(line.split()) for line in reversed(words) if line.strip()), "")
        last = "".join(c if c.isprintable() else "?" for c in last)[:_QUOTED]
        return self._code, f"its process ended with {how}" + (f"; its last words: {last!r}" if last else "")

    def close(self) -> None:
        """Kill the whole group and let go of the pipes; closing twice is harmless."""
        if self._popen.stdout is None or self._popen.stdout.closed:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):  # all gone; macOS says so with the latter
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        for _ in range(64):  # bounded: somebody who left the group may still be writing
            if not self._listen():
                break
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        if self._ended >= 0:
            os.close(self._ended)
