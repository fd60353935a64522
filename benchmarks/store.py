"""A store of 10^6 trials, and one of 100,000 cells: size, writing, queries. `make bench`."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import MACHINE, clocked, options

from dpaudit.cli import runs_text
from dpaudit.codec import to_dict
from dpaudit.experiments import load_spec
from dpaudit.experiments.export import write_columns
from dpaudit.experiments.store import FILE, Store
from dpaudit.experiments.store.queries import trial_success
from dpaudit.experiments.stored import open_run, overviews
from dpaudit.provenance import collect
from dpaudit.registry import plugin
from dpaudit.types import CellResult

SPEC = """
name = "bench"
keep_trials = true
epsilon = [{epsilons}]
delta = 1e-10
trials = {trials}
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


def fill(folder: Path, *, cells: int, trials: int) -> tuple[float, float]:
    """Write ``cells`` cells of ``trials`` trials as an experiment does; wall and CPU seconds."""
    path = folder / "bench.toml"
    path.write_text(
        SPEC.format(epsilons=", ".join(str(1 + i / cells) for i in range(cells)), trials=trials)
    )
    spec = load_spec(str(path))
    grid = spec.cells()
    origin = to_dict(collect(seed="0", plugins=[plugin("sources", "gaussian").origin]))
    rng = np.random.default_rng(1)
    truth, guess = rng.integers(0, 2, (2, trials))
    score = rng.standard_normal(trials)
    right = int((truth == guess).sum())
    columns = {"truth": truth.tolist(), "guess": guess.tolist(), "score": score.tolist()}
    outcome = {
        "attack": "nearest-peak", "trials": trials, "successes": right, "success": right / trials,
        "interval": {"low": 0.4, "high": 0.6, "confidence": 0.95, "method": "Clopper-Pearson"},
        "chance": 0.5, "epsilon_lower_bound": 0.0, "l2_error": 90.0, "l2_expected": 90.0,
        "details": {}, "epsilon_key_holder": {"low": 1.0, "high": 1.0, "says": "exact"},
        "sigma": 1.0, "dim": 64,
    }  # fmt: skip
    wall = cpu = 0.0
    with Store.create(folder, spec=to_dict({**vars(spec)}), command="bench", cells=cells) as store:
        for start in range(0, cells, BATCH):
            some = [
                CellResult(
                    cell=grid[i].id,
                    kind="attack",
                    settings=grid[i].settings,
                    outcome=outcome,
                    seconds=1.0,
                    provenance=origin,
                    trials=columns,
                )
                for i in range(start, min(cells, start + BATCH))
            ]
            took = clocked(partial(store.add_all, list(enumerate(some, start))))
            wall, cpu = wall + took[1], cpu + took[2]
    return wall, cpu


def timed(ask: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the wall and of CPU, the least of three."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return min(clocked(ask)[1:] for _ in range(3))


def count_right(folder: Path) -> int:
    """Successes counted from the trials."""
    with Store.read(folder) as store:
        return len(trial_success(store))


def main() -> None:
    """One block of rows per store."""
    asked = options(__doc__, stores=["1000x1000", "100000x1"])  # cells x trials
    print(MACHINE)
    for size in asked.stores:
        cells, trials = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            wall, cpu = fill(folder, cells=cells, trials=trials)
            megabytes = (folder / FILE).stat().st_size / 1e6
            with Store.read(folder) as store:
                first = min(store.finished())
            show = partial(runs_text.show_run, folder, output="text")
            questions: dict[str, Callable[[], Any]] = {
                "runs list": partial(overviews, folder),
                "runs show": partial(show, cell=None, failed=False),
                "runs show --cell": partial(show, cell=first, failed=False),
                "runs show --failed": partial(show, cell=None, failed=True),
                "success per cell from its trials": partial(count_right, folder),
                "rows to Parquet": lambda folder=folder: write_columns(
                    open_run(folder).columns(), folder / "r.parquet"
                ),
                "trials to Parquet": lambda folder=folder: write_columns(
                    open_run(folder).trials(), folder / "t.parquet"
                ),
            }
            print(
                f"\n{cells:,} cells of {trials:,} trials: {megabytes:.0f} MB, "
                f"written in {wall:.1f} s, {cpu:.1f} s of CPU"
            )
            print(
                f"({1e6 * cpu / (cells * trials):.2f} µs of CPU per trial, "
                f"{1e3 * cpu / cells:.3f} ms per cell)"
            )
            for what, ask in questions.items():
                wall, cpu = timed(ask)
                print(f"{what:<32}{wall:>8.3f} s{cpu:>8.3f} s of CPU")


if __name__ == "__main__":
    main()
