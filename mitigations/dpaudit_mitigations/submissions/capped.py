"""A lifetime limit: a device submits its first few reports, and then never again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import LocalMechanism, Stream
from dpaudit_mitigations.submissions.people import check_people, composed_epsilon

__all__ = ["Capped"]


class Capped:
    """Only the first ``limit`` objects of a person are ever submitted.

    Threat model: as for ``every``.
    Formal guarantee: composition over at most ``limit`` reports, whatever the person does later:
    the total loss is bounded. Not claimed: that the first objects represent the later ones.
    Cost: fewer reports, so for the same people the server's estimate has √(n/limit) times the
    error.
    """

    trusts = "nobody"
    linked = True

    def __init__(self, limit: int = 30) -> None:
        """At most ``limit`` reports per person, ever.

        Raises:
            UsageError: a limit below 1.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise UsageError(f"limit={limit}: must be a whole number ≥ 1, all reports of a person")
        self.limit = limit

    def submit(
        self, objects: npt.NDArray[np.int64], mechanism: LocalMechanism, *, stream: Stream
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """A report of each of the first ``limit`` objects (users, n), user by user.

        Raises:
            UsageError: ``objects`` is not a table of whole numbers ≥ 0.
        """
        users, _ = check_people(objects)
        kept = objects[:, : self.limit]
        reports = mechanism.privatize(
            kept.reshape(-1).astype(np.int64), stream=stream.child("reports")
        )
        return reports, np.repeat(np.arange(users), kept.shape[1])

    def epsilon(
        self, mechanism: LocalMechanism, *, objects: int, users: int, delta: float
    ) -> float:
        """Of at most ``limit`` reports."""
        del users
        return composed_epsilon(mechanism.epsilon, reports=min(objects, self.limit), delta=delta)
