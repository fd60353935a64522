"""Whose record is missing?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dpaudit.interfaces.attacks.game import Game

if TYPE_CHECKING:
    import torch

__all__ = ["IDENTIFICATION", "IdentificationAttack"]


@runtime_checkable
class IdentificationAttack(Protocol):
    """Ranks all d bins of a histogram at once by how likely one record is missing from each."""

    def scores(
        self, releases: torch.Tensor, base: torch.Tensor, *, include_none: bool = False
    ) -> torch.Tensor:
        """Scores (t, d) of "a record of bin j is missing" for ``releases`` (t, d).

        ``base`` (d,) is the full histogram; ``include_none`` adds a column for "none is".
        """

    def posterior(
        self,
        releases: torch.Tensor,
        base: torch.Tensor,
        *,
        include_none: bool = False,
        prior: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Probability of each bin (d,), from all ``releases`` (t, d) of one query result."""


IDENTIFICATION = Game(
    name="identification",
    protocol=IdentificationAttack,
    sees="releases of a histogram that lacks one record",
    says="a score for each bin",
    success="the bin of the missing record has the highest score",
    knows="all records but one",
    releases="1 or more of one query",
    labels=False,
    used_by=("dpaudit run",),
)
