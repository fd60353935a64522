"""What a census publishes of its noise: every measurement with its geography, query and scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["NoisyMeasurements", "NoisyQuery"]


@dataclass(frozen=True, kw_only=True)
class NoisyQuery:
    """The noisy answers of one query in all geographies of one level.

    ``values`` (n, c) int64 has a row for each of ``geocodes`` (nation ``us``, states of two digits,
    counties of five) and a column for each of ``cells``. ``scale`` is the parameter σ of the
    discrete Gaussian that was claimed, and ``variance`` that of one value's noise. ``zeros`` (c,)
    marks structural zeros: cells that no record can be in, whose true count is 0 in every
    geography. There the value is the noise.
    """

    level: str
    query: str
    geocodes: tuple[str, ...]
    cells: tuple[str, ...]
    values: npt.NDArray[np.int64]
    scale: float
    variance: float
    zeros: npt.NDArray[np.bool_]

    @property
    def noise(self) -> npt.NDArray[np.int64]:
        """The values in structural zeros, shape (n, zeros): the noise itself."""
        return self.values[:, self.zeros]


@dataclass(frozen=True, kw_only=True)
class NoisyMeasurements:
    """All noisy answers of one run, nation first: what a noisy measurement file holds."""

    queries: tuple[NoisyQuery, ...]

    def of(self, level: str, query: str) -> NoisyQuery:
        """The answers of ``query`` at ``level``.

        Raises:
            KeyError: not measured there.
        """
        for found in self.queries:
            if (found.level, found.query) == (level, query):
                return found
        raise KeyError((level, query))
