"""Stores of 1,000 and of 100,000 cells: size, writing, queries. `make bench`."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness import MACHINE, clocked

from dpaudit.cli.commands import runs
from dpaudit.codec import to_dict
from dpaudit.experiments import load_spec
from dpaudit.experiments.store import FILE, Store
from dpaudit.experiments.stored import open_run, overviews, write_csv
from dpaudit.provenance import collect
from dpaudit.registry import plugin
from dpaudit.types import CellResult
from dpaudit_studies.evidence import options

SPEC = """
name = "bench"
epsilon = [{epsilons}]
delta = 1e-10
trials = 1000
[host]
name = "histogram"
[[source]]
name = "gaussian"
[[attack]]
name = "nearest-peak"
[key]
beta = 1e-3
gamma = "2sqrtd"
"""
BATCH = 50


def fill(folder: Path, *, cells: int) -> tuple[float, float]:
    """Write ``cells`` cells as an experiment does; wall and CPU seconds."""
    path = folder / "bench.toml"
    path.write_text(SPEC.format(epsilons=", ".join(str(1 + i / cells) for i in range(cells))))
    spec = load_spec(str(path))
    grid = spec.cells()
    origin = to_dict(collect(seed="0", plugins=[plugin("sources", "gaussian").origin]))
    outcome = {
        "attack": "nearest-peak", "trials": 1000, "successes": 500, "success": 0.5,
        "interval": {"low": 0.4, "high": 0.6, "confidence": 0.95, "method": "Clopper-Pearson"},
        "chance": 0.5, "epsilon_lower_bound": 0.0, "l2_error": 90.0, "l2_expected": 90.0,
        "details": {}, "epsilon_key_holder": {"low": 1.0, "high": 1.0, "says": "exact"},
        "sigma": 1.0, "dim": 64,
    }  # fmt: skip
    wall = cpu = 0.0
    with Store.open(folder, spec=to_dict({**vars(spec)}), command="bench", cells=cells) as store:
        for start in range(0, cells, BATCH):
            some = [
                CellResult(
                    cell=grid[i].id, kind="attack", settings=grid[i].settings, outcome=outcome,
                    seconds=1.0, provenance=origin,
                )
                for i in range(start, min(cells, start + BATCH))
            ]  # fmt: skip
            took = clocked(partial(store.add_all, list(enumerate(some, start))))
            wall, cpu = wall + took[1], cpu + took[2]
    return wall, cpu


def timed(ask: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the wall and of CPU, the least of three."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return min(clocked(ask)[1:] for _ in range(3))


def main() -> None:
    """One block of rows per store."""
    args = options(__doc__, stores=[1000, 100_000])  # cells
    print(MACHINE)
    for cells in args.stores:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            wall, cpu = fill(folder, cells=cells)
            megabytes = (folder / FILE).stat().st_size / 1e6
            with Store.read(folder) as store:
                first = min(store.finished())
            questions: dict[str, Callable[[], Any]] = {
                "runs list": partial(overviews, folder),
                "runs show": partial(runs.show, folder),
                "runs show --cell": partial(runs.show, folder, cell=first),
                "runs show --failed": partial(runs.show, folder, failed=True),
                "rows to CSV": lambda folder=folder: write_csv(
                    open_run(folder).columns(), folder / "r.csv"
                ),
            }
            print(
                f"\n{cells:,} cells: {megabytes:.1f} MB, written in {wall:.1f} s, "
                f"{cpu:.1f} s of CPU ({1e3 * cpu / cells:.3f} ms per cell)"
            )
            for label, ask in questions.items():
                wall, cpu = timed(ask)
                print(f"{label:<32}{wall:>8.3f} s{cpu:>8.3f} s of CPU")


if __name__ == "__main__":
    main()
