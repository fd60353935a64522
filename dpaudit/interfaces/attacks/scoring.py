"""Which of the candidates was released?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpaudit.interfaces.attacks.game import Game

if TYPE_CHECKING:
    from dpaudit.interfaces.arrays import Array

__all__ = ["SCORING", "Attack"]


@runtime_checkable
class Attack(Protocol):
    """Maps releases and candidates to scores, arrays or tensors."""

    def score(self, releases: Array, candidates: Array) -> Array:
        """Scores (t, m) for ``releases`` (t, d), higher is likelier.

        ``candidates`` has shape (t, m, d) or (m, d).
        """

    def evidence(self, releases: Array, candidates: Array, truth: Array) -> Mapping[str, Any]:
        """JSON-ready data for a figure of how the attack sees these releases; may be empty."""


SCORING = Game(
    name="scoring",
    protocol=Attack,
    sees="one release, and the query results that it may be of",
    says="a score for each candidate",
    success="the right candidate has the highest score",
    knows="candidate values",
    releases="1",
    labels=False,
    used_by=("dpaudit attack", "dpaudit run"),
)
