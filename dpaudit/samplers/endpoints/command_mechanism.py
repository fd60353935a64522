"""A program as a whole mechanism: it gets the value on its command line and writes releases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.samplers.check import finite, request
from dpaudit.samplers.endpoints.command import program
from dpaudit.samplers.endpoints.releases import MOST, query_result
from dpaudit.samplers.sandbox.process import Process
from dpaudit.samplers.sandbox.view import files_of_command

__all__ = ["CommandMechanism", "doubles", "output_of"]

_F64 = np.dtype("<f8")
_CHUNK = 1 << 20

Array = npt.NDArray[np.float64]


class CommandMechanism:
    """``command:./mechanism --value={value} {n}``: ``n`` releases of ``value``, row by row.

    The text is split as a shell would (no shell runs). ``{value}`` is the query result's numbers
    joined by commas, each with enough digits to be exact (Python's ``repr``); ``{n}`` is the number
    of releases. A negative number begins with a minus sign, so write ``--value={value}``, which no
    program takes for an option. Releases are little-endian float64 on standard output, n·k numbers
    for a release of k, and then the end. Every call is a new process, within the same limits as a
    sampler's. There are no timed releases: most of the time of a call is the program's start.
    """

    version: str | None = None
    advice = ""

    def __init__(self, target: str) -> None:
        """Find the program; it runs at the first release.

        Raises:
            UsageError: the text cannot be split, there is no such program, or ``{value}`` or
                ``{n}`` is missing.
        """
        self.name = f"command:{target}"
        self._argv = program(target)
        for field, what in (("{value}", "the value"), ("{n}", "how many releases are wanted")):
            if not any(field in word for word in self._argv[1:]):
                raise UsageError(
                    f"mechanism={self.name}: must be told {what}; write {field} for it, e.g. "
                    f"command:{self._argv[0]} --value={{value}} {{n}}"
                )
        self._open = False

    def __enter__(self) -> Self:
        self._open = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._open = False

    def release(self, value: Array, n: int, *, timeout: float) -> Array:
        """Run the program once: ``n`` finite releases (n, k) of the query result ``value`` (m,).

        Raises:
            UsageError: ``value`` is not 1 to 4096 finite numbers.
            SamplerTimeoutError: it had not ended after ``timeout`` seconds.
            SamplerOutputError: its numbers are not ``n`` rows, too many, or not finite.
            SamplerCrashError: it ended with a status other than 0.
        """
        value = query_result(value)
        request(n, value.size, timeout)
        if not self._open:
            raise UsageError(f"mechanism {self.name}: not open; release inside `with`")
        told = ",".join(map(repr, value.tolist()))
        first, *rest = self._argv
        argv = [first, *(w.replace("{value}", told).replace("{n}", str(n)) for w in rest)]
        released = doubles(argv, n, name=self.name, timeout=timeout)
        return finite(released, self.name, "mechanism")


def doubles(
    argv: Sequence[str],
    n: int,
    *,
    name: str,
    timeout: float,
) -> Array:
    """``n`` rows (n, k) that a program writes as little-endian float64, finite or not.

    Raises:
        SamplerTimeoutError, SamplerOutputError, SamplerCrashError: as
            :meth:`CommandMechanism.release` says.
    """
    written = output_of(argv, n, name=name, timeout=timeout)
    size, column = len(written), n * _F64.itemsize
    if not size or size % column:
        raise SamplerOutputError(
            f"mechanism {name} wrote {size} bytes, {size / column:.6g} numbers per release "
            f"(release n={n}); write n rows of equally many little-endian float64"
        )
    return np.frombuffer(written, dtype=_F64).astype(np.float64, copy=False).reshape(n, -1)


def output_of(
    argv: Sequence[str],
    n: int,
    *,
    name: str,
    timeout: float,
) -> bytearray:
    """All that a program writes to standard output for ``n`` releases; as :func:`doubles`."""
    deadline = time.monotonic() + timeout
    process = Process(argv, seconds=timeout, needs=files_of_command(argv))
    asked = f"(release n={n})"
    try:
        written = _all(process, deadline, name, asked)
        code, how = process.ending(deadline=deadline)
    except TimeoutError:
        raise SamplerTimeoutError(
            f"mechanism {name} had not ended after timeout={timeout:g} s {asked}; "
            "raise the time limit or ask for fewer"
        ) from None
    finally:
        process.close()
    if code:
        raise SamplerCrashError(f"mechanism {name}: {how} {asked}; it must end with status 0")
    return written


def _all(process: Process, deadline: float, name: str, asked: str) -> bytearray:
    """Everything that the program writes.

    Raises:
        TimeoutError: it had not ended before ``deadline``.
        SamplerOutputError: it wrote more than an answer may have.
    """
    written, chunk = bytearray(), bytearray(_CHUNK)
    got = _CHUNK
    while got == _CHUNK:
        got = process.read(memoryview(chunk), deadline=deadline)
        written += memoryview(chunk)[:got]
        if len(written) > MOST * _F64.itemsize:
            raise SamplerOutputError(
                f"mechanism {name} wrote more than {MOST} numbers {asked}; ask for fewer releases"
            )
    return written
