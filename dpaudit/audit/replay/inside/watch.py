"""What a run releases beside its value, what it starts, and which lines it reaches."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from .tape import FOLDERS, HERE
from .values import base, shown

_MOST = 1 << 16
_MOST_MADE = 200
_MOST_EVENTS = 20_000
"""Lines of one function that are looked at in a run; a line that comes later counts as missed."""
_WRITES = os.O_WRONLY | os.O_RDWR
_events: list[tuple[str, str]] | None = None
_added: list[bool] = []
_SEEN = {
    "os.fork": "another process", "os.forkpty": "another process", "os.exec": "another program",
    "os.posix_spawn": "another program", "subprocess.Popen": "another program",
    "os.system": "another program", "socket.connect": "a connection",
    "ctypes.dlopen": "native code",
}  # fmt: skip


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _events is None:
        return
    if event in _SEEN:
        name = shown(args[0], 80) if args else ""
        _events.append((_SEEN[event], name))
    elif event == "open" and (
        set(args[1]) & set("wax+") if isinstance(args[1], str) else args[2] & _WRITES
    ):
        _events.append(("file", str(args[0])))


class Channels:
    """Texts printed, warned and logged, and files written, in one run."""

    def __init__(self) -> None:
        self.stdout = io.StringIO()
        self.messages: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.native: list[bytes] = [b"", b""]

    def summary(self) -> dict[str, Any]:
        """What was written, by channel; a file by its name and what it holds."""
        files = {}
        for kind, name in self.events:
            if (
                kind == "file"
                and os.path.isfile(name)
                and not name.endswith((".pyc", ".nbi", ".nbc"))
            ):
                with open(name, "rb") as file:
                    files[name] = _told(file.read(), 400)
        return {
            "stdout": _told(self.stdout.getvalue().encode("utf-8", "replace") + self.native[0]),
            "messages": [m for m in (*self.messages, _told(self.native[1])) if m][:200],
            "files": files,
        }

    def unseen(self) -> list[str]:
        """What was started that the hooks do not reach."""
        names = {
            f"{kind}: {name}" if name else kind for kind, name in self.events if kind != "file"
        } | {
            "a file that is gone again" for kind, name in self.events
            if kind == "file" and not name.isdigit() and not os.path.exists(name)
        }  # fmt: skip
        return sorted(names)


def _told(content: bytes, most: int = _MOST) -> str:
    """What was written; of much, its beginning and a digest."""
    text = content[:most].decode("utf-8", "replace")
    return text if len(content) <= most else f"{text[:40]}… {hashlib.sha256(content).hexdigest()}"


@contextlib.contextmanager
def _below(channels: Channels) -> Iterator[None]:
    """Keep what is written to the descriptors themselves, past Python's own streams."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        kept = [os.dup(1), os.dup(2)]
        for number, file in enumerate((out, err), 1):
            os.dup2(file.fileno(), number)
        try:
            yield
        finally:
            sys.stderr.flush()
            channels.native = [os.pread(f.fileno(), 1 << 28, 0) for f in (out, err)]
            for number, fd in enumerate(kept, 1):
                os.dup2(fd, number)
                os.close(fd)


class _Log(logging.Handler):
    def __init__(self, channels: Channels) -> None:
        super().__init__(logging.INFO)
        self.channels = channels

    def emit(self, record: logging.LogRecord) -> None:
        self.channels.messages.append(f"{record.levelname}: {record.getMessage()}"[:400])


@contextlib.contextmanager
def watching() -> Iterator[Channels]:
    """Collect what is written in this block."""
    global _events
    if not _added:
        sys.addaudithook(_audit)
        _added.append(True)
    channels = Channels()
    handler, root = _Log(channels), logging.getLogger()
    before, start = warnings.showwarning, threading.Thread.start
    root.addHandler(handler)
    real = sys.stdout

    def show(message: Any, category: Any, *_: Any, **__: Any) -> None:
        channels.messages.append(f"{category.__name__}: {message}"[:400])

    def thread(self: threading.Thread) -> None:  # Python 3.11 has no event for it
        channels.events.append(("a thread", ""))
        start(self)

    try:
        threading.Thread.start = thread  # type: ignore[method-assign]
        with (
            warnings.catch_warnings(),
            _below(channels),
            contextlib.redirect_stdout(channels.stdout),
        ):
            warnings.simplefilter("always")
            warnings.showwarning = show
            _events = channels.events
            yield channels
    finally:
        _events = None
        warnings.showwarning = before
        threading.Thread.start = start  # type: ignore[method-assign]
        root.removeHandler(handler)
        sys.stdout = real


class Lines:
    """The lines of the pipeline's own files that a run reaches."""

    def __init__(self, files: set[str]) -> None:
        self.files = files
        self.reached: set[tuple[str, int]] = set()
        self.returned = ""
        self.made: list[tuple[str, Any]] = []
        self.events: dict[CodeType, int] = {}

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        del event, arg
        if frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_lines = self.events.get(frame.f_code, 0) < _MOST_EVENTS
        self.reached.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            code = frame.f_code
            self.reached.add((code.co_filename, frame.f_lineno))
            self.events[code] = self.events.get(code, 0) + 1
            frame.f_trace_lines = self.events[code] < _MOST_EVENTS
        elif event == "return":
            self.returned = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            if isinstance(arg, (float, list, tuple, dict)) and len(self.made) < _MOST_MADE:
                self.made.append((self.returned, arg))
        return self._line

    def __enter__(self) -> Lines:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


def lines_of(file: str) -> set[int]:
    """The lines in functions of a Python file that can be reached."""
    try:
        with open(file, "rb") as source:
            code = compile(source.read(), file, "exec")
    except (OSError, SyntaxError, ValueError):
        return set()
    found: set[int] = set()
    stack: list[CodeType] = [c for c in code.co_consts if isinstance(c, CodeType)]
    while stack:
        one = stack.pop()
        stack += [c for c in one.co_consts if isinstance(c, CodeType)]
        if not one.co_flags & 1 and not one.co_name.startswith("<"):
            continue  # a class body is no function
        numbers = [line for _, _, line in one.co_lines() if line]
        found |= {n for n in numbers if n != one.co_firstlineno}
    return found


__all__ = ["FOLDERS", "HERE", "Channels", "Lines", "base", "lines_of", "watching"]
