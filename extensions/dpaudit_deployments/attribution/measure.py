"""Audits of recorded ad-measurement reports: how often honest and flawed ones are findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.errors import SpecError
from dpaudit.experiments.measure import Cell, Grid, Measure, Table
from dpaudit.experiments.trials import interval
from dpaudit.randomness import KeyedStream
from dpaudit_deployments.attribution.records import Batch, EventRecord, Source
from dpaudit_deployments.attribution.registration import (
    SERVICE_EPSILON,
    Registration,
    SourceType,
    flip_probability,
    pick_rate,
    summary_claim,
)
from dpaudit_deployments.attribution.result import AttributionResult
from dpaudit_deployments.attribution.run import judge_attribution

__all__ = ["MEASURE", "event_sources", "measure", "summary", "summary_batches"]

Places = npt.NDArray[np.int64]
Numpy = np.random.Generator
ALPHA = 0.01
_SEED_PERIOD = 256
_BATCHES = 4
_FEWER = 5  # times fewer files with a flaw than honest ones


class File(Table, frozen=True):
    """Reports ``name`` of ``size`` sources or buckets with a ``flaw``, at the claimed ``epsilon``.

    ``name`` is navigation, event or summary. Of files with a flaw there are a fifth as many.
    """

    flaw: str
    epsilon: float
    size: int


class AttributionGrid(Grid, frozen=True):
    """Kinds of files."""

    file: File


def _response(rng: Numpy, truth: Places, registration: Registration, *, flip: float) -> Places:
    """Flip with probability ``flip`` to a uniform other output."""
    others = rng.integers(registration.states - 1, size=len(truth))
    return np.where(rng.random(len(truth)) < flip, others + (others >= truth), truth)


def _times(factor: float) -> Callable[[Numpy, Places, Registration], Places]:
    """The randomised response of ``factor`` times the claimed ε."""

    def draw(rng: Numpy, truth: Places, of: Registration) -> Places:
        flip = flip_probability(of.states, factor * of.epsilon)
        return _response(rng, truth, of, flip=flip)

    return draw


def _never_flips(rng: Numpy, truth: Places, of: Registration) -> Places:
    del rng, of
    return truth


def _missing(share: float) -> Callable[[Numpy, Places, Registration], Places]:
    """False outputs never are among the last ``share`` of all outputs (at least one)."""

    def draw(rng: Numpy, truth: Places, of: Registration) -> Places:
        out = _times(1.0)(rng, truth, of)
        allowed = min(of.states - 1, math.ceil((1 - share) * of.states))
        again = (out != truth) & (out >= allowed)
        out[again] = rng.integers(allowed, size=int(again.sum()))
        return out

    return draw


def _modulo(rng: Numpy, truth: Places, of: Registration) -> Places:
    """A draw of ⌈log2 k⌉ bits modulo k: low outputs are twice as likely."""
    outputs = rng.integers(1 << (of.states - 1).bit_length(), size=len(truth)) % of.states
    return np.where(rng.random(len(truth)) < pick_rate(of.states, of.epsilon), outputs, truth)


def _seeded(rng: Numpy, truth: Places, of: Registration) -> Places:
    """The same seed for every ``_SEED_PERIOD`` false outputs."""
    out = _times(1.0)(rng, truth, of)
    flipped = np.flatnonzero(out != truth)
    pool = rng.integers(of.states - 1, size=_SEED_PERIOD)
    others = pool[np.arange(len(flipped)) % _SEED_PERIOD]
    out[flipped] = others + (others >= truth[flipped])
    return out


def _spared(rng: Numpy, truth: Places, of: Registration) -> Places:
    """Sources with true reports are flipped half as often."""
    out = _times(1.0)(rng, truth, of)
    spared = (truth != 0) & (rng.random(len(truth)) < 0.5)
    return np.where(spared, truth, out)


EVENT_FLAWS: Mapping[str, Callable[[Numpy, Places, Registration], Places]] = {
    "none": _times(1.0),
    "ε 10 % too large": _times(1.1),
    "ε twice the claim": _times(2.0),
    "no noise": _never_flips,
    "one output is never drawn": _missing(0.0),
    "a tenth of outputs is never drawn": _missing(0.1),
    "modulo bias": _modulo,
    "a seed used again": _seeded,
    "sources with reports are spared": _spared,
}


def event_sources(
    flaw: str, *, registration: Registration, size: int, stream: KeyedStream
) -> list[Source]:
    """Sources of which half have true reports, uniform among all, with the flaw's outputs."""
    rng = stream.numpy()
    states = list(registration.index)
    truth = np.where(rng.random(size) < 0.5, 0, rng.integers(registration.states, size=size))
    outputs = EVENT_FLAWS[flaw](rng, truth, registration)
    return [
        Source(
            EventRecord(source=i, reported=list(states[r]), true=list(states[t])),
            registration, int(r), int(t),
        )
        for i, (r, t) in enumerate(zip(outputs.tolist(), truth.tolist(), strict=True))
    ]  # fmt: skip


