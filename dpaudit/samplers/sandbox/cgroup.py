"""A control group (version 2) for one foreign program: limits that the kernel keeps, and an end that nobody escapes.

Made below the auditor's own group, where that may be done (as root, or in a group that was delegated). Limits on memory and
processes need their controllers; without these the group still ends all processes at once. Source: the kernel's
``admin-guide/cgroup-v2``. Not claimed: that one can be had; the level that a result reports does not hang on it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Group"]

_PATIENCE = 1.0  # seconds for the killed to leave
_PAUSE = 0.005


class Group:
    """One group, made for one leash."""

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
            with contextlib.suppress(OSError):  # no such controller here: the leash's own looks remain
                self._write(name, str(value))

    @classmethod
    def below_ours(cls, limits: Mapping[str, int], *, proc: str = "/proc/self") -> Group | None:
        """A group below this process' own; None where there is no hierarchy of version 2, or nothing may be made."""
        try:
            with open(f"{proc}/cgroup", encoding="utf-8") as file:
                ours = next(line.rstrip("\n").split("::", 1)[1] for line in file if line.startswith("0::"))
            with open(f"{proc}/mountinfo", encoding="utf-8") as file:
                mounts = [line.partition(" - ") for line in file]
            top = next(before.split()[4] for before, _, after in mounts if after.split()[0] == "cgroup2")
            return cls(Path(top + ours) / f"dpaudit-{os.getpid()}", limits)
        except (OSError, StopIteration):
            return None

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
        with contextlib.suppress(OSError):  # before Linux 5.14: the leash's own killing remains
            self._write("cgroup.kill", "1")
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > until:
                    return
                time.sleep(_PAUSE)
            else:
                return

    def _write(self, name: str, text: str) -> None:
        file = os.open(self.folder / name, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)
