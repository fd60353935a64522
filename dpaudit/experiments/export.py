"""A run's rows and trials, flat and in typed columns, as Parquet, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from dpaudit.codec import to_dict
from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.experiments.store import FILE
from dpaudit.results.files import write_file

__all__ = ["FORMATS", "Columns", "check_target", "flat_rows", "flatten", "typed", "write_columns"]

Columns = dict[str, list[Any]]
_WORDS = ("inf", "-inf", "nan")
_LEAST, _MOST = -(2**63), 2**63 - 1


def flat_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ``rows`` of a ``results.json`` without nesting; an arm has one row per attack.

    ``{value, low, high}`` under ``name`` becomes ``name``, ``name_low`` and ``name_high``; an
    ``interval`` next to ``success`` likewise; other tables ``name_key``; lists JSON text. An arm's
    ``details``, which are for figures, are left out.
    """
    if document["kind"] != "experiment":
        return [flatten(row) for row in document["rows"]]
    found = []
    for row in document["rows"]:
        own = {k: v for k, v in row.items() if k not in ("settings", "attacks")}
        arm = flatten({**row.get("settings", {}), **own})
        found += [{**arm, **flatten(_without(attack))} for attack in row["attacks"]] or [arm]
    return found


def _without(attack: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in attack.items() if k != "details"}


def flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """One row without nesting."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            under = "success" if name == "interval" and "success" in row else name
            for key, inner in flatten(value).items():
                if under == "success" and name == "interval" and key not in ("low", "high"):
                    continue
                flat[under if key == "value" else f"{under}_{key}"] = inner
        elif isinstance(value, (list, tuple)):
            flat[name] = json.dumps(to_dict(value), ensure_ascii=False)
        else:
            flat[name] = value
    return flat


def typed(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows as columns of one type each: bool, int (64 bits), float or str; None for no value.

    The words that stand for them in JSON become infinities and NaN in columns of numbers.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: list[Any]) -> list[Any]:
    there = [v for v in values if v is not None]
    if all(isinstance(v, bool) for v in there):
        return values
    numbers = all(v in _WORDS if isinstance(v, str) else isinstance(v, (int, float)) for v in there)
    if not numbers or any(isinstance(v, bool) for v in there):
        return [v if v is None or isinstance(v, str) else json.dumps(to_dict(v)) for v in values]
    if all(isinstance(v, int) and _LEAST <= v <= _MOST for v in there):
        return values
    try:
        return [None if v is None else float(v) for v in values]
    except OverflowError:  # beyond any float: their digits
        return [None if v is None else str(v) for v in values]


_FORMULA = tuple("=+-@＝＋－＠")
_CONTROLS = tuple("\t\r\n")


def write_columns(columns: Columns, to: Path) -> int:
    """Write typed columns to ``to``, in the format of its suffix; returns the number of rows.

    An existing file is replaced. Parquet has nulls, infinities and NaN as such. CSV has them as
    nothing, ``inf`` and ``nan``; JSON, a list of objects, as ``null`` and the words ``"inf"``,
    ``"-inf"``, ``"nan"``. In CSV, text that a spreadsheet would take for a formula gets an
    apostrophe in front. Halves of characters, which UTF-8 cannot hold, become their escapes.

    Raises:
        UsageError: another suffix, a run's own results.json, or the file cannot be written.
        MissingExtraError: Parquet needs pyarrow.
    """
    write = check_target(to)
    whole = {_whole(name): [_whole(v) for v in values] for name, values in columns.items()}
    try:
        write_file(to, lambda file: write(whole, file))
    except OSError as error:
        raise UsageError(
            f"to={to}: cannot be written ({error.strerror or error}); choose another file"
        ) from error
    return len(next(iter(columns.values()), []))


def check_target(to: Path) -> Callable[[Columns, BinaryIO], None]:
    """The writer for the format of ``to``'s suffix.

    Raises:
        UsageError: there is none, or ``to`` is a run's own ``results.json``.
    """
    write = FORMATS.get(to.suffix)
    if write is None:
        raise UsageError(f"to={to}: must end with {', '.join(FORMATS)}")
    if to.name == "results.json" and to.with_name(FILE).exists():
        raise UsageError(
            f"to={to}: is the run's own document; choose another name, such as rows.json"
        )
    return write


def _whole(value: Any) -> Any:
    """``value``, or text that UTF-8 can hold."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _parquet(columns: Columns, file: BinaryIO) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "to=….parquet: Parquet needs pyarrow, which is not installed; "
            "pip install 'dpaudit[parquet]'"
        ) from error
    parquet.write_table(
        pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()}), file
    )


def _csv(columns: Columns, file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow(map(_no_formula, columns))
    writer.writerows(map(_no_formula, row) for row in zip(*columns.values(), strict=True))
    text.detach()


def _no_formula(value: Any) -> Any:
    """Text that no spreadsheet executes (OWASP, CSV injection); numbers keep their signs."""
    if not isinstance(value, str) or not (value[:1] in _CONTROLS or value.lstrip()[:1] in _FORMULA):
        return value
    return value if _is_number(value) else f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json(columns: Columns, file: BinaryIO) -> None:
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        values = {k: str(v) if _odd(v) else v for k, v in zip(columns, row, strict=True)}
        line = json.dumps(values, ensure_ascii=False, allow_nan=False)
        file.write((("[\n" if number == 0 else ",\n") + line).encode())
    file.write(b"\n]\n" if next(iter(columns.values()), []) else b"[]\n")


def _odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


FORMATS: dict[str, Callable[[Columns, BinaryIO], None]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
}
