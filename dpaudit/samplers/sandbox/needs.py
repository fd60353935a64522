"""What a sampler's text says of where its code and files lie, so that the sandbox can show them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["compiled_code", "module", "options", "words"]


def words(argv: Iterable[str]) -> list[str]:
    """The program and all words of its command line that are files or folders."""
    first, *rest = argv
    return [shutil.which(first) or first, *(word for word in rest if os.path.exists(word))]


def module(place: str) -> list[str]:
    """The file of a Python module: a path, or a dotted name if that is found in the working directory."""
    if "/" in place or place.endswith(".py"):
        return [place]
    top = place.partition(".")[0]
    return [path for path in (f"{top}.py", top) if os.path.exists(path)]


def options(*references: str | None) -> list[str]:
    """Files that the options of ``NAME:opt=value,…`` name, such as a key."""
    pairs = [text.partition(":")[2].split(",") for text in references if text]
    values = [pair.partition("=")[2] for some in pairs for pair in some]
    return [value for value in values if value and os.path.exists(value)]


def compiled_code(distribution: str) -> Path | None:
    """A folder that a distribution's registered sources share for compiled code; None if none can be made.

    It is the one place outside the scratch that a sandboxed source may write, and the auditor never reads it: compiling
    takes many seconds, and a sandbox that forgets would do it in every process.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "dpaudit" / "compiled" / f"{distribution}-{sys.implementation.cache_tag}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
