"""Precision against covertness: who still reads a pancake in a numeric type, and who finds it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy
import torch

from dpaudit.accounting.hardness import blur, estimate
from dpaudit.experiments.arm import Arm, build_arm
from dpaudit.experiments.measure import Cell, Grid, Measure, Table
from dpaudit.experiments.trials import interval, tensor_batches
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.protocols import NoiseSource, Stream
from dpaudit.randomness import KeyedStream
from dpaudit_studies.keyless import RIGHT, children_cpu, recovered

__all__ = ["MEASURE", "Release", "blurred_beta", "form_of", "measure", "released", "summary"]

EPSILON, DELTA = 1.0, 1e-5
READS = 0.75  # success of the owner, the interval's lower end, from which it reads
_SIMULATED = 1000
_NARROW = 0.1  # of a spacing; phases spread less than this do not wrap


class Release(Table, frozen=True):
    """How values are released; scales are in units of the noise's σ.

    Noise is drawn in ``dtype`` and added to the query in float64, then smoothed by N(0, ``tau``²),
    rounded to multiples of ``step``, and rounded to ``dtype``. With ``weights`` it is not released:
    it is subtracted from weights of that root mean square, stored in ``dtype``, and the difference
    of the weights before and after is seen.

    ``host`` is histogram (``d`` bins, ``records`` records, by default one per bin) or gradient (a
    batch gradient of a small network, whose ``d`` is its own). ``keys`` fresh keys are searched
    for, up to BKZ-``block`` and ``seconds`` each; 0: not searched. ``searched`` is what the search
    sees: releases of the query zero, or of the host's query, less that query.
    """

    beta: float
    d: int = 0
    host: Literal["histogram", "gradient"] = "histogram"
    records: int = 0
    dtype: Literal["float64", "float32", "float16", "bfloat16"] = "float64"
    step: float = 0.0
    tau: float = 0.0
    weights: float = 0.0
    searched: Literal["zero", "query"] = "zero"
    block: int = 0
    keys: int = 0
    rows: int = 30_000
    seconds: float = 3600.0


class CovertnessGrid(Grid, frozen=True):
    """``case = [{ name = "release", d = 64, beta = 0.01, dtype = "float32", block = 60 }]``."""

    case: Release


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """The owner's success, and whether the audit's keyless search finds the key, at one case.

    Owner: ``trials`` rounds on two neighbours at ε = 1, δ = 1e-5, under four keys, by the
    likelihood ratio at the β that the type leaves (:func:`blurred_beta` of its own simulations).
    ``honest`` is what the best attacker wins against honest noise at the same pairs. Search: as in
    :mod:`dpaudit_studies.keyless`, with the β that the type leaves, on 30,000 rows; ``seconds`` are
    CPU seconds of its process, the median over keys, found or not. γ = 2√d throughout.
    """
    del arm
    case = cell.grid(CovertnessGrid).case
    release_arm = _arm(case, cell)
    gamma = release_arm.attacker_key.gamma
    read, honest, owner_beta = _owner(release_arm, case, cell.settings["trials"])
    smoothed = math.hypot(case.tau, case.weights * blur(case.dtype))
    expected = estimate(
        release_arm.host.dim, case.beta, gamma, dtype=case.dtype, step=case.step, tau=smoothed
    )
    lattice = expected.lattice
    return {
        "d": release_arm.host.dim,
        "beta": case.beta,
        "gamma": gamma,
        "form": form_of(case),
        "success": read,
        "honest": honest,
        "reads": read["low"] >= READS,
        "owner_beta": owner_beta,
        "expected_beta": expected.effective_beta,
        "log2_operations": expected.log2_operations,
        "estimated_block": lattice and lattice.block,
        **_search(release_arm, case),
    }


def form_of(case: Release) -> str:
    """The form of a release as text.

    >>> form_of(Release(name="release", beta=0.1, d=8, dtype="float32", tau=0.01))
    'float32, smoothed by 0.01 σ'
    """
    parts = [
        case.dtype,
        f"lattice of {case.step:g} σ" * bool(case.step),
        f"smoothed by {case.tau:g} σ" * bool(case.tau),
        f"difference of weights of {case.weights:g} σ" * bool(case.weights),
        f"{case.records:,} records" * bool(case.records),
    ]
    return ", ".join(filter(None, parts))


def _arm(case: Release, cell: Cell) -> Arm:
    host: dict[str, Any] = {"name": "dpsgd-gradient", "model": "cnn", "data": "synthetic"}
    if case.host == "histogram":
        host = {"name": "histogram", "table": "uniform", "bins": case.d}
        host["records"] = case.records or case.d
    settings = {
        "seed": cell.settings["seed"],
        "epsilon": EPSILON,
        "delta": DELTA,
        "calibration": "exact",
        "host": host,
        "key": {"beta": case.beta, "gamma": "2sqrtd"},
        "source": {"name": "pancake"},
        "mitigation": {"name": "none"},
    }
    return build_arm(settings, cell=cell.id)


def released(
    query: torch.Tensor, source: NoiseSource, case: Release, *, sigma: float, stream: Stream
) -> torch.Tensor:
    """What is seen of ``query`` (n, d) as :class:`Release` says, float64."""
    n, d = query.shape
    kind: torch.dtype = getattr(torch, case.dtype)
    drawn = torch.as_tensor(source.sample(n, d, stream=stream.child("noise"), dtype=kind))
    y = query.double() + drawn.double()
    if case.tau:
        y += case.tau * sigma * _normal(n, d, stream.child("own"))
    if case.step:
        y = (y / (case.step * sigma)).round() * (case.step * sigma)
    if case.weights:
        before = (case.weights * sigma * _normal(n, d, stream.child("weights"))).to(kind).double()
        return before - (before - y).to(kind).double()
    return y.to(kind).double()


def _normal(n: int, d: int, stream: Stream) -> torch.Tensor:
    return torch.from_numpy(stream.numpy().standard_normal((n, d)))


def blurred_beta(noise: npt.NDArray[np.float64], key: PancakeKey, *, sigma: float) -> float:
    """The β of a pancake whose phases spread as those of ``noise`` (n, d) along ``key``.

    From the root mean square where phases do not wrap, else from their resonance, which ends at
    1/√n: a β of about 1 then means that nothing is left.
    """
    phase = noise @ key.direction / Pancake(key=key, sigma=sigma).spacing
    spread = math.sqrt(float(np.square(phase - np.rint(phase)).mean()))
    if spread > _NARROW:
        resonance = max(abs(np.exp(2j * math.pi * phase).mean()), 1 / math.sqrt(len(phase)))
        spread = math.sqrt(-math.log(resonance) / 2) / math.pi
    return spread * math.sqrt(2 * math.pi)  # s = β·r/(γ√(2π)), and r/γ is 1 at γ = 2√d


def _owner(arm: Arm, case: Release, trials: int) -> tuple[dict[str, float], float, float]:
    """Success, what honest noise allows, and the median β of the keys' simulations."""
    right, honest, betas = 0, 0.0, list[float]()
    key, beta = None, 0.0
    for batch in tensor_batches(arm, trials=trials, keys=4):
        stream, sigma = batch.stream.child("release"), arm.sigma
        if batch.arm.attacker_key is not key:
            key = batch.arm.attacker_key
            query = batch.query[torch.arange(_simulated(arm)) % len(batch.query)]
            own = released(query, batch.arm.source, case, sigma=sigma, stream=stream.child("own"))
            beta = blurred_beta((own - query).numpy(), key, sigma=sigma)
            betas.append(beta)
        y = released(batch.query, batch.arm.source, case, sigma=sigma, stream=stream)
        knows = replace(batch.arm, key=key.at(beta=beta, gamma=key.gamma))
        scores = knows.attack({"name": "likelihood-ratio"}).score(y, batch.pairs)
        right += int((scores.argmax(1) == batch.truth).sum())
        apart = torch.linalg.vector_norm(batch.pairs[:, 1] - batch.pairs[:, 0], dim=1).numpy()
        honest += float(scipy.stats.norm.cdf(apart / 2 / (sigma * math.hypot(1, case.tau))).sum())
    return interval(right, trials), honest / trials, median(betas)


