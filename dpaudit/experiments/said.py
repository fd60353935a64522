"""What a stranger's exception says, whatever its ``__str__`` does."""

from __future__ import annotations

__all__ = ["said"]


def said(error: BaseException) -> str:
    """Its words in one line; empty where it has none."""
    try:
        return " ".join(str(error).split())
    except Exception:  # noqa: BLE001 (a plug-in's own __str__ may do anything)
        return "it cannot say what"
