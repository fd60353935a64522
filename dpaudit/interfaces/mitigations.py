"""What stands between a source and a release: ``dpaudit.mitigations``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from dpaudit.interfaces.arrays import Array
    from dpaudit.interfaces.hosts import Host
    from dpaudit.interfaces.sources import NoiseSource
    from dpaudit.interfaces.streams import Stream
    from dpaudit.types import EpsilonBounds, Rehearsal

__all__ = ["Mitigation", "ProtocolMitigation"]


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

        ``dpaudit.vectors.arrays.on_tensors`` lets one that is written for tensors take arrays.
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
