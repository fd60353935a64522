"""A program of another language as a closed sampler of experiments."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from typing import IO, cast

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerCrashError, SamplerTimeoutError
from dpaudit.randomness import KeyedStream
from dpaudit.samplers.check import timed_draws

__all__ = ["ProgramSampler"]

_PIECE = 1 << 20

Array = npt.NDArray[np.float64]


class ProgramSampler:
    """A ``RepeatableSampler`` that asks a running program for n·d values at a time.

    Its last argument is a seed below 2^31, drawn from ``stream``; ``again`` has another one.
    Not claimed: any protection from the program, which runs with this process's rights.
    """

    dim: int | None = None
    available: int | None = None

    def __init__(
        self, command: tuple[str, ...], *, name: str, stream: KeyedStream, text: bool = False
    ) -> None:
        self.name = name
        self._command, self._stream, self._text = command, stream, text
        self._started = 0
        self._program: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def __enter__(self) -> ProgramSampler:
        seed = int(self._stream.numpy().integers(1, 1 << 31))
        words = [word.replace("{seed}", str(seed)) for word in (*self._command, str(seed))]
        self._program = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        return self

    def __exit__(self, *exc: object) -> None:
        if self._program is not None:
            self._program.kill()
            self._program.communicate()
            self._program = None

    def again(self) -> ProgramSampler:
        """The same program, to be started with the next seed."""
        self._started += 1
        return ProgramSampler(
            self._command,
            name=self.name,
            stream=self._stream.child("again", self._started),
            text=self._text,
        )

    def draw(self, n: int, d: int, *, timeout: float) -> Array:
        """``n`` vectors (n, d).

        Raises:
            SamplerError: it ended, or gave nothing for ``timeout`` seconds.
        """
        if self._program is None:
            raise SamplerCrashError(f"{self.name}: drawn from outside its with block")
        asks, answers = cast("IO[bytes]", self._program.stdin), self._program.stdout
        try:
            asks.write(b"%d\n" % (n * d))
            asks.flush()
        except OSError:
            raise SamplerCrashError(f"{self.name}: the program has ended") from None
        read = self._lines if self._text else self._bytes
        return read(cast("IO[bytes]", answers), n * d, time.monotonic() + timeout).reshape(n, d)

    def draw_calls(self, calls: int, n: int, d: int, *, timeout: float) -> tuple[Array, Array]:
        """``calls`` calls of ``n`` vectors each: values (calls·n, d) and each call's seconds.

        Raises:
            SamplerError: as in :meth:`draw`.
        """
        return timed_draws(self.draw, calls, n, d, timeout=timeout)

    def _bytes(self, answers: IO[bytes], count: int, until: float) -> Array:
        out = self._rest
        parts, have = [out], len(out)
        while have < 8 * count:
            parts.append(self._read(answers, until))
            have += len(parts[-1])
        out = b"".join(parts)
        self._rest = out[8 * count :]
        return np.frombuffer(out[: 8 * count], "<f8").astype(float)

    def _lines(self, answers: IO[bytes], count: int, until: float) -> Array:
        parts, have = [self._rest], self._rest.count(b"\n")
        while have < count:
            parts.append(self._read(answers, until))
            have += parts[-1].count(b"\n")
        lines = b"".join(parts).split(b"\n", count)
        self._rest = lines[count]
        return np.array(lines[:count], dtype=float)

    def _read(self, answers: IO[bytes], until: float) -> bytes:
        with selectors.DefaultSelector() as ready:
            ready.register(answers, selectors.EVENT_READ)
            if not ready.select(max(0.0, until - time.monotonic())):
                raise SamplerTimeoutError(f"{self.name}: no answer in time")
        part = os.read(answers.fileno(), _PIECE)
        if not part:
            raise SamplerCrashError(f"{self.name}: the program has ended")
        return part
