"""How far the keyless search reaches: specimens of a pancake for the audit's own plug-in."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.accounting.hardness import Measured
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.experiments.measure import Cell, Grid, Measure, Table
from dpaudit.experiments.trials import interval
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream

__all__ = ["MEASURE", "RIGHT", "children_cpu", "measure", "recovered", "summary"]

_TEST = "keyless-search"
RIGHT = 0.99  # |cosine| to the true direction from which a recovered one counts


class Lattice(Table, frozen=True):
    """One case: ``rows`` vectors of ``d`` values at β, BKZ up to ``block``, and ``seconds``.

    With ``planned`` the search is not given β: it tries what the audit plans in so many seconds.
    ``by`` is the reducer, else what is installed.
    """

    d: int
    beta: float
    rows: int
    block: int
    seconds: float
    planned: float = 0.0
    by: str = ""


class KeylessGrid(Grid, frozen=True):
    """``case = [{ name = "lattice", d = 24, beta = 0.1, rows = 20000, block = 40 }]``."""

    case: Lattice


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """``trials`` fresh keys at one ``[grid] case`` (:class:`Lattice`).

    The specimen's vectors are at γ = 2√d; the search is given β and γ, or neither (``planned``).
    Found means confirmed on held-out rows, and a direction with |cosine| ≥ 0.99 to the key's, which
    the search never sees. ``seconds`` are wall time of the search that found it, from its first row
    to the find, ``cpu_seconds`` its CPU time, and ``all_cpu_seconds`` that of all processes until
    then. ``estimated_seconds`` is the model of :mod:`dpaudit.accounting.hardness` at these rows and
    block.
    """
    del arm
    case, trials = cell.grid(KeylessGrid).case, cell.settings["trials"]
    stream = cell.stream
    recoveries: list[Mapping[str, Any]] = []
    cosines, wrong, spent = [], 0, list[float]()
    limits = {name: getattr(case, name) for name in ("block", "seconds", "planned", "by")}
    for i in range(trials):
        secret = stream.child("key", i).bytes(32)
        key = PancakeKey.new(dim=case.d, beta=case.beta, secret=secret)
        source = Pancake(key=key, sigma=1.0)
        noise = source.sample(case.rows, case.d, stream=stream.child("noise", i))
        before = children_cpu()
        beta, own = 0.0 if case.planned else case.beta, KeyedStream.from_seed("keyless")
        details = recovered(noise, sigma=1.0, stream=own, beta=beta, **limits)
        if "w" in details:
            cosine = abs(float(np.dot(details["w"], key.direction)))
            if cosine >= RIGHT:
                recoveries.append(details)
                cosines.append(cosine)
                spent.append(children_cpu() - before)
            else:
                wrong += 1

    def middle(name: str) -> float | None:
        return median(float(one[name]) for one in recoveries) if recoveries else None

    slowest = max(recoveries, key=lambda one: float(one["seconds"]), default={})
    return {
        "d": case.d,
        "beta": case.beta,
        "gamma": 2 * math.sqrt(case.d),
        "told": not case.planned,
        "rows": case.rows,
        "block": case.block,
        "found": interval(len(recoveries), trials),
        "wrong": wrong,
        "lattice_rows": slowest.get("lattice_rows"),
        "reduction": slowest.get("reduction", f"none up to BKZ-{case.block}"),
        "seconds": middle("seconds"),
        "slowest": slowest.get("seconds"),
        "cpu_seconds": middle("cpu_seconds"),
        "all_cpu_seconds": median(spent) if recoveries else None,
        "estimated_seconds": _estimated(case, slowest) if recoveries else None,
        "cosine": min(cosines) if cosines else None,
    }


def children_cpu() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _estimated(case: Lattice, recovery: Mapping[str, Any]) -> float:
    """What the estimate gives for the lattice and reduction that found the direction."""
    return Measured(
        dim=case.d,
        beta=case.beta,
        gamma=2 * math.sqrt(case.d),
        rows=int(recovery["lattice_rows"]),
        reduction=str(recovery["reduction"]),
        seconds=0.0,
        found=1,
        keys=1,
        reducer={"blaster": "BLASter"}.get(str(recovery["reducer"]), str(recovery["reducer"])),
        source="keyless-frontier",
    ).estimated_seconds


def recovered(
    noise: npt.NDArray[np.float64],
    *,
    sigma: float,
    stream: Stream,
    beta: float,
    block: int,
    seconds: float,
    planned: float = 0.0,
    by: str = "",
) -> Mapping[str, Any]:
    """What the audit's plug-in recovers from ``noise`` (n, d) of scale ``sigma``.

    Its evidence's details, with ``w`` if any. It is given β (0: it plans for ``planned`` seconds),
    BKZ up to ``block``, ``seconds``, and the reducer ``by``.
    """
    law = Claim.parse(f"gaussian:sigma={sigma!r}")
    test = registry.load("tests", _TEST)(
        law, stream, beta=beta, block=block, by=by, planned=planned
    )
    test.update(SampleBlock(0, noise, claim=law, spread=stream.numpy()))
    try:
        test.search(deadline=time.monotonic() + seconds)
        details: Mapping[str, Any] = test.evidence(alpha=0.001).details
    finally:
        test.close()
    return details


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest d at each β at which all specimens were found."""
    reach: dict[float, int] = {}
    for row in rows:
        if row["found"]["value"] == 1:
            reach[row["beta"]] = max(reach.get(row["beta"], 0), row["d"])
    wrong = sum(row["wrong"] for row in rows)
    far = ", ".join(
        f"β = {beta:g} up to d = {d}" for beta, d in sorted(reach.items(), reverse=True)
    )
    return (
        f"Without the key every specimen was found at γ = 2√d for {far or 'no cell'}; "
        f"wrong directions confirmed: {wrong}."
    )


MEASURE = Measure(run=measure, grid=KeylessGrid, needs_arm=False, summary=summary)
