"""Two workers against one core, and what the runner adds to a cell, measured by `make bench`; ratios of one run.

Cells are CPU-bound: the attack `nearest-peak` on pancake noise. `--quick` takes fewer, `--json` prints one document.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from distributed import LocalCluster

from dpaudit.experiments import Spec, Store, load_spec, make_document, run_experiment
from dpaudit.experiments.placement import Placement, place
from dpaudit.experiments.placement.work import attempt
from dpaudit.types import CellResult

SPEC = """
name = "bench"
seed = 3
epsilon = 0.5
delta = 1e-10
trials = {trials}
[host]
name = "histogram"
table = "uniform"
bins = {bins}
[key]
beta = 1e-3
gamma = "2sqrtd"
[[source]]
name = "{source}"
[[attack]]
name = "nearest-peak"
[grid]
cell = {cells}
"""


class Kept:
    """A placement whose workers outlive a run, so that they are warm in the next."""

    def __init__(self, inner: Placement) -> None:
        self._inner = inner

    @property
    def workers(self) -> int:
        return self._inner.workers

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def run(self, cells: Any) -> Any:
        return self._inner.run(cells)


def make(folder: Path, *, cells: int, trials: int, bins: int, source: str = "pancake", first: int = 0) -> Spec:
    """A spec of so many cells, each with a number of its own."""
    path = folder / "bench.toml"
    path.write_text(SPEC.format(cells=list(range(first, first + cells)), trials=trials, bins=bins, source=source))
    return load_spec(str(path))


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rows(folder: Path) -> Any:
    with Store.read(folder) as store:
        return make_document(store.spec, store.results(), command="")["rows"]


def sized(folder: Path, *, seconds: float) -> int:
    """Trials that make a cell take about so long here."""
    cell = make(folder, cells=1, trials=400, bins=4096).cells()[0]
    attempt(cell)
    took = min(attempt(cell).seconds for _ in range(2))
    return max(1, int(400 * seconds / took))


def speedups(folder: Path, places: dict[str, Callable[[], AbstractContextManager[Placement]]], *, quick: bool) -> Any:
    """Seconds of one core and of each place for the same cells: workers warm, and start-up with all imports included."""
    cells, trials = (8, sized(folder, seconds=0.5)) if quick else (20, sized(folder, seconds=1.5))
    spec, warm = (make(folder, cells=n, trials=t, bins=4096, first=f) for n, t, f in ((cells, trials, 0), (4, 1, 1000)))
    found: dict[str, Any] = {"cells": cells, "trials": trials}
    ones = [timed(lambda: run_experiment(spec, out=folder / "one"))]
    for name, start in places.items():
        with ExitStack() as stack:
            began = time.perf_counter()
            kept = Kept(stack.enter_context(start()))
            run_experiment(warm, out=folder / f"{name}-warm", where=kept)
            startup = time.perf_counter() - began
            seconds = timed(lambda name=name, kept=kept: run_experiment(spec, out=folder / name, where=kept))
        ones.append(timed(lambda name=name: run_experiment(spec, out=folder / f"one-{name}")))
        one = statistics.mean(ones[-2:])  # just before and just after
        if rows(folder / name) != rows(folder / "one"):
            raise AssertionError(f"{name}: other numbers than one core")
        found[name] = {
            "one_core_seconds": one,
            "seconds": seconds,
            "startup_seconds": startup,
            "speedup": one / seconds,
            "speedup_with_startup": one / (seconds + startup),
        }
    return found


def overhead(folder: Path, places: dict[str, Callable[[], AbstractContextManager[Placement]]], *, quick: bool) -> Any:
    """What a run takes beyond its cells' own seconds: for cells of a second as a share, for tiny ones in ms a cell."""
    found = {}
    long = make(folder, cells=3 if quick else 10, trials=sized(folder, seconds=1.2), bins=4096)
    tiny = make(folder, cells=200 if quick else 1000, trials=1, bins=64, source="gaussian")
    with ExitStack() as stack:
        kept = {name: Kept(stack.enter_context(start())) for name, start in places.items()}
        for name, where in {"in process": place(), **kept}.items():
            share = None
            if name == "in process":
                wall, own = against_cells(long, folder / "long", where)
                share = wall / own - 1
            else:
                run_experiment(
                    make(folder, cells=4, trials=1, bins=64, first=2000), out=folder / f"{name}-w", where=where
                )
            wall, own = against_cells(tiny, folder / f"tiny-{name}", where)
            found[name] = {
                "share_of_long_cells": share,
                "ms_a_tiny_cell": 1e3 * (wall - own / where.workers) / len(tiny.cells()),
            }
    return found


def against_cells(spec: Spec, out: Path, where: Placement) -> tuple[float, float]:
    """Seconds of the run, and of its cells together."""
    own: list[float] = []
    wall = timed(lambda: run_experiment(spec, out=out, where=where, on_result=lambda r: own.append(r.seconds)))
    with Store.read(out) as store:
        if len(store.results()) != len(spec.cells()) or not isinstance(store.results()[0], CellResult):
            raise AssertionError("cells are missing")
    return wall, sum(own)


def main() -> None:
    """Print tables, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
        ) as cluster,
    ):
        places = {
            "Dask, 2 workers": lambda: place(cluster.scheduler_address),
            "--jobs 2": lambda: place(jobs=2),
        }
        found = {
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "load": os.getloadavg()[0],
            "speedup": speedups(Path(name), places, quick=asked.quick),
            "overhead": overhead(Path(name), places, quick=asked.quick),
        }
    if asked.json:
        json.dump(found, sys.stdout, indent=2)
        print()
        return
    speed = found["speedup"]
    print(f"{found['machine']}, Python {platform.python_version()}, load {found['load']:.1f} at the end")
    print(f"{speed['cells']} cells of {speed['trials']} trials; one core's seconds just before and after each")
    print(f"{'':18}{'one core s':>12}{'s':>8}{'times':>8}{'start-up s':>12}{'times with it':>15}")
    for name in places:
        s = speed[name]
        print(
            f"{name:18}{s['one_core_seconds']:12.1f}{s['seconds']:8.1f}{s['speedup']:8.2f}{s['startup_seconds']:12.1f}"
            f"{s['speedup_with_startup']:15.2f}"
        )
    print(f"\n{'overhead':18}{'cells of 1 s':>14}{'tiny cells':>16}")
    for name, o in found["overhead"].items():
        share = "" if o["share_of_long_cells"] is None else f"{100 * o['share_of_long_cells']:.2f} %"
        print(f"{name:18}{share:>14}{o['ms_a_tiny_cell']:>10.2f} ms each")


if __name__ == "__main__":
    main()
