"""Two runs compared: which numbers differ, and which circumstances differ with them.

A cell of both runs is *identical* if all its numbers are. Otherwise its intervals decide, and its
verdict if it has one: *overlapping* if every interval overlaps the other run's and the verdicts are
equal, *different* if not. A cell without interval or verdict is different as soon as one number is.
Two 95 % intervals of one truth miss each other in fewer than one case in 20 (of normal means: in
0.6 %), so a few of a thousand cells will.

Times are not compared: ``seconds``, ``started``, and what is under ``provenance`` or ``details``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dpaudit.errors import StoreError
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import written_spec
from dpaudit.experiments.store import Store
from dpaudit.experiments.store.queries import provenances
from dpaudit.types import CellFailure, CellResult

__all__ = ["CellDifference", "Change", "RunDifference", "cell_difference", "compare", "describe"]

Status = Literal["identical", "overlapping", "different"]
_UNCOMPARED = ("seconds", "started", "provenance", "details")
_APART = ("seed", "trials", "keep_trials", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value of a cell that differs; ``disjoint``: it has intervals that do not overlap."""

    name: str
    a: Any
    b: Any
    disjoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDifference:
    """A cell of both runs."""

    a: str
    b: str
    label: str
    status: Status
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """Two runs: their cells, the cells of only one, and how their circumstances differ, by name.

    ``same_spec``: one experiment with the same seed and trials, where numbers should be identical.
    """

    a: str
    b: str
    same_spec: bool
    cells: tuple[CellDifference, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    circumstances: Mapping[str, tuple[Any, Any]]

    def count(self, status: Status) -> int:
        """How many cells of both runs have that status."""
        return sum(cell.status == status for cell in self.cells)

    @property
    def agree(self) -> bool:
        """Whether no cell is different, or missing from one of two runs of the same experiment."""
        return not self.count("different") and not (self.same_spec and (self.only_a or self.only_b))


def compare(a: Store, b: Store) -> RunDifference:
    """Compare the finished cells of two runs.

    Cells match by id if the runs are of the same experiment, else by settings apart from seed,
    trials and device.

    Raises:
        StoreError: they have no cell in common.
    """
    same_spec = _bare(a.spec) == _bare(b.spec)
    ours, theirs = (_by_key(store.results(), ids=same_spec) for store in (a, b))
    common = [key for key in ours if key in theirs]
    if not common:
        remedy = "compare runs whose settings agree apart from seed, trials and device"
        for store, cells in ((a, ours), (b, theirs)):
            if not cells:
                remedy = f"{store.folder} has none; dpaudit runs show {store.folder} says why"
        raise StoreError(
            f"a={a.folder}, b={b.folder}: no finished cell in common "
            f"({len(ours)} and {len(theirs)} cells); {remedy}"
        )
    failed_a, failed_b = ({_key(f, ids=same_spec) for f in store.failures()} for store in (a, b))
    return RunDifference(
        a=str(a.folder),
        b=str(b.folder),
        same_spec=same_spec,
        cells=tuple(cell_difference(ours[key], theirs[key]) for key in common),
        only_a=_only(ours, theirs, failed_b, "; failed in B"),
        only_b=_only(theirs, ours, failed_a, "; failed in A"),
        circumstances=_circumstances(a, b),
    )


def _only(
    some: Mapping[str, CellResult], others: Mapping[str, CellResult], failed: set[str], note: str
) -> tuple[str, ...]:
    missing = ((key, r) for key, r in some.items() if key not in others)
    return tuple(_label(r) + (note if key in failed else "") for key, r in missing)


def _bare(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a spec's numbers."""
    words = ("title", "story", "column", "columns", "figures", "published", "keep_trials")
    return {k: v for k, v in written_spec(spec).items() if k not in words}


def _by_key(results: Sequence[CellResult], *, ids: bool) -> dict[str, CellResult]:
    return {_key(r, ids=ids): r for r in results}


def _key(outcome: CellResult | CellFailure, *, ids: bool) -> str:
    if ids:
        return outcome.cell
    told = {k: v for k, v in outcome.settings.items() if k not in _APART}
    return json.dumps({"kind": outcome.kind, **told}, sort_keys=True)


def _label(result: CellResult) -> str:
    return describe(result.kind, result.settings)


def describe(kind: str, settings: Mapping[str, Any]) -> str:
    """A cell for people, with its ε and key where its label leaves them out."""
    label = Cell(kind, settings).label
    axes = {"ε": settings["epsilon"]} if "epsilon" in settings else {}
    if kind in ("attack", "audit"):
        axes |= settings.get("key", {})
    return f"{label} ({', '.join(f'{k} {v}' for k, v in axes.items())})" if axes else label


def cell_difference(a: CellResult, b: CellResult) -> CellDifference:
    """How the numbers of one cell differ between two runs, times apart."""
    ours, theirs = dict(_values(a.outcome)), dict(_values(b.outcome))
    changes = []
    for name in dict.fromkeys((*ours, *theirs)):
        x, y = ours.get(name), theirs.get(name)
        if x != y:
            changes.append(Change(name=name, a=x, b=y, disjoint=_disjoint(x, y)))
    judged = any(_is_interval(v) for v in ours.values()) or "verdict" in a.outcome
    told = [
        c
        for c in changes
        if c.disjoint
        or c.name.rpartition(".")[2] == "verdict"
        or _is_interval(c.a) != _is_interval(c.b)
    ]
    numbers = [c for c in changes if not isinstance(c.a, str) or not isinstance(c.b, str)]
    different = told if judged else numbers
    status: Status = "different" if different else "overlapping" if changes else "identical"
    return CellDifference(
        a=a.cell, b=b.cell, label=_label(a), status=status, changes=tuple(changes)
    )


def _values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves by dotted name; an interval is one, as ``(low, high)``."""
    if isinstance(value, Mapping):
        if _ends(value) is not None:
            yield f"{name} (interval)".strip(), _ends(value)
            value = {
                k: v for k, v in value.items() if k not in ("low", "high", "confidence", "method")
            }
        for key, inner in value.items():
            if key not in _UNCOMPARED:
                yield from _values(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            inner_name = inner.get("name", number) if isinstance(inner, Mapping) else number
            yield from _values(inner, f"{name}.{inner_name}" if name else str(inner_name))
    else:
        yield name, value


def _ends(value: Mapping[str, Any]) -> tuple[float, float] | None:
    """The ends of a confidence interval; None for proven bounds (``EpsilonBounds``)."""
    if "says" in value:
        return None
    try:
        low, high = float(value["low"]), float(value["high"])
    except (KeyError, TypeError, ValueError):
        return None
    return (low, high) if low <= high else None  # NaN is no end


def _is_interval(value: Any) -> bool:
    return isinstance(value, tuple)


def _disjoint(a: Any, b: Any) -> bool:
    return _is_interval(a) and _is_interval(b) and (a[1] < b[0] or b[1] < a[0])


def _circumstances(a: Store, b: Store) -> dict[str, tuple[Any, Any]]:
    ours, theirs = _facts(a), _facts(b)
    names = dict.fromkeys((*ours, *theirs))
    return {n: (ours.get(n), theirs.get(n)) for n in names if ours.get(n) != theirs.get(n)}


def _facts(store: Store) -> dict[str, Any]:
    """Seeds, versions, hardware and sources by name; several values of a run in one text."""
    found: dict[str, set[str]] = {}
    for told in provenances(store):
        facts = {
            "seed": told.get("seed"),
            "hardware": told.get("hardware"),
            "sources of dpaudit": told.get("source"),
        }
        facts |= {f"version of {name}": v for name, v in told.get("versions", {}).items()}
        for p in told.get("plugins", ()):
            what = f"{p['kind']} {p['name']} ({p['distribution']})"
            facts[f"version of {what}"] = p.get("version")
            if p.get("sha256") != told.get("source"):  # dpaudit's own are told once
                facts[f"sources of {what}"] = p.get("sha256")
        for name, value in facts.items():
            if value:
                found.setdefault(name, set()).add(str(value))
    spec = store.spec
    told_first = {"trials": spec.get("trials"), "device": spec.get("device") or "cpu"}
    return {**told_first, **{name: ", ".join(sorted(values)) for name, values in found.items()}}
