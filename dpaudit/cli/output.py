"""Where results, notes and progress go: stdout is data, stderr is for people."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["emit", "note", "out_console", "progress_bar", "write_json_line"]


_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def out_console() -> Console:
    """A console on stdout; a pipe gets plain text of a fixed, generous width."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def emit(renderable: Any) -> None:
    """Print a result for people."""
    out_console().print(renderable)


def write_json_line(document: Any) -> None:
    """Print a result for programs: one JSON document, without characters that would steer a terminal or its direction."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    print(_STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def note(text: str) -> None:
    """A hint on stderr, after a blank line."""
    print(f"\n{text}", file=sys.stderr)


def progress_bar() -> Progress:
    """A progress bar on stderr; invisible where stderr is not a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
