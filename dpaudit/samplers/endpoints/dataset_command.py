"""A program that gets a data set as a file and writes releases of any kind."""

from __future__ import annotations

import csv
import io
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.results.files import write_file
from dpaudit.results.text import one_line
from dpaudit.samplers.endpoints.command import program
from dpaudit.samplers.endpoints.command_mechanism import output_of
from dpaudit.samplers.plain import jsonable, of_json

__all__ = ["DatasetCommand"]


class DatasetCommand:
    """``command:./mechanism {dataset} {n}``: ``n`` releases of a file, one JSON value per line.

    ``{dataset}`` is the path of a ``.csv`` file with a header where records are dicts of numbers
    and text, of a ``.json`` file otherwise; ``{n}`` is the number of releases, without which the
    program runs once per release. A line is any JSON value: a number, a text, a list, an object,
    ``null``, ``NaN`` or ``Infinity``. Every call is a new process within a sampler's limits.
    """

    def __init__(self, target: str, *, columns: Sequence[str] = ()) -> None:
        """``columns`` are those of a ``.csv`` file without rows.

        Raises:
            UsageError: the text cannot be split, there is no such program, or no ``{dataset}``.
        """
        self.name = f"command:{target}"
        self._argv = program(target)
        self._columns = list(columns)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if not any("{dataset}" in word for word in self._argv[1:]):
            raise UsageError(
                f"mechanism={self.name}: must be told the data set; write {{dataset}} for its "
                f"path, e.g. command:{self._argv[0]} {{dataset}} {{n}}"
            )

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="dpaudit-")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def release_any(self, dataset: Any, n: int, *, timeout: float) -> list[Any]:
        """``n`` releases of ``dataset``, as JSON gives them.

        Raises:
            SamplerTimeoutError: it had not ended after ``timeout`` seconds.
            SamplerOutputError: it did not write ``n`` JSON values, one per line.
            SamplerCrashError: it ended with a status other than 0.
        """
        if self._folder is None:
            raise UsageError(f"mechanism {self.name}: not open; release inside `with`")
        file, text = self._written(dataset)
        path = write_file(Path(self._folder.name) / file, text)
        deadline = time.monotonic() + timeout
        if any("{n}" in word for word in self._argv):
            return self._run(path, n, timeout)
        found: list[Any] = []
        for _ in range(n):
            found += self._run(path, 1, max(deadline - time.monotonic(), 1e-3))
        return found

    def _run(self, path: Path, n: int, timeout: float) -> list[Any]:
        first, *rest = self._argv
        told = (word.replace("{dataset}", str(path)).replace("{n}", str(n)) for word in rest)
        written = output_of([first, *told], n, name=self.name, timeout=timeout)
        lines = written.decode("utf-8", "replace").splitlines()
        if len(lines) != n:
            raise SamplerOutputError(
                f"mechanism {self.name} wrote {len(lines)} lines (release n={n}); write one JSON "
                "value per line, n of them"
            )
        try:
            return [of_json(line) for line in lines]
        except ValueError as error:
            raise SamplerOutputError(
                f"mechanism {self.name}: a line is no JSON ({one_line(error, limit=100)}); write "
                'one JSON value per line, text in quotes: "yes"'
            ) from None

    def _written(self, dataset: Any) -> tuple[str, str]:
        rows = jsonable(dataset)
        flat = isinstance(rows, list) and all(
            isinstance(row, dict) and not any(isinstance(v, (list, dict)) for v in row.values())
            for row in rows
        )
        if not flat or not (rows or self._columns):
            return "dataset.json", json.dumps(rows)
        self._columns = list(dict.fromkeys([*self._columns, *(k for row in rows for k in row)]))
        out = io.StringIO()
        writer = csv.DictWriter(out, self._columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return "dataset.csv", out.getvalue()
