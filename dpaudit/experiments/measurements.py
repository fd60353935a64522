"""The columns, rows and figures of measurements, with their keys resolved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dpaudit import wording
from dpaudit.errors import UsageError
from dpaudit.experiments.results import Figure, MeasurementsResult
from dpaudit.results.text import printable

__all__ = [
    "Measure",
    "Measurements",
    "Plot",
    "Reading",
    "Row",
    "is_numeric",
    "measured",
    "read_measurements",
    "reading",
]

Row = Mapping[str, Any]
"""A row of measurements: values by the keys of the columns."""


class Measure(NamedTuple):
    """A key of the rows, with its label and how its values are written."""

    key: str
    label: str
    format: str


class Reading(NamedTuple):
    """A value with the ends of its interval, if it has one."""

    value: Any
    low: float | None = None
    high: float | None = None


class Plot(NamedTuple):
    """A figure with the measures that it draws.

    y against x, a line or bars per series, one small multiple per panel. With a ``value`` it is a
    map: the value at each place (x, y).
    """

    figure: Figure
    x: Measure
    y: Measure
    series: Measure | None = None
    panels: tuple[Measure, ...] = ()
    published: Measure | None = None
    band: tuple[Measure, ...] = ()
    value: Measure | None = None

    @property
    def bars(self) -> bool:
        """Whether it shows bars."""
        return self.figure.kind == "bars"

    def spread(self, rows: Sequence[Row]) -> tuple[Row, ...]:
        """The rows to draw: those that match ``where``; with ``points``, one per item of a list.

        The list is what a row has under that key: pairs [x, y], or triples [x, y, value] for a map.
        Of several items at one place the last is drawn (the upper end of a curve's step).
        """
        rows = tuple(
            row
            for row in rows
            if all(reading(row.get(k)).value == v for k, v in self.figure.where.items())
        )
        if self.figure.points is None:
            return rows
        keys = (self.x.key, self.y.key, *(() if self.value is None else (self.value.key,)))
        one_per_point = []
        for row in rows:
            items = row.get(self.figure.points)
            last = {
                tuple(item[:-1]): item[-1]
                for item in (items if isinstance(items, (list, tuple)) else ())
                if isinstance(item, (list, tuple))
                and len(item) == len(keys)
                and all(isinstance(v, (str, int, float)) for v in item[:-1])
            }
            one_per_point += [
                {**row, **dict(zip(keys, (*place, end), strict=True))}
                for place, end in last.items()
            ]
        return tuple(one_per_point)


class Measurements(NamedTuple):
    """A result of measurements, read and checked."""

    columns: tuple[Measure, ...]
    rows: tuple[Row, ...]
    misses: tuple[Row, ...]
    plots: tuple[Plot, ...]


def read_measurements(result: MeasurementsResult) -> Measurements:
    """Columns, rows, misses and figures, each figure with the measures that it draws.

    Raises:
        UsageError: two columns of one key, rows without columns, a figure of a key that neither a
            column nor a row has, or one of the wrong shape.
    """
    columns, rows = result.columns, result.rows
    measures = tuple(Measure(c.key, c.label or c.key, c.format) for c in columns)
    keys = [c.key for c in columns]
    if len(set(keys)) < len(keys):
        twice = next(k for k in keys if keys.count(k) > 1)
        raise UsageError(f"columns: key {_quote(twice)} is repeated; give each column its own key")
    if rows and not columns:
        raise UsageError(
            "columns=[]: rows of measurements need columns, each with key, label and format"
        )
    known = {m.key: m for m in measures}
    if rows:  # without rows nothing is drawn, and only the columns name keys
        for key in dict.fromkeys(k for row in rows for k in row):
            known.setdefault(key, Measure(key, key, "number"))
    plots = tuple(_plot(f, known, checked=bool(rows)) for f in result.figures)
    return Measurements(measures, rows, result.misses, plots)


def reading(cell: object) -> Reading:
    """A cell's value and interval; a plain value has none.

    >>> reading({"value": 0.5, "low": 0.4, "high": "inf"}), reading(3)
    (Reading(value=0.5, low=0.4, high=inf), Reading(value=3, low=None, high=None))
    """
    if isinstance(cell, Mapping):
        return Reading(
            cell.get("value"), wording.number(cell.get("low")), wording.number(cell.get("high"))
        )
    return Reading(cell)


def _plot(figure: Figure, known: Mapping[str, Measure], *, checked: bool) -> Plot:
    title = figure.title

    def measure(name: str, key: str, label: str | None = None) -> Measure:
        if checked and key not in known:
            some = ", ".join(_quote(k) for k in list(known)[:12])
            raise UsageError(
                f"figure {_quote(title)} {name}={_quote(key)}: must be the key of a column: {some}"
            )
        column = known.get(key, Measure(key, key, "number"))
        return column if label is None else column._replace(label=label)

    def optional(name: str, key: str | None) -> Measure | None:
        return None if key is None else measure(name, key)

    def several(name: str, keys: Sequence[str], sizes: Sequence[int]) -> tuple[Measure, ...]:
        if len(keys) not in sizes:
            raise UsageError(
                f"figure {_quote(title)} {name}={_quote(keys)}: must be a list of {max(sizes)} keys"
            )
        return tuple(measure(name, key) for key in keys)

    if figure.points is not None:
        measure("points", figure.points)
        along = "proportion" if figure.value is None else "number"
        named = {figure.x: along, figure.y: along}
        named |= {} if figure.value is None else {figure.value: "proportion"}
        own = {key: Measure(key, key, form) for key, form in named.items()}
        known = {**own, **known}
    if (figure.kind == "map") != (figure.value is not None):
        raise UsageError(
            f"figure {_quote(title)} kind={figure.kind!r}: only a map has a 'value', and it must"
        )
    for key in figure.where:
        measure("where", key)
    if figure.reference is not None and not math.isfinite(figure.reference):
        raise UsageError(
            f"figure {_quote(title)} reference={figure.reference}: must be a finite number"
        )
    return Plot(
        figure,
        x=measure("x", figure.x, figure.label_x),
        y=measure("y", figure.y, figure.label_y),
        series=optional("series", figure.series),
        panels=several("panels", figure.panels, (0, 1, 2)),
        published=optional("published", figure.published),
        band=several("band", figure.band, (0, 2)),
        value=optional("value", figure.value),
    )


def _quote(value: object) -> str:
    return repr(printable(value, limit=60))


def measured(cell: object, form: str) -> str:
    """A cell in the words of its column's format; words in a column of numbers stay words."""
    value, low, high = reading(cell)
    if isinstance(value, str) and wording.number(value) is None:
        return wording.NOTHING if value == "nan" else str(value)
    match form:
        case "proportion":
            return wording.proportion(value, low, high)
        case "epsilon":
            if value is None and isinstance(cell, Mapping):
                return wording.bounds(low, high)
            return wording.ranged(wording.epsilon(value), low, high)
        case "number":
            return wording.ranged(wording.quantity(value), low, high)
        case "ratio":
            text = wording.quantity(value)
            return wording.ranged(text if text == wording.NOTHING else f"{text}×", low, high)
        case "seconds":
            ends = (
                "" if None in (low, high) else f" [{wording.seconds(low)}, {wording.seconds(high)}]"
            )
            return wording.seconds(value) + ends
        case "flag" if isinstance(value, bool):
            return "yes" if value else "no"
        case _:
            return wording.quantity(value) if value in ("inf", "-inf") else wording.setting(value)


def is_numeric(column: Measure, rows: Sequence[Row]) -> bool:
    """Whether a column holds numbers only."""
    if column.format in {"flag", "text"}:
        return False
    values = [reading(row.get(column.key)).value for row in rows]
    return all(v is None or wording.number(v) is not None or v == "nan" for v in values)
