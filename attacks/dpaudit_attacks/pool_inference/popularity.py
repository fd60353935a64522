"""The strong adversary's knowledge: how popular objects are, estimated from other people's privatised submissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.interfaces import LocalMechanism, Stream
from dpaudit.local.count_mean_server import CountMeanServer
from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.local.count_median_sketch import CountMedianSketch
from dpaudit.local.hadamard_server import HadamardServer
from dpaudit.local.hadamard_sketch import HadamardSketch
from dpaudit.local.identity import Identity
from dpaudit.local.randomized_response import RandomizedResponse, RandomizedResponseServer
from dpaudit.local.rappor import Rappor
from dpaudit.local.rappor_decoding import decode
from dpaudit.local.rappor_server import RapporServer
from dpaudit_attacks.pool_inference.simplex import project

__all__ = ["SERVERS", "estimate_popularity"]

_BLOCK = 1 << 16  # submissions in memory at a time


class _IdentityServer:
    def __init__(self, mechanism: Identity) -> None:
        del mechanism
        self._objects: list[npt.NDArray[np.int64]] = []

    def add(self, reports: Any) -> None:
        self._objects.append(reports.category)

    def estimate(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        counts = np.bincount(np.concatenate(self._objects), minlength=int(objects.max()) + 1)
        return counts[objects].astype(np.float64)


class _RapporEstimator(RapporServer):
    def estimate(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        found = decode(self, objects)
        counts = np.zeros(int(objects.max()) + 1)
        counts[found.candidates] = found.estimate
        return counts[objects]


SERVERS: dict[type, Callable[[Any], Any]] = {
    CountMeanSketch: CountMeanServer,
    CountMedianSketch: CountMeanServer,
    HadamardSketch: HadamardServer,
    Identity: _IdentityServer,
    RandomizedResponse: RandomizedResponseServer,
    Rappor: _RapporEstimator,
}
"""The server of each mechanism: ``add(reports)``, ``estimate(objects)``."""


def estimate_popularity(
    mechanism: LocalMechanism,
    popularity: npt.NDArray[np.float64],
    *,
    stream: Stream,
    submissions: int = 1_000_000,
    projection: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]] = project,
) -> npt.NDArray[np.float64]:
    """p̂ (universe,) from privatised ``submissions`` of other people, who choose by the true ``popularity`` (universe,).

    Their objects are drawn independently, privatised by ``mechanism`` itself, counted by its own server, divided by their
    number and projected onto the simplex: exactly (``simplex.project``) or as ``projection`` says
    (``simplex.average_projections`` is the paper's). RAPPOR's decoding gives 0 to objects that it does not select.

    Not claimed: calibration of an adversary who takes p̂ for the truth. The noise of p̂ makes objects popular that nobody
    chooses, and a strong adversary too modest where there are many rare objects. ``PoolInference(adversaries=("strong",
    "informed"), observations=(180,), popularity_submissions=N).outcomes(15000, …)``, mean confidence less share of right
    answers (± 0.003): strong −0.03 with N = 10^6 and −0.02 with 10^7 (two streams each), informed −0.002. The truth with
    Gaussian noise of the sketch's variance, projected, is as far off at 10^6, and not at 10^8: it is the noise alone.

    Raises:
        UsageError: a mechanism without a server here, no submissions, or a popularity that is negative or all 0.
    """
    p = np.asarray(popularity, np.float64)
    if p.ndim != 1 or not np.isfinite(p).all() or p.min() < 0 or not p.sum() > 0:
        raise UsageError(f"popularity of shape {p.shape}: one finite weight ≥ 0 for each object, not all 0")
    if submissions < 1:
        raise UsageError(f"submissions={submissions}: an estimate needs at least 1")
    if type(mechanism) not in SERVERS:
        names = ", ".join(sorted(t.__name__ for t in SERVERS))
        raise UsageError(f"mechanism={type(mechanism).__name__}: popularity can be estimated for {names}")
    server = SERVERS[type(mechanism)](mechanism)
    ends = np.cumsum(p) / p.sum()
    ends[np.flatnonzero(p)[-1] :] = 1.0
    for start in range(0, submissions, _BLOCK):
        part = stream.child("block", start // _BLOCK)
        here = min(_BLOCK, submissions - start)
        objects = np.searchsorted(ends, part.child("objects").numpy().random(here), side="right")
        server.add(mechanism.privatize(objects, stream=part.child("reports")))
    return projection(server.estimate(np.arange(len(p))) / submissions)
