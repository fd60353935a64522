"""Where results, notes and progress go: stdout is data, stderr is for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment

from dpaudit.results.text import harmless, json_escaped, tell

__all__ = ["SafeConsole", "emit", "note", "out_console", "progress_bar", "write_json_line"]


class SafeConsole(Console):
    """A console that writes printable text only and takes no text for markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    @property
    def file(self) -> Any:
        """Where rich writes; a live display puts a proxy of its own around ours."""
        file = super().file
        return getattr(file, "rich_proxied_file", file)

    @file.setter
    def file(self, new: Any) -> None:
        self._file = new

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does; control segments, which are rich's own, stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


def out_console() -> Console:
    """A console on stdout; a pipe gets plain text, 140 columns wide."""
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


def progress_bar() -> Progress:
    """A progress bar on stderr; invisible where stderr is not a terminal."""
    console = SafeConsole(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
