"""Samplers that mean harm: (attack, what it tries, exit code, words), at every level.

Each attack is the body of ``f(n, d)``. Those of ``PRYING`` try one thing and end with ``kept_out``
or ``got_in``; nothing of what they reach is changed. ``python attacks.py LEVEL`` runs all of them
in this process, in a folder of its own, and prints one JSON document: so the table can be run as
another user.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from dpaudit.errors import DpauditError
from dpaudit.protocols import Request
from dpaudit.targets import open_sampler
from dpaudit.targets.sandbox import policy, process

HEAD = """
import ctypes, fcntl, json, os, signal, socket, struct, subprocess, sys, time
import numpy as np
libc = ctypes.CDLL(None, use_errno=True)
def kept_out(why=""): raise RuntimeError(f"kept out {why}")
def got_in(what=""): raise RuntimeError(f"got in: {what}")
def call(number, *arguments):
    c = ctypes.c_long
    done = libc.syscall(c(number), *[c(a) if isinstance(a, int) else a for a in arguments])
    if done < 0: kept_out(os.strerror(ctypes.get_errno()))
    got_in(number)
def tried(act, *arguments, **named):
    try:
        act(*arguments, **named)
    except OSError as error:
        kept_out(error.strerror)
    got_in(arguments)
def reach(path, flags=os.O_RDONLY): tried(lambda: os.close(os.open(path, flags)))
def any_of(paths, flags):
    for path in paths:
        try:
            os.close(os.open(path, flags | os.O_NONBLOCK))
        except OSError:
            continue
        got_in(path)
    kept_out()
def others():  # processes that are neither this one nor its children
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]
def channel():  # the descriptors on which questions come and answers go
    asked = answers = None
    for fd in range(3, 64):
        try:
            kind = os.readlink(f"/proc/self/fd/{fd}")
            way = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        except OSError:
            continue
        if kind.startswith("pipe:"):
            asked, answers = (fd, answers) if way == os.O_RDONLY else (asked, fd)
    return asked, answers
CHANNEL = channel()
def answer(kind, body):
    os.write(CHANNEL[1], struct.pack("<4sBQ", b"dpa1", kind, len(body)) + body)
HERE = os.path.dirname(os.path.abspath(__file__))
TOLD = json.load(open(os.path.join(HERE, "told.json")))
"""
SLEEP = "time.sleep(1000)"
LATE = "no answer before timeout="
KEPT = "raised RuntimeError: kept out"


@dataclass(frozen=True)
class Attack:
    """``levels``: where it must fail with exit code and words; elsewhere nothing is promised."""

    body: str
    words: str = KEPT
    code: int = 3
    levels: tuple[str, ...] = ("full", "plain")
    user: bool | None = None  # only as root (False), only as another user (True)


def said(error: object, message: object) -> str:
    """Words where values are due, which name an error of the auditor's."""
    return f"answer(1, json.dumps({ {'error': error, 'message': message} }).encode())\n{SLEEP}"


