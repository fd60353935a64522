"""What a pancake does, by its paper's tables: error, precision, and what its key reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import torch

from dpaudit import registry
from dpaudit.accounting import (
    pancake_epsilon,
    pancake_epsilon_lower,
    pancake_epsilon_upper,
    peak_spacing,
    peak_width,
)
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.measure import Cell, Grid, Measure
from dpaudit.experiments.trials import interval, tensor_batches
from dpaudit.noise.gaussian import Gaussian
from dpaudit.protocols import MissingRecord
from dpaudit_studies.printed import beside_printed

__all__ = [
    "ERROR",
    "GAIN",
    "PRECISION",
    "PROFILE",
    "RECONSTRUCTION",
    "WHICH_BIN",
    "error",
    "gain",
    "precision",
    "profile",
    "reconstruction",
    "which_bin",
]


def error(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Mean L2 norm of each noise over ``trials`` draws, with 95 % intervals; σ√d; printed value."""
    trials, d = cell.settings["trials"], arm.host.dim
    out: dict[str, Any] = {"expected": arm.sigma * math.sqrt(d)}
    for name, source in (("gaussian", Gaussian(sigma=arm.sigma)), ("pancake", arm.source)):
        draws = (source.sample(1, d, stream=arm.stream.child(name, i)) for i in range(trials))
        norms = np.array([np.linalg.norm(one) for one in draws])
        spread = 1.96 * float(norms.std(ddof=1)) / math.sqrt(trials)
        mean = float(norms.mean())
        out[name] = {"value": mean, "low": mean - spread, "high": mean + spread}
    out["off"] = 100 * (out["pancake"]["value"] / out["expected"] - 1)
    setting = {"d": d, "epsilon": cell.settings["epsilon"], "pancake": out["pancake"]}
    return out | beside_printed("table4", setting, trials=trials)


ERROR = Measure(run=error)


