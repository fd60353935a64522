"""Was this record in the training set?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpaudit.interfaces.attacks.game import Game

if TYPE_CHECKING:
    import torch

__all__ = ["MEMBERSHIP", "MembershipAttack"]


@runtime_checkable
class MembershipAttack(Protocol):
    """Accumulates evidence about K canaries over the steps of a training run."""

    def look(self, gradients: torch.Tensor) -> Any:
        """What the other methods need of the canaries' clipped ``gradients`` (K, d) at one step."""

    def informed(
        self, residual: torch.Tensor, gradients: Any, present: torch.Tensor
    ) -> torch.Tensor:
        """One step's evidence, for an attacker who knows which other canaries are in the batch.

        ``residual`` (d,) is the release less the batch's sum, ``present`` (K,) says which canaries
        are in it.
        """

    def blind(self, rest: torch.Tensor, gradients: Any) -> torch.Tensor:
        """The same for an attacker who knows of no canary.

        ``rest`` (d,) is the release less the batch's other records.
        """

    def score(self, evidence: torch.Tensor) -> torch.Tensor:
        """Scores of the canaries (K,), higher for likelier members, from the summed evidence."""


MEMBERSHIP = Game(
    name="membership",
    protocol=MembershipAttack,
    sees="every noisy sum of gradients of a DP-SGD run",
    says="a score for each record in question",
    success="members have higher scores than others",
    knows="all records but those in question",
    releases="every step of a run",
    labels=False,
    used_by=("dpaudit run",),
)
