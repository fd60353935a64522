"""What do people's own submissions reveal about them?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpaudit.interfaces.attacks.game import Game

if TYPE_CHECKING:
    from dpaudit.interfaces.streams import Stream

__all__ = ["POPULATION", "GameAttack"]


@runtime_checkable
class GameAttack(Protocol):
    """Plays a local-DP game: people submit privatised data, the adversary sees only that."""

    def play(self, users: int, *, stream: Stream) -> Mapping[str, Any]:
        """Play with ``users`` people; JSON-ready results. The same stream gives the same game."""


POPULATION = Game(
    name="population",
    protocol=GameAttack,
    sees="what each person's device submits under local differential privacy",
    says="a guess about each person, with its probability",
    success="the guess is right",
    knows="the mechanism; of the person nothing",
    releases="each person's submissions",
    labels=False,
    used_by=("dpaudit run",),
)
