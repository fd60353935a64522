"""What the sandbox costs: honest audits of 1e7 values with and without it.

Also the start of one program. Measured in pairs in one run, the order changed from pair to pair:
the median of the pairs' ratios, and their quartiles. The search for hidden directions is left out,
since it takes a fixed time. On a machine in use the quartiles say by how much.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness import MACHINE, options

from dpaudit import registry
from dpaudit.samplers.sandbox import policy
from dpaudit.samplers.sandbox.process import Process

LEVELS = ("full", "none")
PYTHON = """
import numpy as np
rng = np.random.default_rng()
def f(n, d): return rng.standard_normal((n, d))
"""


def audit(target: str, samples: float, level: str) -> float:
    """Seconds of wall time."""
    tests = ",".join(sorted(set(registry.plugins("tests")) - {"keyless-search"}))
    command = [sys.executable, "-m", "dpaudit", "audit", target, "--claim", "gaussian:sigma=1"]
    command += ["--samples", f"{samples:g}", "--tests", tests, "--alpha", "1e-6"]
    command += ["--format", "json", "--sandbox", level]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{target} at {level}: exit {done.returncode}, {done.stderr[-500:]}")
    return time.monotonic() - began


def start(level: str) -> float:
    """Seconds from nothing to the end of a program that does nothing."""
    with policy.asking(level) as asked:
        began = time.monotonic()
        process = Process(["true"])
        process.ending(deadline=began + 60)
        took = time.monotonic() - began
    if asked.shortfall:
        raise SystemExit(
            f"sandbox={level}: only {asked.reached} can be had here; nothing to compare"
        )
    return took


def row(name: str, measure: Callable[[str], float], count: int, *, unit: str = "s") -> None:
    """The median at each level, and median and quartiles of the ratios of ``count`` pairs."""
    took: dict[str, list[float]] = {level: [] for level in LEVELS}
    for k in range(count):
        for level in LEVELS[:: 1 if k % 2 else -1]:
            took[level].append(measure(level))
    ratios = [full / none for full, none in zip(*took.values(), strict=True)]
    low, ratio, high = statistics.quantiles(ratios, method="inclusive")
    factor = {"s": 1, "ms": 1000}[unit]
    shown = "".join(f"{factor * statistics.median(took[one]):8.2f}{unit:2}" for one in LEVELS)
    print(f"{name:24}{shown}{ratio:8.3f}  [{low:.3f}, {high:.3f}]", flush=True)


def main() -> None:
    """One line for a start, in milliseconds, and one for each sampler, in seconds."""
    asked = options(__doc__, samples=1e7, pairs=5)
    print(f"{MACHINE}, {asked.pairs} pairs")
    print(f"{'':24}{'full':>10}{'none':>10}{'ratio':>8}  quartiles")
    start("full")  # what is imported and compiled once
    row("start of a program", start, 8 * asked.pairs, unit="ms")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "honest.py").write_text(PYTHON)
        row(
            "python: numpy",
            partial(audit, f"python:{folder}/honest.py:f", asked.samples),
            asked.pairs,
        )


if __name__ == "__main__":
    main()
