"""How often the key holder reads the noise on a gradient, knowing its clipping norm and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpaudit.errors import SpecError
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import batches, interval
from dpaudit.vectors.arrays import to_numpy

__all__ = ["MEASURE", "measure", "summary"]


def measure(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Share of releases whose noise is read, and with it the gradient; no candidates are known.

    ``flips`` is the share of values whose sign in the release is not that of their noise,
    ``carriers`` the same of the first 128, which carry the nonce; ``size`` is the gradient's norm
    over that of its noise; ``off`` the largest distance of a gradient that was read from the true
    one, relative to its norm.

    Raises:
        SpecError: another source than seed-in-noise with ``code = "signs"``, or a host without a
            clipping norm.
    """
    source, clip = cell.settings["source"], getattr(arm.host, "clip", None)
    if source["name"] != "seed-in-noise" or source.get("code") != "signs" or clip is None:
        raise SpecError(
            "measure=unknown-gradient: reads the source seed-in-noise with code=signs on the host "
            "dpsgd-gradient only"
        )
    trials, dim = cell.settings["trials"], arm.host.dim
    read = wrong = flips = carriers = 0
    off = size = 0.0
    for batch in batches(arm, trials=trials, keys=cell.settings["keys"]):
        reader: Any = batch.arm.attack({"name": "seed-reader"})
        release, query = (to_numpy(x).astype(np.float64) for x in (batch.release(), batch.query))
        found, noise = reader.unknown(release, norm=clip), release - query
        flipped = np.signbit(noise) != np.signbit(release)
        flips += int(flipped.sum())
        carriers += int(flipped[:, : reader.carriers].sum())
        norms = np.linalg.norm(query, axis=1)
        size += float((norms / np.linalg.norm(noise, axis=1)).sum())
        away = np.linalg.norm(found.values - query, axis=1)[found.found]
        right = away <= 1e-3 * norms[found.found]
        read, wrong = read + int(right.sum()), wrong + int((~right).sum())
        off = max(off, float((away / norms[found.found])[right].max(initial=0.0)))
    return {
        "success": interval(read, trials),
        "wrong": wrong,
        "flips": flips / (trials * dim),
        "carriers": carriers / (trials * reader.carriers),
        "size": size / trials,
        "off": off,
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Each ε with what was read."""
    return "Gradients read without a candidate: " + "; ".join(
        f"{round(row['success']['value'] * row['trials']):,} of {row['trials']:,} at "
        f"ε = {row['epsilon']:g}"
        for row in rows
    )


MEASURE = Measure(run=measure, summary=summary)
