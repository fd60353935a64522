"""What pages have in common."""

from __future__ import annotations

__all__ = ["css_class", "drawn"]


def drawn(*pictures: object) -> list[object]:
    """The pictures that there is something to draw for."""
    return [p for p in pictures if p is not None]


def css_class(value: object) -> str:
    """A CSS class: one of three words, whatever the document says."""
    return str(value) if value in {"finding", "no-finding"} else "inconclusive"
