"""The command line as a process would run it, in this one.

Python, numpy and torch start once and not for every call. ``here`` goes through
``dpaudit.cli.main`` as the installed command does, with file descriptors 1 and 2 captured, so that
nothing escapes that a process would have printed. ``script`` runs another Python file in the same
way. ``apart`` really starts a process.
"""

import contextlib
import os
import runpy
import subprocess
import sys
import tempfile
import types

from dpaudit.cli import main


def here(*args, cwd=None, timeout=None):
    """``dpaudit ARGS`` in this process; like ``subprocess.run(…, capture_output=True, …)``."""
    del timeout  # pytest's own is enough
    return _run(["dpaudit", *map(str, args)], main, cwd)


def script(path, *args, cwd=None):
    """``python PATH ARGS`` in this process, but for its own folder on the path; errors raise."""
    return _run(
        [str(path), *map(str, args)], lambda: runpy.run_path(str(path), run_name="__main__"), cwd
    )


def _run(argv, call, cwd):
    folder = contextlib.chdir(cwd) if cwd else contextlib.nullcontext()
    before = set(sys.modules)
    with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as err, folder:
        with _redirected(1, "stdout", out), _redirected(2, "stderr", err), _argv(argv):
            try:
                call()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        texts = [file.read().decode() for file in (out, err) if not file.seek(0)]
    for name in set(sys.modules) - before:  # what lies in a folder of one test
        if cwd and str(getattr(sys.modules[name], "__file__", "")).startswith(f"{cwd}/"):
            del sys.modules[name]
    return subprocess.CompletedProcess(argv, code, *texts)


def apart(*args, cwd=None, timeout=100):
    """``python -m dpaudit ARGS`` in a process of its own."""
    command = [sys.executable, "-m", "dpaudit", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout)


@contextlib.contextmanager
def _argv(argv):
    """As the installed script sees itself: its words, and a ``__main__`` that is no package."""
    before, sys.argv = (sys.argv, sys.modules["__main__"]), argv
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.argv, sys.modules["__main__"] = before


@contextlib.contextmanager
def _redirected(fd, name, file):
    kept, stream = os.dup(fd), getattr(sys, name)
    stream.flush()
    os.dup2(file.fileno(), fd)
    text = open(fd, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 closed below
    setattr(sys, name, text)
    try:
        yield
    finally:
        text.close()
        setattr(sys, name, stream)
        os.dup2(kept, fd)
        os.close(kept)
