"""One of N shares of an experiment's cells, for machines that know nothing of each other."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from dpaudit.errors import UsageError
from dpaudit.experiments.cell import Cell

__all__ = ["Shard", "owners"]

_PARTS = ("source", "mitigation", "attack")


@dataclass(frozen=True)
class Shard:
    """Share ``number`` of ``of``, written ``2/4``; the first is 1.

    >>> str(Shard.parse("2/4"))
    '2/4'
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that ``text`` names.

        Raises:
            UsageError: it is not I/N with 1 ≤ I ≤ N.
        """
        found = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
        number, of = map(int, found.groups()) if found else (0, 0)
        if not 1 <= number <= of:
            raise UsageError(
                f"shard={text}: must be I/N with I from 1 to N, e.g. 1/4; "
                "add 1 to an index that begins with 0"
            )
        return cls(number, of)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def share(self, cells: Sequence[Cell]) -> tuple[tuple[int, Cell], ...]:
        """This shard's cells with their positions in ``cells``, in that order.

        Cells of one kind, host, source, mitigation and attack, which take similar times, are dealt
        to the shards in turn, in the order of their ids: an order by an axis could give one shard
        all large cells. The share is a function of ``cells`` and of this shard alone.
        """
        mine = sorted(_dealt(cells)[self.number - 1 :: self.of])
        return tuple((position, cells[position]) for position in mine)


def owners(cells: Sequence[Cell], of: int) -> dict[int, Shard]:
    """For each position in ``cells`` the one of ``of`` shards that has it."""
    return {position: Shard(rank % of + 1, of) for rank, position in enumerate(_dealt(cells))}


def _dealt(cells: Sequence[Cell]) -> list[int]:
    """Positions in the order in which the shards take them."""
    return sorted(range(len(cells)), key=lambda position: _order(cells[position]))


def _order(cell: Cell) -> tuple[str, ...]:
    settings = cell.settings
    host = json.dumps(settings.get("host", {}), sort_keys=True)
    return (
        cell.kind,
        host,
        *(settings.get(part, {}).get("label", "") for part in _PARTS),
        cell.id,
    )
