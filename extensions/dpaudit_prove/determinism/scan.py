"""What a compiled library could read besides its arguments, from its instructions and imports.

Instructions come from ``objdump -d``, imports from ``nm -D``; both are part of binutils, which
every C compiler on Linux needs as well.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dpaudit.errors import UsageError
from dpaudit.results.text import one_line

__all__ = ["Scan", "scan"]

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
    """What a library's code contains.

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
    found = _instructions(_told("objdump", "-d", "--no-show-raw-insn", library))
    imports = _imports(_told("nm", "-D", "--undefined-only", library))
    needed = re.findall(r"NEEDED\s+(\S+)", _told("objdump", "-p", library))
    open_ends = [
        f"{len(found[name])} × the instruction {name}" for name in sorted(found.keys() - _RANDOM)
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
    addresses = sorted(a for name in _RANDOM for a in found.get(name, []))
    return Scan(tuple(addresses), tuple(open_ends))


def _instructions(text: str) -> dict[str, list[int]]:
    """Addresses of the instructions that read something outside memory."""
    found: dict[str, list[int]] = {}
    for line in text.splitlines():
        address, tab, rest = line.partition(":\t")
        name = next((w for w in rest.split() if w not in _PREFIXES), "") if tab else ""
        if name in _RANDOM or name in _NOT_TRAPPED:
            found.setdefault(name, []).append(int(address, 16))
    return found


def _imports(text: str) -> list[str]:
    return sorted({line.split()[-1].partition("@")[0] for line in text.splitlines() if line})


def _told(program: str, *arguments: str | Path) -> str:
    found = shutil.which(program)
    if found is None:
        raise UsageError(f"{program}: not found; install binutils (it comes with gcc)")
    result = subprocess.run(
        [found, *map(str, arguments)], capture_output=True, timeout=_SECONDS, check=False
    )
    if result.returncode:
        said = result.stderr.decode(errors="replace").strip()
        raise UsageError(f"library={one_line(arguments[-1])}: {program} says {one_line(said)}")
    return result.stdout.decode(errors="replace")
