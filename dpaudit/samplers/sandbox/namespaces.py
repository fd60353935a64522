"""Unprivileged Linux namespaces for a foreign program: processes, mounts, network, shared memory.

They are made by system calls alone, because the supervisor starts with the standard library only.
The user namespace maps every user to itself if the auditor may do so (root), and otherwise only the
auditor, so that files are read as before. Not claimed: that a namespace contains code which
exploits a kernel bug.
"""

from __future__ import annotations

import os
import signal
import sys

from dpaudit.samplers.sandbox.system_calls import call, prctl

__all__ = ["become_subreaper", "die_with_parent", "leave", "map_users", "number_from"]

_NEWNS, _NEWIPC, _NEWUSER = 0x20000, 0x0800_0000, 0x1000_0000
_NEWPID, _NEWNET = 0x2000_0000, 0x4000_0000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LAST_PID = "/proc/sys/kernel/ns_last_pid"
_HIGHEST_PID = 30_000


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send ``number`` when the thread that started this process ends (Linux)."""
    if sys.platform == "linux":
        prctl(_PR_SET_PDEATHSIG, int(number))


def become_subreaper() -> None:
    """Have orphans below this process become its children (Linux)."""
    if sys.platform == "linux":
        prctl(_PR_SET_CHILD_SUBREAPER, 1)


def leave(*, network: bool) -> None:
    """Enter new namespaces; the next child is their first process. ``network`` keeps the network.

    Raises:
        OSError: the kernel, or a rule on this machine, does not allow it; nothing has changed.
    """
    if sys.platform != "linux":
        raise OSError("namespaces need Linux")
    call("unshare", _NEWUSER | _NEWPID | _NEWNS | _NEWIPC | (0 if network else _NEWNET))


def map_users(pid: int) -> None:
    """Map the users of ``pid``, a child that has just left: all of ours if allowed, else our own.

    Raises:
        OSError: neither is allowed.
    """
    for kind, own in (("uid", os.geteuid()), ("gid", os.getegid())):
        with open(f"/proc/self/{kind}_map", encoding="ascii") as file:
            inside = [line.split() for line in file]
        everybody = "".join(f"{first} {first} {count}\n" for first, _, count in inside)
        try:
            _write(f"/proc/{pid}/{kind}_map", everybody)
        except OSError:
            if kind == "gid":
                _write(f"/proc/{pid}/setgroups", "deny")
            _write(f"/proc/{pid}/{kind}_map", f"{own} {own} 1\n")


def number_from(secret: int) -> None:
    """Start this namespace's process numbers at random, so that a seed made from one varies.

    Raises:
        OSError: the kernel does not let this process choose.
    """
    _write(_LAST_PID, str(300 + secret % _HIGHEST_PID))


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)  # one write: the kernel wants a map whole
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
