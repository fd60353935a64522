"""What the sandbox costs: honest audits of 1e7 values with and without it.

Also the start of one program. Measured in pairs in one run, the order changed from pair to pair:
the median of the pairs' ratios, and their quartiles. The search for hidden directions is left out,
since it takes a fixed time. On a machine in use the quartiles say by how much.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dpaudit import registry
from dpaudit.samplers.sandbox import policy
from dpaudit.samplers.sandbox.process import Process

LEVELS = ("full", "none")
PYTHON = """
import numpy as np
rng = np.random.default_rng()
def f(n, d): return rng.standard_normal((n, d))
"""
C = r"""
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
static uint64_t s[2];
static uint64_t next(void) {  /* xoroshiro128+ */
  uint64_t a = s[0], b = s[1], sum = a + b;
  b ^= a;
  s[0] = (a << 24 | a >> 40) ^ b ^ (b << 16);
  s[1] = b << 37 | b >> 27;
  return sum;
}
int main(int argc, char **argv) {
  size_t left = strtoull(argv[1], 0, 10) * strtoull(argv[2], 0, 10);
  double block[4096];
  if (argc < 3 || getrandom(s, sizeof s, 0) != sizeof s) return 1;
  while (left) {
    size_t some = left < 4096 ? left : 4096;
    for (size_t i = 0; i < some; i += 2) {
      double r = sqrt(-2 * log(((next() >> 11) + 0.5) * 0x1p-53));
      double t = 6.283185307179586 * ((next() >> 11) * 0x1p-53);
      block[i] = r * cos(t);
      if (i + 1 < some) block[i + 1] = r * sin(t);
    }
    if (fwrite(block, 8, some, stdout) != some) return 1;
    left -= some;
  }
  return 0;
}
"""
PRINTS = """
import sys
import numpy as np
n, d = map(int, sys.argv[1:])
np.random.default_rng().normal(size=(n, d)).tofile(sys.stdout)
"""


def samplers(folder: Path) -> dict[str, str]:
    """A function of numpy, and a program: in C where there is a compiler."""
    (folder / "honest.py").write_text(PYTHON)
    found = {"python: numpy": f"python:{folder}/honest.py:f"}
    compiler = shutil.which("cc")
    if compiler is None:
        (folder / "prints.py").write_text(PRINTS)
        return found | {
            "command: in Python": f"command:{sys.executable} {folder}/prints.py {{n}} {{d}}"
        }
    (folder / "honest.c").write_text(C)
    subprocess.run(
        [compiler, "-O2", "-o", folder / "honest", folder / "honest.c", "-lm"], check=True
    )
    return found | {"command: in C": f"command:{folder}/honest {{n}} {{d}}"}


def audit(target: str, level: str, samples: float) -> float:
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


def pairs(measure: Callable[[str], float], count: int) -> tuple[dict[str, float], list[float]]:
    """The median at each level, and the quartiles of the ratios of ``count`` pairs."""
    took: dict[str, list[float]] = {level: [] for level in LEVELS}
    for k in range(count):
        for level in LEVELS[:: 1 if k % 2 else -1]:
            took[level].append(measure(level))
    ratios = [full / none for full, none in zip(*(took[level] for level in LEVELS), strict=True)]
    return {level: statistics.median(took[level]) for level in LEVELS}, statistics.quantiles(
        ratios, method="inclusive"
    )


def main() -> None:
    """One line for a start, in milliseconds, and one for each sampler, in seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=float, default=1e7)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{options.pairs} pairs"
    )
    print(f"{'':24}{'full':>10}{'none':>10}{'ratio':>8}  quartiles")
    start("full")  # what is imported and compiled once
    medians, (low, ratio, high) = pairs(start, 8 * options.pairs)
    shown = "".join(f"{1000 * medians[level]:8.1f}ms" for level in LEVELS)
    print(f"{'start of a program':24}{shown}{ratio:8.3f}  [{low:.3f}, {high:.3f}]", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, target in samplers(Path(folder)).items():
            medians, (low, ratio, high) = pairs(
                lambda level: audit(target, level, options.samples),  # noqa: B023
                options.pairs,
            )
            shown = "".join(f"{medians[level]:9.2f}s" for level in LEVELS)
            print(f"{name:24}{shown}{ratio:8.3f}  [{low:.3f}, {high:.3f}]", flush=True)


if __name__ == "__main__":
    main()
