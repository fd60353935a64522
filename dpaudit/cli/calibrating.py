"""``dpaudit frontier --calibrate``: the smoothing that covers what an audit may miss."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dpaudit.audit.power import propose_tau
from dpaudit.codec import to_dict
from dpaudit.experiments.results import Column, MeasurementsResult
from dpaudit.provenance import collect
from dpaudit.types import PowerPoint

__all__ = ["calibration"]

_COLUMN_WORDS = (
    Column(key="assumes", label="assumption", format="text"),
    Column(key="gamma_min", label="covers γ ≥", format="number"),
    Column(key="tau", label="τ/σ", format="number"),
    Column(key="l2_factor", label="L2 error ×", format="number"),
    Column(key="by", label="by", format="text"),
    Column(key="mitigation", label="mitigation", format="text"),
)


def calibration(
    points: Iterable[PowerPoint], *, dim: int | None, samples: int, eta: float
) -> MeasurementsResult:
    """The proposal as a document of measurements, with the ``proposal`` and its ``caveats``."""
    found = propose_tau(points, dim=dim, samples=samples, eta=eta)
    where = f"d = {dim:,}" if dim else "d chosen by the auditor"
    rows = [
        {**to_dict(cover), "mitigation": f"smoothing:tau={_up(cover.tau):g}"}
        for cover in found.covers
    ]
    return MeasurementsResult(
        name="frontier",
        title=f"Smoothing behind an audit of {samples:,} values ({where}, η = {eta:g})",
        story="The first row covers what the audit may miss; "
        f"the others rest on the assumption in their first column. {' '.join(found.caveats)}",
        command=f"dpaudit frontier --calibrate --eta {eta:g}{f' --dim {dim}' if dim else ''} "
        f"--samples {samples:g}",
        columns=_COLUMN_WORDS,
        figures=(),
        rows=tuple(rows),
        misses=(),
        summary=f"{found.says}.".replace("pancakes", "Pancakes", 1).replace(
            "no pancake", "No pancake", 1
        ),
        cells=(),
        proposal={k: v for k, v in to_dict(found).items() if k not in ("covers", "caveats")},
        caveats=tuple(found.caveats),
        provenance=to_dict(collect(seed="none", plugins=())),
    )


def _up(tau: float) -> float:
    """Round up to four digits."""
    digit = 10.0 ** (math.floor(math.log10(tau)) - 3)
    return math.ceil(tau / digit - 1e-9) * digit
