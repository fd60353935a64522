"""Policies of what a device submits about its owner under local differential privacy.

``every``: a fresh report of every object (what Apple's devices do, up to their budget). ``capped``:
no more than a limit. ``memoised``: the same report for the same object again. ``shuffled``: through
a shuffler that cuts the link to the device. A smaller ε is not a policy but a parameter of the
mechanism. Only ``every`` is a default anywhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.accounting.sequences import Loss, compose
from dpaudit.accounting.shuffling import shuffled_epsilon
from dpaudit.errors import UsageError
from dpaudit.protocols import LocalMechanism, Stream

__all__ = ["Capped", "Every", "Memoised", "Shuffled"]


def check_people(objects: npt.NDArray[np.integer]) -> tuple[int, int]:
    """Return (users, objects per user).

    Raises:
        UsageError: not a table (users, n) of whole numbers from 0 to 2^63 − 1 with at least one
            user and one object.
    """
    if objects.ndim != 2 or 0 in objects.shape:
        raise UsageError(
            f"objects of shape {objects.shape}: must be (users, submissions), not empty"
        )
    if (
        not np.issubdtype(objects.dtype, np.integer)
        or int(objects.min()) < 0
        or int(objects.max()) >= 1 << 63
    ):
        raise UsageError(f"objects of {objects.dtype}: must be whole numbers from 0 to 2^63 − 1")
    return objects.shape[0], objects.shape[1]


def composed_epsilon(
    epsilon: float, *, reports: int, delta: float, delta_each: float = 0.0
) -> float:
    """An ε at ``delta`` of ``reports``, each (``epsilon``, ``delta_each``)-DP, or infinite.

    Raises:
        UsageError: a parameter out of range (see :func:`dpaudit.accounting.sequences.compose`).
    """
    if not math.isfinite(epsilon):
        return epsilon
    if epsilon == 0 and delta_each * reports <= delta:
        return 0.0
    return compose([Loss(epsilon, delta_each)] * reports, delta=delta)


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


class Capped(Every):
    """Only the first ``limit`` objects of a person are ever submitted.

    Threat model: as for ``every``.
    Formal guarantee: composition over at most ``limit`` reports, whatever the person does later:
    the total loss is bounded. Not claimed: that the first objects represent the later ones.
    Cost: fewer reports, so for the same people the server's estimate has √(n/limit) times the
    error.
    """

    def __init__(self, limit: int = 30) -> None:
        """At most ``limit`` reports per person, ever.

        Raises:
            UsageError: a limit below 1.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise UsageError(f"limit={limit}: must be a whole number ≥ 1")
        self.limit = limit

    def submit(
        self, objects: npt.NDArray[np.int64], mechanism: LocalMechanism, *, stream: Stream
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """A report of each of the first ``limit`` objects (users, n), user by user.

        Raises:
            UsageError: ``objects`` is not a table of whole numbers ≥ 0.
        """
        check_people(objects)
        return super().submit(objects[:, : self.limit], mechanism, stream=stream)

    def epsilon(
        self, mechanism: LocalMechanism, *, objects: int, users: int, delta: float
    ) -> float:
        """Of at most ``limit`` reports."""
        reports = min(objects, self.limit)
        return super().epsilon(mechanism, objects=reports, users=users, delta=delta)


class Memoised:
    """A device draws one report per object and repeats it (RAPPOR's permanent response).

    Threat model: as for ``every``. Averaging over many reports of one object gives the server
    nothing. Formal guarantee: none against all neighbours. Equal reports show which submissions had
    equal objects, with certainty except for a chance repetition; a sequence with another pattern is
    ruled out, so :meth:`epsilon` is infinite from two objects on. Between two sequences with the
    same pattern of repetition the loss is that of one report for each distinct object (basic
    composition). Not claimed: that the pattern is harmless. RAPPOR hides it under a second,
    instantaneous randomisation (``rappor``). Cost: a memory on the device; the server's estimate of
    one person's frequent objects no longer improves with time. Source: Erlingsson, Pihur and
    Korolova, CCS 2014, Section 2; Ding, Kulkarni and Yekhanin, NeurIPS 2017, Section 4.
    """

    trusts = "nobody"
    linked = True

    def submit(
        self, objects: npt.NDArray[np.int64], mechanism: LocalMechanism, *, stream: Stream
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """Reports of all objects (users, n), user by user; a user's equal objects share one report.

        Raises:
            UsageError: ``objects`` is not a table of whole numbers ≥ 0.
        """
        users, n = check_people(objects)
        owner = np.repeat(np.arange(users), n)
        distinct_objects, place = np.unique(
            objects.reshape(-1).astype(np.int64), return_inverse=True
        )
        distinct, which = np.unique(owner * len(distinct_objects) + place, return_inverse=True)
        reports = mechanism.privatize(
            distinct_objects[distinct % len(distinct_objects)], stream=stream.child("reports")
        )
        return reports[which], owner

    def epsilon(
        self, mechanism: LocalMechanism, *, objects: int, users: int, delta: float
    ) -> float:
        """One report's for one object; infinite for more, since the pattern of repetition shows."""
        del users, delta
        return mechanism.epsilon if objects == 1 else math.inf


class Shuffled:
    """Round by round (each person's t-th object), reports arrive shuffled and without identity.

    Threat model: the server sees the shuffled reports of each round. The shuffler does not collude
    with it, and sees only which device sends, not what (the reports are encrypted for the server).
    Formal guarantee: each round is (ε', δ')-DP with ε' amplified by shuffling (Feldman, McMillan
    and Talwar 2021); the rounds of a person compose. Half of δ goes to the rounds, half to their
    composition. Neighbours differ in all objects of one person.
    Not claimed: anything if shuffler and server collude, where the mechanism's own ε composes as
    for ``every``; or if a report contains something about its device (a fixed cohort, a name, a
    time). Reports that the server sent itself or sees by other means do not hide anyone: ``users``
    counts the others. That it knows people's objects does no harm. Cost: a party that must be
    trusted not to collude; the server can no longer recognise a returning device.
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
