"""A run's rows, flat and in typed columns, for pandas and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from dpaudit.codec import to_dict
from dpaudit.errors import UsageError
from dpaudit.results.files import write_file

__all__ = ["Columns", "check_target", "flat_rows", "typed", "write_csv"]

Columns = dict[str, list[Any]]
_WORDS = ("inf", "-inf", "nan")
_FORMULA = tuple("=+-@＝＋－＠")
_CONTROLS = tuple("\t\r\n")


def flat_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ``rows`` of a ``results.json`` without nesting; an arm has one row per attack.

    ``{value, low, high}`` under ``name`` becomes ``name``, ``name_low`` and ``name_high``; an
    ``interval`` next to ``success`` likewise; other tables ``name_key``; lists JSON text. An arm's
    ``details``, which are for figures, are left out.
    """
    if document["kind"] != "experiment":
        return [_flat(row) for row in document["rows"]]
    found = []
    for row in document["rows"]:
        own = {k: v for k, v in row.items() if k not in ("settings", "attacks")}
        arm = _flat({**row.get("settings", {}), **own})
        attacks = [{k: v for k, v in a.items() if k != "details"} for a in row["attacks"]]
        found += [{**arm, **_flat(attack)} for attack in attacks] or [arm]
    return found


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            ends = name == "interval" and "success" in row
            under = "success" if ends else name
            for key, inner in _flat(value).items():
                if not ends or key in ("low", "high"):
                    flat[under if key == "value" else f"{under}_{key}"] = inner
        elif isinstance(value, (list, tuple)):
            flat[name] = json.dumps(to_dict(value), ensure_ascii=False)
        else:
            flat[name] = value
    return flat


def typed(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows as columns of one type each: bool, int, float or str; None for no value.

    The words that stand for them in JSON become infinities and NaN in columns of numbers.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: list[Any]) -> list[Any]:
    there = [v for v in values if v is not None]
    if all(isinstance(v, bool) for v in there) or all(type(v) is int for v in there):
        return values
    if all(type(v) in (int, float) or v in _WORDS for v in there):
        return [None if v is None else float(v) for v in values]
    return [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]


def check_target(to: Path) -> None:
    """Check the name of the file to write.

    Raises:
        UsageError: it does not end with .csv.
    """
    if to.suffix != ".csv":
        raise UsageError(f"to={to}: must end with .csv; choose such a name")


def write_csv(columns: Columns, to: Path) -> int:
    """Write typed columns to ``to``; returns the number of rows. An existing file is replaced.

    No value is nothing; infinities and NaN are ``inf`` and ``nan``. Text that a spreadsheet would
    take for a formula gets an apostrophe in front. Halves of characters, which UTF-8 cannot hold,
    become their escapes.

    Raises:
        UsageError: the name does not end with .csv, or the file cannot be written.
    """
    check_target(to)

    def write(file: BinaryIO) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        writer = csv.writer(text)
        writer.writerow(map(_no_formula, columns))
        writer.writerows(map(_no_formula, row) for row in zip(*columns.values(), strict=True))
        text.detach()

    try:
        write_file(to, write)
    except OSError as error:
        raise UsageError(
            f"to={to}: cannot be written ({error.strerror or error}); choose another file"
        ) from error
    return len(next(iter(columns.values()), []))


def _no_formula(value: Any) -> Any:
    """Text that no spreadsheet executes (OWASP, CSV injection); numbers keep their signs."""
    if not isinstance(value, str) or not (value[:1] in _CONTROLS or value.lstrip()[:1] in _FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
