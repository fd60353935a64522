"""What pages have in common."""

from __future__ import annotations

__all__ = ["drawn"]


def drawn(*pictures: object) -> list[object]:
    """The pictures that there is something to draw for."""
    return [p for p in pictures if p is not None]
