"""What the benchmarks share: this machine in words, and CPU seconds of a call."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable

MACHINE = (
    f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
    f"Python {platform.python_version()}"
)


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def quickest(work: Callable[[], object]) -> float:
    """The least CPU seconds of three calls; one before them compiles and is not counted."""
    work()
    return min(cpu(work) for _ in range(3))
