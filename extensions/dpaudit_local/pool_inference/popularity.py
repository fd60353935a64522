"""The popularity that adversaries assume; a strong one estimates it from others' submissions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import LocalMechanism, Stream
from dpaudit.registry import nearest
from dpaudit_local.mechanisms.count_mean_sketch import (
    CountMeanServer,
    CountMeanSketch,
    CountMedianSketch,
)
from dpaudit_local.mechanisms.hadamard_sketch import HadamardServer, HadamardSketch
from dpaudit_local.mechanisms.randomized_response import (
    Identity,
    RandomizedResponse,
    RandomizedResponseServer,
)
from dpaudit_local.mechanisms.rappor import Rappor, RapporServer
from dpaudit_local.mechanisms.rappor_decoding import decode
from dpaudit_local.pool_inference.settings import Setting

__all__ = [
    "ADVERSARIES",
    "NON_PRIVATE",
    "check_adversaries",
    "estimate_popularity",
    "popularities",
    "project",
    "server_of",
]


def project(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The point of the simplex nearest to ``values`` (n,) in Euclidean distance.

    Exact up to rounding. max(v − θ, 0) with the one θ for which that adds up to 1, found by sorting
    (Duchi, Shalev-Shwartz, Singer and Chandra 2008, Figure 1).

    Raises:
        UsageError: no values, or one that is not finite.

    >>> project(np.array([0.5, 0.7, -3.0])).round(3).tolist()
    [0.4, 0.6, 0.0]
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise UsageError(
            f"values of shape {values.shape}: a projection needs one axis of finite numbers"
        )
    # the same projection, and the 1 of the sum is not lost next to huge values
    values = values - values.max()
    falling = np.sort(values)[::-1]
    thetas = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    last = np.flatnonzero(falling > thetas)[-1]
    nearest: npt.NDArray[np.float64] = np.maximum(values - thetas[last], 0.0)
    nearest /= nearest.sum()
    return nearest


_BLOCK = 1 << 16  # submissions in memory at a time


class _IdentityServer:
    def __init__(self, mechanism: Identity) -> None:
        del mechanism
        self._objects: list[npt.NDArray[np.int64]] = []

    @property
    def reports(self) -> int:
        return sum(map(len, self._objects))

    def add(self, reports: Any) -> None:
        self._objects.append(reports.category)

    def estimate(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        counts = np.bincount(np.concatenate(self._objects), minlength=int(objects.max()) + 1)
        return counts[objects].astype(np.float64)


class _RapporEstimator(RapporServer):
    def estimate(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        decoded = decode(self, objects)
        counts = np.zeros(int(objects.max()) + 1)
        counts[decoded.candidates] = decoded.estimate
        return counts[objects]


SERVERS: dict[type, Callable[[Any], Any]] = {
    CountMeanSketch: CountMeanServer,
    CountMedianSketch: CountMeanServer,
    HadamardSketch: HadamardServer,
    Identity: _IdentityServer,
    RandomizedResponse: RandomizedResponseServer,
    Rappor: _RapporEstimator,
}
"""The server of each mechanism: ``add(reports)``, ``reports``, ``estimate(objects)``."""


def server_of(mechanism: LocalMechanism) -> Any:
    """A server without reports yet, for devices with this ``mechanism``.

    Raises:
        UsageError: a mechanism without a server here.
    """
    if type(mechanism) not in SERVERS:
        names = ", ".join(sorted(t.__name__ for t in SERVERS))
        raise UsageError(
            f"mechanism={type(mechanism).__name__}: popularity can be estimated for {names}"
        )
    return SERVERS[type(mechanism)](mechanism)


def estimate_popularity(
    mechanism: LocalMechanism,
    popularity: npt.NDArray[np.float64],
    *,
    stream: Stream,
    submissions: int = 1_000_000,
) -> npt.NDArray[np.float64]:
    """p̂ (universe,) from privatised ``submissions`` of other people.

    They choose by the true ``popularity`` (universe,). Their objects are drawn independently,
    privatised by ``mechanism`` itself, counted by its own server, divided by their number and
    projected onto the simplex (``project``). RAPPOR's decoding gives 0 to objects that it does not
    select.

    Not claimed: calibration of an adversary who takes p̂ for the truth. The noise of p̂ makes
    objects popular that nobody chooses, and a strong adversary too modest where there are many rare
    objects. ``PoolInference(adversaries=("strong", "informed"), observations=(180,),
    popularity_submissions=N).outcomes(15000,
    …)``, mean confidence less share of right answers (± 0.003): strong −0.03 with N = 10^6 and
    −0.02 with 10^7 (two streams each), informed −0.002. The truth with Gaussian noise of the
    sketch's variance, projected, is as far off at 10^6, and not at 10^8: it is the noise alone.

    Raises:
        UsageError: a mechanism without a server here, no submissions, or a popularity that is
            negative or all 0.
    """
    p = np.asarray(popularity, np.float64)
    if p.ndim != 1 or not np.isfinite(p).all() or p.min() < 0 or not p.sum() > 0:
        raise UsageError(
            f"popularity of shape {p.shape}: one finite weight ≥ 0 for each object, not all 0"
        )
    if submissions < 1:
        raise UsageError(f"submissions={submissions}: an estimate needs at least 1")
    server = server_of(mechanism)
    ends = np.cumsum(p) / p.sum()
    ends[np.flatnonzero(p)[-1] :] = 1.0
    for start in range(0, submissions, _BLOCK):
        part = stream.child("block", start // _BLOCK)
        here = min(_BLOCK, submissions - start)
        objects = np.searchsorted(ends, part.child("objects").numpy().random(here), side="right")
        server.add(mechanism.privatize(objects, stream=part.child("reports")))
    return project(server.estimate(np.arange(len(p))) / submissions)


NON_PRIVATE = "non-private"
ADVERSARIES = {
    "weak": "takes all objects of a pool as equally popular",
    "strong": "estimates popularity from other people's privatised submissions",
    "informed": "knows the true popularity (Appendix A.3)",
    NON_PRIVATE: "sees every object in the clear, whose it is and when: "
    "what no mechanism and no policy would leave",
}


def check_adversaries(names: Sequence[str]) -> tuple[str, ...]:
    """The names, if they are some of ``ADVERSARIES``, each once.

    Raises:
        UsageError: none, an unknown one, or one twice.
    """
    if isinstance(names, str) or not names or len(set(names)) < len(names):
        raise UsageError(
            f"adversaries={names!r}: must be a list of at least one name, without repeats"
        )
    for name in names:
        if name not in ADVERSARIES:
            raise UsageError(f"adversary={name}: not known{nearest(name, ADVERSARIES)}")
    return tuple(names)


def popularities(
    names: Sequence[str],
    setting: Setting,
    mechanism: LocalMechanism,
    *,
    submissions: int,
    stream: Stream,
) -> dict[str, npt.NDArray[np.float64] | None]:
    """The popularity (universe,) that each adversary but the non-private one holds.

    None is uniform.

    Raises:
        UsageError: as ``popularity.estimate_popularity``, where a strong one is among them.
    """
    estimates: dict[str, npt.NDArray[np.float64] | None] = {}
    for name in names:
        if name == "weak":
            estimates[name] = None
        elif name == "strong":
            estimates[name] = estimate_popularity(
                mechanism, setting.popularity, stream=stream, submissions=submissions
            )
        elif name == "informed":
            estimates[name] = setting.popularity
    return estimates