def gain(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Success of both, and their paired difference with a 95 % normal interval.

    Only discordant rounds count.
    """
    trials = cell.settings["trials"]
    right = [0, 0]
    only = [0, 0]
    for batch in tensor_batches(arm, trials=trials, keys=cell.settings["keys"]):
        release = batch.release()
        hits = [
            batch.arm.attack({"name": name}).score(release, batch.pairs).argmax(1) == batch.truth
            for name in ("nearest-peak", "likelihood-ratio")
        ]
        right = [r + int(h.sum()) for r, h in zip(right, hits, strict=True)]
        first, second = hits
        only = [only[0] + int((first & ~second).sum()), only[1] + int((second & ~first).sum())]
    difference = (right[1] - right[0]) / trials
    spread = 1.96 * math.sqrt(max(sum(only) / trials - difference**2, 0.0) / trials)
    low, high = difference - spread, difference + spread
    return {
        "nearest": interval(right[0], trials),
        "likelihood": interval(right[1], trials),
        "difference": {"value": difference, "low": low, "high": high},
        "discordant": sum(only),
        "worse": bool(high < 0),
    }


def gain_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How often the likelihood ratio is better or worse, and by how much at best."""
    better = sum(row["difference"]["low"] > 0 for row in rows)
    worse = sum(bool(row["worse"]) for row in rows)
    best = max(rows, key=lambda row: float(row["difference"]["value"]))
    gain = 100 * best["difference"]["value"]
    where = f"d={best['d']}, β={best['beta']:g}, γ={best['gamma']:.4g}"
    return (
        f"The likelihood ratio is better than the nearest peak in {better} and worse in {worse} of "
        f"{len(rows)} cells (95 %, paired); its largest gain is {gain:.1f} points, "
        f"at {where}, ε={best['epsilon']:g}."
    )


GAIN = Measure(run=gain, summary=gain_summary)


class PrecisionGrid(Grid, frozen=True):
    """Query plus noise is rounded to ``dtype`` before the attack."""

    dtype: Literal["float64", "float32", "bfloat16", "integers"]


def precision(cell: Cell, arm: Arm) -> dict[str, Any]:
    """What rounding a release does to its phase along the key, and to the key holder's success.

    ``[grid] dtype`` is float64, float32, bfloat16 or integers: query plus noise is rounded to it
    before the attack. All in peak spacings: ``phase_error`` is the root mean square that rounding
    adds to what float64 released; ``phase_spread`` the root mean square distance from the nearest
    pancake (0.289 if nothing is left of them), to be compared with ``phase_width``.
    """
    trials = cell.settings["trials"]
    kind = cell.grid(PrecisionGrid).dtype
    law = {"sigma": arm.sigma, "beta": arm.attacker_key.beta, "gamma": arm.attacker_key.gamma}
    spacing = peak_spacing(**law)
    added = spread = 0.0
    right = 0
    for batch in tensor_batches(arm, trials=trials, keys=cell.settings["keys"]):
        exact = batch.release()
        rounded = exact.round() if kind == "integers" else exact.to(getattr(torch, kind)).double()
        w = torch.from_numpy(np.array(batch.arm.attacker_key.direction))
        added += float(((rounded - exact) @ w / spacing).square().sum())
        phase = (rounded - batch.query) @ w / spacing
        spread += float((phase - phase.round()).square().sum())
        attack = batch.arm.attack({"name": "likelihood-ratio"})
        right += int((attack.score(rounded, batch.pairs).argmax(1) == batch.truth).sum())
    return {
        "phase_error": math.sqrt(added / trials),
        "phase_spread": math.sqrt(spread / trials),
        "phase_width": peak_width(**law) / spacing,
        "success": interval(right, trials),
    }


def precision_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The key holder's best success, by released type."""
    best: dict[str, float] = {}
    for row in rows:
        best[row["dtype"]] = max(best.get(row["dtype"], 0.0), float(row["success"]["value"]))
    left = ", ".join(f"{name} {100 * value:.0f} %" for name, value in best.items())
    return f"The key holder's best success by released type (guessing: 50 %): {left}."


PRECISION = Measure(run=precision, grid=PrecisionGrid, summary=precision_summary)


def profile(cell: Cell, arm: Arm) -> dict[str, Any]:
    """ε at δ and its bounds, for a pair at distance Δ.

    The pair's fraction along the key is 1/4, or as near as Δ allows. ``lower`` is Theorem 4.2
    at that fraction, ``upper`` Theorem 4.4; ``exact`` the integrated profile with its error.
    """
    key = arm.attacker_key
    law = {"sigma": arm.sigma, "beta": key.beta, "gamma": key.gamma}
    delta, reach = cell.settings["delta"], arm.host.sensitivity
    spacing = peak_spacing(**law)
    along = min(0.25 * spacing, reach)
    exact = pancake_epsilon(
        delta, **law, along=along, across=math.sqrt(max(reach * reach - along * along, 0.0))
    )
    low, high = exact.value - exact.error, exact.value + exact.error
    shape = {"beta": key.beta, "gamma": key.gamma}
    return {
        "fraction": along / spacing,
        "lower": pancake_epsilon_lower(delta, **shape, fraction=along / spacing),
        "exact": {"value": exact.value, "low": low, "high": high},
        "upper": pancake_epsilon_upper(delta, **law, sensitivity=reach),
    }


def profile_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether the exact value lies between the paper's bounds."""
    inside = sum(r["lower"] <= r["exact"]["high"] and r["exact"]["low"] <= r["upper"] for r in rows)
    return f"The exact ε lies between the paper's bounds in {inside} of {len(rows)} cells."


PROFILE = Measure(run=profile, summary=profile_summary)

_COUNTS = 1000


class ReconstructionGrid(Grid, frozen=True):
    """How many counts in 0…999 are sought."""

    unknown: Annotated[int, msgspec.Meta(ge=1)]


def reconstruction(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Share of rounds in which all ``[grid] unknown`` counts in 0…999 are found; bits needed.

    One release per round; which bins are unknown, and their counts, are drawn afresh.
    """
    trials, d = cell.settings["trials"], arm.host.dim
    unknown = cell.grid(ReconstructionGrid).unknown
    reader = registry.load("attacks", "phase-reader")(key=arm.attacker_key, sigma=arm.sigma)
    right = trusted = wrongly = 0
    needed = available = 0.0
    for i in range(trials):
        stream = arm.stream.child("round", i)
        rng = stream.child("table").numpy()
        known = torch.from_numpy(rng.integers(0, _COUNTS, d)).double()
        index = torch.from_numpy(rng.choice(d, unknown, replace=False))
        release = arm.mitigation.release(known[None], arm.source, stream=stream)
        reading = reader.reconstruct_counts(release, known, index, bound=_COUNTS)
        hit = bool((torch.as_tensor(reading.counts).double() == known[index]).all())
        right += hit
        trusted += reading.trusted
        wrongly += reading.trusted and not hit
        needed, available = reading.bits_needed, reading.bits_available
    return {
        "success": interval(right, trials),
        "trusted": interval(trusted, trials),
        "wrongly_trusted": wrongly,
        "bits_needed": needed,
        "bits_available": available,
    }


def reconstruction_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How often the attack was sure, and wrong."""
    sure = sum(round(row["trusted"]["value"] * row["trials"]) for row in rows)
    wrong = sum(row["wrongly_trusted"] for row in rows)
    rounds = sum(row["trials"] for row in rows)
    return (
        f"In {sure:,} of {rounds:,} rounds the attack was sure of all counts, "
        f"and wrong in {wrong} of those."
    )


RECONSTRUCTION = Measure(
    run=reconstruction, grid=ReconstructionGrid, summary=reconstruction_summary
)


class WhichBinGrid(Grid, frozen=True):
    """How many releases of one query there are."""

    releases: Annotated[int, msgspec.Meta(ge=1)]


def which_bin(cell: Cell, arm: Arm) -> dict[str, Any]:
    """Success at first guess and the missing bin's median rank, from releases of one query."""
    trials, repeats, d = cell.settings["trials"], cell.grid(WhichBinGrid).releases, arm.host.dim
    right, ranks = 0, []
    for batch in tensor_batches(arm, trials=trials, keys=cell.settings["keys"]):
        attack = registry.load("attacks", "which-bin")(key=batch.arm.attacker_key, sigma=arm.sigma)
        base = batch.pairs[0, 0]
        for i in range(len(batch.pairs)):
            query = batch.pairs[i, 1].expand(repeats, d)
            stream = batch.stream.child("round", i)
            release = arm.mitigation.release(query, batch.arm.source, stream=stream)
            score = attack.score(release, MissingRecord(base)).sum(0)
            missing = int((batch.pairs[i, 0] - batch.pairs[i, 1]).argmax())
            rank = int((score > score[missing]).sum())
            ranks.append(rank)
            right += rank == 0
    return {
        "success": interval(right, trials),
        "rank": float(torch.tensor(ranks).float().median()) + 1,
        "chance": 1 / d,
    }


def which_bin_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The best and the worst cell."""
    low, high = (pick(rows, key=lambda row: float(row["success"]["value"])) for pick in (min, max))
    return (
        "The right one of d bins is named at first guess in "
        f"{100 * low['success']['value']:.1f} % (β={low['beta']:g}, d={low['d']}) to "
        f"{100 * high['success']['value']:.1f} % of rounds (β={high['beta']:g}, d={high['d']})."
    )


WHICH_BIN = Measure(run=which_bin, grid=WhichBinGrid, summary=which_bin_summary)
