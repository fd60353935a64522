"""The shuffle model: all reports of one round go through a shuffler that removes their senders."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.accounting.shuffling import shuffled_epsilon
from dpaudit.protocols import LocalMechanism, Stream
from dpaudit_mitigations.submissions.people import check_people, composed_epsilon

__all__ = ["Shuffled"]


class Shuffled:
    """Round by round (each person's t-th object), reports arrive shuffled and without identity.

    Threat model: the server sees the shuffled reports of each round. The shuffler does not collude
    with it, and sees only which device sends, not what (the reports are encrypted for the server).
    Formal guarantee: each round is (ε', δ')-DP with ε' amplified by shuffling (Feldman, McMillan
    and Talwar 2021); the rounds of a person compose. Half of δ goes to the rounds, half to their
    composition. Neighbours differ in all objects of one person.
    Not claimed: anything if shuffler and server collude, where the mechanism's own ε composes as
    for ``every``; or if a report contains something about its device (a fixed cohort, a name, a
    time). Reports that the server sent itself or sees by other means hide nobody: ``users`` counts
    the others. That it knows people's objects does no harm. Cost: a party that must be trusted not
    to collude; the server can no longer recognise a returning device.
    """

    trusts = "the shuffler, not to collude with the server"
    linked = False

    def submit(
        self, objects: npt.NDArray[np.int64], mechanism: LocalMechanism, *, stream: Stream
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """Reports of all objects (users, n), round by round, each shuffled; and whose they are.

        Raises:
            UsageError: ``objects`` is not a table of whole numbers ≥ 0.
        """
        users, n = check_people(objects)
        rng = stream.child("shuffler").numpy()
        order = np.concatenate([rng.permutation(users) for _ in range(n)])
        rounds = np.repeat(np.arange(n), users)
        reports = mechanism.privatize(
            objects[order, rounds].astype(np.int64), stream=stream.child("reports")
        )
        return reports, order

    def epsilon(
        self, mechanism: LocalMechanism, *, objects: int, users: int, delta: float
    ) -> float:
        """Against a server that does not collude; the unshuffled one if smaller or δ = 0."""
        alone = composed_epsilon(mechanism.epsilon, reports=objects, delta=delta)
        if delta == 0 or not math.isfinite(mechanism.epsilon):
            return alone
        each = delta / (2 * objects)
        one_round = shuffled_epsilon(mechanism.epsilon, each, users=users)
        shuffled = composed_epsilon(one_round, reports=objects, delta=delta, delta_each=each)
        return min(alone, shuffled)