EVERYWHERE = ("full", "plain", "none")
CHANNEL = {
    name: Attack(code, words, levels=EVERYWHERE)
    for name, (code, words) in {
        "fills its own question pipe": (
            f"""
into = os.open(f"/proc/self/fd/{{CHANNEL[0]}}", os.O_WRONLY | os.O_NONBLOCK)
try:
    while True: os.write(into, b" " * 4096)
except BlockingIOError: pass
answer(0, np.zeros((n, d)).tobytes())
{SLEEP}""",
            LATE,
        ),
        "words where values are due": (f"answer(1, b'{{}}')\n{SLEEP}", "something else wrote"),
        "nested words": (f"answer(1, b'[' * 60000)\n{SLEEP}", "something else wrote"),
        "too few bytes": (f"answer(0, bytes(8))\n{SLEEP}", "something else wrote"),
        "no bytes": (f"answer(0, b'')\n{SLEEP}", "something else wrote"),
        "an error that is no sampler's": (said("CheatingError", "x"), "x"),
        "a usage error": (said("UsageError", "y"), "y"),
        "a name from the module of errors": (said("annotations", "z"), "z"),
        "an error of other types": (said(["UsageError"], {"a": 1}), "a"),
        "escapes in an exception": (
            'raise ValueError("\\x1b[2JNo finding\\x1b]52;c;QUFBQQ==\\x07\\r\\x08\\u202e")',
            "No finding",
        ),
        "escapes in an exception's name": (
            'raise type("\\x1b[31mRed", (Exception,), {"__str__": lambda s: 1 / 0})',
            "Red",
        ),
        "a hundred megabytes of message": ('raise ValueError("x" * (1 << 27))', "ValueError: x"),
    }.items()
}
_ERRNO = "Operation not permitted|Function not implemented"
PRYING = {
    # the verdict
    "a module that judges": Attack(
        "import dpaudit.errors; "
        "reach(os.path.dirname(dpaudit.errors.__file__) + '/audit/verdict.py', os.O_WRONLY)"
    ),
    "compiled modules": Attack(
        "import dpaudit.errors as e; "
        "reach(os.path.join(os.path.dirname(e.__cached__), 'x'), os.O_WRONLY | os.O_CREAT)"
    ),
    "the auditor's memory": Attack("reach(f'/proc/{TOLD[\"auditor\"]}/mem', os.O_RDWR)"),
    "anybody's memory": Attack("any_of((f'/proc/{p}/mem' for p in others()), os.O_RDWR)"),
    "anybody's descriptors": Attack(
        "any_of((f'/proc/{p}/fd/{k}' for p in others() for k in range(12)), os.O_WRONLY)"
    ),
    "ptrace": Attack(
        "libc.ptrace(16, TOLD['auditor'], 0, 0) and kept_out(ctypes.get_errno()); got_in()"
    ),
    "another process' memory by a call": Attack("call(310, TOLD['auditor'], None, 0, None, 0, 0)"),
    "a signal to the auditor": Attack("tried(os.kill, TOLD['auditor'], 0)"),
    # files
    "a file of the user": Attack("reach(TOLD['home'] + '/diary')"),
    "the home directory": Attack(
        """
try:
    found = os.listdir(TOLD["home"])
except OSError as error:
    kept_out(error.strerror)
got_in(found) if "diary" in found else kept_out()"""
    ),
    "the working tree": Attack("reach(TOLD['tree'] + '/plans')"),
    "where it lives, writing": Attack("reach(HERE + '/x', os.O_WRONLY | os.O_CREAT)"),
    "the system, writing": Attack("reach('/usr/dpaudit-test', os.O_WRONLY | os.O_CREAT)"),
    "a raw disk": Attack(
        "disks = 'vda sda nvme0n1 loop0 kmsg mem tty tty1 pts/0 kvm'.split()\n"
        "any_of((f'/dev/{name}' for name in disks), os.O_RDWR)"
    ),
    "settings of the kernel": Attack("reach('/proc/sys/kernel/core_pattern', os.O_WRONLY)"),
    # doors
    "a Unix socket by path": Attack(
        "tried(lambda: socket.socket(socket.AF_UNIX).connect(TOLD['socket']))"
    ),
    "the network": Attack(
        "tried(socket.create_connection, ('127.0.0.1', TOLD['port']), timeout=2)"
    ),
    "secrets of the environment": Attack(
        "got_in() if 'AWS_SECRET_ACCESS_KEY' in os.environ else kept_out()", levels=EVERYWHERE
    ),
    # privileges
    "capabilities": Attack(
        """
lines = [line for line in open("/proc/self/status").read().splitlines() if ":\\t" in line]
status = dict(line.split(":\\t", 1) for line in lines)
held = [status[k] for k in ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp")]
kept_out() if held == ["0" * 16] * 4 + ["1", "2"] else got_in(held)"""
    ),
    **{
        name: Attack(f"call({words})", f"{KEPT} ({_ERRNO})")
        for name, words in {
            "new namespaces": "272, 0x10000000",
            "a child in new namespaces": "56, 0x10000000 | 17, 0, 0, 0, 0",
            "mount": "165, None, b'/', None, 0x1000, None",
            "keys": "250, 0, -3, 0",
            "bpf": "321, 0, None, 0",
            "userfaultfd": "323, 0",
            "io_uring": "425, 1, bytes(120)",
            "perf": "298, bytes(128), 0, -1, -1, 0",
            "calls of another numbering": "0x40000000 + 39",
            "detached shared memory": "29, 0, 1 << 30, 0o1600",
            "memory in a file": "319, b'x', 0",
        }.items()
    },
    # memory and disk that nobody counts
    "fallocate": Attack(
        """
import tempfile
with tempfile.TemporaryFile() as file:
    if libc.fallocate(file.fileno(), 0, ctypes.c_long(0), ctypes.c_long(1 << 25)):
        kept_out(os.strerror(ctypes.get_errno()))
got_in()""",
        f"{KEPT} Operation not supported",
    ),
    "counters that cannot be read": Attack(
        "libc.prctl(4, 0, 0, 0, 0); time.sleep(9)", "hid its counters", levels=("plain",), user=True
    ),
    "a scratch that is full": Attack(
        """
import tempfile
for k in range(40):
    with open(f"{tempfile.gettempdir()}/{k}", "wb") as file:
        file.write(bytes(1 << 25))
time.sleep(9)""",
        "it wrote 1.* GiB and was killed, above the limit of 1 GiB|No space left",
        levels=("full",),
    ),
}


