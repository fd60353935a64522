"""Releases of any kind, of two data sets, drawn and judged as numbers are."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.audit.epsilon.encoding import Encoding, Raw
from dpaudit.audit.epsilon.releases import Releases
from dpaudit.audit.result import MechanismResult
from dpaudit.protocols import DatasetMechanism
from dpaudit.results.text import one_line

__all__ = ["EncodedReleases"]

Array = npt.NDArray[np.float64]

_WORTH_SAYING = 0.05
_MOST_VALUES = 20


class EncodedReleases:
    """A mechanism on data sets as one that releases numbers: each release is first its place.

    :meth:`release` keeps what was released and gives its number in the order made;
    :meth:`encoded`, called once all are drawn, turns these numbers into rows by an
    :class:`~dpaudit.audit.epsilon.encoding.Encoding` that the first half of the learning releases
    fixes.
    """

    version: str | None = None
    advice = ""

    def __init__(self, mechanism: DatasetMechanism, datasets: tuple[Any, Any]) -> None:
        self.name = mechanism.name
        self.neighbours = np.empty(0), np.empty(0)
        """Stand for the two data sets."""
        self.encoding: Encoding | None = None
        self._mechanism = mechanism
        self._datasets = datasets
        self._blocks: list[Raw] = []
        self._made = 0
        self._learnt: list[Array] = []

    def release(self, value: Array, n: int, *, timeout: float) -> Array:
        """The numbers (n, 1), in the order made, of ``n`` releases at one of :attr:`neighbours`.

        Raises:
            SamplerError: as :meth:`~dpaudit.protocols.DatasetMechanism.release_any`.
        """
        side = 0 if value is self.neighbours[0] else 1
        self._blocks.append(self._mechanism.release_any(self._datasets[side], n, timeout=timeout))
        self._made += n
        return np.arange(self._made - n, self._made, dtype=np.float64).reshape(n, 1)

    def encoded(self, drawn: Releases) -> Releases:
        """The same releases as rows (n, k).

        Calls of the learning half are left out of :attr:`~Releases.calls`: the encoding was fitted
        to some of them, so that their rows differ in law from those of later ones.
        """
        halves = [x[: max(1, len(x) // 2), 0].astype(np.intp) for x in drawn.learn]
        self.encoding = Encoding.fitted(self._at(halves[0]), self._at(halves[1]))
        rows = np.concatenate([self.encoding.rows(block) for block in self._blocks])
        self._learnt = [rows[x[:, 0].astype(np.intp)] for x in drawn.learn]
        learn, count = (
            (rows[a[:, 0].astype(np.intp)], rows[b[:, 0].astype(np.intp)])
            for a, b in (drawn.learn, drawn.count)
        )
        nothing: tuple[list[int], list[int]] = ([], [])
        return dataclasses.replace(drawn, learn=learn, count=count, sizes=(nothing, drawn.sizes[1]))

    def _at(self, places: npt.NDArray[np.intp]) -> Raw:
        starts = np.cumsum([0, *map(len, self._blocks)])
        arrays = [block for block in self._blocks if isinstance(block, np.ndarray)]
        if len(arrays) == len(self._blocks) and len({x.shape[1:] for x in arrays}) == 1:
            return np.asarray(np.concatenate(arrays)[places])
        blocks = np.searchsorted(starts, places, side="right") - 1
        return [
            _item(self._blocks[b], int(i - starts[b]))
            for b, i in zip(blocks.tolist(), places.tolist(), strict=True)
        ]

    def _apart(self) -> str:
        """In words, the column whose values differ most between the neighbours, if one does."""
        if self.encoding is None:
            return ""
        sides = zip(*(x.T for x in self._learnt), strict=True)
        found = [(*_most_apart(a, b), -j) for j, (a, b) in enumerate(sides)]
        gap, share0, share1, value, place = max(found, key=lambda f: (f[0], f[-1]))
        if gap < _WORTH_SAYING:
            return ""
        says = one_line(self.encoding.says(-int(place), value), limit=120)
        return (
            f"Releases differ most in this: {says}, in {share0:.3g} of those at the first and "
            f"{share1:.3g} at the second data set (learning half)."
        )

    def named(self, result: MechanismResult) -> MechanismResult:
        """``result`` with what columns of a row are in place of their numbers."""
        names = [] if self.encoding is None else self.encoding.names
        plain_numbers = names == ["release"]

        def says(text: str) -> str:
            if plain_numbers:
                return text
            if len(names) == 1:
                return re.sub(r"\bx\b(?!\[)", lambda _: one_line(names[0], limit=60), text)
            return re.sub(r"\bx\[(\d+)\]", lambda m: one_line(names[int(m[1])], limit=60), text)

        tests = tuple(
            dataclasses.replace(
                test,
                effect=says(test.effect),
                details={
                    **test.details,
                    **({"statistic": says(str(test.details["statistic"]))} if test.details else {}),
                },
            )
            for test in result.tests
        )
        apart = self._apart()
        if apart and not plain_numbers:
            result = dataclasses.replace(result, advice=(apart, *result.advice))
        details = {**result.details, "columns": [one_line(name, limit=80) for name in names]}
        return dataclasses.replace(result, tests=tests, details=details)


def _item(block: Raw, i: int) -> Any:
    item = block[i]
    return float(item) if isinstance(item, np.floating) else item


def _most_apart(a: Array, b: Array) -> tuple[float, float, float, float]:
    """How far apart the shares of one frequent value are at most, both shares, and the value."""
    values, counts = np.unique(np.concatenate([a, b]), return_counts=True)
    often = values[np.argsort(-counts)[:_MOST_VALUES]]
    shares = [(float(np.mean(a == v)), float(np.mean(b == v)), float(v)) for v in often]
    return max((abs(p - q), p, q, v) for p, q, v in shares)
