"""What an attack's game is: the rules that its Protocol alone does not say."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Game"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One game between an attacker and a mechanism; ``dpaudit list attacks`` prints it.

    An attack names its games in the class attribute ``games`` and what it holds beyond what the
    game gives it (a key, a file) in ``holds``. Both are literals: they are read from its source,
    and nothing is imported.
    """

    name: str
    protocol: type
    """What an attack that plays it has to have."""
    sees: str
    says: str
    success: str
    """What counts as success."""
    knows: str
    """What the attacker knows of the values or of the data."""
    releases: str
    """How many releases it needs."""
    labels: bool
    """Whether it must be told from which value each of some releases was made."""
    used_by: tuple[str, ...]
    """Commands that play it."""
