"""Noise that occurs twice: equal runs of values anywhere in the files of a product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpaudit_deployments.census.law import IntegerGaussian
from dpaudit_deployments.census.model import Integers

__all__ = ["Place", "Repeats"]

_BITS = 80
"""Of collision entropy in a run of values."""
_MOST = 1 << 20
"""Runs that are kept; later ones are not looked at."""
_HASH = 2.0**-50
"""An upper bound of the probability that two different runs have one hash."""
_LONGEST = 256
_FACTORS = np.random.default_rng(20).integers(1 << 63, size=_LONGEST, dtype=np.uint64) * 2 + 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run of noise stands."""

    level: str
    query: str
    geocode: str

    def __str__(self) -> str:
        return f"{self.level} {self.geocode}, {self.query}"


@dataclass(slots=True)
class Repeats:
    """Hashes of runs of noise, and where they stand."""

    number: int = 0
    _hashes: dict[int, list[npt.NDArray[np.uint64]]] = field(default_factory=dict)
    _places: dict[int, list[tuple[Place, int]]] = field(default_factory=dict)
    _chances: dict[int, float] = field(default_factory=dict)

    def add(
        self,
        place: Place,
        mask: npt.NDArray[np.bool_],
        values: Integers,
        law: IntegerGaussian,
    ) -> None:
        """Add the noise of one geography; ``mask`` says in which cells of the query it stands.

        Runs start at multiples of their length, in the query's cells where a whole run is noise,
        otherwise among the noise alone: so equal noise is cut equally.
        """
        bits = -math.log2(law.collision)
        length = math.ceil(_BITS / bits) if bits * _LONGEST >= _BITS else 0
        if not length or self.number >= _MOST or values.size < length:
            return
        runs = _aligned(mask, values, length)
        hashes = (runs.astype(np.uint64) * _FACTORS[:length]).sum(axis=1, dtype=np.uint64)
        self.number += len(hashes)
        self._hashes.setdefault(length, []).append(hashes)
        self._places.setdefault(length, []).append((place, len(hashes)))
        self._chances[length] = max(self._chances.get(length, 0.0), law.collision**length + _HASH)

    def found(self) -> tuple[int, float, Sequence[Place]]:
        """How many runs occurred before, a bound on the probability of any, and one such pair.

        Formal guarantee: if all noise is independent and each group has its stated law, some run
        repeats with at most the probability that goes with none (Markov; 1 if none repeats).
        """
        repeated, chance = 0, 0.0
        pair: list[Place] = []
        for length, parts in self._hashes.items():
            hashes = np.concatenate(parts)
            chance += len(hashes) * (len(hashes) - 1) / 2 * self._chances[length]
            order = np.argsort(hashes, kind="stable")
            same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
            repeated += len(same)
            if len(same) and not pair:
                pair = [self._place(length, int(order[same[0] + i])) for i in (0, 1)]
        return repeated, min(1.0, chance) if repeated else 1.0, pair

    def _place(self, length: int, index: int) -> Place:
        for place, number in self._places[length]:
            if index < number:
                return place
            index -= number
        raise IndexError(index)


def _aligned(mask: npt.NDArray[np.bool_], values: Integers, length: int) -> Integers:
    """Runs of ``length`` values, shape (runs, length)."""
    whole = len(mask) // length * length
    inside = mask[:whole].reshape(-1, length).all(axis=1)
    if inside.any():
        cells = np.zeros(len(mask), dtype=np.int64)
        cells[mask] = values
        return np.asarray(cells[:whole].reshape(-1, length)[inside])
    return values[: len(values) // length * length].reshape(-1, length)
