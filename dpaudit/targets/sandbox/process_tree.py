"""The processes below one process: who they are, what they use, and how all of them are ended.

Their limits are checked here; where one is available, a control group (version 2) also has the
kernel keep them. Its source: the kernel's ``admin-guide/cgroup-v2``. Not claimed: that a group is
available; the level that a result reports does not depend on it.

Everything of processes is read from a /proc held open as a directory, so that nothing mounted over
it later can mislead. With ``root`` None it is the /proc of a namespace, and all processes in it but
the first are meant; otherwise those below the process ``root``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

__all__ = ["Group", "end_below", "members", "over_limit"]

_PROC = "/proc"
_DEAD = (b"Z", b"X")
_PAUSE = 0.001
_SETTLE = 0.05  # seconds for killed processes to leave before the next search
_NAME = "dpaudit-"  # and the supervisor's process number
_GROUP_PATIENCE = 1.0  # seconds for killed processes to leave
_GROUP_PAUSE = 0.005


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
    pids_below, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        todo += below
        pids_below += [pid for pid in below if pid not in dead]
    return pids_below


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
    memory = 1024 * sums["status"]
    # pages shared by forks were counted more than once; counting them once is slow
    if memory > limits["memory"] and len(pids) > 1:
        with contextlib.suppress(PermissionError):  # then the larger number stands
            fields = (b"Pss_Anon", b"Pss_Shmem")
            memory = 1024 * sum(_sum(proc, pid, "smaps_rollup", *fields) for pid in pids)
    if memory > limits["memory"]:
        return "memory", memory
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


class Group:
    """A control group for one foreign program, made for one supervisor; it surely ends all in it.

    It is made below the auditor's own group, if that is allowed (as root, or in a delegated group).
    Limits on memory and processes need their controllers; without these the group still ends all
    processes at once.
    """

    def __init__(self, folder: Path, limits: Mapping[str, int]) -> None:
        """Make ``folder``, a directory of a mounted hierarchy; ``limits`` are those of ``Limits``.

        Raises:
            OSError: it cannot be made.
        """
        self.folder = folder
        folder.mkdir()
        bounds = {
            "memory.max": limits["memory"] + limits["written"],  # what is in the scratch is memory
            "memory.swap.max": 0,
            "memory.oom.group": 1,
            "pids.max": limits["tasks"],
        }
        for name, value in bounds.items():
            with contextlib.suppress(OSError):  # no such controller: the supervisor still checks
                _write(folder / name, str(value))

    @classmethod
    def below_ours(
        cls, limits: Mapping[str, int], *, to_limit: bool = False, proc: str = "/proc/self"
    ) -> Group | None:
        """A group below this process' own; None without a version-2 hierarchy, or permission.

        With ``to_limit`` also None if it would limit nothing, for lack of controllers: entering a
        group takes some 15 ms. Groups of killed supervisors are removed first.
        """
        try:
            place = _ours(proc)
            if to_limit:
                offered = (place / "cgroup.subtree_control").read_text(encoding="ascii").split()
                if not {"memory", "pids"} & set(offered):
                    return None
            for folder in place.glob(f"{_NAME}*"):
                if not os.path.exists(f"/proc/{folder.name.removeprefix(_NAME)}"):
                    _remove(folder)
            return cls(place / f"{_NAME}{os.getpid()}", limits)
        except (OSError, StopIteration):
            return None

    @staticmethod
    def forget(pid: int) -> None:
        """Remove the group of the supervisor ``pid``, in case that was killed before it could."""
        with contextlib.suppress(OSError, StopIteration):
            _remove(_ours("/proc/self") / f"{_NAME}{pid}")

    def add(self, pid: int) -> None:
        """Move a process into the group; its later children start there.

        Raises:
            OSError: it cannot be moved.
        """
        _write(self.folder / "cgroup.procs", str(pid))

    def over_memory(self) -> bool:
        """Whether the kernel killed it for its memory."""
        try:
            lines = (self.folder / "memory.events").read_text(encoding="ascii").splitlines()
        except OSError:
            return False
        return any(int(line.split()[1]) > 0 for line in lines if line.startswith("oom_kill "))

    def end(self) -> None:
        """Kill all processes in it, and remove it."""
        _remove(self.folder)


def _ours(proc: str) -> Path:
    """The folder of this process' own group.

    Raises:
        OSError, StopIteration: there is none.
    """
    with open(f"{proc}/cgroup", encoding="utf-8") as file:
        ours = next(line.rstrip("\n").split("::", 1)[1] for line in file if line.startswith("0::"))
    with open(f"{proc}/mountinfo", encoding="utf-8") as file:
        mounts = [line.partition(" - ") for line in file]
    top = next(before.split()[4] for before, _, after in mounts if after.split()[0] == "cgroup2")
    return Path(top + ours)


def _remove(folder: Path) -> None:
    """Kill all processes in a group and remove it, within a second."""
    if not folder.exists():
        return
    with contextlib.suppress(OSError):  # before Linux 5.14: the supervisor kills them itself
        _write(folder / "cgroup.kill", "1")
    until = time.monotonic() + _GROUP_PATIENCE
    while folder.exists() and time.monotonic() < until:
        try:
            folder.rmdir()
        except OSError:  # killed processes have not left yet
            time.sleep(_GROUP_PAUSE)


def _write(path: Path, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
