"""What was the query result itself?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpaudit.interfaces.attacks.game import Game

if TYPE_CHECKING:
    import torch

__all__ = ["RECONSTRUCTION", "ReconstructionAttack"]


@runtime_checkable
class ReconstructionAttack(Protocol):
    """Finds unknown counts of a histogram, without a list of candidates."""

    def reconstruct_counts(
        self,
        releases: torch.Tensor,
        known: torch.Tensor,
        unknown_index: torch.Tensor,
        *,
        bound: int,
        lowest: int | torch.Tensor = 0,
    ) -> Any:
        """The counts at ``unknown_index`` (m,), and whether to trust them.

        ``releases`` (t, d) are of one query result, ``known`` (d,) holds the other counts; each
        unknown one is one of ``bound`` whole numbers from ``lowest`` on.
        """


RECONSTRUCTION = Game(
    name="reconstruction",
    protocol=ReconstructionAttack,
    sees="releases of a histogram with m unknown counts",
    says="the m counts, and whether it is sure",
    success="all m counts are right",
    knows="all counts but m",
    releases="1 or more of one query",
    labels=False,
    used_by=("dpaudit run",),
)