def _laplace(rng: Numpy, n: int, scale: float) -> Places:
    stop = -math.expm1(-1 / scale)
    return rng.geometric(stop, n) - rng.geometric(stop, n)


def _scaled(factor: float) -> Callable[[Numpy, int, float], Places]:
    return lambda rng, n, scale: _laplace(rng, n, factor * scale)


def _rounded_laplace(rng: Numpy, n: int, scale: float) -> Places:
    return np.rint(rng.laplace(0, scale, n)).astype(np.int64)


def _grid(step: int) -> Callable[[Numpy, int, float], Places]:
    def draw(rng: Numpy, n: int, scale: float) -> Places:
        return np.rint(_laplace(rng, n, scale) / step).astype(np.int64) * step

    return draw


def _one_sided(rng: Numpy, n: int, scale: float) -> Places:
    return rng.geometric(-math.expm1(-1 / scale), n) - 1


def _no_noise(rng: Numpy, n: int, scale: float) -> Places:
    del rng, scale
    return np.zeros(n, dtype=np.int64)


def _gaussian(rng: Numpy, n: int, scale: float) -> Places:
    return np.rint(rng.normal(0, math.sqrt(2) * scale, n)).astype(np.int64)


SUMMARY_FLAWS: Mapping[str, Callable[[Numpy, int, float], Places]] = {
    "none": _laplace,
    "noise of ε 10 % too large": _scaled(1 / 1.1),
    "half the noise": _scaled(0.5),
    "twice the noise": _scaled(2.0),
    "no noise": _no_noise,
    "the same noise in each batch": _laplace,
    "one-sided geometric noise": _one_sided,
    "rounded to multiples of 16": _grid(16),
    "Gaussian of the same variance": _gaussian,
    "continuous Laplace, rounded": _rounded_laplace,
}


def summary_batches(flaw: str, *, epsilon: float, size: int, stream: KeyedStream) -> list[Batch]:
    """Four summary reports with ``size`` buckets together, the same ones in each."""
    rng, each = stream.numpy(), size // _BATCHES
    scale, draw = summary_claim(epsilon).scale, SUMMARY_FLAWS[flaw]
    noise = [draw(rng, each, scale) for _ in range(_BATCHES)]
    if flaw == "the same noise in each batch":
        noise = [noise[0]] * _BATCHES
    buckets = tuple(range(each))
    return [Batch(f"batch-{i}", buckets, values, each) for i, values in enumerate(noise)]


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """The share of files that are findings at α = 0.01, and the test that found most.

    ``trials`` honest files, and a fifth as many of each flaw.

    Raises:
        SpecError: an unknown flaw or kind of reports.
    """
    del arm
    file = cell.grid(AttributionGrid).file
    flaws = SUMMARY_FLAWS if file.name == "summary" else EVENT_FLAWS
    if file.flaw not in flaws:
        raise SpecError(f"flaw={file.flaw}: not known{registry.nearest(file.flaw, flaws)}")
    stream = cell.stream
    files = cell.settings["trials"]
    files = files if file.flaw == "none" else max(1, files // _FEWER)
    findings, by = 0, Counter[str]()
    for trial in range(files):
        audited = _audit_file(file, stream.child(trial))
        findings += audited.verdict == "finding"
        by.update(test.name for test in audited.tests if test.finding)
    return {
        "reports": file.name,
        **{name: getattr(file, name) for name in ("flaw", "epsilon", "size")},
        "files": files,
        "found": interval(findings, files),
        "by": by.most_common(1)[0][0] if by else "–",
    }


def _audit_file(file: File, stream: KeyedStream) -> AttributionResult:
    sources, batches = list[Source](), list[Batch]()
    files = stream.child("file")
    if file.name == "summary":
        batches = summary_batches(file.flaw, epsilon=file.epsilon, size=file.size, stream=files)
    elif file.name in get_args(SourceType):
        registration = Registration.default(cast("SourceType", file.name), epsilon=file.epsilon)
        sources = event_sources(file.flaw, registration=registration, size=file.size, stream=files)
    else:
        raise SpecError(f"file={file.name}: must be navigation, event or summary")
    epsilon = file.epsilon if batches else SERVICE_EPSILON
    seed = stream.child("audit").entropy().hex()
    return judge_attribution(sources, batches, epsilon=epsilon, alpha=ALPHA, seed=seed)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The honest files with a finding."""
    honest = [row for row in rows if row["flaw"] == "none"]
    files = sum(row["files"] for row in honest)
    findings = sum(round(row["found"]["value"] * row["files"]) for row in honest)
    return f"{findings:,} of {files:,} honest files are findings at α = {ALPHA:g}." if files else ""


MEASURE = Measure(run=measure, grid=AttributionGrid, needs_arm=False, summary=summary)
