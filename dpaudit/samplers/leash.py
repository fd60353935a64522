"""A small process between the auditor and a foreign program, so that nothing outlives the auditor.

``python -I -S leash.py PARENT PROGRAM ARGUMENT…`` leads its own process group, runs the program in it, ends as the
program ends, and kills the whole group once PARENT is gone. It is run by path and imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_LOOK_EVERY = 0.5  # seconds between looks at the parent, for when the signal does not come


def _signal_on_parent_death(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _run(argv: list[str], leash: int, mask: set[int]) -> NoReturn:
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; programs expect the default
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _signal_on_parent_death(signal.SIGKILL)
        if os.getppid() == leash:
            os.execvp(argv[0], argv)  # noqa: S606 no shell is what is wanted
    except OSError as error:
        os.write(2, f"cannot start {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(126)


def _end_like(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def _main(parent: int, argv: list[str]) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    watched = {signal.SIGCHLD, signal.SIGTERM}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    _signal_on_parent_death(signal.SIGTERM)
    leash = os.getpid()
    child = os.fork()
    if child == 0:
        _run(argv, leash, {int(number) for number in mask})
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)
    while True:
        if os.getppid() != parent:
            os.killpg(0, signal.SIGKILL)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end_like(status)
        if sys.platform == "linux":
            signal.sigtimedwait(watched, _LOOK_EVERY)
        else:
            time.sleep(0.01)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
