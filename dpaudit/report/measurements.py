"""Reading a document of measurements on a grid: what is missing is answered for here, what is unknown is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dpaudit.errors import UsageError
from dpaudit.report.format import number
from dpaudit.report.rows import Row
from dpaudit.results.text import printable

__all__ = ["FORMATS", "Measure", "Measurements", "Plot", "Reading", "read_measurements", "reading"]

FORMATS = ("setting", "number", "proportion", "epsilon", "seconds", "ratio", "flag", "text")
_COLUMN_KEYS = ("key", "label", "format")
_FIGURE_KEYS = (
    "title", "x", "y", "series", "panels", "log_x", "log_y", "published", "band", "reference", "label_x", "label_y",
    "kind", "points", "value", "where", "diagonal",
)  # fmt: skip


class Measure(NamedTuple):
    """A key of the rows, with the name it goes by and how its values are written."""

    key: str
    label: str
    format: str


class Reading(NamedTuple):
    """A value with the ends of its interval, where there is one."""

    value: Any
    low: float | None = None
    high: float | None = None


class Plot(NamedTuple):
    """What one figure draws: y against x, a line (or bars) a series, small multiples over the panels.

    With a ``value`` it is a map: the value at each place (x, y).
    """

    title: str
    x: Measure
    y: Measure
    series: Measure | None = None
    panels: tuple[Measure, ...] = ()
    published: Measure | None = None
    band: tuple[Measure, ...] = ()
    reference: float | None = None
    log_x: bool = False
    log_y: bool = False
    bars: bool = False
    points: str | None = None
    value: Measure | None = None
    where: Mapping[str, Any] = MappingProxyType({})
    diagonal: bool = False

    def spread(self, rows: Sequence[Row]) -> tuple[Row, ...]:
        """The rows that are drawn: those that are as ``where`` says, and with ``points`` one for each item of a list.

        The list is what a row has under that key: pairs [x, y], or triples [x, y, value] for a map. Where several follow
        each other at one place the last stands (the upper end of a curve's step).
        """
        rows = tuple(row for row in rows if all(reading(row.get(k)).value == v for k, v in self.where.items()))
        if self.points is None:
            return rows
        keys = (self.x.key, self.y.key, *(() if self.value is None else (self.value.key,)))
        found = []
        for row in rows:
            items = row.get(self.points)
            if isinstance(items, (list, tuple)):
                good = [item for item in items if isinstance(item, (list, tuple)) and len(item) == len(keys)]
                good = [item for item in good if all(isinstance(v, (str, int, float)) for v in item[:-1])]
                last = {tuple(item[:-1]): item[-1] for item in good}
                found += [{**row, **dict(zip(keys, (*place, end), strict=True))} for place, end in last.items()]
        return tuple(found)


class Measurements(NamedTuple):
    """A document of measurements, read and found sound."""

    columns: tuple[Measure, ...]
    rows: tuple[Row, ...]
    misses: tuple[Row, ...]
    plots: tuple[Plot, ...]


def read_measurements(document: Mapping[str, Any]) -> Measurements:
    """The columns, rows, misses and figures of a document of kind "measurements".

    Raises:
        UsageError: an unknown format or key, a figure of a key that neither a column nor a row has, or a part of the
            wrong shape.
    """
    rows, misses = _mappings(document, "rows"), _mappings(document, "misses")
    columns = tuple(_column(c) for c in _mappings(document, "columns"))
    keys = [c.key for c in columns]
    if len(set(keys)) < len(keys):
        twice = next(k for k in keys if keys.count(k) > 1)
        raise UsageError(f"columns: key {_shown(twice)} comes twice: give each column its own key")
    if rows and not columns:
        raise UsageError("columns=[]: rows of measurements need columns, each with key, label and format")
    known = {c.key: c for c in columns}
    if rows:  # without rows nothing is drawn, and only the columns say which keys there are
        for key in dict.fromkeys(k for row in rows for k in row):
            known.setdefault(key, Measure(key, printable(key, limit=100), "number"))
    plots = tuple(_plot(f, known, checked=bool(rows)) for f in _mappings(document, "figures"))
    return Measurements(columns, rows, misses, plots)


def reading(cell: object) -> Reading:
    """A cell's value and interval; a plain value has none.

    >>> reading({"value": 0.5, "low": 0.4, "high": "inf"}), reading(3)
    (Reading(value=0.5, low=0.4, high=inf), Reading(value=3, low=None, high=None))
    """
    if isinstance(cell, Mapping):
        return Reading(cell.get("value"), number(cell.get("low")), number(cell.get("high")))
    return Reading(cell)


def _mappings(document: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    found = document.get(name)
    found = () if found is None else found
    if not isinstance(found, (list, tuple)) or not all(isinstance(item, Mapping) for item in found):
        raise UsageError(f"{name}={_shown(found)}: it must be a list of objects")
    return tuple(found)


def _column(column: Mapping[str, Any]) -> Measure:
    _only(column, _COLUMN_KEYS, what="column")
    key, form = column.get("key"), column.get("format")
    form = "setting" if form is None else form
    if not isinstance(key, str):
        raise UsageError(f"column key={_shown(key)}: every column needs the key of its values in the rows")
    if form not in FORMATS:
        raise UsageError(f"column {_shown(key)} format={_shown(form)}: it must be one of {', '.join(FORMATS)}")
    label = column.get("label")
    return Measure(key, printable(key if label is None else label, limit=100), form)


def _plot(figure: Mapping[str, Any], known: Mapping[str, Measure], *, checked: bool) -> Plot:
    _only(figure, _FIGURE_KEYS, what="figure")
    title = printable(figure.get("title") or "", limit=300)

    def measure(name: str, key: object, label: object = None) -> Measure:
        if not isinstance(key, str) or (checked and key not in known):
            among = ", ".join(_shown(k) for k in list(known)[:12])
            raise UsageError(f"figure {_shown(title)} {name}={_shown(key)}: it must be the key of a column: {among}")
        found = known.get(key, Measure(key, printable(key, limit=100), "number"))
        return found if label is None else found._replace(label=printable(label, limit=100))

    def optional(name: str) -> Measure | None:
        return None if figure.get(name) is None else measure(name, figure[name])

    def several(name: str, sizes: Sequence[int]) -> tuple[Measure, ...]:
        keys = () if figure.get(name) is None else figure[name]
        if not isinstance(keys, (list, tuple)) or len(keys) not in sizes:
            raise UsageError(f"figure {_shown(title)} {name}={_shown(keys)}: it must be a list of {max(sizes)} keys")
        return tuple(measure(name, key) for key in keys)

    points = figure.get("points")
    if points is not None:
        measure("points", points)
        along = "proportion" if figure.get("value") is None else "number"
        forms = {"x": along, "y": along, "value": "proportion"}
        named = {str(figure[end]): form for end, form in forms.items() if figure.get(end) is not None}
        ends = {key: Measure(key, printable(key, limit=100), form) for key, form in named.items()}
        known = {**ends, **known}
    kind = "line" if figure.get("kind") is None else figure["kind"]
    if kind not in ("line", "bars", "map"):
        raise UsageError(f"figure {_shown(title)} kind={_shown(kind)}: it must be 'line', 'bars' or 'map'")
    if (kind == "map") != (figure.get("value") is not None):
        raise UsageError(f"figure {_shown(title)} kind={_shown(kind)}: a map, and nothing else, has a 'value'")
    where = {} if figure.get("where") is None else figure["where"]
    if not isinstance(where, Mapping):
        raise UsageError(f"figure {_shown(title)} where={_shown(where)}: it must be an object of keys and their values")
    for key in where:
        measure("where", key)
    reference = number(figure.get("reference"))
    if figure.get("reference") is not None and (reference is None or not math.isfinite(reference)):
        raise UsageError(f"figure {_shown(title)} reference={_shown(figure['reference'])}: it must be a finite number")
    return Plot(
        title=title,
        x=measure("x", figure.get("x"), figure.get("label_x")),
        y=measure("y", figure.get("y"), figure.get("label_y")),
        series=optional("series"),
        panels=several("panels", (0, 1, 2)),
        published=optional("published"),
        band=several("band", (0, 2)),
        reference=reference,
        log_x=bool(figure.get("log_x")),
        log_y=bool(figure.get("log_y")),
        bars=kind == "bars",
        points=points,
        value=optional("value"),
        where=where,
        diagonal=bool(figure.get("diagonal")),
    )


def _only(part: Mapping[str, Any], keys: Sequence[str], *, what: str) -> None:
    unknown = [k for k in part if k not in keys]
    if unknown:
        raise UsageError(f"{what} key {_shown(unknown[0])}: unknown; a {what} has {', '.join(keys)}")


def _shown(value: object) -> str:
    return repr(printable(value, limit=60))
