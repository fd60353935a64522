"""RAPPOR's server: how often each bit of each cohort was set, and the true shares behind it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit_local.inputs import check_merge
from dpaudit_local.rappor import Rappor
from dpaudit_local.reports import BloomReports

__all__ = ["RapporServer"]

_UNPACKED = 1 << 23  # bits that are unpacked at a time, a byte each


class RapporServer:
    """Adds reported bits up by cohort; memory cohorts · m, however many reports."""

    def __init__(self, mechanism: Rappor) -> None:
        """A server with no reports yet, for devices with this ``mechanism``."""
        self.mechanism = mechanism
        self.counts = np.zeros((mechanism.cohorts, mechanism.bits), dtype=np.int64)
        """How many reports of a cohort set a bit, (cohorts, bits)."""
        self.sizes = np.zeros(mechanism.cohorts, dtype=np.int64)
        """How many reports each cohort made, (cohorts,)."""

    @property
    def reports(self) -> int:
        """How many reports were added."""
        return int(self.sizes.sum())

    def add(self, reports: BloomReports) -> None:
        """Take in reports.

        Raises:
            UsageError: cohorts or bits of another shape or type, or out of range; nothing is added
                then.
        """
        cohort, bits = self.mechanism.check_reports(reports)
        order = np.argsort(cohort, kind="stable")
        step = max(1, _UNPACKED // self.mechanism.bits)
        for start in range(0, len(order), step):
            rows = order[start : start + step]
            here, first = np.unique(cohort[rows], return_index=True)
            spread = np.unpackbits(bits[rows], axis=1, bitorder="little", count=self.mechanism.bits)
            self.counts[here] += np.add.reduceat(spread, first, axis=0, dtype=np.int64)
        self.sizes += np.bincount(cohort, minlength=self.mechanism.cohorts)

    def merge(self, other: RapporServer) -> None:
        """Take in what another server of the same mechanism added up.

        Raises:
            UsageError: its devices have another mechanism, or it is this server.
        """
        check_merge(self, other)
        self.counts += other.counts
        self.sizes += other.sizes

    def shares(self) -> npt.NDArray[np.float64]:
        """The share of each cohort's people whose Bloom filter has a bit set, (cohorts, bits).

        Unbiased, so not clipped. (c/N − p*) / (q* − p*): Erlingsson et al. 2014, section 4, where
        p* + (q* − p*)·t is the chance of a reported bit whose true one is 1 in a share t of the
        people. NaN for a cohort without reports.
        """
        law = self.mechanism
        with np.errstate(invalid="ignore"):
            seen = self.counts / self.sizes[:, None]
        return np.asarray((seen - law.p_star) / (law.q_star - law.p_star))
