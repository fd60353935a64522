"""Unprivileged Linux namespaces for a foreign program: processes, mounts, network, shared memory.

They are made by system calls alone, because the supervisor starts with the standard library only;
Python has no name for some, whose numbers, given out since Linux 5.0, are the same on every
processor.
The user namespace maps every user to itself if the auditor may do so (root), and otherwise only the
auditor, so that files are read as before. Not claimed: that a namespace contains code which
exploits a kernel bug.

The mounts are made in the first process of new namespaces: all read-only, home and working tree
empty, a private scratch. One tmpfs of a limited size holds all that the program can write:
``/tmp``, ``/var/tmp``, ``/dev/shm`` and the folders that are hidden. ``/dev`` has the harmless
devices and NVIDIA's. Sources: mount_namespaces(7), mount_setattr(2), open_tree(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import stat
import struct
import sys
from collections.abc import Sequence

__all__ = ["DEVICES", "SCRATCH", "become_subreaper", "call", "die_with_parent", "leave"]
__all__ += ["loopback", "map_users", "number_from", "prctl", "set_up", "syscall"]

DEVICES = ("null", "zero", "full", "random", "urandom")
"""The devices that a program gets, below ``/dev``; and NVIDIA's, if there are any."""

_libc = ctypes.CDLL(None, use_errno=True)
_NEWNS, _NEWIPC, _NEWUSER = 0x20000, 0x0800_0000, 0x1000_0000
_NEWPID, _NEWNET = 0x2000_0000, 0x4000_0000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LAST_PID = "/proc/sys/kernel/ns_last_pid"
_HIGHEST_PID = 30_000
SCRATCH = "/tmp"  # noqa: S108 the program's own; no other process sees it
_PRIVATE_ALL = 0x44000  # MS_REC | MS_PRIVATE
_BIND_ALL = 0x5000  # MS_BIND | MS_REC
_NO = 0xE  # MS_NOSUID | MS_NODEV | MS_NOEXEC
_NOSUID_NODEV = 0x6
_MOUNT_SETATTR = 442
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100
_READ_ONLY, _NOSUID, _NODEV = 1, 2, 4
_INODES = 1 << 16
_AF_INET, _SOCK_DGRAM = 2, 2
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def call(name: str, *arguments: object) -> int:
    """A function of the C library that returns a negative number on failure.

    Raises:
        OSError: it failed.
    """
    done: int = getattr(_libc, name)(*arguments)
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return done


def syscall(number: int, *arguments: object) -> int:
    """A system call by its number; whole numbers are passed in full width.

    Raises:
        OSError: it failed.
    """
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *arguments)]
    return call("syscall", *wide)


def prctl(option: int, *arguments: int) -> int:
    """``prctl(2)``; missing arguments are 0.

    Raises:
        OSError: it failed.
    """
    values = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    return call("prctl", ctypes.c_int(option), *values)


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


def set_up(
    *,
    hidden: Sequence[str],
    kept: Sequence[str],
    home: str,
    cwd: str,
    shared: str | None,
    size: int,
) -> list[str]:
    """Put all mounts in place and enter ``cwd``; returns what this kernel lacks, in words.

    ``hidden`` are folders to be empty (none inside another), ``kept`` is what stays visible inside
    them, read-only; ``shared`` is a folder that can be written. ``size`` in bytes bounds all that
    can be written.

    Raises:
        OSError: /proc or the scratch cannot be mounted (a container masks parts of it, or a rule
            forbids it).
    """
    call("mount", None, b"/", None, _PRIVATE_ALL, None)
    hidden = [path for path in hidden if path != SCRATCH and not path.startswith("/dev/")]
    shown = [*kept, *([shared] if shared else [])]
    places = [
        (path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in shown if os.path.exists(path)
    ]
    names = [n for n in os.listdir("/dev") if n in DEVICES or n.startswith("nvidia")]
    devices = [(name, os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC)) for name in names]
    bounds = f"size={size},nr_inodes={_INODES},mode=700"
    _mount(b"scratch", SCRATCH, b"tmpfs", _NOSUID_NODEV, bounds)
    writable, tops = [], {}
    for number, path in enumerate([SCRATCH, *hidden, "/dev"]):
        tops[path] = f"{SCRATCH}/{number}"
        os.mkdir(tops[path], 0o755)
    _devices(tops["/dev"], devices)
    os.mkdir(f"{tops['/dev']}/shm", 0o755)
    rooms = {path: os.open(top, os.O_PATH | os.O_CLOEXEC) for path, top in tops.items()}
    shm = os.open(f"{tops['/dev']}/shm", os.O_PATH | os.O_CLOEXEC)
    for path in (*hidden, "/dev", SCRATCH):
        _bind(rooms[path], path)
        writable.append(path)
    _bind(shm, "/dev/shm")  # noqa: S108 as above
    writable.append("/dev/shm")  # noqa: S108
    for path in (home, cwd):  # elsewhere it would be made outside the sandbox
        if any(path.startswith(f"{folder}/") for folder in (SCRATCH, *hidden)):
            os.makedirs(path, exist_ok=True)
    for path, place in places:
        for target in dict.fromkeys((os.path.realpath(path), path)):
            _show(place, target)
    if shared:
        writable.append(os.path.realpath(shared))
    _mount(b"proc", "/proc", b"proc", _NO, None)
    lacking = []
    try:
        _attributes("/", set_=_READ_ONLY | _NOSUID | _NODEV, recursive=True)
        for path in writable:
            if path != "/dev":
                _attributes(path, clear=_READ_ONLY)
        for name, _ in devices:
            _attributes(f"/dev/{name}", clear=_NODEV | _READ_ONLY)
    except OSError as error:
        lacking.append(f"files are not read-only ({error.strerror})")
    for _, place in (*places, *devices, *rooms.items(), ("", shm)):
        os.close(place)
    with contextlib.suppress(OSError):  # hidden: the program then starts at the root
        os.chdir("/")
        os.chdir(cwd)
    return lacking


def _mount(source: bytes, where: str, kind: bytes, flags: int, options: str | None) -> None:
    data = None if options is None else ctypes.c_char_p(options.encode())
    call("mount", source, os.fsencode(where), kind, ctypes.c_ulong(flags), data)


def _bind(place: int, target: str) -> None:
    """Bind the file or folder behind a descriptor to ``target``."""
    source = f"/proc/self/fd/{place}".encode()
    call("mount", source, os.fsencode(target), None, ctypes.c_ulong(_BIND_ALL), None)


def _show(place: int, target: str) -> None:
    folder = stat.S_ISDIR(os.fstat(place).st_mode)
    os.makedirs(target if folder else os.path.dirname(target), exist_ok=True)
    if not folder and not os.path.exists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    _bind(place, target)


def _devices(folder: str, devices: Sequence[tuple[str, int]]) -> None:
    for name, place in devices:
        if stat.S_ISDIR(os.fstat(place).st_mode):
            os.mkdir(f"{folder}/{name}")
        else:
            os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        _bind(place, f"{folder}/{name}")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{folder}/{name}")


def _attributes(path: str, *, set_: int = 0, clear: int = 0, recursive: bool = False) -> None:
    attributes = struct.pack("QQQQ", set_, clear, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(path),
        flags,
        ctypes.c_char_p(attributes),
        len(attributes),
    )


def loopback() -> None:
    """Bring up the loopback interface of a new network namespace."""
    with contextlib.suppress(OSError):  # none in an old network, or without IPv4
        link = call("socket", _AF_INET, _SOCK_DGRAM, 0)
        fcntl.ioctl(link, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
        os.close(link)
