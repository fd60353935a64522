"""Writing a report's files: whole or not at all."""

from __future__ import annotations

from pathlib import Path

from dpaudit.results.files import write_file

__all__ = ["write_text"]


def write_text(text: str, path: Path) -> Path:
    """Write UTF-8 to ``path`` as :func:`~dpaudit.results.files.write_file` does, making its folder.

    Raises:
        OSError: the file cannot be written; the old one stands as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_file(path, text)
