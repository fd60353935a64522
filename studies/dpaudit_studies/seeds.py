"""How often the owner of noise that carries its seed reads a release of which nothing is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpaudit.errors import SpecError
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.measure import Cell, Measure
from dpaudit.experiments.trials import batches, interval
from dpaudit.numeric.arrays import to_numpy

__all__ = ["UNKNOWN_GRADIENT", "WHOLE_QUERY"]

_READER = "seed-reader"


def whole_query(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Share of releases from which all values are read, and of all values; wrong readings.

    One release per round, of a random one of two neighbours; the reader gets nothing else.
    """
    trials, right, values, wrong = cell.settings["trials"], 0, 0, 0
    if cell.settings["source"]["name"] != "seed-in-noise":
        raise SpecError("measure=whole-query: reads the source seed-in-noise only")
    for batch in batches(arm, trials=trials, keys=cell.settings["keys"]):
        reader: Any = batch.arm.attack({"name": _READER})
        reading = reader.read(to_numpy(batch.release()))
        same = reading.values == to_numpy(batch.query)
        right += int(same.all(1).sum())
        values += int(same.sum())
        wrong += int((reading.found & ~same.all(1)).sum())
    share = values / (trials * arm.host.dim)
    return {"success": interval(right, trials), "values": share, "wrong": wrong}


def whole_query_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The cell with the fewest."""
    least = min(rows, key=lambda row: float(row["success"]["value"]))
    rounds = least["trials"]
    return (
        f"The whole query is read from at least {round(least['success']['value'] * rounds):,} of "
        f"{rounds:,} releases."
    )


WHOLE_QUERY = Measure(run=whole_query, summary=whole_query_summary)


def unknown_gradient(cell: Cell, arm: Arm) -> dict[str, Any]:
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
        reading, noise = reader.unknown(release, norm=clip), release - query
        flipped = np.signbit(noise) != np.signbit(release)
        flips += int(flipped.sum())
        carriers += int(flipped[:, : reader.carriers].sum())
        norms = np.linalg.norm(query, axis=1)
        size += float((norms / np.linalg.norm(noise, axis=1)).sum())
        away = np.linalg.norm(reading.values - query, axis=1)[reading.found]
        right = away <= 1e-3 * norms[reading.found]
        read, wrong = read + int(right.sum()), wrong + int((~right).sum())
        off = max(off, float((away / norms[reading.found])[right].max(initial=0.0)))
    return {
        "success": interval(read, trials),
        "wrong": wrong,
        "flips": flips / (trials * dim),
        "carriers": carriers / (trials * reader.carriers),
        "size": size / trials,
        "off": off,
    }


def unknown_gradient_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Each ε with what was read."""
    return "Gradients read without a candidate: " + "; ".join(
        f"{round(row['success']['value'] * row['trials']):,} of {row['trials']:,} at "
        f"ε = {row['epsilon']:g}"
        for row in rows
    )


UNKNOWN_GRADIENT = Measure(run=unknown_gradient, summary=unknown_gradient_summary)
