"""What a process gives up for good before it starts a foreign program.

These are capabilities, new privileges, system calls and files; each holds without namespaces, too.
Sources: capabilities(7), seccomp(2), landlock(7); the numbers of system calls are those of
``asm/unistd_64.h`` (x86-64) and ``asm-generic/unistd.h`` (aarch64). Not claimed: protection from a
kernel bug behind a system call that stays allowed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence

from dpaudit.targets.sandbox.namespaces import DEVICES, call, prctl, syscall

__all__ = ["drop_privileges", "filter_system_calls", "keep_files", "undumpable"]

_SET_DUMPABLE, _CAPBSET_DROP, _SET_SECUREBITS, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 4, 24, 28, 38, 47
# SECBIT_NOROOT, _NO_SETUID_FIXUP, _KEEP_CAPS off, _NO_CAP_AMBIENT_RAISE, all locked
_NO_ROOT = 0xEF
_LAST_CAPABILITY = 63


def undumpable() -> None:
    """Keep its memory and descriptors from processes without CAP_SYS_PTRACE, its user's too."""
    prctl(_SET_DUMPABLE, 0)


def drop_privileges() -> None:
    """Drop all capabilities for good, root's included; no later program gains any by file bits.

    Raises:
        OSError: the kernel refused.
    """
    with contextlib.suppress(OSError):  # an old kernel; none is ambient unless it was raised
        prctl(_CAP_AMBIENT, 4)
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            prctl(_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EINVAL:  # one past the last that this kernel knows
                break
            if error.errno != errno.EPERM:  # EPERM: an unprivileged user has none to drop
                raise
    with contextlib.suppress(OSError):  # needs CAP_SETPCAP, which only root (of a namespace) had
        prctl(_SET_SECUREBITS, _NO_ROOT)
    header = struct.pack("Ii", 0x20080522, 0)  # version 3, this thread
    call("capset", ctypes.c_char_p(header), ctypes.c_char_p(bytes(24)))
    prctl(_SET_NO_NEW_PRIVS, 1)


# name: numbers on x86-64 and aarch64 (-1: it has none)
_FORBIDDEN = {
    # other processes' memory and descriptors
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # what is mounted where, and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # keys, and kernel interfaces with a history of bugs
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "modify_ldt": (154, -1),
    "lookup_dcookie": (212, 18),
    "syslog": (103, 116),
    # the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "vhangup": (153, 58),
}
_ABSENT = {  # answered as by a kernel that lacks them, so that programs do without
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),  # a filter cannot read its flags; it can read clone's
    # memory that no process' counters show
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "semget": (64, 190),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
}
_FALLOCATE, _SOCKET, _CLONE, _IOCTL = (285, 47), (41, 198), (56, 220), (16, 29)
_NEW_NAMESPACES = 0x7E02_0000
_TO_TERMINALS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: typing for the user
_INTERNET = (2, 10)

_ARCHES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_SET_MODE_FILTER, _SPEC_ALLOW = 1, 4
_SECCOMP = (317, 277)