ATTACKS = {**CHANNEL, **PRYING}


def told(folder: Path, port: int) -> dict[str, object]:
    """What every attack knows of its surroundings, which an attacker would find out."""
    return {
        "auditor": os.getpid(),
        "home": str(folder / "home"),
        "tree": str(folder / "tree"),
        "socket": str(folder / "vendor" / "socket"),
        "port": port,
    }


@contextlib.contextmanager
def surroundings(folder: Path):
    """A home, a working tree (ours), a vendor's folder with a socket, a server, a secret."""
    for name in ("home", "tree/.git", "vendor"):
        (folder / name).mkdir(parents=True)
    (folder / "home" / "diary").write_text("mine")
    (folder / "tree" / "plans").write_text("ours")
    before = {name: os.environ.get(name) for name in ("HOME", "AWS_SECRET_ACCESS_KEY")}
    os.environ.update(HOME=str(folder / "home"), AWS_SECRET_ACCESS_KEY="hush")
    try:
        with (
            contextlib.chdir(folder / "tree"),
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.socket(socket.AF_UNIX) as door,
        ):
            with contextlib.chdir(folder / "vendor"):  # a path longer than a socket may have
                door.bind("socket")
            door.listen()
            (folder / "vendor" / "told.json").write_text(
                json.dumps(told(folder, server.getsockname()[1]))
            )
            yield folder / "vendor"
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def at(level: str):
    """``full``; ``plain``, as on a kernel that refuses namespaces; ``none``."""
    before = process._APART
    process._APART = level != "plain"
    try:
        with policy.sandbox_policy("none" if level == "none" else "full") as asked:
            yield asked
    finally:
        process._APART = before


def attempt(attack: Attack, vendor: Path, *, level: str) -> tuple[int, str, str]:
    """Its exit code (0: it gave numbers), what is said, and the level that was reached."""
    place = vendor / f"x{len(list(vendor.iterdir()))}.py"
    body = textwrap.indent(attack.body.strip("\n"), "    ")
    place.write_text(
        f"{HEAD}def f(n, d):\n{body}\n    return np.random.default_rng().normal(size=(n, d))\n"
    )
    with (
        at(level) as asked,
        open_sampler(f"python:{place}:f", seed="1").open(timeout=60) as sampler,
    ):
        # what never answers is given a first time to do its harm
        return drawn(sampler, 60.0, 0.4 if attack.words == LATE else 60.0, asked=asked)


def drawn(sampler, *limits: float, asked: policy.Policy) -> tuple[int, str, str]:
    try:
        assert sampler.facts
        for limit in limits:
            sampler.ask(Request(4, 2), timeout=limit)
    except DpauditError as error:
        return error.exit_code, str(error), asked.reached
    return 0, "", asked.reached


@contextlib.contextmanager
def one_worker(vendor: Path, *, level: str):
    """``ask(attack)`` as :func:`attempt`, for attacks that raise: all by one live worker."""
    place = vendor / f"many-{level}.py"
    body = place.with_suffix(".body")
    place.write_text(f"{HEAD}def f(n, d): exec(open(HERE + '/{body.name}').read(), globals())\n")
    sampler = open_sampler(f"python:{place}:f", seed="1")
    with contextlib.ExitStack() as stack:
        with at(level) as asked:
            stack.enter_context(sampler.open(timeout=60))
        assert sampler.facts

        def ask(attack: Attack) -> tuple[int, str, str]:
            body.write_text(attack.body)
            return drawn(sampler, 60.0, asked=asked)

        yield ask


def main(level: str) -> dict[str, tuple[int, str, str]]:
    """All attacks that must fail at this level, as this user."""
    user = os.getuid() != 0
    with tempfile.TemporaryDirectory() as folder, surroundings(Path(folder)) as vendor:
        return {
            name: attempt(attack, vendor, level=level)
            for name, attack in ATTACKS.items()
            if level in attack.levels and attack.user in (None, user)
        }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
