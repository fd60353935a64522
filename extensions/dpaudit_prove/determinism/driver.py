"""Runs a shared library's sampler with coins, clock, process number and memory of our choice."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpaudit.errors import SamplerCrashError, SamplerTimeoutError, UsageError
from dpaudit.results.text import one_line
from dpaudit.samplers.sandbox.process import Process

__all__ = ["Coins", "Driver", "Run", "Scenario", "Value", "driver"]

_SOURCE = Path(__file__).with_name("driver.c")
_FLAGS = ("-O1", "-fno-strict-aliasing", "-rdynamic")
_LONGEST = 1 << 24
_CHUNK = 1 << 16

Value = tuple[int, int]
"""Which call, and which of its values."""
Coins = tuple[int, int, int, int]
"""Coins of a call, read while so many values were written: the first, and the one past the last."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What the sampler meets in one child process.

    Attributes:
        tape: the key of the coins.
        other: the key of the coins that replace those of `replaced`.
        clock: nanoseconds since 1970 at the first look; each look takes a microsecond.
        process: the process number.
        fill: what fresh memory holds; odd numbers also add an environment variable.
        first: the first call that is made; the calls before it are left out.
        replaced: the coins that come from `other`, or None.
    """

    tape: int
    other: int = 0
    clock: int = 10**18
    process: int = 4321
    fill: int = 0
    first: int = 0
    replaced: Coins | None = None

    def text(self) -> str:
        numbers = (self.tape, self.other, self.clock, self.process, self.fill, self.first)
        return ",".join(map(str, (*numbers, *(self.replaced or (-1, -1, 0, 0)))))


@dataclass(frozen=True)
class Run:
    """What the sampler did.

    Attributes:
        values: each value's 64 bits.
        coins: bytes read while so many values of the call were written, where there were any.
        events: what else it asked for, and how often.
        failure: why it gave no values, or "".
    """

    values: Mapping[Value, int]
    coins: Mapping[Value, int]
    events: Mapping[str, int]
    failure: str = ""


@dataclass(frozen=True)
class Driver:
    """A compiled driver for one function: ``void f(double *out, size_t n, size_t d)``, n = 1."""

    program: Path
    library: Path
    symbol: str
    calls: int
    dim: int
    random_instructions: tuple[int, ...]

    def run(self, scenarios: Sequence[Scenario], *, timeout: float) -> list[Run]:
        """One run per scenario, each in a child of one new process in the sandbox.

        Raises:
            SamplerTimeoutError: not all had ended after ``timeout`` seconds.
            SamplerCrashError: the driver itself died.
        """
        argv = [
            *(str(self.program), str(self.library), self.symbol, str(self.calls), str(self.dim)),
            ",".join(f"{address:x}" for address in self.random_instructions) or "-",
            *(scenario.text() for scenario in scenarios),
        ]
        deadline = time.monotonic() + timeout
        needs = [str(self.program.parent), str(self.library)]
        process = Process(argv, seconds=timeout, needs=needs)
        try:
            text = _everything(process, deadline)
            code, how = process.ending(deadline=deadline)
        except TimeoutError:
            raise SamplerTimeoutError(
                f"symbol={one_line(self.symbol)}: had not ended after timeout={timeout:g} s; "
                "raise the time limit"
            ) from None
        finally:
            process.close()
        runs = [_read(part) for part in text.split("scenario ")[1:]]
        if code or len(runs) != len(scenarios):
            raise SamplerCrashError(f"symbol={one_line(self.symbol)}: the driver ended: {how}")
        return runs


@contextlib.contextmanager
def driver(
    library: Path, symbol: str, *, calls: int, dim: int, random_instructions: tuple[int, ...] = ()
) -> Iterator[Driver]:
    """A driver, compiled with ``cc`` into a temporary folder that ends with the block.

    Raises:
        UsageError: no C compiler is installed, or it cannot compile the driver on this system.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise UsageError("cc: not found; a C compiler is needed to interpose; install gcc or clang")
    with tempfile.TemporaryDirectory(prefix="dpaudit-driver-") as folder:
        program = Path(folder) / "driver"
        done = subprocess.run(
            [compiler, *_FLAGS, "-o", str(program), str(_SOURCE), "-ldl"],
            capture_output=True,
            check=False,
        )
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise UsageError(f"cc: cannot compile the driver here: {one_line((said or [''])[0])}")
        yield Driver(program, library.resolve(), symbol, calls, dim, random_instructions)


def _everything(process: Process, deadline: float) -> str:
    parts: list[bytes] = []
    buffer = memoryview(bytearray(_CHUNK))
    while sum(map(len, parts)) < _LONGEST:
        got = process.read(buffer, deadline=deadline)
        parts.append(bytes(buffer[:got]))
        if got < _CHUNK:
            break
    return b"".join(parts).decode(errors="replace")


def _read(text: str) -> Run:
    values: dict[Value, int] = {}
    coins: dict[Value, int] = {}
    events: defaultdict[str, int] = defaultdict(int)
    failure = "it ended without an answer"
    for line in text.splitlines()[1:]:
        kind, _, rest = line.partition(" ")
        words = rest.split(" ")
        if kind == "value":
            values[int(words[0]), int(words[1])] = int(words[2], 16)
        elif kind == "coins":
            coins[int(words[0]), int(words[1])] = int(words[2])
        elif kind == "event":
            events[one_line(rest.partition(" ")[2])] += int(words[0])
        elif kind == "fail":
            failure = one_line(rest)
        elif kind == "end":
            failure = ""
    return Run(values, coins, dict(events), failure)
