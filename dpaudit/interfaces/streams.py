"""Keyed randomness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["Stream"]


class Stream(Protocol):
    """Keyed randomness: the same key and labels give the same numbers everywhere."""

    def child(self, *labels: str | int) -> Stream:
        """An independent stream for part of the work."""

    def entropy(self) -> bytes:
        """32 bytes to use as a seed; always the same."""

    def bytes(self, n: int) -> bytes:
        """The next ``n`` cryptographically strong bytes."""

    def numpy(self) -> np.random.Generator:
        """A fast generator with a 256-bit seed from this stream: statistical, not cryptographic."""

    def torch(self, device: torch.device) -> torch.Generator:
        """The same for a CUDA device."""
