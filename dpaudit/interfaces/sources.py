"""Noise made inside the process: ``dpaudit.sources``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

    from dpaudit.interfaces.hosts import Host
    from dpaudit.interfaces.streams import Stream
    from dpaudit.types import EpsilonBounds

__all__ = ["NoiseSource", "ReleasingSource"]


@runtime_checkable
class NoiseSource(Protocol):
    """Makes noise inside the process, as torch tensors."""

    @property
    def claim(self) -> str:
        """What this source says it is, e.g. ``gaussian:sigma=1`` (true or not)."""

    @property
    def sigma(self) -> float:
        """Standard deviation of one coordinate as claimed."""

    @property
    def dim(self) -> int | None:
        """The only dimension it can serve, or None for any."""

    def sample(
        self,
        n: int,
        d: int,
        *,
        stream: Stream,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> torch.Tensor:
        """``n`` noise vectors, shape (n, d); float64 on the CPU unless told otherwise."""

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """What adding it to the host's query really gives at ``delta``, towards someone who knows every secret in it."""


@runtime_checkable
class ReleasingSource(NoiseSource, Protocol):
    """A noise source that must see the query: noise on a lattice, snapping, sums that go wrong."""

    def release(self, query: torch.Tensor, *, stream: Stream) -> torch.Tensor:
        """Release each row of ``query`` (n, d); same shape and dtype back. What it says is not ``query + sample``."""
