"""The processes below one process: who they are, what they use, and how all of them are ended.

Everything is read from a /proc held open as a directory, so that nothing mounted over it later can
mislead. With ``root`` None it is the /proc of a namespace, and all processes in it but the first
are meant; otherwise those below the process ``root``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence

__all__ = ["end_below", "members", "over_limit"]

_PROC = "/proc"
_DEAD = (b"Z", b"X")
_PAUSE = 0.001
_SETTLE = 0.05  # seconds for killed processes to leave before the next search


def _read(proc: int, pid: int, name: str) -> bytes:
    """One file of a process; empty if it has gone.

    Raises:
        PermissionError: the process lives and may not be inspected.
    """
    try:
        file = os.open(f"{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    except (FileNotFoundError, ProcessLookupError):
        return b""
    try:
        return os.read(file, 1 << 14)
    except ProcessLookupError:
        return b""
    finally:
        os.close(file)


def _stat(proc: int, pid: int) -> tuple[bytes, int]:
    """State and parent of a process; as if dead if it has gone, or is hidden (``hidepid``)."""
    stat = b""
    with contextlib.suppress(PermissionError):
        stat = _read(proc, pid, "stat")
    state, parent, *_ = stat[stat.rfind(b")") + 1 :].split(maxsplit=2) or (b"Z", b"0")
    return state, int(parent)


def members(proc: int, root: int | None) -> list[int]:
    """Process numbers, as ``proc`` counts them; below a ``root`` zombies are left out."""
    pids = [int(name) for name in os.listdir(proc) if name.isdigit()]
    if root is None:
        return [pid for pid in pids if pid != 1]
    children: dict[int, list[int]] = {}
    dead = set()
    for pid in pids:
        state, parent = _stat(proc, pid)
        children.setdefault(parent, []).append(pid)
        if state in _DEAD:
            dead.add(pid)
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        todo += below
        found += [pid for pid in below if pid not in dead]
    return found


def _sum(proc: int, pid: int, name: str, *fields: bytes) -> int:
    """The sum of ``fields`` in a file of lines ``field: number``; missing ones count as 0."""
    total = 0
    for line in _read(proc, pid, name).splitlines():
        field, _, value = line.partition(b":")
        if field in fields:
            total += int(value.split()[0])
    return total


def over_limit(
    proc: int, pids: Sequence[int], limits: Mapping[str, int], *, disk: bool
) -> tuple[str, int] | None:
    """The first of ``processes``, ``memory``, ``written`` that ``pids`` exceed, and the amount.

    The limits are on their sum. ``disk`` counts what they wrote to file systems on disk. A process
    that hides its counters (it made itself undumpable) exceeds the limit ``unreadable``: a limit
    that cannot be checked counts as exceeded.
    """
    if len(pids) > limits["processes"]:
        return "processes", len(pids)
    counters: list[tuple[str, tuple[bytes, ...]]] = [("status", (b"RssAnon", b"RssShmem"))]
    if disk:
        counters.append(("io", (b"write_bytes",)))
    sums = {}
    for name, fields in counters:
        sums[name] = 0
        for pid in pids:
            try:
                sums[name] += _sum(proc, pid, name, *fields)
            except PermissionError:
                if _stat(proc, pid)[0] not in _DEAD:
                    return "unreadable", pid
    held = 1024 * sums["status"]
    # pages shared by forks were counted more than once; counting them once is slow
    if held > limits["memory"] and len(pids) > 1:
        with contextlib.suppress(PermissionError):  # then the larger number stands
            fields = (b"Pss_Anon", b"Pss_Shmem")
            held = 1024 * sum(_sum(proc, pid, "smaps_rollup", *fields) for pid in pids)
    if held > limits["memory"]:
        return "memory", held
    if sums.get("io", 0) > limits["written"]:
        return "written", sums["io"]
    return None


def end_below(root: int, *, patience: float) -> bool:
    """Stop, then kill, every process below the subreaper ``root``; whether none is left in time.

    ``patience`` is in seconds. A stopped process starts no others, so processes that fork faster
    than they can be killed are ended too. If ``root`` is this process, it waits for them as well.
    """
    deadline = time.monotonic() + patience
    proc = os.open(_PROC, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while (crowd := members(proc, root)) and time.monotonic() < deadline:
            stopped: set[int] = set()
            while (new := set(crowd) - stopped) and time.monotonic() < deadline:
                _signal(new, signal.SIGSTOP)
                stopped |= new
                crowd = members(proc, root)
            _signal(crowd, signal.SIGKILL)
            _settle(reap=root == os.getpid())
        return not crowd
    finally:
        os.close(proc)


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _settle(*, reap: bool) -> None:
    if not reap:
        time.sleep(_SETTLE)
        return
    end = time.monotonic() + _SETTLE
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(_PAUSE)
