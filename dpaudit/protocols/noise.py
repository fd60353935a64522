"""What releases noise: sources, hosts, and the mitigations between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from dpaudit.types import EpsilonBounds, Rehearsal

__all__ = [
    "Array",
    "DType",
    "Host",
    "Mitigation",
    "NoiseSource",
    "ProtocolMitigation",
    "ReleasingSource",
    "Stream",
]

Array: TypeAlias = Any
"""A ``numpy.ndarray`` or a ``torch.Tensor``: the library of the query does the work.

``Any`` to a type checker, as the two share operators and not methods.
"""

DType: TypeAlias = Any
"""A type of numbers: numpy's or torch's."""


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
        other is given); ``dpaudit.numeric.drawing.cpu_sample`` makes this of what draws an array.
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


@runtime_checkable
class Host(Protocol):
    """Turns data into pairs of neighbouring query results of known L2 sensitivity.

    ``differences`` are those that the query's definition allows, for any data: all d unit vectors
    of a histogram, not the non-empty bins. Where they are too many to list, a method
    ``slack(direction) -> float`` bounds the distance from any other neighbour's difference to the
    nearest of ``differences``, Δ for the whole ball of a clipped gradient; without it, 0.
    """

    @property
    def dim(self) -> int:
        """Length d of a query result."""

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity Δ of the query."""

    def neighbours(self, n: int, *, stream: Stream) -> Array:
        """Query results of ``n`` random pairs of neighbours (D, D′), shape (n, 2, d), float64.

        Arrays or tensors; a host always gives the same kind.
        """

    def differences(self, direction: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """⟨q(D) − q(D′), direction⟩ over all neighbours, shape (m,), float64; see the class."""


@runtime_checkable
class Mitigation(Protocol):
    """Stands between a noise source and a release.

    It may have a method ``mixes(sigma) -> (own, added) | None``, for attackers who know it: the
    scale at which the source's noise is in a release (0: nothing that its key fits), and that of
    the added independent Gaussian noise; None, or no such method, where that does not describe it
    fully. It may have ``epsilon_after(source, delta, *, host, releases)``: ``epsilon`` for that
    many releases with one ``source`` and its secrets.
    """

    trusts: str
    """Who must be trusted for what, in one line."""

    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """Release each row of ``query`` (n, d), an array or a tensor, with noise; the same back.

        ``dpaudit.numeric.arrays.on_tensors`` lets one that is written for tensors take arrays.
        """

    def scale(self, sigma: float) -> float:
        """The noise scale that such a release honestly claims when the source claims ``sigma``."""

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """Bounds on a release's ε at ``delta`` for someone who knows every secret in ``source``."""


@runtime_checkable
class ProtocolMitigation(Mitigation, Protocol):
    """A mitigation of several parties; ``release`` samples what they would publish, many rows."""

    def rehearse(self, query: Array, source: NoiseSource, *, stream: Stream) -> Rehearsal:
        """Run the whole protocol once on ``query`` (1, d), with every party's own code."""