def filter_system_calls(*, network: bool) -> None:
    """Refuse, from now on and in all descendants, system calls that a sampler has no use for.

    All sockets but internet ones are refused by kind, so no path leads to a Unix socket
    (``socketpair`` stays); ``network`` False refuses internet sockets as well. ``fallocate`` is
    answered as by a file system without it: space is then taken by writing, which is counted.

    Raises:
        OSError: the kernel has no seccomp, or this processor's system calls are not known here.
    """
    machine = platform.machine()
    if machine not in _ARCHES:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    column, arch = _ARCHES[machine]
    program = _Filter()
    program.load(_ARCH)
    program.unless(_EQUAL, arch, errno.ENOSYS)
    program.load(_NUMBER)
    program.refuse(_AT_LEAST, 0x4000_0000, errno.ENOSYS)  # the x32 calls
    for table, error in ((_FORBIDDEN, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            if numbers[column] >= 0:
                program.refuse(_EQUAL, numbers[column], error)
    program.refuse(_EQUAL, _FALLOCATE[column], errno.EOPNOTSUPP)
    with program.when(_SOCKET[column]):
        program.load(_ARGUMENTS)
        if network:
            for kind in _INTERNET:
                program.allow(_EQUAL, kind)
        program.give(_ERRNO | errno.EAFNOSUPPORT)
    with program.when(_CLONE[column]):
        program.load(_ARGUMENTS)
        program.refuse(_ANY_BIT, _NEW_NAMESPACES, errno.EPERM)
        program.give(_ALLOW)
    with program.when(_IOCTL[column]):
        program.load(_ARGUMENTS + 8)
        for request in _TO_TERMINALS:
            program.refuse(_EQUAL, request, errno.EPERM)
        program.give(_ALLOW)
    program.give(_ALLOW)
    code = program.code()
    buffer = ctypes.create_string_buffer(code, len(code))
    filled = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    syscall(_SECCOMP[column], _SET_MODE_FILTER, _SPEC_ALLOW, ctypes.c_char_p(filled))


class _Filter:
    """Classic BPF, put together from the top."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int]] = []

    def load(self, offset: int) -> None:
        self._code.append((_LOAD, 0, 0, offset))

    def give(self, answer: int) -> None:
        self._code.append((_RETURN, 0, 0, answer))

    def refuse(self, test: int, value: int, error: int) -> None:
        self._code += [(test, 0, 1, value), (_RETURN, 0, 0, _ERRNO | error)]

    def unless(self, test: int, value: int, error: int) -> None:
        self._code += [(test, 1, 0, value), (_RETURN, 0, 0, _ERRNO | error)]

    def allow(self, test: int, value: int) -> None:
        self._code += [(test, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]

    @contextlib.contextmanager
    def when(self, number: int) -> Iterator[None]:
        """The instructions added in this block are for one system call; end with :meth:`give`."""
        at = len(self._code)
        self._code.append((_EQUAL, 0, 0, number))
        yield
        self._code[at] = (_EQUAL, 0, len(self._code) - at - 1, number)

    def code(self) -> bytes:
        return b"".join(struct.pack("HBBI", *line) for line in self._code)


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_BENEATH = 1
_FILE_RIGHTS = 1 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # execute, write, read, truncate, ioctl
_READ = 1 | 1 << 2 | 1 << 3  # execute, read, list
_USE = 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
# by the kernel's version of Landlock
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_SCOPES = 3  # abstract Unix sockets, signals; since version 6


def keep_files(*, hidden: Sequence[str], kept: Iterable[str], written: Iterable[str]) -> list[str]:
    """Read nothing below ``hidden`` but ``kept``, and write below ``written`` only (Landlock).

    This is for a program without mounts of its own. Signals to processes outside are refused as
    well, from version 6 of Landlock (Linux 6.12) on. Returns what is still lacking, in words.

    Raises:
        OSError: the kernel has no Landlock.
    """
    version = syscall(_CREATE_RULESET, None, 0, 1)
    handled = _ALL.get(version, (1 << 16) - 1)
    scoped = _SCOPES if version >= 6 else 0
    attributes = struct.pack("QQQ", handled, 0, scoped)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = syscall(_CREATE_RULESET, ctypes.c_char_p(attributes), size, 0)
    try:
        names = [n for n in os.listdir("/dev") if n in DEVICES or n.startswith("nvidia")]
        allowed = dict.fromkeys(written, handled) | {f"/dev/{name}": _USE for name in names}
        for path in (*_outside(hidden), *kept):
            allowed.setdefault(path, _READ)
        for path, rights in allowed.items():
            _rule(rules, path, rights & handled)
        syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)
    return [] if version >= 6 else ["processes of the same user can be sent signals"]


def _rule(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # gone, or not readable by us, and so not by the program
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _FILE_RIGHTS
        if rights:
            rule = struct.pack("=Qi", rights, place)
            syscall(_ADD_RULE, rules, _BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(place)


def _outside(hidden: Sequence[str]) -> Iterator[str]:
    """The largest folders and files that hold nothing hidden; ``/dev`` is left out."""
    avoided = {*hidden, "/dev"}
    above = {path[:i] or "/" for path in avoided for i, c in enumerate(path) if c == "/"}
    for folder in above:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                path = f"{folder.rstrip('/')}/{name}"
                if path not in avoided and path not in above and not os.path.islink(path):
                    yield path
