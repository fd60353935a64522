"""One point of a grid, and what it measures: a type in the entry-point group ``dpaudit.measures``.

A cell has a name and the key of its random streams.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar, get_origin

import msgspec

from dpaudit import registry
from dpaudit.errors import SpecError
from dpaudit.randomness import KeyedStream
from dpaudit.registry import nearest
from dpaudit.results.foreign import quoted
from dpaudit.types import PluginOrigin

__all__ = [
    "AUDIT",
    "Cell",
    "Grid",
    "Measure",
    "Table",
    "check_grid",
    "expand",
    "gather_rows",
    "grouped",
    "joined_axes",
    "listed",
    "measure_of",
    "plugin_options",
    "read_grid",
    "summary",
    "written",
]


class Grid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ``[grid]`` of one cell, a field per axis; a cell joins all values of a tuple's axis."""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value of an axis that is a table: ``name``, options, and perhaps a ``label``.

    In ids and results it stands as its label, without one as ``name:option=value,…``.
    """

    name: str
    label: str = ""


G = TypeVar("G", bound=Grid)


def listed(value: Any) -> list[Any]:
    """A list as it is; anything else as a list of one."""
    return value if isinstance(value, list) else [value]


def expand(table: Mapping[str, Any], *, joined: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """All combinations of a table's lists; a ``joined`` axis is one value.

    An empty table has one, empty combination.
    """
    for values in itertools.product(
        *(axis_of(name, value, joined) for name, value in table.items())
    ):
        yield dict(zip(table, values, strict=True))


def axis_of(name: str, value: Any, joined: Collection[str]) -> list[Any]:
    """The values of one axis; none of a joined one that is empty."""
    values = listed(value)
    return [values] if name in joined and values else values


def written(value: Any) -> Any:
    """One value of an axis as in ids, stores and reports: a table as its label, a list spaced.

    >>> written({"name": "lattice", "d": 48, "beta": 1e-3}), written([0.125, "2^-3", 1])
    ('lattice:d=48,beta=1e-3', '0.125 2^-3 1')
    """
    if isinstance(value, Mapping):
        if value.get("label"):
            return value["label"]
        options = ",".join(
            f"{k}={_shortest(v)}" for k, v in value.items() if k not in ("name", "label")
        )
        return ":".join(filter(None, (str(value.get("name", "")), options)))
    if isinstance(value, (list, tuple)):
        return " ".join(map(_shortest, value))
    return value


def _shortest(value: Any) -> str:
    """The shortest way to write a number: 0.01, 1e-3, 4."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float) or not math.isfinite(value):
        return str(written(value))
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    power = int(exponent) + len(rest)
    short = f"{'-' * sign}{first}{'.' * bool(rest)}{''.join(rest)}e{power}"
    plain = repr(value).removesuffix(".0")
    return short if "e" in plain or len(short) < len(plain) else plain


def joined_axes(of: type[Grid] | None) -> frozenset[str]:
    """Axes of which one cell has all values."""
    fields = () if of is None else msgspec.structs.fields(of)
    return frozenset(field.name for field in fields if get_origin(field.type) is tuple)


def check_grid(grid: Mapping[str, Any], of: type[Grid]) -> None:
    """Check all values of a ``[grid]`` against the types of a measure.

    Raises:
        SpecError: as :func:`read_grid`.
    """
    joined = joined_axes(of)
    _check_names(grid, of)
    for name, value in grid.items():
        for one in axis_of(name, value, joined):
            _convert(name, one, of)


def read_grid(grid: Mapping[str, Any], of: type[G]) -> G:
    """One cell's ``[grid]`` with its types.

    Raises:
        SpecError: an axis that is missing or not known, or a value of another type.
    """
    _check_names(grid, of)
    names = {field.name for field in msgspec.structs.fields(of)}
    return of(**{name: _convert(name, value, of) for name, value in grid.items() if name in names})


def _check_names(grid: Mapping[str, Any], of: type[Grid]) -> None:
    fields = {field.name: field for field in msgspec.structs.fields(of)}
    for name, field in fields.items():
        if field.required and name not in grid:
            raise SpecError(f"grid: {name!r} is missing; this measure needs it")
    for name, value in grid.items():
        if of.__struct_config__.forbid_unknown_fields and name not in fields:
            raise SpecError(f"grid {name}={_printable(value)}: not known{nearest(name, fields)}")


