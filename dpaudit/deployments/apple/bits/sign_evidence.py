"""Single signs taken in as they come: of Hadamard sketches, and of one-bit histograms."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.deployments.apple.bits.sign_estimates import histogram_flip, predictable_flip
from dpaudit.interfaces import Stream
from dpaudit.types import Interval

__all__ = ["HadamardEvidence", "HistogramEvidence"]

_RANGES = 16
_LEAST = 5 * _RANGES


class HadamardEvidence:
    """Signs with their function and coordinate; 9 bytes each."""

    def __init__(self) -> None:
        self._function, self._coordinate, self._sign = bytearray(), bytearray(), bytearray()

    def add(
        self, function: npt.NDArray[np.uint32], coordinate: npt.NDArray[np.uint32], sign: npt.NDArray[np.int8]
    ) -> None:
        """Take in signs ±1 (n,) with the places (n,) that they are of."""
        self._function += function.astype(np.uint32).tobytes()
        self._coordinate += coordinate.astype(np.uint32).tobytes()
        self._sign += sign.astype(np.int8).tobytes()

    def estimate(self, *, alpha: float, stream: Stream) -> tuple[Interval | None, str]:
        """The flip interval at confidence 1 − ``alpha`` and what it rests on; or None and why there is none."""
        if not self._sign:
            return None, "no record could be read"
        found = predictable_flip(
            np.frombuffer(self._function, dtype=np.uint32),
            np.frombuffer(self._coordinate, dtype=np.uint32),
            np.frombuffer(self._sign, dtype=np.int8),
            confidence=1 - alpha,
            stream=stream,
        )
        if found is None:
            return None, (
                "a sign says nothing of the coin that flipped it while the object is unknown, and no two records have "
                "the same function and coordinate"
            )
        bound, predictions = found
        return bound, f"a lower bound for ε only: {predictions} signs were predicted by others at their place"


class HistogramEvidence:
    """Positions and signs; 4 bytes a record."""

    def __init__(self) -> None:
        self._positions = bytearray()
        self._ones = 0

    def add(self, position: npt.NDArray[np.uint32], sign: npt.NDArray[np.int8]) -> None:
        """Take in signs ±1 (n,) at their positions (n,)."""
        self._positions += position.astype(np.uint32).tobytes()
        self._ones += int((sign > 0).sum())

    def estimate(self, *, positions: int | None, alpha: float) -> tuple[Interval | None, str]:
        """The flip interval at confidence 1 − ``alpha`` and what it rests on; or None and why there is none.

        ``positions`` (the parameter p) are believed to be drawn uniformly where all lie below p and, for 80 records and
        more, their shares of 16 equal ranges pass Pearson's χ² at 0.001. The lower end of q, so a verdict that less is
        shown than claimed, needs that, and also that objects are one-hot: where a share of one half cannot be excluded,
        which vectors of random signs would have at any ε, it is 0.
        """
        if not self._positions:
            return None, "no record could be read"
        at = np.frombuffer(self._positions, dtype=np.uint32)
        why = self._not_uniform(at, positions)
        flip = histogram_flip(self._ones, len(at), positions=None if why else positions, confidence=1 - alpha)
        share = f"{self._ones} of {len(at)} signs are +1"
        if flip.high >= 0.5:
            why = why or "a share that may be one half is also what vectors of random signs have"
            flip = Interval(low=0.0, high=0.5, confidence=flip.confidence, method=flip.method)
        return flip, f"{share}; a lower bound for ε only, because {why}" if why else f"{share}, if objects are one-hot"

    def _not_uniform(self, at: npt.NDArray[np.uint32], positions: int | None) -> str:
        if positions is None or positions < 3:
            return "the report does not say how many positions there are"
        if int(at.max()) >= positions:
            return f"position {int(at.max())} does not lie below p = {positions}"
        if len(at) < _LEAST or positions < _RANGES:
            return ""
        edges = np.arange(_RANGES + 1) * positions // _RANGES
        seen, _ = np.histogram(at, bins=edges - 0.5)
        expected = len(at) * np.diff(edges) / positions
        p = float(scipy.special.chdtrc(_RANGES - 1, float(((seen - expected) ** 2 / expected).sum())))
        return f"positions are not uniform (p = {p:.1e})" if p < 1e-3 else ""
