"""A control group (version 2) for one foreign program: limits that the kernel keeps, and an end that nobody escapes.

Made below the auditor's own group, where that may be done (as root, or in a group that was
delegated). Limits on memory and processes need their controllers; without these the group still
ends all processes at once. Source: the kernel's ``admin-guide/cgroup-v2``. Not claimed: that one
can be had; the level that a result reports does not hang on it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Group"]

_NAME = "dpaudit-"  # and the supervisor's process number
_PATIENCE = 1.0  # seconds for the killed to leave
_PAUSE = 0.005


class Group:
    """One group, made for one supervisor."""

    def __init__(self, folder: Path, limits: Mapping[str, int]) -> None:
        """Make ``folder``, a directory of a mounted hierarchy, with ``limits`` (``memory``, ``written``, ``processes``).

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
            # no such controller here: the supervisor's own looks remain
            with contextlib.suppress(OSError):
                self._write(name, str(value))

    @classmethod
    def below_ours(
        cls, limits: Mapping[str, int], *, to_limit: bool = False, proc: str = "/proc/self"
    ) -> Group | None:
        """A group below this process' own; None where there is no hierarchy of version 2, or nothing may be made.

        ``to_limit``: nor where it would limit nothing, for want of controllers; entering one takes
        some 15 ms. Groups of supervisors that were killed are taken away first.
        """
        try:
            place = _ours(proc)
            offered = (
                (place / "cgroup.subtree_control").read_text(encoding="ascii").split()
                if to_limit
                else []
            )
            if to_limit and not {"memory", "pids"} & set(offered):
                return None
            for folder in place.glob(f"{_NAME}*"):
                if not os.path.exists(f"/proc/{folder.name.removeprefix(_NAME)}"):
                    _remove(folder)
            return cls(place / f"{_NAME}{os.getpid()}", limits)
        except (OSError, StopIteration):
            return None

    @staticmethod
    def forget(pid: int) -> None:
        """Take away the group of the supervisor ``pid``, which was killed before it could."""
        with contextlib.suppress(OSError, StopIteration):
            _remove(_ours("/proc/self") / f"{_NAME}{pid}")

    def add(self, pid: int) -> None:
        """Move a process in; its children are born here.

        Raises:
            OSError: it cannot be moved.
        """
        self._write("cgroup.procs", str(pid))

    def over_memory(self) -> bool:
        """Whether the kernel ended it for its memory."""
        try:
            lines = (self.folder / "memory.events").read_text(encoding="ascii").splitlines()
        except OSError:
            return False
        return any(int(line.split()[1]) > 0 for line in lines if line.startswith("oom_kill "))

    def end(self) -> None:
        """Kill all in it, and take it away."""
        _remove(self.folder)

    def _write(self, name: str, text: str) -> None:
        _write(self.folder / name, text)


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
    """Kill all in a group and take it away, within a second."""
    if not folder.exists():
        return
    with contextlib.suppress(OSError):  # before Linux 5.14: the supervisor's own killing remains
        _write(folder / "cgroup.kill", "1")
    until = time.monotonic() + _PATIENCE
    while folder.exists() and time.monotonic() < until:
        try:
            folder.rmdir()
        except OSError:  # the killed have not left yet
            time.sleep(_PAUSE)


def _write(path: Path, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
