"""RAPPOR over time: devices that remember their permanent responses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.local.inputs import check_objects, whole_number
from dpaudit.local.rappor import Rappor
from dpaudit.local.reports import BloomReports
from dpaudit.protocols import Stream

__all__ = ["RapporDevices"]


class RapporDevices:
    """Devices 0 … n − 1, each with one cohort and one permanent response per object it reported.

    Formal guarantee: however many reports a device makes about one object, they are drawn from one
    permanent response, so together they are ``Rappor.permanent_epsilon``-differentially private
    (ε∞, the paper's Theorem 1). Not claimed: more for a device that reports different objects (ε∞
    of each, added); persistence, as responses live in this object's memory alone and a new one
    starts over, which costs each device another ε∞.
    """

    def __init__(self, mechanism: Rappor, n: int, *, stream: Stream) -> None:
        """``n`` devices whose cohorts, and later coins, come from ``stream``.

        The same calls give the same reports.

        Raises:
            UsageError: ``n`` is not a whole number from 1 to 2^31.
        """
        n = whole_number("n", n, 1, 1 << 31, hint=" devices")
        self.mechanism = mechanism
        self._stream = stream.child("rappor devices")
        self.cohort = mechanism.draw_cohorts(n, stream=self._stream)
        """Each device's cohort, (n,)."""
        self._keys = np.empty(0, dtype=np.int64)
        self._rows = np.empty(0, dtype=np.int64)
        self._memory = np.empty((0, mechanism.bits // 8), dtype=np.uint8)
        self._calls = 0

    def __len__(self) -> int:
        return len(self.cohort)

    @property
    def remembered(self) -> int:
        """How many permanent responses there are, over all devices."""
        return len(self._memory)

    def _find(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The row of the memory for each key, −1 where there is none."""
        if not len(self._keys):
            return np.full(len(keys), -1)
        place = np.searchsorted(self._keys, keys)
        place[place == len(self._keys)] = 0
        return np.where(self._keys[place] == keys, self._rows[place], -1)

    def permanent(
        self, objects: npt.NDArray[np.int64], devices: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.uint8]:
        """Permanent responses to ``objects`` (k,) of ``devices`` (k,), or all: packed (k, m / 8).

        The first question for an object draws one; every later one gets the same bits.

        Raises:
            UsageError: objects or devices of another shape or type, or out of range; not one object
                per device.
        """
        objects = check_objects(objects, self.mechanism.universe).astype(np.int64)
        if devices is None:
            devices = np.arange(len(self))
        devices = check_objects(devices, len(self), name="devices").astype(np.int64)
        if len(devices) != len(objects):
            raise UsageError(f"objects={len(objects)}: one for each of {len(devices)} devices")
        keys = devices << 32 | objects
        unknown = np.unique(keys[self._find(keys) < 0])
        if len(unknown):
            new_objects, new_devices = unknown & 0xFFFFFFFF, unknown >> 32
            drawn = self.mechanism.permanent(
                new_objects,
                self.cohort[new_devices],
                stream=self._stream.child("memory", self.remembered),
            )
            rows = np.arange(self.remembered, self.remembered + len(unknown))
            self._memory = np.concatenate([self._memory, drawn])
            every = np.concatenate([self._keys, unknown])
            order = np.argsort(every, kind="stable")
            self._keys, self._rows = every[order], np.concatenate([self._rows, rows])[order]
        return self._memory[self._find(keys)]

    def report(
        self, objects: npt.NDArray[np.int64], devices: npt.NDArray[np.int64] | None = None
    ) -> BloomReports:
        """A report of ``devices`` (k,), by default all, on ``objects`` (k,).

        It is instantaneous, from what each device remembers.

        Raises:
            UsageError: as in :meth:`permanent`.
        """
        permanent = self.permanent(objects, devices)
        bits = self.mechanism.instantaneous(
            permanent, stream=self._stream.child("report", self._calls)
        )
        self._calls += 1
        return BloomReports(self.cohort if devices is None else self.cohort[devices], bits)
