"""Runs a shared library's sampler with coins, clock, process number and memory of our choice.

Its other inputs are found in its instructions (``objdump -d``) and imports (``nm -D``); both
are part of binutils, which every C compiler on Linux needs as well.
"""

from __future__ import annotations

import contextlib
import re
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
from dpaudit.targets.sandbox.process import Process

__all__ = ["Coins", "Driver", "Run", "Scan", "Scenario", "Value", "driver", "scan"]

_SOURCE = Path(__file__).with_name("driver.c")
_FLAGS = ("-O1", "-fno-strict-aliasing", "-rdynamic")
_LONGEST = 1 << 24
_CHUNK = 1 << 16

Value = tuple[int, int]
"""Which call, and which of its values."""
Coins = tuple[int, int, int, int]
"""Coins of a call: the call, the values written before, the first coin, the one past the last."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The surroundings of the sampler in one child process.

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
    """One run of the sampler.

    Attributes:
        values: each value's 64 bits.
        coins: bytes read after each number of values of a call was written, if any.
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
            text = _read_output(process, deadline)
            code, how = process.ending(deadline=deadline)
        except TimeoutError:
            raise SamplerTimeoutError(
                f"symbol={one_line(self.symbol)}: did not end within timeout={timeout:g} s; "
                "raise the time limit"
            ) from None
        finally:
            process.close()
        runs = [_parse_run(part) for part in text.split("scenario ")[1:]]
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
            messages = done.stderr.decode(errors="replace").strip().splitlines()
            raise UsageError(
                f"cc: cannot compile the driver here: {one_line((messages or [''])[0])}"
            )
        yield Driver(program, library.resolve(), symbol, calls, dim, random_instructions)


def _read_output(process: Process, deadline: float) -> str:
    parts: list[bytes] = []
    buffer = memoryview(bytearray(_CHUNK))
    while sum(map(len, parts)) < _LONGEST:
        got = process.read(buffer, deadline=deadline)
        parts.append(bytes(buffer[:got]))
        if got < _CHUNK:
            break
    return b"".join(parts).decode(errors="replace")


def _parse_run(text: str) -> Run:
    values: dict[Value, int] = {}
    coins: dict[Value, int] = {}
    events: defaultdict[str, int] = defaultdict(int)
    failure = "it ended without returning values"
    for line in text.splitlines()[1:]:
        kind, _, rest = line.partition(" ")
        fields = rest.split(" ")
        if kind == "value":
            values[int(fields[0]), int(fields[1])] = int(fields[2], 16)
        elif kind == "coins":
            coins[int(fields[0]), int(fields[1])] = int(fields[2])
        elif kind == "event":
            events[one_line(rest.partition(" ")[2])] += int(fields[0])
        elif kind == "fail":
            failure = one_line(rest)
        elif kind == "end":
            failure = ""
    return Run(values, coins, dict(events), failure)


