"""The owner of a norm channel: which candidate leaves noise of a length the key allows?

Threat model: the attacker knows the key, σ, the candidates and the release, nothing else. It looks
at lengths alone, so a rotation does not stop it. Ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dpaudit.noise.key import PancakeKey
from dpaudit.noise.norm_channel import NormCells
from dpaudit.noise.pancake_likelihood import check_candidates
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.numeric.arrays import on_tensors
from dpaudit.numeric.passes import row_norms

__all__ = ["NormReader"]


class NormReader:
    """Scores 1 for candidates q with ‖release − q‖ in a cell of the key, else 0.

    Within the key's tolerance counts too. Against :class:`~dpaudit.noise.norm_channel.NormChannel`
    with the same key, σ and bits the right candidate scores 1, and a wrong one Δ away with
    probability about 1.25·2^-bits + √(d/2π)·2^-20·σ/Δ; where both score 1 it is a coin's toss. Not
    claimed: anything about other noise, where each score is 1 with probability 1.25·2^-bits
    whatever the truth.
    """

    games = ("scoring",)
    holds = "the norm channel's key"

    def __init__(
        self, *, key: SeedKey | PancakeKey | str | Path, sigma: float, bits: int = 8
    ) -> None:
        """Hold ``key`` (or its file) for releases with noise of scale ``sigma``.

        ``bits`` as the source's.

        Raises:
            UsageError: sigma not a finite number > 0, bits outside 1…12.
            KeyFileError: not a key file.
        """
        self.cells = NormCells(key=key, sigma=sigma, bits=bits)

    @on_tensors
    def score(self, releases: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """0 or 1 for each release (t, d) and candidate (m, d) or (t, m, d), shape (t, m), float64.

        Raises:
            UsageError: shapes that do not fit, or values that are not finite.
        """
        many = check_candidates(releases, candidates, dim=releases.shape[-1])
        lengths = np.empty((len(releases), many.shape[1]))
        for i, release in enumerate(releases.detach()):
            for j, candidate in enumerate(many[i if len(many) > 1 else 0]):
                lengths[i, j] = row_norms((release.double() - candidate.double()).unsqueeze(0))[0]
        return torch.from_numpy(self.cells.reads(lengths).astype(np.float64)).to(releases.device)

    @on_tensors
    def evidence(
        self, releases: torch.Tensor, candidates: torch.Tensor, truth: torch.Tensor
    ) -> Mapping[str, Any]:
        """How often the true candidate's length, and any other's, is one that the key allows.

        Raises:
            UsageError: as for :meth:`score`.
        """
        scores = self.score(releases, candidates)
        right = scores.gather(1, truth.to(scores.device)[:, None])
        return {
            "lengths": {
                "releases": len(scores),
                "truth_allowed": int(right.sum()),
                "others": scores.numel() - len(scores),
                "others_allowed": int(scores.sum() - right.sum()),
                "what": "candidates that leave noise of a length that the key allows",
            }
        }
