"""The rules of an attack's game that its Protocol alone does not state."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Game"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One game between an attacker and a mechanism; ``dpaudit list attacks`` prints it.

    An attack names its games in the class attribute ``games``, and what it holds beyond what the
    game gives it (a key, a file) in ``holds``.
    """

    name: str
    protocol: type
    """The Protocol of an attack that plays it."""
    sees: str
    says: str
    success: str
    """What counts as success."""
    knows: str
    """What the attacker knows about the values or the data."""
    releases: str
    """How many releases it needs."""
    labels: bool
    """Whether it needs releases labelled with the value they were made from."""
    used_by: tuple[str, ...]
    """Commands that play it."""
