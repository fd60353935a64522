"""The system-call filter, run as the kernel runs it; its numbers against the kernel's headers."""

from __future__ import annotations

import ctypes
import errno
import re
import struct
from pathlib import Path

import pytest

from dpaudit.targets.sandbox import confinement

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
COLUMN = {"x86_64": 0, "aarch64": 1}
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
CALLS = {  # of the kernel's headers; not the table under test
    "x86_64": {"read": 0, "ioctl": 16, "socket": 41, "socketpair": 53, "clone": 56, "fork": 57,
               "ptrace": 101, "mount": 165, "shmget": 29, "fallocate": 285, "clone3": 435,
               "openat": 257, "execve": 59, "io_uring_setup": 425},
    "aarch64": {"read": 63, "ioctl": 29, "socket": 198, "socketpair": 199, "clone": 220,
                "ptrace": 117, "mount": 40, "shmget": 194, "fallocate": 47, "clone3": 435,
                "openat": 56, "execve": 221, "io_uring_setup": 425},
}  # fmt: skip
UNIX, INET, INET6, NETLINK, PACKET = 1, 2, 10, 16, 17


@pytest.fixture(params=ARCH)
def machine(request, monkeypatch):
    monkeypatch.setattr(confinement.platform, "machine", lambda: request.param)
    return request.param


@pytest.fixture
def decide(machine, monkeypatch):
    """``decide(call, *arguments, network=False)``: 0 if it is allowed, and otherwise the error."""
    installed = []

    def install(_number, _mode, _flags, filled):
        length, address = struct.unpack(
            "HxxxxxxP", filled.value if len(filled.value) == 16 else ctypes.string_at(filled, 16)
        )
        installed.append(list(struct.iter_unpack("HBBI", ctypes.string_at(address, 8 * length))))

    monkeypatch.setattr(confinement, "syscall", install)

    def answer(call, *arguments, network=False, arch=None):
        number = CALLS[machine][call] if isinstance(call, str) else call
        confinement.filter_system_calls(network=network)
        data = struct.pack(
            "IIQ6Q", number, arch or ARCH[machine], 0, *(*arguments, *[0] * (6 - len(arguments)))
        )
        given = run(installed.pop(), data)
        assert given == ALLOW or given & 0xFFFF0000 == ERRNO
        return 0 if given == ALLOW else given & 0xFFFF

    return answer


def run(program, data):
    """Classic BPF, as much of it as there is here (bpf(4))."""
    value, at = 0, 0
    while True:
        code, true, false, k = program[at]
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("I", data, k)
            case 0x06:
                return k
            case 0x15 | 0x35 | 0x45:
                met = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
                at += true if met else false


def test_what_every_program_needs_is_allowed(decide, machine):
    for call in ("read", "openat", "execve", "socketpair"):
        assert decide(call, UNIX) == 0
    assert decide("clone", 17) == 0
    assert decide("ioctl", 0, 0x5401) == 0  # TCGETS


@pytest.mark.parametrize(
    ("call", "error"),
    [("ptrace", errno.EPERM), ("mount", errno.EPERM), ("shmget", errno.ENOSYS),
     ("clone3", errno.ENOSYS), ("io_uring_setup", errno.ENOSYS), ("fallocate", errno.EOPNOTSUPP)],
)  # fmt: skip
def test_what_no_sampler_needs_is_refused(decide, call, error):
    for network in (False, True):
        assert decide(call, network=network) == error


def test_sockets(decide):
    for kind in (UNIX, NETLINK, PACKET):
        for network in (False, True):
            assert decide("socket", kind, network=network) == errno.EAFNOSUPPORT
    for kind in (INET, INET6):
        assert decide("socket", kind, network=True) == 0
        assert decide("socket", kind, network=False) == errno.EAFNOSUPPORT


@pytest.mark.parametrize(
    "flag", [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]
)
def test_children_in_new_namespaces(decide, flag):
    """Each CLONE_NEW… but that of time, which ``clone`` takes for a part of the signal."""
    assert decide("clone", flag | 17) == errno.EPERM


@pytest.mark.parametrize("request_", [0x5412, 0x541C])
def test_typing_for_the_user(decide, request_):
    assert decide("ioctl", 0, request_) == errno.EPERM
    assert decide("ioctl", 0, request_ | 1 << 32) == errno.EPERM  # the kernel reads 32 bits of it


def test_other_numberings(decide, machine):
    assert decide(0x40000000 + 39) == errno.ENOSYS
    # i386, the other one
    for arch in (0x40000003, *(a for name, a in ARCH.items() if name != machine)):
        assert decide("read", arch=arch) == errno.ENOSYS


def test_every_number_of_the_tables_is_refused(decide, machine):
    for table, error in (
        (confinement._FORBIDDEN, errno.EPERM),
        (confinement._ABSENT, errno.ENOSYS),
    ):
        for numbers in table.values():
            if numbers[COLUMN[machine]] >= 0:
                assert decide(numbers[COLUMN[machine]]) == error


def test_the_numbers_are_the_kernels(machine):
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip(f"needs {header}")
    known = {
        name: int(number)
        for name, number in re.findall(r"#define __NR\w*?_(\w+)\s+(\d+)\n", header.read_text())
    }
    names = ("fallocate", "socket", "clone", "ioctl", "seccomp")
    singles = {name: getattr(confinement, f"_{name.upper()}") for name in names}
    tables = confinement._FORBIDDEN | confinement._ABSENT | singles
    compared = {
        name: (pair[COLUMN[machine]], known[name]) for name, pair in tables.items() if name in known
    }
    assert len(compared) > 50
    assert [name for name, (ours, theirs) in compared.items() if ours != theirs] == []
    assert {
        call: number for call, number in CALLS[machine].items() if known.get(call, number) != number
    } == {}


def test_a_machine_without_a_table_is_an_error(monkeypatch):
    monkeypatch.setattr(confinement.platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="no table of system calls for riscv64"):
        confinement.filter_system_calls(network=False)