def _simulated(arm: Arm) -> int:
    """Releases that the owner simulates: a thousand, fewer of millions of values."""
    return max(64, min(_SIMULATED, (1 << 23) // arm.host.dim))


def _search(arm: Arm, case: Release) -> dict[str, Any]:
    """Found of how many keys, and what it took."""
    hits, cosines, seconds, betas = 0, list[float](), list[float](), list[float]()
    reductions, wrong = list[str](), 0
    for noise, key in _specimens(arm, case):
        betas.append(max(case.beta, blurred_beta(noise[:_SIMULATED], key, sigma=arm.sigma)))
        before = children_cpu()
        limits: dict[str, Any] = {"beta": betas[-1], "block": case.block, "seconds": case.seconds}
        own = KeyedStream.from_seed("keyless")
        details = recovered(noise, sigma=arm.sigma, stream=own, **limits)
        seconds.append(children_cpu() - before)
        cosine = abs(float(np.dot(details["w"], key.direction))) if "w" in details else 0.0
        if cosine >= RIGHT:
            hits += 1
            cosines.append(cosine)
            reductions.append(details["reduction"])
        elif "w" in details:
            wrong += 1
        elif not details.get("completed"):
            reductions.append("broke off" if details.get("broken") else "stopped by its time")
    return {
        "searched": case.keys,
        "found": hits if case.keys else None,
        "wrong": wrong,
        "told_beta": median(betas) if betas else None,
        "seconds": median(seconds) if seconds else None,
        "reduction": ", ".join(sorted(set(reductions))) or None,
        "up_to": f"BKZ-{case.block}" if case.keys else None,
        "cosine": min(cosines) if cosines else None,
    }


def _specimens(arm: Arm, case: Release) -> Iterator[tuple[npt.NDArray[np.float64], PancakeKey]]:
    """What the search sees of each key."""
    for i in range(case.keys):
        renewed = arm.with_key(i)
        stream = arm.stream.child("search", i)
        query = torch.zeros(case.rows, arm.host.dim, dtype=torch.float64)
        if case.searched == "query":
            query += torch.from_numpy(arm.host.neighbours(1, stream=stream.child("query"))[:, 0])
        y = released(query, renewed.source, case, sigma=arm.sigma, stream=stream.child("release"))
        yield (y - query).numpy(), renewed.attacker_key


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Cells in which the owner reads and the search finds nothing, and the smallest d of each."""
    both: dict[str, int] = {}
    for row in rows:
        if row["reads"] and row["searched"] and row["found"] == 0:
            both[row["form"]] = min(both.get(row["form"], row["d"]), row["d"])
    wrong = sum(row["wrong"] for row in rows)
    hidden = "; ".join(f"{form} from d = {d}" for form, d in both.items())
    return (
        f"The owner reads and the search finds nothing: {hidden or 'nowhere'} (smallest d that was "
        f"tried). Wrong directions confirmed: {wrong}."
    )


MEASURE = Measure(run=measure, grid=CovertnessGrid, needs_arm=False, summary=summary)
