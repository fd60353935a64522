"""Two workers against one core, and what the runner adds to a cell; ratios of one run.

Cells are CPU-bound: the attack `nearest-peak` on pancake noise. What the machine can do at all just
now (other work, shared caches) is measured too: the same cells in two bare processes.
`--quick` takes fewer cells.
"""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
from distributed import LocalCluster
from harness import MACHINE, clocked

from dpaudit.experiments import Spec, Store, load_spec, make_result, run_experiment
from dpaudit.experiments.placement import Placement, place
from dpaudit.experiments.placement.work import attempt
from dpaudit_studies.evidence import options

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
Places = dict[str, Callable[[], AbstractContextManager[Placement]]]


class Persistent:
    """A placement whose workers outlive a run, so that they are warm in the next."""

    def __init__(self, inner: Placement) -> None:
        self._inner, self.workers, self.run = inner, inner.workers, inner.run

    def __enter__(self) -> Persistent:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def make(folder: Path, *, source: str = "pancake", first: int = 0, **size: int) -> Spec:
    """A spec of so many ``cells``, ``trials`` and ``bins``; each cell has a number of its own."""
    path = folder / "bench.toml"
    # eight rounds a key fit a cache: neither memory nor disk is what is shared
    keys = max(1, size["trials"] // 8)
    numbers = list(range(first, first + size["cells"]))
    path.write_text(SPEC.format(**size | {"cells": numbers, "keys": keys, "source": source}))
    return load_spec(str(path))


def wall(work: Callable[[], object]) -> float:
    return clocked(work)[1]


def cpu_seconds() -> tuple[float, float]:
    """CPU seconds of the machine since it started, and of this process with its children."""
    whole, ours = psutil.cpu_times(), 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            ours += sum(process.cpu_times()[:2])
    return whole.user + whole.nice + whole.system + getattr(whole, "steal", 0.0), ours


def watched(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and how many cores other people's work had meanwhile."""
    whole, ours = cpu_seconds()
    seconds = wall(work)
    after = cpu_seconds()
    return seconds, max(0.0, after[0] - whole - (after[1] - ours)) / seconds


def rows(folder: Path) -> Any:
    with Store.read(folder) as store:
        return make_result(store.spec, store.results(), command="").rows


def trials_for(folder: Path, *, seconds: float) -> int:
    """Trials that make a cell take about so long here: a line through two sizes."""
    took = []
    for trials in (800, 2400):
        cell = make(folder, cells=1, trials=trials, bins=1024).cells()[0]
        took.append(min(attempt(cell).seconds for _ in range(3)))
    slope = max((took[1] - took[0]) / 1600, 1e-6)
    return max(800, int(800 + (seconds - took[0]) / slope))


def speedups(folder: Path, places: Places, *, quick: bool) -> None:
    """Seconds of one core, just before and after, and of each place for the same cells."""
    cells, trials = (
        (8, trials_for(folder, seconds=0.5)) if quick else (20, trials_for(folder, seconds=1.5))
    )
    spec = make(folder, cells=cells, trials=trials, bins=1024)
    warm = make(folder, cells=4, trials=1, bins=1024, first=1000)
    print(f"{cells} cells of {trials} trials; workers are warm, start-up includes all imports")
    print(
        f"{'':20}{'one core s':>12}{'s':>8}{'times':>8}{'others had cores':>18}"
        f"{'start-up s':>12}{'times with it':>15}"
    )
    ones = [wall(lambda: run_experiment(spec, out=folder / "one"))]

    def row(name: str, seconds: float, others: float, startup: float | None = None) -> None:
        ones.append(wall(lambda: run_experiment(spec, out=folder / f"one {name}")))
        one = statistics.mean(ones[-2:])
        more = "" if startup is None else f"{startup:12.1f}{one / (seconds + startup):15.2f}"
        print(f"{name:20}{one:12.1f}{seconds:8.1f}{one / seconds:8.2f}{others:18.2f}{more}")

    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as bare:
        list(bare.map(attempt, warm.cells()))
        took = watched(lambda: list(bare.map(attempt, spec.cells())))
    row("two bare processes", *took)
    for name, start in places.items():
        with ExitStack() as stack:

            def started(
                name: str = name, start: Any = start, stack: ExitStack = stack
            ) -> Persistent:
                placement = Persistent(stack.enter_context(start()))
                run_experiment(warm, out=folder / f"{name}-warm", where=placement)
                return placement

            placement, startup, _ = clocked(started)
            took = watched(
                lambda name=name, placement=placement: run_experiment(
                    spec, out=folder / name, where=placement
                )
            )
        row(name, *took, startup)
        if rows(folder / name) != rows(folder / "one"):
            raise AssertionError(f"{name}: other numbers than one core")


def overhead(folder: Path, places: Places, *, quick: bool) -> None:
    """What a run takes beyond its cells: a share of cells of a second, ms of each tiny one."""
    print(f"\n{'overhead':20}{'cells of 1 s':>14}{'tiny cells':>16}")
    long = make(folder, cells=3 if quick else 10, trials=trials_for(folder, seconds=1.2), bins=1024)
    tiny = make(folder, cells=200 if quick else 1000, trials=1, bins=64, source="gaussian")
    warm = make(folder, cells=4, trials=1, bins=64, first=2000)
    with ExitStack() as stack:
        share = against_cells(long, folder / "long", place())
        placements = {
            name: Persistent(stack.enter_context(start())) for name, start in places.items()
        }
        for name, where in {"in process": place(), **placements}.items():
            run_experiment(warm, out=folder / f"{name}-w", where=where)
            seconds, own = against_cells(tiny, folder / f"tiny-{name}", where)
            each = 1e3 * (seconds - own / where.workers) / len(tiny.cells())
            beyond = f"{100 * (share[0] / share[1] - 1):.2f} %" if name == "in process" else ""
            print(f"{name:20}{beyond:>14}{each:>10.2f} ms each")


def against_cells(spec: Spec, out: Path, where: Placement) -> tuple[float, float]:
    """Seconds of the run, and of its cells together."""
    own: list[float] = []
    seconds = wall(
        lambda: run_experiment(
            spec, out=out, where=where, on_result=lambda r: own.append(r.seconds)
        )
    )
    if len(own) != len(spec.cells()):
        raise AssertionError("cells are missing")
    return seconds, sum(own)


def main() -> None:
    quick = options(__doc__, quick=False).quick
    print(MACHINE)
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        places: Places = {
            "Dask, 2 workers": lambda: place(cluster.scheduler_address),
            "--jobs 2": lambda: place(jobs=2),
        }
        speedups(Path(name), places, quick=quick)
        overhead(Path(name), places, quick=quick)


if __name__ == "__main__":
    main()
