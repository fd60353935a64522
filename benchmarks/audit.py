"""Speed and memory of the battery against numpy drawing the same values. `make bench`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from harness import MACHINE, peak

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.claims import Claim
from dpaudit.protocols import Facts, Reply, Request
from dpaudit_studies.evidence import options

_SEED = 0x9D5B3E0A46C17F288E61D4B7035AC92F  # of 128 bits: the audit finds small ones


class NumpySampler:
    """numpy's normals in this process; what drawing costs is kept apart."""

    name, facts = "numpy", Facts(frozenset({"noise", "noise in calls"}))

    def __init__(self, clock: Callable[[], float], *, process: int = 0) -> None:
        self._rng = np.random.default_rng((_SEED, process))
        self._clock = clock
        self._started = 0
        self.seconds = 0.0
        self.values = 0

    @contextmanager
    def open(self, *, timeout: float) -> Iterator[NumpySampler]:
        yield self

    def ask(self, request: Request, *, timeout: float) -> Reply:
        began = self._clock()
        values = self._rng.standard_normal((request.rows, request.dim))
        self.seconds += self._clock() - began
        self.values += values.size
        return Reply(values, np.full(request.calls or 1, 1e-6))

    def again(self) -> NumpySampler:
        self._started += 1
        return NumpySampler(self._clock, process=self._started)


def main() -> None:
    """One row per sample size: CPU time, peak memory; then the cost per audit and per value."""
    # keyless-search has a time limit of its own
    tests = tuple(sorted(set(registry.plugins("tests")) - {"keyless-search"}))
    print(f"{MACHINE}, {len(tests)} families")
    print(
        f"{'values':>14}{'numpy ns':>10}{'battery ns':>12}{'ratio':>7}{'CPU s':>8}{'wall s':>8}"
        f"{'peak MiB':>10}"
    )
    claim = Claim.parse("gaussian:sigma=1")
    warm = AuditOptions(seed="warm", samples=100_000, tests=tests)
    run_audit(NumpySampler(time.thread_time), claim=claim, options=warm)
    points: list[tuple[float, float]] = []
    for samples in map(int, options(__doc__, samples=[1e7, 1e8]).samples):
        sampler = NumpySampler(time.thread_time)
        began, wall = time.thread_time(), time.monotonic()
        measured = AuditOptions(seed="bench", samples=samples, tests=tests, time_limit=1e5)
        result = run_audit(sampler, claim=claim, options=measured)
        spent, wall = time.thread_time() - began - sampler.seconds, time.monotonic() - wall
        draw, battery = (1e9 * s / sampler.values for s in (sampler.seconds, spent))
        print(
            f"{sampler.values:14,}{draw:10.1f}{battery:12.1f}{battery / draw:7.2f}"
            f"{spent:8.2f}{wall:8.1f}{peak():10.0f}   {result.verdict}",
            flush=True,
        )
        points.append((sampler.values, spent))
    if len(points) > 1:
        slope, fixed = np.polyfit(*zip(*points, strict=True), 1)
        print(f"{fixed:.1f} CPU s per audit and {1e9 * slope:.0f} ns per value")


if __name__ == "__main__":
    main()
