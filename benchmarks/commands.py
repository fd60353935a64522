"""What the README says about speed: wall and CPU seconds, peak memory. `make bench`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import MACHINE, children_cpu

DPAUDIT = [sys.executable, "-m", "dpaudit"]
HONEST = """
import numpy as np
rng = np.random.default_rng()
def f(n, d): return rng.standard_normal((n, d))
def stop(n, d): raise SystemExit
"""
CASES = {
    "dpaudit --help": "--help",
    "audit until the sampler's first call": "audit python:mine:stop --claim gaussian:sigma=1",
    "audit of 1e7 values, python:": "audit python:mine:f --claim gaussian:sigma=1",
    "audit of 1e7 values, gaussian": "audit gaussian --claim gaussian:sigma=1",
    "demo": "demo --out demo",
}


def measure(args: str, folder: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds with children, and peak memory in MiB of the largest process."""
    before = children_cpu()
    started = time.perf_counter()
    pid = subprocess.Popen(
        [*DPAUDIT, *args.split()], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ).pid
    _, _, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - started
    return wall, children_cpu() - before, usage.ru_maxrss / 1024


def main() -> None:
    """Print a table: median of three runs after a warm-up."""
    print(MACHINE)
    print(f"{'command':44}{'wall s':>8}{'CPU s':>8}{'MiB':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mine.py").write_text(HONEST)
        for label, args in CASES.items():
            runs = [measure(args, folder) for _ in range(4)][1:]
            wall, cpu, memory = (sorted(column)[1] for column in zip(*runs, strict=True))
            print(f"{label:44}{wall:8.2f}{cpu:8.2f}{memory:8.0f}", flush=True)


if __name__ == "__main__":
    main()
