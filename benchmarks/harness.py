"""What the benchmarks share: this machine, clocks, and processes that measure memory."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpaudit.provenance import hardware

HERE = Path(__file__).parent
MACHINE = f"{hardware()}, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"


def clocked(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What it returns, wall seconds, and CPU seconds of this process."""
    wall, used = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - used


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    return clocked(work)[2]


def quickest(work: Callable[[], object], *, calls: int = 3) -> float:
    """The least CPU seconds of some calls; one before them compiles and is not counted."""
    work()
    return min(cpu(work) for _ in range(calls))


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak() -> float:
    """This process' peak memory in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def children_cpu() -> float:
    """CPU seconds of all processes that this one has waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def apart(code: str) -> float:
    """The number that a program prints which can import benchmarks, in a process of its own."""
    code = f"import sys; sys.path.insert(0, {str(HERE)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)
