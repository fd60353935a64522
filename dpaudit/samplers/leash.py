"""A small process between the auditor and a foreign program, so that nothing outlives the auditor or the program.

``python -I -S leash.py PARENT REPORT LIMITS NAMESPACES PROGRAM ARGUMENT…``. Four processes in a row::

    leash     outside; looks at what the family uses, ends all of it, writes one line to the descriptor REPORT
    └─ holder      steps into new namespaces if it may
       └─ first        first process of the namespaces; starts the program and waits for orphans
          └─ program

With namespaces (user, process, mount, network and IPC; NAMESPACES is 1 and the kernel allows them) the program sees
nothing outside, and the end of ``first`` is the end of everything that it ever started, by the kernel's word. Without
them the leash is a subreaper: whoever leaves its group or its parent lands below the leash, which stops and kills all
until none is left. Either way it does so once the program has ended, a limit is passed, PARENT is gone or a SIGTERM
comes. Not claimed without namespaces: that a program which looks for the leash and kills it cannot leave something
behind; with or without: anything about programs that break out through a fault in the kernel.

It starts with the standard library alone, so that it costs milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from typing import NoReturn

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from dpaudit.samplers import family, namespaces  # found by the line above

_LOOK_EVERY = 0.05  # seconds between looks at the parent and the family
_LOOK_SHARE = 50  # a look that took long is followed by a pause this many times longer
_PATIENCE = 3.0  # seconds to end a family without namespaces
_KEPT = {"reserved": "RLIMIT_DATA", "file_size": "RLIMIT_FSIZE", "open_files": "RLIMIT_NOFILE", "cpu": "RLIMIT_CPU"}
_WATCHED = {signal.SIGCHLD, signal.SIGTERM}


class _Refused(Exception):
    """No namespaces here."""


def _lower(name: str, value: int) -> None:
    kind = getattr(resource, name)
    hard = resource.getrlimit(kind)[1]
    spare = int(name == "RLIMIT_CPU")  # a second between the signal that names the limit and the one that kills
    most = value + spare if hard == resource.RLIM_INFINITY else min(value + spare, hard)
    resource.setrlimit(kind, (min(value, most), most))


def _offer_to_the_oom_killer() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # not Linux, or forbidden: the machine is emptied in another order


def _program(argv: list[str], limits: Mapping[str, int], mask: set[int], parent: int, *, apart: bool) -> NoReturn:
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; programs expect the default
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        namespaces.die_with_parent(signal.SIGKILL)
        for name, kind in _KEPT.items():
            if name in limits:
                _lower(kind, limits[name])
        _offer_to_the_oom_killer()
        if apart:  # elsewhere it would count everything that the user runs
            _lower("RLIMIT_NPROC", limits["tasks"])
        if os.getppid() == parent:
            os.execvp(argv[0], argv)  # noqa: S606 no shell is what is wanted
    except OSError as error:
        os.write(2, f"cannot start {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(126)


def _silent() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)


def _first(argv: list[str], limits: Mapping[str, int], mask: set[int], status: int, *, apart: bool) -> NoReturn:
    namespaces.die_with_parent(signal.SIGKILL)
    me = os.getpid()
    program = os.fork()
    if program == 0:
        _program(argv, limits, mask, me, apart=apart)
    _silent()
    while True:
        ended, how = os.waitpid(-1, 0)
        if ended == program:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            os.write(
                status, f"{os.waitstatus_to_exitcode(how)} {used.ru_maxrss} {used.ru_utime + used.ru_stime}".encode()
            )
            os._exit(0)


def _holder(
    argv: list[str], limits: Mapping[str, int], mask: set[int], *, said: int, heard: int, status: int, apart: bool
) -> NoReturn:
    """Says ``.`` when it has left, hears ``.`` when its users are mapped; ``first`` says ``.`` when it is furnished."""
    try:
        os.setsid()
        namespaces.die_with_parent(signal.SIGKILL)
        if apart:
            namespaces.leave(network=bool(limits["network"]))
            os.write(said, b".")
            if os.read(heard, 1) != b".":
                os._exit(1)
        first = os.fork()
        if first == 0:
            if apart:
                namespaces.furnish()
            os.write(said, b".")
            _first(argv, limits, mask, status, apart=apart)
        os.close(said)
        os.close(status)
        _silent()
        os.waitpid(first, 0)
        os._exit(0)
    finally:
        os._exit(1)


def _start(argv: list[str], limits: Mapping[str, int], mask: set[int], *, apart: bool) -> tuple[int, int]:
    """The holder's process and the end of the pipe from which the program's fate is read.

    Raises:
        _Refused: no namespaces, though ``apart`` asked for them; nothing is left of the attempt.
    """
    hear, said = os.pipe()
    heard, say = os.pipe()
    fate, status = os.pipe()
    holder = os.fork()
    if holder == 0:
        os.close(say)
        _holder(argv, limits, mask, said=said, heard=heard, status=status, apart=apart)
    for fd in (said, heard, status):
        os.close(fd)
    try:
        if apart:
            if os.read(hear, 1) != b".":
                raise _Refused
            namespaces.map_users(holder)
            os.write(say, b".")
        if os.read(hear, 1) != b".":
            raise _Refused
    except (_Refused, OSError):
        os.close(fate)
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        raise _Refused from None
    finally:
        os.close(hear)
        os.close(say)
    return holder, fate


def _watch(parent: int, holder: int, limits: Mapping[str, int], proc: int, root: int | None) -> tuple[str, int] | None:
    """Until the program ends, the parent goes or a SIGTERM comes; the limit that was passed, if that ended it."""
    pause = _LOOK_EVERY
    due = time.monotonic() + pause
    while os.getppid() == parent:
        while True:
            try:
                ended, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if ended == holder:
                return None
            if ended == 0:
                break
        if sys.platform != "linux":
            time.sleep(0.01)
            continue
        woken = signal.sigtimedwait(_WATCHED, max(0.0, due - time.monotonic()))
        if woken is not None and woken.si_signo == signal.SIGTERM:
            return None
        now = time.monotonic()
        if now >= due:
            passed = family.over_limit(proc, family.members(proc, root), limits)
            if passed is not None:
                return passed
            pause = max(_LOOK_EVERY, _LOOK_SHARE * (time.monotonic() - now))
            due = time.monotonic() + pause
    return None


def _end(holder: int, *, apart: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; macOS says so with the latter
        os.killpg(holder, signal.SIGKILL)
    if sys.platform == "linux" and not apart:
        family.end_below(os.getpid(), patience=_PATIENCE)
    with contextlib.suppress(ChildProcessError):
        while True:  # the first process of a namespace ends only after all others in it
            os.waitpid(-1, 0)


def _main(parent: int, report: int, limits: Mapping[str, int], apart: bool, argv: list[str]) -> NoReturn:
    os.set_inheritable(report, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    mask = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)}
    namespaces.die_with_parent(signal.SIGTERM)
    namespaces.become_subreaper()
    try:
        holder, fate = _start(argv, limits, mask, apart=apart)
    except _Refused:
        if not apart:
            os._exit(1)
        apart = False
        holder, fate = _start(argv, limits, mask, apart=False)
    _silent()
    proc = -1
    if sys.platform == "linux":
        proc = os.open(f"/proc/{holder}/root/proc" if apart else "/proc", os.O_RDONLY | os.O_DIRECTORY)
    passed = _watch(parent, holder, limits, proc, None if apart else os.getpid())
    _end(holder, apart=apart)
    used = os.read(fate, 100).decode() or "- 0 0"
    limit, amount = passed or ("-", 0)
    os.write(report, f"{used} {limit} {amount}".encode())
    os._exit(0)


if __name__ == "__main__":
    _limits = {name: int(value) for name, value in (word.split("=") for word in sys.argv[3].split(","))}
    _main(int(sys.argv[1]), int(sys.argv[2]), _limits, sys.argv[4] == "1", sys.argv[5:])
