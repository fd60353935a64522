"""Local differential privacy: ``dpaudit.local`` and ``dpaudit.submissions``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dpaudit.interfaces.streams import Stream

__all__ = ["LocalMechanism", "SubmissionPolicy"]


@runtime_checkable
class LocalMechanism(Protocol):
    """Privatises objects, whole numbers from 0, on their owners' devices: one report per object."""

    @property
    def epsilon(self) -> float:
        """The exact ε of one report: the largest log ratio of probabilities between two objects."""

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> Any:
        """Independent reports of objects (n,), one of the shapes in ``dpaudit.local.reports``."""

    def log_likelihood(
        self, reports: Any, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), shape (n, u), up to a constant of each report."""


@runtime_checkable
class SubmissionPolicy(Protocol):
    """What a device submits of its owner's objects: all, a few, the same again, unlinkably."""

    trusts: str
    """Who must be trusted for what, in one line."""
    linked: bool
    """Whether the server can tell which submissions are one person's."""

    def submit(
        self, objects: npt.NDArray[np.int64], mechanism: LocalMechanism, *, stream: Stream
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """Everybody's submissions for ``objects`` (users, n), in time order, and whose row each is.

        Where not ``linked`` the order of reports carries no information, and the second array is
        for the experiment alone.
        """

    def epsilon(
        self, mechanism: LocalMechanism, *, objects: int, users: int, delta: float
    ) -> float:
        """An upper bound on one person's ε at ``delta`` towards the server.

        ``objects`` is the number of objects of each of ``users`` people.
        """
