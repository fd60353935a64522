"""An attack without any secret: the candidate nearest to the release wins.

The baseline that any key holder must beat.
"""

from __future__ import annotations

from dpaudit.protocols import Array


class NearestCandidate:
    """The optimal attack on honest Gaussian noise: its likelihood falls with the distance."""

    games = ("scoring",)  # dpaudit list attacks prints the rules; ``holds`` would name its secret

    def score(self, releases: Array, candidates: Array) -> Array:
        """Minus the Euclidean distance, shape (t, m)."""
        return -(((releases[:, None] - candidates) ** 2).sum(-1) ** 0.5)
