"""``python other_system.py windows|macos ARGS [+ ARGS]…`` runs ``dpaudit ARGS``.

What the system lacks of Python is gone. Commands between ``+`` run one after the other in this
process; after each, ``== exit CODE`` is a line of standard error. What is not simulated: paths,
line ends, the behaviour of the system calls that both systems have.
"""

import ctypes
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import types
from pathlib import Path

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
ABSENT = {
    "windows": {
        "os": "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK chown fchmod fork forkpty getegid "
        "geteuid getgid getpgid getuid killpg memfd_create mkfifo pidfd_open pread pwrite "
        "register_at_fork sched_getaffinity setsid statvfs sysconf waitid",
        "signal": "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGSTOP SIGUSR1 SIGXCPU SIGXFSZ "
        "pthread_sigmask setitimer",
        "select": "epoll poll",
        "socket": "AF_UNIX",
    },
    "macos": {
        "os": "O_PATH copy_file_range eventfd memfd_create pidfd_open sched_getaffinity "
        "sched_setaffinity setns setresuid splice unshare",
        "signal": "SIGRTMAX SIGRTMIN sigtimedwait sigwaitinfo",
        "select": "epoll",
        "fcntl": "F_GETPIPE_SZ F_SETPIPE_SZ",
        "resource": "RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_SIGPENDING prlimit",
    },
}
CALLS = ("mount", "prctl", "setns", "syscall", "unshare")


class Library:
    """The C library without Linux' own calls."""

    def __init__(self, library):
        self.library = library

    def __getattr__(self, name):
        if name in CALLS:
            raise AttributeError(name)
        return getattr(self.library, name)


def no_proc(event, args):
    if event in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", args[0])


def take_away(system):
    # the standard library's own stays whole
    subprocess.signal = types.SimpleNamespace(**vars(signal))
    for name, absent in ABSENT[system].items():
        module = {"os": os, "signal": signal, "select": select, "socket": socket}.get(
            name
        ) or __import__(name)
        for attribute in absent.split():
            if hasattr(module, attribute):
                delattr(module, attribute)
    if system == "windows":
        sys.modules.update(dict.fromkeys(MODULES))  # importing them raises ModuleNotFoundError
    else:
        library = ctypes.CDLL
        ctypes.CDLL = lambda name=None, *a, **k: (
            library if name else lambda *b, **c: Library(library(*b, **c))
        )(name, *a, **k)
        sys.addaudithook(no_proc)
        sys.platform = "darwin"


def main():
    system, *words = sys.argv[1:]
    if words[:1] == ["-I"]:  # a program that macOS' dpaudit starts in turn: the supervisor
        take_away(system)
        sys.argv = words[2:]
        runpy.run_path(sys.argv[0], run_name="__main__")
        return
    if "run" in words:
        import torch  # noqa: F401 before it would find itself on a real Windows with another build
    import asyncio  # noqa: F401 the standard library looks at the system when it is imported
    import multiprocessing  # noqa: F401
    import uuid  # noqa: F401

    import llvmlite.binding  # noqa: F401 of numba; the library itself has another name elsewhere
    import matplotlib.figure  # noqa: F401
    import scipy.stats  # noqa: F401

    if system == "macos":
        starter = Path(os.environ["TMPDIR"], "python")
        own = f'"{sys.executable}" "{Path(__file__).resolve()}" macos'
        starter.write_text(
            f'#!/bin/sh\ncase "$1" in -I) exec {own} "$@";; '
            f'*) exec "{sys.executable}" "$@";; esac\n'
        )
        starter.chmod(0o755)
        sys.executable = str(starter)
    take_away(system)
    from dpaudit.cli import main as dpaudit

    while words:
        end = words.index("+") if "+" in words else len(words)
        sys.argv, words = ["dpaudit", *words[:end]], words[end + 1 :]
        try:
            dpaudit()
        except SystemExit as error:
            sys.stderr.write(f"\n== exit {error.code}\n")


if __name__ == "__main__":
    main()
