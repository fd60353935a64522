"""A control group (version 2) for one foreign program: kernel-enforced limits, and a sure end.

It is made below the auditor's own group, if that is allowed (as root, or in a delegated group).
Limits on memory and processes need their controllers; without these the group still ends all
processes at once. Source: the kernel's ``admin-guide/cgroup-v2``. Not claimed: that a group is
available; the level that a result reports does not depend on it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Group"]

_NAME = "dpaudit-"  # and the supervisor's process number
_PATIENCE = 1.0  # seconds for killed processes to leave
_PAUSE = 0.005


class Group:
    """One group, made for one supervisor."""

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
    until = time.monotonic() + _PATIENCE
    while folder.exists() and time.monotonic() < until:
        try:
            folder.rmdir()
        except OSError:  # killed processes have not left yet
            time.sleep(_PAUSE)


def _write(path: Path, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
