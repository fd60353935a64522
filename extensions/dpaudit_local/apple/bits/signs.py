"""The flip probability of single signs, of Hadamard sketches and one-bit histograms."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.stats import clopper_pearson
from dpaudit.types import Interval

__all__ = ["HadamardSigns", "HistogramSigns", "histogram_flip", "predictable_flip"]


def predictable_flip(
    function: npt.NDArray[np.integer],
    coordinate: npt.NDArray[np.integer],
    sign: npt.NDArray[np.integer],
    *,
    confidence: float,
    stream: Stream,
) -> tuple[Interval, int] | None:
    """An upper bound for the flip probability q of Hadamard signs (n,), and its predictions.

    A sign is ±1 by its object, flipped with probability q ≤ 1/2; alone it shows nothing about q,
    because objects may be anything. But records with the same function and coordinate in which the
    same object recurs agree too often. In a random order (so the order of the file does not matter)
    each sign is predicted by the majority of those before it at its place, by the last one if they
    are even. Given everything before, and all objects, no prediction is right with probability
    above 1−q; the number of predictions P is fixed beforehand. So the number of right ones is
    stochastically at most Binomial(P, 1−q), and Clopper and Pearson's lower end for 1−q holds.

    Formal guarantee: q ≤ high with probability ≥ ``confidence`` whatever the objects, if signs are
    flipped independently of each other with a probability of at most 1/2. The lower end is 0: signs
    cannot show that a flip happened as often as promised. None if no place occurs twice: then
    nothing is identified.

    Raises:
        UsageError: arrays of unequal length, or signs that are not ±1.
    """
    n = len(sign)
    if len(function) != n or len(coordinate) != n or not bool(np.isin(sign, (-1, 1)).all()):
        raise UsageError(
            f"signs: {n} need as many functions and coordinates, and each must be −1 or +1"
        )
    shuffled = stream.child("order").numpy().permutation(n)
    # the sort is stable, so the order within a place is random
    order = shuffled[np.lexsort((coordinate[shuffled], function[shuffled]))]
    signs = sign[order].astype(np.int64)
    first = np.ones(n, dtype=bool)
    first[1:] = (np.diff(function[order].astype(np.int64)) != 0) | (
        np.diff(coordinate[order].astype(np.int64)) != 0
    )
    predictions = n - int(first.sum())
    if predictions == 0:
        return None
    before = np.cumsum(signs) - signs
    before -= before[first][np.cumsum(first) - 1]  # the sum before the place began
    predicted = np.where(before != 0, np.sign(before), np.roll(signs, 1))
    right = int(((predicted == signs) & ~first).sum())
    lower = clopper_pearson(right, predictions, confidence=1 - 2 * (1 - confidence)).low
    bound = Interval(
        low=0.0,
        high=min(0.5, 1 - lower),
        confidence=confidence,
        method="signs at one place predict each other",
    )
    return bound, predictions


def histogram_flip(
    ones: int, records: int, *, positions: int | None, confidence: float
) -> Interval:
    """The flip probability q of a one-bit histogram, of which ``ones`` of ``records`` signs are +1.

    The object is one-hot: +1 at its own position, −1 at all others; a record is the sign at one
    position, flipped with probability q ≤ 1/2. Every sign is then +1 with probability ≥ q, so
    ``ones`` is stochastically at least Binomial(records, q): the upper end, whatever the objects
    and however positions were drawn. If positions were drawn uniformly among ``positions``
    (independently of the object), a sign is +1 with probability q + (1−2q)/positions exactly, which
    gives the lower end; with ``positions=None`` it is 0.

    Formal guarantee: covers q with probability ≥ ``confidence``, each end at half the error, under
    these assumptions.

    Raises:
        UsageError: counts that do not fit, or fewer than 3 positions.

    >>> i = histogram_flip(269, 1000, positions=5000, confidence=0.95)
    >>> i.low < 0.2689 < i.high
    True
    """
    if positions is not None and positions < 3:
        raise UsageError(f"positions={positions}: must be at least 3; fewer show nothing")
    share = clopper_pearson(ones, records, confidence=confidence)
    low = 0.0 if positions is None else max(0.0, (share.low - 1 / positions) / (1 - 2 / positions))
    return Interval(
        low=min(low, 0.5),
        high=min(share.high, 0.5),
        confidence=confidence,
        method="share of +1" + ("" if positions is None else ", positions uniform"),
    )


_RANGES = 16
_LEAST = 5 * _RANGES


class HadamardSigns:
    """Signs with their function and coordinate; 9 bytes each."""

    def __init__(self) -> None:
        self._function, self._coordinate, self._sign = bytearray(), bytearray(), bytearray()

    def add(
        self,
        function: npt.NDArray[np.uint32],
        coordinate: npt.NDArray[np.uint32],
        sign: npt.NDArray[np.int8],
    ) -> None:
        """Add signs ±1 (n,) with their functions and coordinates (n,)."""
        self._function += function.astype(np.uint32).tobytes()
        self._coordinate += coordinate.astype(np.uint32).tobytes()
        self._sign += sign.astype(np.int8).tobytes()

    def estimate(self, *, alpha: float, stream: Stream) -> tuple[Interval | None, str]:
        """The flip interval at confidence 1 − ``alpha`` and its basis, or None and the reason."""
        if not self._sign:
            return None, "no record could be read"
        bounded = predictable_flip(
            np.frombuffer(self._function, dtype=np.uint32),
            np.frombuffer(self._coordinate, dtype=np.uint32),
            np.frombuffer(self._sign, dtype=np.int8),
            confidence=1 - alpha,
            stream=stream,
        )
        if bounded is None:
            return None, (
                "a sign alone shows no flip probability while its object is unknown, and no two "
                "records have the same function and coordinate"
            )
        bound, predictions = bounded
        basis = f"{predictions} signs were predicted by others at the same place"
        return bound, f"a lower bound for ε only: {basis}"


class HistogramSigns:
    """Positions and signs; 4 bytes per record."""

    def __init__(self) -> None:
        self._positions = bytearray()
        self._ones = 0

    def add(self, position: npt.NDArray[np.uint32], sign: npt.NDArray[np.int8]) -> None:
        """Add signs ±1 (n,) at their positions (n,)."""
        self._positions += position.astype(np.uint32).tobytes()
        self._ones += int((sign > 0).sum())

    def estimate(self, *, positions: int | None, alpha: float) -> tuple[Interval | None, str]:
        """The flip interval at confidence 1 − ``alpha`` and its basis, or None and the reason.

        ``positions`` (the parameter p) count as drawn uniformly if all lie below p and, for 80
        records and more, their shares of 16 equal ranges pass Pearson's χ² at 0.001. The lower end
        of q, and so a verdict that less is shown than claimed, needs that, and also that objects
        are one-hot: if a share of one half cannot be excluded, which vectors of random signs would
        have at any ε, it is 0.
        """
        if not self._positions:
            return None, "no record could be read"
        at = np.frombuffer(self._positions, dtype=np.uint32)
        reason = self._not_uniform(at, positions)
        flip = histogram_flip(
            self._ones, len(at), positions=None if reason else positions, confidence=1 - alpha
        )
        share = f"{self._ones} of {len(at)} signs are +1"
        if flip.high >= 0.5:
            reason = (
                reason or "a share that may be one half is also what vectors of random signs have"
            )
            flip = Interval(low=0.0, high=0.5, confidence=flip.confidence, method=flip.method)
        only = f"; a lower bound for ε only, because {reason}"
        return flip, share + (only if reason else ", if objects are one-hot")

    def _not_uniform(self, at: npt.NDArray[np.uint32], positions: int | None) -> str:
        if positions is None or positions < 3:
            return "the report does not state the number of positions"
        if int(at.max()) >= positions:
            return f"position {int(at.max())} is not below p = {positions}"
        if len(at) < _LEAST or positions < _RANGES:
            return ""
        edges = np.arange(_RANGES + 1) * positions // _RANGES
        observed, _ = np.histogram(at, bins=edges - 0.5)
        expected = len(at) * np.diff(edges) / positions
        squares = float(((observed - expected) ** 2 / expected).sum())
        p = float(scipy.special.chdtrc(_RANGES - 1, squares))
        return f"positions are not uniform (p = {p:.1e})" if p < 1e-3 else ""
