"""Two workers against one core, and what the runner adds to a cell; ratios of one run.

Cells are CPU-bound: the attack `nearest-peak` on pancake noise. What the machine can do at all just
now (other work, shared caches) is measured beside it: the same cells in two bare processes.
`--quick` takes fewer cells, `--json` prints a document.
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
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
from distributed import LocalCluster

from dpaudit.experiments import Spec, Store, load_spec, make_result, run_experiment
from dpaudit.experiments.placement import Placement, place
from dpaudit.experiments.placement.work import attempt
from dpaudit.types import CellResult

SPEC = """
name = "bench"
seed = 3
epsilon = 0.5
delta = 1e-10
trials = {trials}
keys = {keys}
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


def make(
    folder: Path, *, cells: int, trials: int, bins: int, source: str = "pancake", first: int = 0
) -> Spec:
    """A spec of so many cells, each with a number of its own."""
    path = folder / "bench.toml"
    # eight rounds a key fit a cache: neither memory nor disk is what is shared
    keys = max(1, trials // 8)
    numbers = list(range(first, first + cells))
    path.write_text(SPEC.format(cells=numbers, trials=trials, keys=keys, bins=bins, source=source))
    return load_spec(str(path))


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu_seconds() -> tuple[float, float]:
    """CPU seconds of the machine since it started, and of this process with its children."""
    whole = psutil.cpu_times()
    ours = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            ours += sum(process.cpu_times()[:2])
    return whole.user + whole.nice + whole.system + getattr(whole, "steal", 0.0), ours


def watched(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and how many cores other people's work had meanwhile."""
    whole, ours = cpu_seconds()
    seconds = timed(work)
    after = cpu_seconds()
    return seconds, max(0.0, after[0] - whole - (after[1] - ours)) / seconds


def rows(folder: Path) -> Any:
    with Store.read(folder) as store:
        return make_result(store.spec, store.results(), command="").rows


def sized(folder: Path, *, seconds: float) -> int:
    """Trials that make a cell take about so long here: a line through two sizes."""
    took = []
    for trials in (800, 2400):
        cell = make(folder, cells=1, trials=trials, bins=1024).cells()[0]
        took.append(min(attempt(cell).seconds for _ in range(3)))
    slope = max((took[1] - took[0]) / 1600, 1e-6)
    return max(800, int(800 + (seconds - took[0]) / slope))


def speedups(
    folder: Path, places: dict[str, Callable[[], AbstractContextManager[Placement]]], *, quick: bool
) -> Any:
    """Seconds of one core and of each place for the same cells.

    Workers are warm; start-up includes all imports.
    """
    cells, trials = (8, sized(folder, seconds=0.5)) if quick else (20, sized(folder, seconds=1.5))
    spec, warm = (
        make(folder, cells=n, trials=t, bins=1024, first=f)
        for n, t, f in ((cells, trials, 0), (4, 1, 1000))
    )
    found: dict[str, Any] = {"cells": cells, "trials": trials}
    ones = [timed(lambda: run_experiment(spec, out=folder / "one"))]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as bare:
        list(bare.map(attempt, warm.cells()))
        seconds, others = watched(lambda: list(bare.map(attempt, spec.cells())))
    ones.append(timed(lambda: run_experiment(spec, out=folder / "one-bare")))
    found["two bare processes"] = {
        "one_core_seconds": statistics.mean(ones),
        "seconds": seconds,
        "others_cores": others,
        "speedup": statistics.mean(ones) / seconds,
    }
    for name, start in places.items():
        with ExitStack() as stack:
            began = time.perf_counter()
            kept = Kept(stack.enter_context(start()))
            run_experiment(warm, out=folder / f"{name}-warm", where=kept)
            startup = time.perf_counter() - began
            seconds, others = watched(
                lambda name=name, kept=kept: run_experiment(spec, out=folder / name, where=kept)
            )
        ones.append(timed(lambda name=name: run_experiment(spec, out=folder / f"one-{name}")))
        one = statistics.mean(ones[-2:])  # just before and just after
        if rows(folder / name) != rows(folder / "one"):
            raise AssertionError(f"{name}: other numbers than one core")
        found[name] = {
            "one_core_seconds": one,
            "seconds": seconds,
            "others_cores": others,
            "startup_seconds": startup,
            "speedup": one / seconds,
            "speedup_with_startup": one / (seconds + startup),
        }
    return found


def overhead(
    folder: Path, places: dict[str, Callable[[], AbstractContextManager[Placement]]], *, quick: bool
) -> Any:
    """What a run takes beyond its cells' own seconds.

    For cells of a second as a share, for tiny ones in ms per cell.
    """
    found = {}
    long = make(folder, cells=3 if quick else 10, trials=sized(folder, seconds=1.2), bins=1024)
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
                    make(folder, cells=4, trials=1, bins=64, first=2000),
                    out=folder / f"{name}-w",
                    where=where,
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
    wall = timed(
        lambda: run_experiment(
            spec, out=out, where=where, on_result=lambda r: own.append(r.seconds)
        )
    )
    with Store.read(out) as store:
        if len(store.results()) != len(spec.cells()) or not isinstance(
            store.results()[0], CellResult
        ):
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
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
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
    print(
        f"{found['machine']}, Python {platform.python_version()}, "
        f"load {found['load']:.1f} at the end"
    )
    print(
        f"{speed['cells']} cells of {speed['trials']} trials; "
        "one core's seconds just before and after each"
    )
    print(
        f"{'':20}{'one core s':>12}{'s':>8}{'times':>8}{'others had cores':>18}"
        f"{'start-up s':>12}{'times with it':>15}"
    )
    for name in ("two bare processes", *places):
        s = speed[name]
        line = (
            f"{name:20}{s['one_core_seconds']:12.1f}{s['seconds']:8.1f}"
            f"{s['speedup']:8.2f}{s['others_cores']:18.2f}"
        )
        if "startup_seconds" in s:
            line += f"{s['startup_seconds']:12.1f}{s['speedup_with_startup']:15.2f}"
        print(line)
    print(f"\n{'overhead':20}{'cells of 1 s':>14}{'tiny cells':>16}")
    for name, o in found["overhead"].items():
        share = (
            "" if o["share_of_long_cells"] is None else f"{100 * o['share_of_long_cells']:.2f} %"
        )
        print(f"{name:20}{share:>14}{o['ms_a_tiny_cell']:>10.2f} ms each")


if __name__ == "__main__":
    main()
