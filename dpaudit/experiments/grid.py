"""Axes of a spec: their values, combinations, written form, and the types that a measure takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeVar, get_origin

import msgspec

from dpaudit.errors import SpecError
from dpaudit.registry import nearest
from dpaudit.results.foreign import quoted

__all__ = [
    "Grid",
    "Table",
    "check_grid",
    "expand",
    "joined_axes",
    "listed",
    "read_grid",
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
