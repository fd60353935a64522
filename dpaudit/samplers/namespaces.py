"""Linux namespaces for a foreign program: its own process numbers, mounts, network and shared memory, without privileges.

Made of system calls alone, because the leash starts with the standard library and nothing else. The user namespace maps
every user to itself where the auditor may do so (root), and otherwise only the auditor, so files are read as before.
Not claimed: that a namespace keeps code in which means to break out of it (a fault in the kernel lets it), or that files
are hidden from it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import struct
import sys

__all__ = ["become_subreaper", "die_with_parent", "furnish", "leave", "map_users"]

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000
_MS_PRIVATE_ALL = 0x44000  # MS_REC | MS_PRIVATE
_MS_NO = 0xE  # MS_NOSUID | MS_NODEV | MS_NOEXEC
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_AF_INET, _SOCK_DGRAM = 2, 2
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    done: int = getattr(_libc, name)(*arguments)
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return done


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send ``number`` to this process when the thread that started it ends (Linux; nothing elsewhere)."""
    if sys.platform == "linux":
        _call("prctl", _PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def become_subreaper() -> None:
    """Have orphans below this process become its children (Linux; nothing elsewhere)."""
    if sys.platform == "linux":
        _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def leave(*, network: bool) -> None:
    """Step into new namespaces; the next child is the first process of its own world. ``network`` keeps the old one.

    Raises:
        OSError: the kernel, or a rule on this machine, does not allow it; nothing has changed.
    """
    if sys.platform != "linux":
        raise OSError("namespaces are Linux's")
    _call("unshare", _NEWUSER | _NEWPID | _NEWNS | _NEWIPC | (0 if network else _NEWNET))


def map_users(pid: int) -> None:
    """Give the process ``pid``, a child that has just left, its users: all of ours where we may, else ourselves.

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


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)  # one write: the kernel takes a map whole
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def furnish() -> None:
    """In the first process of the new namespaces: its own /proc, and a loopback that is up.

    Raises:
        OSError: /proc cannot be mounted (a container masks parts of it, or a rule forbids it).
    """
    _call("mount", None, b"/", None, _MS_PRIVATE_ALL, None)
    _call("mount", b"proc", b"/proc", b"proc", _MS_NO, None)
    with contextlib.suppress(OSError):  # none in an old network, or without IPv4: programs that talk to themselves fail
        link = _call("socket", _AF_INET, _SOCK_DGRAM, 0)
        fcntl.ioctl(link, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
        os.close(link)