_SECONDS = 120
_SHOWN = 8
_PREFIXES = {"rep", "repz", "repnz", "data16", "lock", "bnd", "notrack", "cs", "ds", "es", "fs"}
_RANDOM = {"rdrand", "rdseed"}
_NOT_TRAPPED = {"syscall", "sysenter", "int", "cpuid", "rdpmc", "rdpid", "svc", "mrs"}
_CONTROLLED = re.compile(
    r"getrandom|getentropy|arc4random\w*|open(at)?(64)?|__open(64)?_2|read|__read_chk|close|"
    r"fopen(64)?|clock_gettime|timespec_get|gettimeofday|time|clock|getpid|getppid|gettid|syscall|"
    r"fclose|fread(_unlocked)?|__fread_chk|fgetc|getc|setvbuf|ferror|feof"
)
_PURE = re.compile(
    r"(__)?mem(cpy|move|set|cmp|chr|mem)(_chk)?|(__)?str\w+|malloc|calloc|realloc|free|"
    r"aligned_alloc|posix_memalign|abort|__stack_chk_(fail|guard)|__assert_fail|"
    r"a?(sin|cos|tan)h?f?l?|atan2f?l?|sincosf?l?|(exp|log)(2|10|1p|m1)?f?l?|__\w+_finite|pow[fl]?|"
    r"sqrt[fl]?|cbrt[fl]?|floor[fl]?|ceil[fl]?|trunc[fl]?|l?l?r(ound|int)[fl]?|nearbyint[fl]?|"
    r"fabs[fl]?|f(mod|min|max|ma|dim)[fl]?|scalb(l?n)[fl]?|ldexp[fl]?|frexp[fl]?|modf[fl]?|"
    r"logb[fl]?|ilogb[fl]?|copysign[fl]?|nextafter[fl]?|hypot[fl]?|erfc?[fl]?|[lt]gamma(_r)?[fl]?|"
    r"labs|abs|llabs|qsort|bsearch|__errno_location|__cxa_(finalize|atexit)|__gmon_start__|"
    r"_ITM_\w+|_Unwind_\w+|__popcountdi2|__u?(div|mod)ti3|__tls_get_addr|__isnan|__isinf|__finite"
)
_LIBRARIES = re.compile(r"(lib(c|m|pthread|dl|gcc_s|rt)|ld-linux[\w-]*)\.so(\.\d+)?")


@dataclass(frozen=True)
class Scan:
    """The contents of a library's code.

    Attributes:
        random_instructions: addresses of RDRAND and RDSEED, which are replaced and trapped.
        not_controlled: in words, what could bring in something that the auditor does not choose.
    """

    random_instructions: tuple[int, ...]
    not_controlled: tuple[str, ...]


def scan(library: Path) -> Scan:
    """Read a library's instructions, imported symbols and needed libraries.

    RDTSC is not listed: it is trapped wherever it is. Not claimed: that code which the library
    writes or loads while it runs was read.

    Raises:
        UsageError: objdump and nm are not installed, or cannot read the file.
    """
    instructions = _instructions(_output_of("objdump", "-d", "--no-show-raw-insn", library))
    imports = _imports(_output_of("nm", "-D", "--undefined-only", library))
    needed = re.findall(r"NEEDED\s+(\S+)", _output_of("objdump", "-p", library))
    open_ends = [
        f"{len(instructions[name])} × the instruction {name}"
        for name in sorted(instructions.keys() - _RANDOM)
    ]
    unknown = [
        name for name in imports if not (_CONTROLLED.fullmatch(name) or _PURE.fullmatch(name))
    ]
    if unknown:
        rest = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        open_ends.append(f"imports {', '.join(map(one_line, unknown[:_SHOWN]))}{rest}")
    others = [one_line(name) for name in needed if not _LIBRARIES.fullmatch(name)]
    if others:
        open_ends.append(f"needs {', '.join(others)}, whose code was not read")
    addresses = sorted(a for name in _RANDOM for a in instructions.get(name, []))
    return Scan(tuple(addresses), tuple(open_ends))


def _instructions(text: str) -> dict[str, list[int]]:
    """Addresses of the instructions that read something outside memory."""
    addresses: dict[str, list[int]] = {}
    for line in text.splitlines():
        address, tab, rest = line.partition(":\t")
        name = next((w for w in rest.split() if w not in _PREFIXES), "") if tab else ""
        if name in _RANDOM or name in _NOT_TRAPPED:
            addresses.setdefault(name, []).append(int(address, 16))
    return addresses


def _imports(text: str) -> list[str]:
    return sorted({line.split()[-1].partition("@")[0] for line in text.splitlines() if line})


def _output_of(program: str, *arguments: str | Path) -> str:
    path = shutil.which(program)
    if path is None:
        raise UsageError(f"{program}: not found; install binutils (it comes with gcc)")
    result = subprocess.run(
        [path, *map(str, arguments)], capture_output=True, timeout=_SECONDS, check=False
    )
    if result.returncode:
        message = result.stderr.decode(errors="replace").strip()
        raise UsageError(
            f"library={one_line(arguments[-1])}: {program} failed: {one_line(message)}"
        )
    return result.stdout.decode(errors="replace")
