"""Where results and notes go: stdout is data, stderr is for people, both printable text only.

A stdout that cannot be written (full disk, closed, a reader that left) ends the command with exit
code 4, never with a verdict's; a stderr that cannot be written is ignored.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpaudit.errors import DpauditError
from dpaudit.results.text import harmless, json_escaped, tell

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["OutputError", "emit", "guarded", "note", "out_console", "write_json_line"]


def out_console() -> Console:
    """A console on stdout; a pipe gets plain text, 140 columns wide."""
    from dpaudit.cli.progress import SafeConsole

    return SafeConsole() if sys.stdout.isatty() else SafeConsole(width=140)


def emit(renderable: Any) -> None:
    """Print a result for people; a line that may not wrap is printed whole, however long."""
    out_console().print(renderable, crop=False)


def write_json_line(document: Any) -> None:
    """Print one JSON document, without control characters or bidirectional overrides."""
    narrow = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    print(json_escaped(json.dumps(document, ensure_ascii=narrow, allow_nan=False, indent=2)))


def note(text: str) -> None:
    """A hint on stderr, after a blank line."""
    tell(f"\n{text}")


class OutputError(DpauditError):
    """The result could not be written to stdout; no message if its reader closed the pipe."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Guard ``sys.stdout`` and ``sys.stderr``; at the end, flush and restore both.

    Closed descriptors 0 to 2 are opened on the null device, so that no file of ours gets their
    number.
    """
    _occupied()
    before = sys.stdout, sys.stderr
    sys.stdout = _Stdout(sys.stdout or _Closed())
    sys.stderr = _Stream(sys.stderr or io.StringIO())
    try:
        yield
    finally:
        with contextlib.suppress(OutputError):
            sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def _occupied() -> None:
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number


class _Stream:
    """A text stream that writes only printable text, apart from rich's own, and never raises."""

    def __init__(self, stream: Any, *, clean: bool = True) -> None:
        self._stream, self._clean = stream, clean
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def rich_proxied_file(self) -> Any:
        """Where rich writes colours and bars; ``SafeConsole`` has cleaned the text."""
        return type(self)(self._stream, clean=False)

    def write(self, text: str) -> int:
        try:
            self._stream.write(harmless(text, tabs=True) if self._clean else text)
        except (OSError, ValueError) as error:  # full, gone or closed
            self._give_up(error)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Redirect to the null device, so that buffered text does not fail again at exit."""
        del error
        with contextlib.suppress(OSError, ValueError, AttributeError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


class _Stdout(_Stream):
    """The same for stdout, whose failure is an error."""

    def _give_up(self, error: Exception) -> None:
        super()._give_up(error)
        if isinstance(error, BrokenPipeError):
            raise OutputError from error
        why = getattr(error, "strerror", None) or error
        raise OutputError(
            f"stdout: the result cannot be written ({why}); free space, or redirect it"
        ) from error


class _Closed(io.TextIOBase):
    """Stands for stdout if the process was started without one."""

    def write(self, text: str) -> int:
        del text
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
