"""Noise made inside the process: ``dpaudit.sources``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

    from dpaudit.interfaces.arrays import Array, DType
    from dpaudit.interfaces.hosts import Host
    from dpaudit.interfaces.streams import Stream
    from dpaudit.types import EpsilonBounds

__all__ = ["NoiseSource", "ReleasingSource"]


@runtime_checkable
class NoiseSource(Protocol):
    """Makes noise inside the process: an array, or a tensor where torch's types ask for one."""

    @property
    def claim(self) -> str:
        """The claimed law, true or not, e.g. ``gaussian:sigma=1``."""

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
        dtype: DType | None = None,
        device: torch.device | None = None,
    ) -> Array:
        """``n`` noise vectors, shape (n, d): float64 in a numpy array unless told otherwise.

        A torch ``dtype``, or a ``device``, asks for a tensor (float64 on the CPU where only the
        other is given); ``dpaudit.vectors.arrays.as_asked`` makes one of an array.
        """

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Bounds on ε at ``delta`` of the host's query with this noise, all secrets being known."""


@runtime_checkable
class ReleasingSource(NoiseSource, Protocol):
    """A noise source that must see the query: lattice noise, snapping, rounded sums."""

    def release(self, query: Array, *, stream: Stream) -> Array:
        """Release each row of ``query`` (n, d), an array or a tensor; same kind, shape and dtype.

        Not ``query + sample``.
        """
