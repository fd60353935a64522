"""How far the keyless search reaches: specimens of a pancake, found by the audit's own plug-in or not."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.spec import Cell
from dpaudit.interfaces import Stream
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit.studies.trials import interval
from dpaudit.types import Reference

__all__ = ["MEASURE", "measure", "recovered", "summary"]

_TEST = "keyless-search"
_RIGHT = 0.99  # |cosine| to the true direction from which a recovered one counts


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """``trials`` fresh keys at one ``[grid] case``, written ``lattice:d=24,beta=0.1,rows=20000,block=40,seconds=60``.

    ``rows`` vectors are drawn from the specimen at γ = 2√d (or ``gamma``); the search is told β and γ, goes up to
    BKZ-``block`` and has ``seconds`` of wall time. Found means confirmed on held-out rows, and a direction with |cosine| ≥
    0.99 to the key's, which the search never sees. Times are the search's own wall time, from its first row to the find.
    """
    del arm
    case = Reference.parse(cell.settings["grid"]["case"]).options
    d, rows, trials = int(case["d"]), int(case["rows"]), cell.settings["trials"]
    beta, block = float(case["beta"]), int(case["block"])
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    found: list[Mapping[str, Any]] = []
    cosines, wrong = [], 0
    for i in range(trials):
        secret = stream.child("key", i).bytes(32)
        key = PancakeKey.new(dim=d, beta=beta, secret=secret)
        noise = Pancake(key=key, sigma=1.0).sample(rows, d, stream=stream.child("noise", i)).numpy()
        details = recovered(
            noise,
            sigma=1.0,
            stream=KeyedStream.from_seed("keyless"),
            beta=beta,
            block=block,
            seconds=float(case["seconds"]),
        )
        if "w" in details:
            cosine = abs(float(np.dot(details["w"], key.direction)))
            if cosine >= _RIGHT:
                found.append(details)
                cosines.append(cosine)
            else:
                wrong += 1
    slowest = max(found, key=lambda one: float(one["seconds"]), default={})
    return {
        "d": d,
        "beta": beta,
        "gamma": 2 * math.sqrt(d),
        "rows": rows,
        "block": block,
        "found": interval(len(found), trials),
        "wrong": wrong,
        "lattice_rows": slowest.get("lattice_rows"),
        "reduction": slowest.get("reduction", f"none up to BKZ-{block}"),
        "seconds": median(float(one["seconds"]) for one in found) if found else None,
        "slowest": slowest.get("seconds"),
        "cosine": min(cosines) if cosines else None,
    }


def recovered(
    noise: npt.NDArray[np.float64], *, sigma: float, stream: Stream, beta: float, block: int, seconds: float
) -> Mapping[str, Any]:
    """What the audit's plug-in recovers from ``noise`` (n, d) of scale ``sigma``: its evidence's details, with ``w`` if any.

    It is told β, goes up to BKZ-``block`` and has ``seconds``.
    """
    law = Claim.parse(f"gaussian:sigma={sigma!r}")
    test = registry.load("tests", _TEST)(law, stream, beta=beta, block=block)
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
    far = ", ".join(f"β = {beta:g} up to d = {d}" for beta, d in sorted(reach.items(), reverse=True))
    return f"Without the key every specimen was found at γ = 2√d for {far or 'no cell'}; wrong directions confirmed: {wrong}."


MEASURE = Measure(run=measure, needs_arm=False, summary=summary)
