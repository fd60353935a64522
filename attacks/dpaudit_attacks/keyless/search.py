"""The search itself: jobs in child processes, two at a time, under a deadline, none left behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dpaudit_attacks.keyless.candidates import Estimate, confirm, estimate, fundamental, refine
from dpaudit_attacks.keyless.plan import Job
from dpaudit_attacks.keyless.rows import Rows

__all__ = ["CONFIRMED", "Finding", "Search", "describe"]

CONFIRMED = 1e-9  # a p-value that ends the search
_PARALLEL = 2
_LINE = 1 << 20
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Finding:
    """The candidate with the least p-value: which job proposed it, and what it says."""

    job: Job
    p: float
    u: npt.NDArray[np.float64]
    reduction: str
    rows: int
    seconds: float
    estimate: Estimate


class _Child:
    """One job's process. Its rows wait in an unnamed file, so that nothing blocks on a pipe."""

    def __init__(self, job: Job, rows: Rows) -> None:
        self.job = job
        self.stage = "nothing"
        self.finished = False
        self.buffer = b""
        head = {**asdict(job), "search_rows": len(rows.pool)}
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(head).encode() + b"\n")
            stdin.write(np.concatenate([rows.pool, rows.check]).astype("<f8").tobytes())
            stdin.seek(0)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dpaudit_attacks.keyless.worker", str(os.getpid())],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
                start_new_session=True,
            )
        out: IO[bytes] | None = self.process.stdout
        assert out is not None  # noqa: S101 for mypy: a pipe
        self.out = out
        os.set_blocking(out.fileno(), False)

    def lines(self) -> tuple[list[Mapping[str, Any]], bool]:
        """What it has said since, and whether that was its last word."""
        ended = False
        with contextlib.suppress(BlockingIOError):
            while len(self.buffer) < _LINE:
                new = os.read(self.out.fileno(), 1 << 16)
                if not new:
                    ended = True
                    break
                self.buffer += new
        *whole, self.buffer = self.buffer.split(b"\n")
        return [json.loads(line) for line in whole], ended

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.out.close()


_SHORTEST = 1e-6  # of a candidate: peaks a million σ apart; its phases are near 0 on any rows


class Search:
    """Runs jobs in order and keeps the best candidate.

    Formal guarantee: :attr:`p` is super-uniform if the rows of each d are independent N(0, I) and each
    :class:`~dpaudit_attacks.keyless.rows.Rows` held out its own: the i-th candidate of all, over dimensions, cells and
    stages, counts with p·i·(i+1), whose weights 1/(i(i+1)) sum to 1, so neither their number nor stopping early matters.
    """

    def __init__(self, rows: Mapping[int, Rows]) -> None:
        """Search in ``rows``, by dimension."""
        self._rows = rows
        self._running: list[_Child] = []
        self.candidates = 0
        self.p = 1.0
        self.best: Finding | None = None
        self.completed: list[Job] = []
        self.broken: list[Job] = []
        self.unfinished: list[tuple[Job, str]] = []
        self.waiting = 0
        self.seconds = 0.0

    def run(self, jobs: Sequence[Job], *, deadline: float) -> None:
        """Run ``jobs`` in order until one candidate is confirmed, all are done, or ``deadline`` (``time.monotonic``)."""
        began = time.monotonic()
        left = list(jobs)
        try:
            with selectors.DefaultSelector() as selector:
                while self.p > CONFIRMED and (left or self._running) and time.monotonic() < deadline:
                    while left and len(self._running) < _PARALLEL:
                        job = left.pop(0)
                        child = _Child(job, self._rows[job.d])
                        self._running.append(child)
                        selector.register(child.out, selectors.EVENT_READ, child)
                    for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                        self._listen(key.data, selector)
        finally:
            self.unfinished = [(child.job, child.stage) for child in self._running]
            self.waiting = len(left)
            self.seconds = time.monotonic() - began
            self.close()

    def _listen(self, child: _Child, selector: selectors.BaseSelector) -> None:
        lines, ended = child.lines()
        for line in lines:
            if "u" in line:
                self._judge(child.job, line)
            elif "stage" in line:
                child.stage = line["stage"]
            else:
                child.finished = True
        if ended:
            selector.unregister(child.out)
            self._running.remove(child)
            (self.completed if child.finished else self.broken).append(child.job)
            child.close()

    def _judge(self, job: Job, line: Mapping[str, Any]) -> None:
        rows = self._rows[job.d]
        u = np.asarray(line["u"], np.float64)
        self.candidates += 1
        p = min(1.0, confirm(rows.held, u) * self.candidates * (self.candidates + 1))
        if p < self.p or self.best is None:
            u = fundamental(rows.check, refine(rows.check, u))
            if np.linalg.norm(u) < _SHORTEST:
                return
            self.p = min(p, self.p)
            self.best = Finding(
                job=job,
                p=p,
                u=u,
                reduction=str(line["reduction"]),
                rows=int(line["rows"]),
                seconds=float(line["seconds"]),
                estimate=estimate(rows.check, rows.held, u),
            )

    def close(self) -> None:
        """Kill what still runs; closing twice is harmless."""
        for child in self._running:
            child.close()
        self._running.clear()


def describe(jobs: Sequence[Job]) -> str:
    """The largest β reached in each dimension at γ = 2√d, in words."""
    reached: dict[int, float] = {}
    for job in jobs:
        if job.kind == "lattice" and math.isclose(job.gamma, 2 * math.sqrt(job.d)):
            reached[job.d] = max(reached.get(job.d, 0.0), job.beta)
    return ", ".join(f"d={d} (β ≤ {beta:.2g})" for d, beta in sorted(reached.items()))
