"""The search: which rows it keeps; child processes, two at a time, under a deadline."""

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
from dpaudit_attacks.keyless.lattice import SHORTEST_ROW
from dpaudit_attacks.keyless.plan import Job

__all__ = ["CONFIRMED", "HELD", "Finding", "Rows", "Search"]

HELD = 512  # rows that confirm: 4·exp(−512·R²/4) is below 1e-13 from R = 0.5 on
_CHECKED = 512  # rows that rank candidates
_SPARE = 64
_SEEN = 1 << 20  # rows looked at for small norms

Array = npt.NDArray[np.float64]


class Rows:
    """Normalised rows of one dimension d.

    Which part a row plays depends on its place in the stream, not on its values. In turns of four:
    one held out, one that ranks candidates, two to search in, until the first two are full. Of
    those to search in, the 4d + 64 of least norm (2 at least) are kept. Held-out rows are thus
    independent of all others that are kept.
    """

    def __init__(self, d: int) -> None:
        """Start empty."""
        self.d = d
        self.count = 0
        self.held_out: Array = np.empty((0, d))
        self.check: Array = np.empty((0, d))
        self.pool: Array = np.empty((0, d))
        self._most = 4 * d + _SPARE
        self._limit = math.inf  # the largest squared norm in a full pool

    def add(self, z: Array) -> None:
        """Take in rows z (n, d)."""
        if self.count >= _SEEN:
            return
        if len(self.held_out) < HELD or len(self.check) < _CHECKED:
            turn = (self.count + np.arange(len(z))) % 4
            held_out, check = np.flatnonzero(turn == 0), np.flatnonzero(turn == 1)
            held_out, check = (
                held_out[: HELD - len(self.held_out)],
                check[: _CHECKED - len(self.check)],
            )
            self.held_out = np.concatenate([self.held_out, z[held_out]])
            self.check = np.concatenate([self.check, z[check]])
            free = np.ones(len(z), bool)
            free[held_out] = free[check] = False
            rest = z[free]
        else:
            rest = z
        self.count += len(z)
        norm = np.einsum("ij,ij->i", rest, rest)
        small = (norm < self._limit) & (norm >= SHORTEST_ROW**2)
        if small.any():
            self.pool = np.concatenate([self.pool, rest[small]])
            if len(self.pool) > self._most:
                norm = np.einsum("ij,ij->i", self.pool, self.pool)
                keep = np.sort(np.argpartition(norm, self._most)[: self._most])
                self.pool = self.pool[keep]
                self._limit = float(norm[keep].max())

    @property
    def shrink(self) -> float:
        """Root mean square length of the pool's rows, in units of √d."""
        return math.sqrt(float(np.square(self.pool).mean())) if len(self.pool) else 1.0

    @property
    def enough(self) -> bool:
        """Whether a lattice can be built and a candidate confirmed."""
        enough = max(128, 2 * self.d)
        return (
            len(self.pool) >= self.d + 8 and len(self.held_out) >= 128 and len(self.check) >= enough
        )


CONFIRMED = 1e-9  # a p-value that ends the search
_PARALLEL = 2
_LINE = 1 << 20
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Finding:
    """The candidate with the least p-value: which job proposed it, and its estimate.

    ``seconds`` and ``cpu_seconds`` are those of its job.
    """

    job: Job
    p: float
    u: npt.NDArray[np.float64]
    reduction: str
    rows: int
    seconds: float
    cpu_seconds: float
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

    Formal guarantee: :attr:`p` is super-uniform if the rows of each d are independent N(0, I) and
    each :class:`~dpaudit_attacks.keyless.search.Rows` held out its own: the i-th candidate of all,
    over dimensions, cells and stages, counts with p·i·(i+1), whose weights 1/(i(i+1)) sum to 1, so
    neither their number nor stopping early matters.
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
        """Run ``jobs`` in order until one is confirmed or ``deadline`` (``time.monotonic``)."""
        began = time.monotonic()
        left = list(jobs)
        try:
            with selectors.DefaultSelector() as selector:
                while (
                    self.p > CONFIRMED and (left or self._running) and time.monotonic() < deadline
                ):
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
                self.judge(child.job, line)
            elif "stage" in line:
                child.stage = line["stage"]
            else:
                child.finished = True
        if ended:
            selector.unregister(child.out)
            self._running.remove(child)
            (self.completed if child.finished else self.broken).append(child.job)
            child.close()

    def judge(self, job: Job, line: Mapping[str, Any]) -> None:
        """Take in a candidate that ``job`` proposed (a line of its worker's, with ``u``)."""
        rows = self._rows[job.d]
        u = np.asarray(line["u"], np.float64)
        self.candidates += 1
        p = min(1.0, confirm(rows.held_out, u) * self.candidates * (self.candidates + 1))
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
                cpu_seconds=float(line["cpu"]),
                estimate=estimate(rows.check, rows.held_out, u),
            )

    def close(self) -> None:
        """Kill what still runs; closing twice is harmless."""
        for child in self._running:
            child.close()
        self._running.clear()
