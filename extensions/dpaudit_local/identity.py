"""No privacy: devices submit the object itself. The baseline for everything else."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.protocols import Stream
from dpaudit_local.inputs import check_objects
from dpaudit_local.reports import CategoryReports

__all__ = ["Identity"]


class Identity:
    """The report is the object. ε is infinite: two objects never make the same report.

    It has no server: ``numpy.bincount(reports.category)`` is the exact count of every object.

    >>> from dpaudit.randomness import KeyedStream
    >>> Identity().privatize(np.array([3, 1]), stream=KeyedStream.from_seed(1)).category.tolist()
    [3, 1]
    """

    @property
    def epsilon(self) -> float:
        """Infinity."""
        return math.inf

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> CategoryReports:  # noqa: ARG002
        """The objects (n,); nothing is drawn from ``stream``.

        Raises:
            UsageError: ``objects`` are not whole numbers from 0.
        """
        return CategoryReports(check_objects(objects, 1 << 63).astype(np.int64))

    def log_likelihood(
        self, reports: CategoryReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), (n, u): 0 for the object itself, else −∞.

        Raises:
            UsageError: ``objects`` are not whole numbers from 0.
        """
        return np.where(
            reports.category[:, None] == check_objects(objects, 1 << 63)[None, :], 0.0, -math.inf
        )
