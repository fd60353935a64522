"""Memoisation: the same object of the same device always gives the same report, bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.protocols import LocalMechanism, Stream
from dpaudit_mitigations.submissions.people import check_people

__all__ = ["Memoised"]


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
        known, place = np.unique(objects.reshape(-1).astype(np.int64), return_inverse=True)
        distinct, which = np.unique(owner * len(known) + place, return_inverse=True)
        reports = mechanism.privatize(known[distinct % len(known)], stream=stream.child("reports"))
        return reports[which], owner

    def epsilon(
        self, mechanism: LocalMechanism, *, objects: int, users: int, delta: float
    ) -> float:
        """One report's for one object; infinite for more, since the pattern of repetition shows."""
        del users, delta
        return mechanism.epsilon if objects == 1 else math.inf
