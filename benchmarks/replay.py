"""What a replay of 20 pairs costs, beside one run of the pipeline as a program.

    python benchmarks/replay.py [--times 3]

*survey*: the pipeline of ``examples/replay`` on its 200 rows, imports of pandas and diffprivlib
included, which a replay does once. *one second*: a pipeline that computes for a second; there is
no way to compare 20 pairs without running it 20 times.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dpaudit import replay
from dpaudit.provenance import hardware

ROOT = Path(__file__).resolve().parents[1]
SECOND = """
import time
import numpy as np

def run(data: list):
    until = time.process_time() + 1.0
    while time.process_time() < until:
        np.sort(np.arange(1000.0))
    return len(data) + np.random.laplace(scale=1.0)
"""


def alone(file: Path, data: str) -> float:
    """Seconds of the pipeline as a program of its own."""
    code = f"import sys; sys.path.insert(0, {str(file.parent)!r}); import {file.stem} as p; {data}"
    started = time.perf_counter()
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    return time.perf_counter() - started


def main() -> None:
    """Print a line for each pipeline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    survey = ROOT / "examples" / "replay" / "survey.csv"
    print(f"median of {times}, 20 pairs, {hardware()}")
    with tempfile.TemporaryDirectory() as folder:
        second = Path(folder) / "second.py"
        second.write_text(SECOND, encoding="utf-8")
        read = f"import pandas; p.run(pandas.read_csv({str(survey)!r}))"
        for name, file, data, call in (
            ("survey", survey.with_suffix(".py"), survey, read),
            ("one second", second, [1, 2, 3], "p.run([1, 2, 3])"),
        ):
            one = statistics.median(alone(file, call) for _ in range(times))
            runs = []
            for _ in range(times):
                started = time.perf_counter()
                result = replay(
                    f"python:{file}:run", data, pairs=20, seed="1", time_limit=100.0,
                    neighbours="replace",
                )  # fmt: skip
                runs.append(time.perf_counter() - started)
            took = statistics.median(runs)
            print(
                f"{name}: alone {one:.2f} s, a run inside {result.run_seconds:.3f} s; replay "
                f"{took:.1f} s for {result.pairs} pairs, {result.runs} runs "
                f"({took / one:.1f} times)"
            )


if __name__ == "__main__":
    main()
