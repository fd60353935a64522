"""An attack without any secret: the candidate nearest to the release wins.

The baseline that any key holder must beat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class NearestCandidate:
    """The optimal attack on honest Gaussian noise: its likelihood falls with the distance."""

    games = ("scoring",)  # dpaudit list attacks prints the rules; ``holds`` would name its secret

    def score(self, releases: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Minus the Euclidean distance, shape (t, m)."""
        return -torch.linalg.vector_norm(releases.unsqueeze(1) - candidates, dim=-1)

    def evidence(
        self, releases: torch.Tensor, candidates: torch.Tensor, truth: torch.Tensor
    ) -> Mapping[str, Any]:
        """Nothing to draw."""
        return {}
