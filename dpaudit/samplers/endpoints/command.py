"""A program that writes noise to its standard output; every draw runs it once."""

from __future__ import annotations

import copy
import os
import shlex
import shutil
import time

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.samplers.check import finite, request
from dpaudit.samplers.sandbox.process import Process
from dpaudit.samplers.sandbox.view import files_of_command
from dpaudit.samplers.timed_draws import timed_draws

__all__ = ["CommandSampler", "program"]

_TYPES = {"f64": "<f8", "f32": "<f4"}
_CHUNK = 1 << 18
_LONGEST_NUMBER = 400

Array = npt.NDArray[np.float64]


def program(target: str) -> list[str]:
    """The words of a command, as a shell would split it; the first is a program that can be run.

    Raises:
        UsageError: the text cannot be split, or there is no such program.
    """
    try:
        words = shlex.split(target)
        if len(words) == 1 and " " in words[0] and not shutil.which(words[0]):
            words = shlex.split(words[0])  # the quotes of command:'…' came through
    except ValueError as error:
        raise UsageError(
            f"command={target}: cannot be split into words ({error}); fix the quotes"
        ) from None
    if not words or not shutil.which(words[0]):
        name, rule = words[0] if words else "", "no such program; give its path"
        if os.path.isfile(name):
            rule = "is not executable; chmod +x it"
        raise UsageError(f"command={name}: {rule} (from {os.getcwd()})")
    return words


class CommandSampler:
    """``command:./sampler {n} {d}``: n·d values on stdout, row by row, and then the end.

    The text is split as a shell would (no shell runs) and ``{n}`` and ``{d}`` are filled in. Values
    are little-endian float64, float32 (``dtype="f32"``), or decimal numbers between white space
    (``text_mode``).
    """

    dim: int | None = None
    available: int | None = None

    def __init__(
        self, target: str, *, seed: str, dtype: str = "f64", text_mode: bool = False
    ) -> None:
        """Find the program; it runs at the first draw. ``seed`` is not used: the program is closed.

        Raises:
            UsageError: the text cannot be split, there is no such program, or no such ``dtype``.
        """
        del seed
        self.name = f"command:{target}"
        if dtype not in _TYPES:
            raise UsageError(f"dtype={dtype}: a command writes f64 or f32; choose one of them")
        if text_mode and dtype != "f64":
            raise UsageError(
                f"dtype={dtype}: numbers written as text have no dtype; leave out one of the two"
            )
        self._argv = program(target)
        self._type = np.dtype(_TYPES[dtype])
        self._text = text_mode
        self._open = False

    def __enter__(self) -> CommandSampler:
        self._open = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._open = False

    def draw(self, n: int, d: int, *, timeout: float) -> Array:
        """Run the program once: ``n`` vectors, shape (n, d), finite. It leaves no process.

        Raises:
            SamplerTimeoutError: it had not ended after ``timeout`` seconds.
            SamplerOutputError: too few or too many values, no numbers, or not finite.
            SamplerCrashError: it ended with a status other than 0.
        """
        request(n, d, timeout)
        if not self._open:
            raise UsageError(f"sampler {self.name}: not open; draw inside `with`")
        deadline = time.monotonic() + timeout
        argv = [word.replace("{n}", str(n)).replace("{d}", str(d)) for word in self._argv]
        process = Process(argv, seconds=timeout, needs=files_of_command(argv))
        try:
            read = self._read_text if self._text else self._read_binary
            values, short = read(process, n, d, deadline)
            code, how = process.ending(deadline=deadline)
        except TimeoutError:
            raise SamplerTimeoutError(
                f"sampler {self.name} had not ended after timeout={timeout:g} s "
                f"(call n={n}, d={d}); it must write n*d values and end: "
                "raise the time limit or draw less"
            ) from None
        finally:
            process.close()
        if code:
            gave = f" gave {short}:" if short else ":"
            raise SamplerCrashError(
                f"sampler {self.name}{gave} {how} (call n={n}, d={d}); it must end with status 0"
            )
        if short:
            raise self._wrong(short, n, d)
        return finite(values.reshape(n, d), self.name)

    def draw_calls(self, calls: int, n: int, d: int, *, timeout: float) -> tuple[Array, Array]:
        """Run the program ``calls`` times: values (calls·n, d), and each run's seconds in all.

        Raises as :meth:`draw` does; ``timeout`` is for all of them.
        """
        return timed_draws(self.draw, calls, n, d, timeout=timeout)

    def again(self) -> CommandSampler:
        """The same program; every draw is a new process anyway."""
        other = copy.copy(self)
        other._open = False
        return other

    def _wrong(self, gave: str, n: int, d: int) -> SamplerOutputError:
        typed = "" if self._text else ", or set their type with dtype (f64 or f32)"
        return SamplerOutputError(
            f"sampler {self.name} gave {gave}, wanted exactly n*d={n * d} values "
            f"(call n={n}, d={d}); write that many{typed}"
        )

    def _read_binary(self, process: Process, n: int, d: int, deadline: float) -> tuple[Array, str]:
        """The values, and how many came if they were too few ('' otherwise)."""
        values = np.empty(n * d, dtype=self._type)
        size = self._type.itemsize
        got = process.read(values.data.cast("B"), deadline=deadline)
        if got < values.nbytes:
            return np.empty(0), f"{got // size} values ({got} bytes, wanted {values.nbytes})"
        if process.read(memoryview(bytearray(1)), deadline=deadline):
            raise self._wrong(f"at least {n * d} values and 1 byte", n, d)
        return values.astype(np.float64, copy=False), ""

    def _read_text(self, process: Process, n: int, d: int, deadline: float) -> tuple[Array, str]:
        values = np.empty(n * d)
        got, rest = 0, b""
        buffer = bytearray(_CHUNK)
        size = _CHUNK
        while size == _CHUNK:
            size = process.read(memoryview(buffer), deadline=deadline)
            words = (rest + buffer[:size]).split()
            cut = size == _CHUNK and bool(words) and not buffer[-1:].isspace()
            rest = words.pop() if cut else b""
            if len(rest) > _LONGEST_NUMBER:
                raise self._no_number(rest)
            if got + len(words) > n * d:
                raise self._wrong(f"at least {got + len(words)} values", n, d)
            for word in words:
                try:
                    values[got] = float(word)
                except ValueError:
                    raise self._no_number(word) from None
                got += 1
        return values, "" if got == n * d else f"{got} values"

    def _no_number(self, word: bytes) -> SamplerOutputError:
        shown = word[:40].decode(errors="replace")
        return SamplerOutputError(
            f"sampler {self.name} wrote {shown!r}, which is not a number; "
            "text is decimal numbers between white space, without text_mode it is binary"
        )
