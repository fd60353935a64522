"""Counting queries over a real table: one bin per row, neighbours differ by one record."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream

__all__ = ["BUILT_IN_TABLES", "Histogram"]

Vector = npt.NDArray[np.float64]

BUILT_IN_TABLES = {"us-counties": "us_county_population_2000.csv"}


class Histogram:
    """The histogram of a table, unbounded neighbours: one record removed.

    ``uniform``: ``records`` records dropped uniformly into ``bins`` bins (from a fixed seed), as in
    the pancake paper. ``us-counties``: the population of the 3,143 US counties in 2000 (public
    domain, ships with the package); any other ``table`` is a CSV file whose last column holds
    non-negative whole counts. A removed record changes one bin by one, so the L2 sensitivity Δ is
    1. The record is drawn uniformly from all records, that is, a bin in proportion to its count.
    """

    sensitivity = 1.0

    def __init__(
        self, *, table: str = "us-counties", bins: int = 0, records: int = 1_000_000
    ) -> None:
        """Read the table; ``bins`` and ``records`` are for ``uniform`` only.

        Raises:
            UsageError: the file is missing, or its last column is not a list of counts with at
                least two bins.
        """
        self.table = table
        if (table == "uniform") != (bins > 0):
            raise UsageError(
                f"table={table}, bins={bins}: uniform needs bins ≥ 2, and no other table takes bins"
            )
        counts = _uniform(bins, records) if table == "uniform" else list(_read(table))
        self.counts = np.array(counts, dtype=np.float64)
        if len(self.counts) < 2 or self.counts.sum() == 0:
            raise UsageError(f"table={table}: needs at least two bins and one record")

    @property
    def dim(self) -> int:
        return len(self.counts)

    def neighbours(self, n: int, *, stream: Stream) -> Vector:
        """``n`` pairs (all records, one random record removed), an array (n, 2, d)."""
        upto = np.cumsum(self.counts)
        record = stream.numpy().integers(0, int(upto[-1]), size=n)
        bins = np.searchsorted(upto, record.astype(np.float64), side="right")
        pairs = np.tile(self.counts, (n, 2, 1))
        pairs[np.arange(n), 1, bins] -= 1
        return pairs

    def differences(self, direction: Vector) -> Vector:
        """⟨q(D) − q(D′), direction⟩ for a record removed from each bin, whatever the table D.

        The changes are the d unit vectors.
        """
        return direction


def _uniform(bins: int, records: int) -> list[int]:
    stream = KeyedStream.from_seed("uniform table").child(bins, records)
    counts: list[int] = stream.numpy().multinomial(records, [1 / bins] * bins).tolist()
    return counts


def _read(table: str) -> Iterator[float]:
    path = (
        files("dpaudit.queries") / "data" / BUILT_IN_TABLES[table]
        if table in BUILT_IN_TABLES
        else Path(table)
    )
    if not path.is_file():
        names = ", ".join(BUILT_IN_TABLES)
        raise UsageError(
            f"table={table}: no such file; built in are: {names}, uniform; "
            "or give a CSV file of counts"
        )
    with path.open("r", encoding="utf-8") as file:
        rows = csv.reader(file)
        for line, row in enumerate(rows, 1):
            if not row:
                continue
            try:
                value = float(row[-1])
            except ValueError:
                if line == 1:
                    continue  # a heading
                raise UsageError(
                    f"table={table}: line {line}: {row[-1]!r} is not a count"
                ) from None
            if not (0 <= value < 2**53 and value == int(value)):
                raise UsageError(f"table={table}: line {line}: {row[-1]} is not a whole number ≥ 0")
            yield value