def _convert(name: str, value: Any, of: type[Grid]) -> Any:
    field = next((field for field in msgspec.structs.fields(of) if field.name == name), None)
    if field is None:
        return value
    try:
        return msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        where = path.strip("`").removeprefix(".")
        reason = reason[:1].lower() + reason[1:]
        raise SpecError(
            f"grid {name}={_printable(value)}: {f'{where}: ' * bool(where)}{reason}"
        ) from error


def _printable(value: Any) -> str:
    return quoted(written(value))


Row = TypeVar("Row")

AUDIT = "audit"
"""The measure of an arm's ``[audit]``: a spec does not name it."""
_LONG = 100


@dataclass(frozen=True)
class Cell:
    """One point of the grid; ``id`` is a hash of its settings and of nothing else."""

    kind: str
    settings: Mapping[str, Any]

    @property
    def written(self) -> dict[str, Any]:
        """The settings as in ids, stores and reports: every value in ``grid`` in one word."""
        if not self.settings.get("grid"):
            return dict(self.settings)
        return {
            **self.settings,
            "grid": {name: written(value) for name, value in self.settings["grid"].items()},
        }

    @property
    def id(self) -> str:
        text = json.dumps({"kind": self.kind, **self.written}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def stream(self) -> KeyedStream:
        """The cell's own randomness, from its spec's seed and its id."""
        return KeyedStream.from_seed(self.settings["seed"]).child("cell", self.id)

    @property
    def label(self) -> str:
        """Which arm this is, for people."""
        settings = self.written
        if "source" not in settings:
            points = ", ".join(f"{k} {v}" for k, v in settings["grid"].items())
            return points if len(points) <= _LONG else f"{points[:_LONG]}…"
        arm = f"{settings['source']['label']} + {settings['mitigation']['label']}"
        attack = settings["attack"]["label"] if "attack" in settings else self.kind
        tables = (settings[table].items() for table in ("key", "grid", "host"))
        axes = ", ".join(
            f"{k} {v}" for k, v in itertools.chain.from_iterable(tables) if k != "name"
        )
        return f"{arm}: {attack}" + (
            f" ({axes})" if self.kind not in ("audit", "attack") or settings["grid"] else ""
        )

    def grid(self, of: type[G]) -> G:
        """``[grid]`` with a measure's types.

        Raises:
            SpecError: a value that the measure does not take.
        """
        return read_grid(self.settings["grid"], of)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure, ``NAME = "package.module:MEASURE"`` in the group ``dpaudit.measures``.

    Attributes:
        run: ``(cell, arm) -> dict`` of JSON-ready values: one cell's outcome, a function of the
            cell's settings alone, except for times. ``arm`` is the cell's host, key, source and
            mitigation.
        grid: the types of ``[grid]``, checked when a spec is read and given by ``cell.grid``; None
            takes anything.
        needs_arm: False for a measure without host, source or key: its cells have ``[grid]``,
            ``trials`` and ``seed`` only, and ``arm`` is None.
        attacks_together: one cell has all the attacks of an arm, ``attacks``, so that these look at
            the same releases; otherwise each attack is a cell.
        on_devices: it can work on an accelerator; it reads ``cell.settings["device"]`` where that
            is not the CPU.
        gather: ``rows -> rows``: the table's rows, where one is made of several cells.
        summary: ``rows -> str``: one sentence about a whole table.
        origins: ``cell -> origins`` of the plug-ins that a measure without an arm loads itself.
    """

    run: Callable[..., Mapping[str, Any]]
    grid: type[Grid] | None = None
    needs_arm: bool = True
    attacks_together: bool = False
    on_devices: bool = False
    gather: Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]] | None = None
    summary: Callable[[Sequence[Mapping[str, Any]]], str] | None = None
    origins: Callable[[Cell], Sequence[PluginOrigin]] | None = None


def measure_of(kind: str) -> Measure:
    """The measure of that name.

    Raises:
        UnknownNameError: no such measure, with the nearest match.
        MissingExtraError: it needs an optional dependency.
    """
    measure: Measure = registry.load("measures", kind)
    return measure


def gather_rows(kind: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The rows of a measure's table: one per cell, unless it joins some."""
    gather = measure_of(kind).gather
    return list(rows) if gather is None else gather(rows)


def grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[list[Row]]:
    """The rows by ``key``, groups in the order of their first rows."""
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def summary(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """One sentence about a measure's table; empty without rows or without a summary."""
    summarise = measure_of(kind).summary
    return summarise(rows) if summarise is not None and rows else ""


def plugin_options(table: Mapping[str, Any]) -> dict[str, Any]:
    """A plug-in's own options in its table of the spec."""
    return {
        k: v for k, v in table.items() if k not in ("name", "label") and not isinstance(v, Mapping)
    }
