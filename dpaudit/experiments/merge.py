"""The stores of an experiment's shards put together into one, as a single run would have made it.

Parts are foreign files: they are read as every store is, must be of one experiment, and hold
nothing but its cells. Nothing is written before all parts are checked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpaudit.codec import to_dict
from dpaudit.errors import StoreError, UsageError
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.difference import cell_difference, describe
from dpaudit.experiments.shard import Shard, owners
from dpaudit.experiments.store import FILE, Store, as_written
from dpaudit.experiments.store.beginning import spanned
from dpaudit.experiments.store.queries import invocations, trials_by_cell
from dpaudit.experiments.stored import command_of, spec_of
from dpaudit.results.foreign import shown
from dpaudit.results.text import one_line
from dpaudit.types import CellFailure, CellResult

__all__ = ["merge"]

_NAMED = 5
_TOGETHER = 500  # cells per transaction
Outcome = CellResult | CellFailure


def merge(out: Path, parts: Sequence[Path], *, partial: bool = False) -> int:
    """Put the results of the shards ``parts`` into ``out``; return how many cells have no outcome.

    ``out`` may be a new folder or hold a merge of other parts. A cell that several parts hold must
    have the same numbers in all, times apart; a failure counts only where no part has a result.
    The parts stay as they are, and merging one twice changes nothing.

    Formal guarantee: ``rows`` of the document are those of one run of the whole experiment, as far
    as each cell's numbers do not depend on where it was done (:func:`~dpaudit.experiments.run`).

    Raises:
        StoreError: a part is no shard's store, or of another experiment; parts are by different
            sources of dpaudit or of a plug-in; two have different numbers for a cell; or, without
            ``partial``, a cell has no outcome. ``out`` is as it was.
    """
    found = _Parts()
    for folder in parts:
        found.take(folder)
    if os.path.lexists(out / FILE):
        found.take(out, merged=True)
    missing = found.missing()
    if missing and not partial:
        raise StoreError(found.says_missing(missing))
    with Store.resume(out, spec=found.spec, command=found.command, cells=len(found.cells)) as store:
        done, failed = store.finished(), {failure.cell for failure in store.failures()}
        for folder in dict.fromkeys(parts):
            new = [
                (position, outcome)
                for position, (where, outcome) in sorted(found.outcomes.items(), key=_position)
                if where == folder
                and outcome.cell not in done
                and not (isinstance(outcome, CellFailure) and outcome.cell in failed)
            ]
            _copy(folder, new, store)
    return len(missing)


def _position(item: tuple[int, Any]) -> int:
    return item[0]


def _copy(folder: Path, items: Sequence[tuple[int, Outcome]], store: Store) -> None:
    """Add outcomes that ``folder`` holds to ``store``, with their trials."""
    with Store.read(folder) as part:
        hosts = [start.host for start in invocations(part)]
        worker = one_line(f"{part.shard} on {hosts[-1] if hosts else '?'}", limit=200)
        trials = trials_by_cell(part)
        for first in range(0, len(items), _TOGETHER):
            chunk = items[first : first + _TOGETHER]
            whole = [
                (position, replace(item, trials=trials(item.cell)))
                if isinstance(item, CellResult)
                else (position, item)
                for position, item in chunk
            ]
            store.add_all(whole, worker=f"shard {worker}")


class _Parts:
    """What the parts hold together: for each position its outcome, and the folder it is from."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] = {}
        self.command = ""
        self.cells: tuple[Cell, ...] = ()
        self.outcomes: dict[int, tuple[Path, Outcome]] = {}
        self._positions: dict[str, int] = {}
        self._first: Path | None = None
        self._code: dict[str, tuple[str, Path]] = {}
        self._shards: set[Shard] = set()

    def take(self, folder: Path, *, merged: bool = False) -> None:
        """Check a store and take what the others lack."""
        with Store.read(folder) as store, as_written(folder):
            self._check_spec(folder, store, merged=merged)
            outcomes: list[Outcome] = [*store.results(), *store.failures()]
            for outcome in outcomes:
                self._take(folder, outcome)

    def _check_spec(self, folder: Path, store: Store, *, merged: bool) -> None:
        if bool(store.shard) == merged:
            raise StoreError(
                f"out={folder}: holds shard {shown(store.shard)}, not a merge; choose another OUT"
                if merged
                else f"part={folder}: holds no shard of an experiment; "
                "dpaudit run NAME --shard I/N makes one"
            )
        if self._first is None:
            self._first, self.spec = folder, store.spec
            self.command = command_of(store).replace(f" --shard {store.shard}", "")
            self.cells = spec_of(store.spec).cells()
            self._positions = {
                _settings(cell.kind, to_dict(cell.written)): position
                for position, cell in enumerate(self.cells)
            }
        elif not merged and spanned(store.spec) != spanned(self.spec):
            raise StoreError(
                f"part={folder}: holds another experiment or other settings (seed, trials, …) "
                f"than {self._first}; merge parts of one experiment"
            )
        if not merged:
            self._shards.add(_shard(folder, store.shard))

    def _take(self, folder: Path, outcome: Outcome) -> None:
        position = self._positions.get(_settings(outcome.kind, outcome.settings))
        if position is None:
            raise StoreError(
                f"dir={folder}: cell {shown(outcome.cell)} is not one of the experiment in "
                f"{self._first}; merge parts of one experiment"
            )
        where, held = self.outcomes.get(position, (folder, outcome))
        if isinstance(outcome, CellResult):
            self._check_code(folder, outcome.provenance)
            if isinstance(held, CellResult):
                self._check_equal(held, where, outcome, folder)
            else:
                where, held = folder, outcome
        self.outcomes[position] = (where, held)

    def _check_code(self, folder: Path, provenance: Mapping[str, Any]) -> None:
        for name, value in _code(provenance):
            known, where = self._code.setdefault(name, (value, folder))
            if known != value:
                raise StoreError(
                    f"dir={folder}: its results are by another {one_line(name, limit=100)} "
                    f"({shown(value[:16])}) than those in {where} ({shown(known[:16])}); "
                    "run its cells again with the same one"
                )

    def _check_equal(self, a: CellResult, where: Path, b: CellResult, folder: Path) -> None:
        changes = cell_difference(a, b).changes
        if a.cell == b.cell and not changes:
            return
        what = one_line(changes[0].name if changes else "id", limit=100)
        raise StoreError(
            f"dir={folder}: cell {one_line(b.cell, limit=40)} "
            f"({one_line(describe(b.kind, b.settings), limit=200)}) has another {what} than in "
            f"{where}; find out why before you merge: dpaudit runs diff {where} {folder}"
        )

    def missing(self) -> list[int]:
        """Positions of the cells without outcome."""
        return [position for position in range(len(self.cells)) if position not in self.outcomes]

    def says_missing(self, missing: Sequence[int]) -> str:
        """Which cells have no outcome, and whose they are."""
        told = [
            f"{cell.id} ({one_line(describe(cell.kind, cell.settings), limit=120)})"
            for cell in (self.cells[position] for position in missing[:_NAMED])
        ]
        owner = owners(self.cells, max(shard.of for shard in self._shards))
        whose = sorted({owner[position] for position in missing}, key=lambda shard: shard.number)
        shards = [
            f"{shard} ({'not finished' if shard in self._shards else 'not among the parts'})"
            for shard in whose
        ]
        return (
            f"parts={len(self._shards)}: {len(missing):,} of {len(self.cells):,} cells have no "
            f"result in any: {_few(told, len(missing))}; they belong to shard "
            f"{_few(shards, len(shards))}. Run what is missing (--resume continues a shard) and "
            "merge all parts, or add --partial"
        )


def _shard(folder: Path, text: str) -> Shard:
    try:
        return Shard.parse(text)
    except UsageError as error:
        raise StoreError(
            f"part={folder}: its shard is {shown(text)}, which dpaudit does not write; restore it"
        ) from error


def _few(names: Sequence[str], number: int) -> str:
    more = f" and {number - _NAMED:,} more" if number > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _settings(kind: str, settings: Mapping[str, Any]) -> str:
    return json.dumps([kind, settings], sort_keys=True)


def _code(provenance: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What a cell's numbers come from: the sources of dpaudit and of its plug-ins."""
    told = provenance.get("versions", {})
    yield "version of dpaudit", str(told.get("dpaudit", ""))
    yield "source of dpaudit", str(provenance.get("source", ""))
    for plugin in provenance.get("plugins", ()):
        yield f"source of {plugin['kind']} {plugin['name']}", str(plugin.get("sha256"))
