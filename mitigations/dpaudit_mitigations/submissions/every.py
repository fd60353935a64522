"""No policy: a fresh report of every object, under the sender's identity. The usual baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.protocols import LocalMechanism, Stream
from dpaudit_mitigations.submissions.people import check_people, composed_epsilon

__all__ = ["Every"]


class Every:
    """Each object is privatised afresh and submitted, linked to its sender.

    Threat model: the server sees all of a person's reports and knows that they are one person's.
    Formal guarantee: (ε, δ) by composition of the mechanism's own ε over all objects of a person; δ
    = 0 gives n·ε. Not claimed: any bound that does not grow with the number of objects.
    Cost: none.
    """

    trusts = "nobody"
    linked = True

    def submit(
        self, objects: npt.NDArray[np.int64], mechanism: LocalMechanism, *, stream: Stream
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """A report of every object (users, n): users·n reports, user by user, in order of time.

        Raises:
            UsageError: ``objects`` is not a table of whole numbers ≥ 0.
        """
        users, n = check_people(objects)
        reports = mechanism.privatize(
            objects.reshape(-1).astype(np.int64), stream=stream.child("reports")
        )
        return reports, np.repeat(np.arange(users), n)

    def epsilon(
        self, mechanism: LocalMechanism, *, objects: int, users: int, delta: float
    ) -> float:
        """Of ``objects`` reports; ``users`` does not matter."""
        del users
        return composed_epsilon(mechanism.epsilon, reports=objects, delta=delta)
