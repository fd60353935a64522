"""Third-party text in a message: printable, encodable and not too long."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["path_text", "quoted"]

_LONGEST = 80


def quoted(text: str, *, longest: int = _LONGEST) -> str:
    r"""``text`` in quotation marks, with escapes, cut after ``longest`` characters.

    >>> quoted("com.apple.health\x1b[2J")
    "'com.apple.health\\x1b[2J'"
    """
    return repr(text if len(text) <= longest else text[:longest] + "…")


def path_text(path: Path) -> str:
    """``path`` as printable text, whatever bytes it has."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
