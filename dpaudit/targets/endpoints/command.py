"""A program on this machine as a target: every question runs it once."""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.protocols import Dataset, Facts, Kind, Reply, Request
from dpaudit.results.files import write_file
from dpaudit.results.text import one_line
from dpaudit.targets.check import (
    MOST,
    TYPES,
    check_request,
    query_result,
    require_finite,
    timed_calls,
)
from dpaudit.targets.plain import jsonable, of_json
from dpaudit.targets.sandbox.process import Process
from dpaudit.targets.sandbox.view import files_of_command

__all__ = ["CommandTarget"]

_CHUNK = 1 << 20
_CHUNK_OF_TEXT = 1 << 18
_LONGEST_NUMBER = 400
_FIELDS = {
    "sampler": {},
    "mechanism": {"{value}": "the value", "{n}": "how many releases are wanted"},
    "datasets": {"{dataset}": "the data set"},
}
"""What a program must be told for each role."""
_ACCEPTS: Mapping[str, frozenset[Kind]] = {
    "sampler": frozenset({"noise", "noise in calls"}),
    "mechanism": frozenset({"releases"}),
    "datasets": frozenset({"releases of a data set"}),
}

Array = npt.NDArray[np.float64]
T = TypeVar("T")


class CommandTarget:
    """``command:./program …``: the answer is on stdout, and then the end; no shell runs.

    The text is split as a shell would. Every question is a new process, within the same limits.

    - ``command:./sampler {n} {d}`` writes n·d values of noise, row by row: little-endian float64,
      float32 (``dtype="f32"``), or decimal numbers between white space (``text_mode``).
    - ``command:./mechanism --value={value} {n}`` writes ``n`` releases of the query result, row by
      row, as little-endian float64: n·k numbers for a release of k. ``{value}`` is the numbers
      joined by commas, each with enough digits to be exact (Python's ``repr``). A negative number
      begins with a minus sign, so write ``--value={value}``, which no program takes for an option.
    - ``command:./mechanism {dataset} {n}`` writes ``n`` releases, one JSON value per line: a
      number, a text, a list, an object, ``null``, ``NaN`` or ``Infinity``. ``{dataset}`` is the
      path of a ``.csv`` file with a header where records are dicts of numbers and text, of a
      ``.json`` file otherwise; without ``{n}`` the program runs once per release.

    There are no timed releases: most of the time of a call is the program's start.
    """

    def __init__(
        self,
        target: str,
        *,
        seed: str = "",
        dtype: str = "f64",
        text_mode: bool = False,
        role: str = "sampler",
        columns: Sequence[str] = (),
    ) -> None:
        """Find the program; it runs at the first question. ``seed`` is not used: it is closed.

        ``role`` is sampler, mechanism or datasets; ``columns`` are those of a ``.csv`` file without
        rows.

        Raises:
            UsageError: the text cannot be split, there is no such program, no such ``dtype``, or
                the program is not told what the role needs.
        """
        del seed
        self.name = f"command:{target}"
        self.role = "sampler" if role == "sampler" else "mechanism"
        if dtype not in TYPES:
            raise UsageError(f"dtype={dtype}: a command writes f64 or f32; choose one of them")
        if text_mode and dtype != "f64":
            raise UsageError(
                f"dtype={dtype}: numbers written as text have no dtype; leave out one of the two"
            )
        self._argv = _program(target)
        for field, meaning in _FIELDS[role].items():
            if not any(field in word for word in self._argv[1:]):
                whole = role == "mechanism"
                form, its = ("--value={value}", "it") if whole else ("{dataset}", "its path")
                raise UsageError(
                    f"mechanism={self.name}: must be told {meaning}; write {field} for {its}, e.g. "
                    f"command:{self._argv[0]} {form} {{n}}"
                )
        self._type = np.dtype(TYPES[dtype])
        self._text = text_mode
        self._columns = list(columns)
        self.facts = Facts(_ACCEPTS[role])
        self._open = False

    @contextmanager
    def open(self, *, timeout: float) -> Iterator[Self]:
        """Nothing starts before the first question; ``timeout`` is not needed."""
        del timeout
        self._open = True
        try:
            yield self
        finally:
            self._open = False

    def again(self) -> Self:
        """The same program; every draw is a new process anyway."""
        other = copy.copy(self)
        other._open = False
        return other

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """Run the program once, or once per call; it leaves no process.

        The seconds of a call are those of the whole run.

        Raises:
            UsageError: a query result that is not 1 to 4096 finite numbers.
            SamplerTimeoutError: it had not ended after ``timeout`` seconds.
            SamplerOutputError: too few or too many values or lines, no numbers, or not finite.
            SamplerCrashError: it ended with a status other than 0.
        """
        accepts = self.facts.accepts
        check_request(request, accepts, timeout=timeout, name=self.name, role=self.role)
        if request.calls is not None:
            return Reply(*timed_calls(partial(self._noise, request), request, timeout=timeout))
        if request.input is None:
            return Reply(self._noise(request, timeout))
        if isinstance(request.input, Dataset):
            return Reply(self._releases_of_data(request.input.records, request.n, timeout))
        return Reply(self._releases(query_result(request.input), request.n, timeout))

    def _noise(self, request: Request, timeout: float) -> Array:
        n, d = request.n, request.dim
        argv = [word.replace("{n}", str(n)).replace("{d}", str(d)) for word in self._argv]
        read = self._read_text if self._text else self._read_binary
        call = f"(call n={n}, d={d})"
        remedy = "it must write n*d values and end: raise the time limit or draw less"
        values, short = self._run(argv, partial(read, n, d), call, remedy, timeout=timeout)
        if short:
            raise self._wrong(short, n, d)
        return require_finite(values.reshape(n, d), self.name)

    def _releases(self, value: Array, n: int, timeout: float) -> Array:
        written = self._released({"{value}": ",".join(map(repr, value.tolist()))}, n, timeout)
        size, column = len(written), 8 * n
        if not size or size % column:
            raise SamplerOutputError(
                f"mechanism {self.name} wrote {size} bytes, {size / column:.6g} numbers per "
                f"release (release n={n}); write n rows of equally many little-endian float64"
            )
        releases = np.frombuffer(written, dtype="<f8").astype(np.float64, copy=False)
        return require_finite(releases.reshape(n, -1), self.name, "mechanism")

    def _releases_of_data(self, dataset: Any, n: int, timeout: float) -> list[Any]:
        file, text = self._file_of(dataset)
        deadline = time.monotonic() + timeout
        together = any("{n}" in word for word in self._argv)
        releases: list[Any] = []
        with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
            path = str(write_file(Path(folder) / file, text))
            for many in [n] if together else [1] * n:
                left = max(deadline - time.monotonic(), 1e-3)
                releases += self._lines({"{dataset}": path}, many, timeout if together else left)
        return releases

    def _lines(self, fields: dict[str, str], n: int, timeout: float) -> list[Any]:
        lines = self._released(fields, n, timeout).decode("utf-8", "replace").splitlines()
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

    def _file_of(self, dataset: Any) -> tuple[str, str]:
        """The name of a data set's file, and its text."""
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

    def _released(self, fields: dict[str, str], n: int, timeout: float) -> bytearray:
        """All that the program writes, told ``fields`` and ``n``."""
        first, *rest = self._argv
        argv = [first]
        for word in rest:
            for field, text in {**fields, "{n}": str(n)}.items():
                word = word.replace(field, text)
            argv.append(word)
        call = f"(release n={n})"
        remedy = "raise the time limit or ask for fewer"
        return self._run(argv, partial(self._read_all, call), call, remedy, timeout=timeout)

    def _run(
        self,
        argv: Sequence[str],
        read: Callable[[Process, float], T],
        call: str,
        remedy: str,
        *,
        timeout: float,
    ) -> T:
        """Start the program, ``read`` until its deadline, and end it; messages name the ``call``."""
        if not self._open:
            raise UsageError(f"{self.role} {self.name}: not open; ask inside `with`")
        deadline = time.monotonic() + timeout
        process = Process(argv, seconds=timeout, needs=files_of_command(argv))
        try:
            answer = read(process, deadline)
            code, how = process.ending(deadline=deadline)
        except TimeoutError:
            raise SamplerTimeoutError(
                f"{self.role} {self.name} had not ended after timeout={timeout:g} s {call}; {remedy}"
            ) from None
        finally:
            process.close()
        if code:
            short = answer[1] if isinstance(answer, tuple) else ""
            gave = f" gave {short}:" if short else ":"
            raise SamplerCrashError(
                f"{self.role} {self.name}{gave} {how} {call}; it must end with status 0"
            )
        return answer

    def _wrong(self, gave: str, n: int, d: int) -> SamplerOutputError:
        typed = "" if self._text else ", or set their type with dtype (f64 or f32)"
        return SamplerOutputError(
            f"sampler {self.name} gave {gave}, wanted exactly n*d={n * d} values "
            f"(call n={n}, d={d}); write that many{typed}"
        )

    def _read_binary(self, n: int, d: int, process: Process, deadline: float) -> tuple[Array, str]:
        """The values, and how many came if they were too few ('' otherwise)."""
        values = np.empty(n * d, dtype=self._type)
        size = self._type.itemsize
        got = process.read(values.data.cast("B"), deadline=deadline)
        if got < values.nbytes:
            return np.empty(0), f"{got // size} values ({got} bytes, wanted {values.nbytes})"
        if process.read(memoryview(bytearray(1)), deadline=deadline):
            raise self._wrong(f"at least {n * d} values and 1 byte", n, d)
        return values.astype(np.float64, copy=False), ""

    def _read_text(self, n: int, d: int, process: Process, deadline: float) -> tuple[Array, str]:
        values = np.empty(n * d)
        got, rest = 0, b""
        buffer = bytearray(_CHUNK_OF_TEXT)
        size = len(buffer)
        while size == len(buffer):
            size = process.read(memoryview(buffer), deadline=deadline)
            numbers = (rest + buffer[:size]).split()
            cut = size == len(buffer) and bool(numbers) and not buffer[-1:].isspace()
            rest = numbers.pop() if cut else b""
            if len(rest) > _LONGEST_NUMBER:
                raise self._no_number(rest)
            if got + len(numbers) > n * d:
                raise self._wrong(f"at least {got + len(numbers)} values", n, d)
            for word in numbers:
                try:
                    values[got] = float(word)
                except ValueError:
                    raise self._no_number(word) from None
                got += 1
        return values, "" if got == n * d else f"{got} values"

    def _no_number(self, word: bytes) -> SamplerOutputError:
        text = word[:40].decode(errors="replace")
        return SamplerOutputError(
            f"sampler {self.name} wrote {text!r}, which is not a number; "
            "text is decimal numbers between white space, without text_mode it is binary"
        )

    def _read_all(self, call: str, process: Process, deadline: float) -> bytearray:
        written, chunk = bytearray(), bytearray(_CHUNK)
        got = _CHUNK
        while got == _CHUNK:
            got = process.read(memoryview(chunk), deadline=deadline)
            written += memoryview(chunk)[:got]
            if len(written) > 8 * MOST:
                raise SamplerOutputError(
                    f"mechanism {self.name} wrote more than {MOST} numbers {call}; "
                    "ask for fewer releases"
                )
        return written


def _program(target: str) -> list[str]:
    """The words of a command, as a shell would split it; the first is a program that can be run.

    Raises:
        UsageError: the text cannot be split, or there is no such program.
    """
    try:
        argv = shlex.split(target)
        if len(argv) == 1 and " " in argv[0] and not shutil.which(argv[0]):
            argv = shlex.split(argv[0])  # the quotes of command:'…' came through
    except ValueError as error:
        raise UsageError(
            f"command={target}: cannot be split into words ({error}); fix the quotes"
        ) from None
    if not argv or not shutil.which(argv[0]):
        name, rule = argv[0] if argv else "", "no such program; give its path"
        if os.path.isfile(name):
            rule = "is not executable; chmod +x it"
        raise UsageError(f"command={name}: {rule} (from {os.getcwd()})")
    return argv
