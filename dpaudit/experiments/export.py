"""A run's rows and trials as Parquet, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.experiments.flat import Columns
from dpaudit.experiments.store import FILE
from dpaudit.results.files import write_file

__all__ = ["FORMATS", "check_target", "write_columns"]

_FORMULA = tuple("=+-@＝＋－＠")
_CONTROLS = tuple("\t\r\n")


def write_columns(columns: Columns, to: Path) -> int:
    """Write typed columns to ``to``, replaced if there, in the format that its name ends with; how many rows it has.

    Parquet has nulls, infinities and NaN as such. CSV has them as nothing, ``inf`` and ``nan``; JSON, a list of objects, as
    ``null`` and the words ``"inf"``, ``"-inf"``, ``"nan"``. In CSV, text that a spreadsheet would take for a formula gets
    an apostrophe in front. Halves of characters, which UTF-8 cannot hold, become their escapes.

    Raises:
        UsageError: another ending, a run's own results.json, or the file cannot be written.
        MissingExtraError: Parquet needs pyarrow.
    """
    write = check_target(to)
    whole = {_whole(name): [_whole(v) for v in values] for name, values in columns.items()}
    try:
        write_file(to, lambda file: write(whole, file))
    except OSError as error:
        raise UsageError(f"to={to}: cannot be written ({error.strerror or error}); choose another file") from error
    return len(next(iter(columns.values()), []))


def check_target(to: Path) -> Callable[[Columns, BinaryIO], None]:
    """What writes the format that ``to`` ends with.

    Raises:
        UsageError: there is none, or ``to`` is a run's own ``results.json``.
    """
    write = FORMATS.get(to.suffix)
    if write is None:
        raise UsageError(f"to={to}: must end with {', '.join(FORMATS)}")
    if to.name == "results.json" and to.with_name(FILE).exists():
        raise UsageError(f"to={to}: is the run's own document; choose another name, such as rows.json")
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
            "to=….parquet: Parquet needs pyarrow, which is not installed; pip install 'dpaudit[parquet]'"
        ) from error
    parquet.write_table(pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()}), file)


def _csv(columns: Columns, file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow(map(_no_formula, columns))
    writer.writerows(map(_no_formula, row) for row in zip(*columns.values(), strict=True))
    text.detach()


def _no_formula(value: Any) -> Any:
    """Text that no spreadsheet runs (OWASP, CSV injection); numbers stay, with their signs."""
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


FORMATS: dict[str, Callable[[Columns, BinaryIO], None]] = {".parquet": _parquet, ".csv": _csv, ".json": _json}
