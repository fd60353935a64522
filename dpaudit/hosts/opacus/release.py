"""What an observer of a private training run is handed at each step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Release"]


@dataclass(frozen=True, eq=False, slots=True)
class Release:
    """One logical step's draw, before Opacus divides by anything or adds up over processes.

    Attributes:
        step: how many draws the façade made before this one.
        sigma: what the source was asked for, noise multiplier × clipping bound, in the gradient's unit; a mitigation may
            add to it (``mitigation.scale(sigma)``).
        query: this process's sum of clipped gradients, flattened and joined in the optimizer's order, shape (d,).
        noisy: ``query`` as released, shape (d,). Both are copies of their own, and no part of a graph.
    """

    step: int
    sigma: float
    query: torch.Tensor
    noisy: torch.Tensor
