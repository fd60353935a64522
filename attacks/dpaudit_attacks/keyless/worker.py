"""The child process of a search: rows in, candidates out.

``python -m dpaudit_attacks.keyless.worker PARENT``. Standard input: one line of JSON (a
:class:`~dpaudit_attacks.keyless.plan.Job`'s fields, and how many rows of each kind), then the rows
as raw float64: first those to search in, then those to rank candidates on. Standard output: a line
of JSON for each candidate worth a look at the held-out rows, which this process never sees, and one
for each finished stage.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit_attacks.keyless.candidates import (
    SCANNED_DIM,
    from_covariance,
    from_scan,
    refine,
    resonance,
)
from dpaudit_attacks.keyless.lattice import Reduction, find_direction
from dpaudit_attacks.keyless.reduction import reducer

__all__ = ["WORTH_A_LOOK", "lines"]

# n·R²/4 on the ranking rows from which a candidate is passed on; noise reaches it once in 10^9
WORTH_A_LOOK = 24.0
_PR_SET_PDEATHSIG = 1

Array = npt.NDArray[np.float64]


def _passes(check: Array, score: float) -> bool:
    return len(check) * score**2 / 4 >= WORTH_A_LOOK


def lines(job: Mapping[str, Any], rows: Array, check: Array) -> Iterator[dict[str, Any]]:
    """The messages of a job: its candidates, its stages, and that it is done."""
    if job["kind"] == "easy" or job["easy"]:
        yield from _easy(rows, check)
    if job["kind"] != "easy":
        yield from _lattice(job, rows, check)
    yield {"done": True}


def _easy(rows: Array, check: Array) -> Iterator[dict[str, Any]]:
    began, began_cpu = time.monotonic(), time.process_time()
    everything = np.concatenate([check, rows])
    starts = [("covariance", u) for u in from_covariance(everything)]
    if rows.shape[1] in range(2, SCANNED_DIM + 1):
        starts += [("scan", u) for u in from_scan(check)]
    for method, start in starts:
        u = refine(everything, start)
        score = float(resonance(everything, u)[0])
        if _passes(everything, score):
            yield {
                "u": u.tolist(),
                "score": score,
                "reduction": method,
                "rows": len(everything),
                "seconds": time.monotonic() - began,
                "cpu": time.process_time() - began_cpu,
            }


def _lattice(job: Mapping[str, Any], rows: Array, check: Array) -> Iterator[dict[str, Any]]:
    best, stage, began_cpu = -1.0, "", time.process_time()
    for candidate in find_direction(
        rows,
        beta=job["beta"],
        gamma=job["gamma"],
        reduction=Reduction(job["rows"] or None, job["block"], reducer(job["reducer"])),
        check=check,
    ):
        if candidate.reduction != stage:
            stage = candidate.reduction
            yield {"stage": stage, "rows": candidate.rows, "seconds": candidate.seconds}
        if _passes(check, candidate.score) and candidate.score > best:
            best = candidate.score
            yield {
                "u": candidate.u.tolist(),
                "score": candidate.score,
                "reduction": candidate.reduction,
                "rows": candidate.rows,
                "seconds": candidate.seconds,
                "cpu": time.process_time() - began_cpu,
            }


def _main(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(1)
    job = json.loads(sys.stdin.buffer.readline())
    d = job["d"]
    values = np.frombuffer(sys.stdin.buffer.read(), np.float64).reshape(-1, d)
    rows, check = values[: job["search_rows"]], values[job["search_rows"] :]
    if not math.isfinite(float(values.sum())):
        raise SystemExit("rows are not finite")
    for line in lines(job, rows, check):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
