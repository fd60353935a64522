"""Writing a report's files: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_text"]


def write_text(text: str, path: Path) -> Path:
    """Write UTF-8 beside ``path``, then rename, making its folder: a reader sees the old file or the new one, never half.

    Raises:
        OSError: the file cannot be written; the old one stands as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # A lone surrogate (a file name that is not UTF-8) becomes \udcxx, which JSON reads back as it was.
        part.write_bytes(text.encode("utf-8", errors="backslashreplace"))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path
