"""The detectability map: flaw sizes an audit finds with probability ≥ 0.9, by simulation."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from dpaudit.accounting import smoothing_tau
from dpaudit.codec import convert_value
from dpaudit.errors import UsageError
from dpaudit.types import BlindSpot, PowerPoint

__all__ = [
    "COLUMNS",
    "blind_spots",
    "frontier",
    "measured_curves",
    "parse",
    "propose_tau",
    "read_table",
]

COLUMNS = ("flaw", "dim", "samples", "size", "unit", "by", "found_low", "found_high")
_AUDITOR_CHOOSES = 0


@cache
def read_table() -> tuple[PowerPoint, ...]:
    """The packaged table, measured by ``dpaudit run frontier``, hardware in its first lines."""
    text = (files("dpaudit.audit") / "frontier.csv").read_text(encoding="utf-8")
    return parse(text.splitlines())


def parse(lines: Iterable[str]) -> tuple[PowerPoint, ...]:
    """Points from lines of CSV; lines that begin with # are comments."""
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return tuple(convert_value(row, PowerPoint) for row in rows)


def frontier(
    *, dim: int | None, samples: int, table: Iterable[PowerPoint] | None = None
) -> tuple[PowerPoint, ...]:
    """Flaw sizes found with probability ≥ 0.9 in ``samples`` values of dimension ``dim``.

    ``dim`` None: the auditor chooses. Between measured sample sizes, sizes are interpolated on
    logarithmic scales; above the largest, its own are given, and for a dimension that was not
    measured those of the next larger one: both err towards seeing less. Below the smallest sample
    size, and above the largest dimension, nothing is known and nothing is returned for that flaw;
    nor, at d = 1, for a flaw of several coordinates.
    """
    points = read_table() if table is None else tuple(table)
    interpolated = (_between(curve, samples) for curve in measured_curves(points, dim=dim).values())
    return tuple(p for p in interpolated if p is not None)


def measured_curves(table: Iterable[PowerPoint], *, dim: int | None) -> dict[str, list[PowerPoint]]:
    """For each flaw, the measured points that hold for ``dim``, by sample size."""
    points = tuple(table)
    curves: dict[str, list[PowerPoint]] = {}
    for flaw in dict.fromkeys(p.flaw for p in points):
        own = [p for p in points if p.flaw == flaw]
        dims = sorted({p.dim for p in own})
        suitable = [d for d in dims if (d >= dim > 1 if dim else d == _AUDITOR_CHOOSES)]
        if dims == [_AUDITOR_CHOOSES]:
            suitable = dims
        if suitable:
            curves[flaw] = sorted((p for p in own if p.dim == suitable[0]), key=lambda p: p.samples)
    return curves


def _between(points: list[PowerPoint], samples: int) -> PowerPoint | None:
    below = [p for p in points if p.samples <= samples]
    above = [p for p in points if p.samples > samples]
    if not below:
        return None
    left = below[-1]
    size = left.size
    if above:
        right = above[0]
        share = math.log(samples / left.samples) / math.log(right.samples / left.samples)
        size = math.exp((1 - share) * math.log(left.size) + share * math.log(right.size))
    return replace(left, samples=samples, size=size, found_low=None, found_high=None)


_SAYS = {
    "wrong scale": "noise that is too small or too large by less than this",
    "bias": "a mean closer to 0 than this",
    "correlation": "neighbouring values correlated less than this",
    "shared component": "something that all coordinates of a vector share, smaller than this",
    "truncated tails": "a sampler that never goes beyond this or a larger value",
    "tail weight": "heavier tails than normal, with more degrees of freedom than this",
    "coarse noise": "noise rounded to more bits after the binary point than this",
    "variance along a direction": "one secret direction with less additional variance than this",
    "Gaussian pancake, small γ": "a pancake with a larger γ (a key holder still reads everything)",
}


def blind_spots(points: Iterable[PowerPoint]) -> tuple[BlindSpot, ...]:
    """Points of the map as blind spots of a verdict."""
    return tuple(
        BlindSpot(
            test=f"simulated: {p.by}",
            flaw=p.flaw,
            size=p.size,
            unit=p.unit,
            says=_SAYS.get(p.flaw, ""),
        )
        for p in points
    )


_FLAW = "Gaussian pancake, small γ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """Smoothing of ``tau``·σ against all pancakes with γ ≥ ``gamma_min``, ``by`` a theorem.

    The L2 error grows by the factor ``l2_factor``.
    """

    assumes: str
    gamma_min: float
    tau: float
    l2_factor: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The smoothing to add to an audit of ``samples`` values.

    Pancakes with γ ≤ ``gamma_seen`` are found with probability ≥ 0.9 (None: the map has none), for
    the β that the map was measured at (``seen``, in its words). ``covers[0]`` is the proposal,
    which covers the rest; the others rest on more than the audit. ``caveats`` say what that does
    not include.
    """

    dim: int | None
    samples: int
    eta: float
    gamma_seen: float | None
    seen: str
    covers: tuple[Cover, ...]
    caveats: tuple[str, ...]

    @property
    def says(self) -> str:
        """The proposal in one sentence."""
        best = self.covers[0]
        detected = (
            "no pancake is known to be found"
            if self.gamma_seen is None
            else f"pancakes with γ up to {self.gamma_seen:.4g} are found"
        )
        rest = "everything" if self.gamma_seen is None else "the rest"
        return (
            f"{detected}; smoothing τ = {best.tau:.4g} (L2 × {best.l2_factor:.4g}) "
            f"covers {rest}: {best.by}"
        )


def propose_tau(
    points: Iterable[PowerPoint], *, dim: int | None, samples: int, eta: float = 1e-6
) -> Proposal:
    """The least smoothing that covers what an audit of ``samples`` values may miss.

    γ_min is the largest γ at which ``points`` (the map) has a pancake found with probability ≥ 0.9,
    read as :func:`frontier` reads it. τ brings η to ``eta`` there for every β (``smoothing_tau``);
    where no τ ≤ σ does, τ = σ is proposed: the defender's own noise is then a Gaussian mechanism of
    its own, for any source.

    Raises:
        UsageError: eta not strictly between 0 and 1.
    """
    if not 0 < eta < 1:
        raise UsageError(f"eta={eta}: must lie strictly between 0 and 1; take e.g. 1e-6")
    here = {p.flaw: p for p in frontier(dim=dim, samples=samples, table=points)}.get(_FLAW)
    covers, caveats = [], []
    if here is not None:
        covers.append(_cover("the audit alone", here.size, eta))
        caveats.append(
            f"Seen: {here.unit}, by {here.by}, nine times in ten. "
            "Narrower pancakes look the same to these tests; wider ones (at d = 64 from "
            "β = 0.5 on) may pass at such a γ, and the theorem does not cover them there."
        )
        if dim is None:
            caveats.append(
                "The auditor chose d, which a sampler may notice: one with pancakes only in the "
                "dimension of the releases is not seen this way. Give that dimension."
            )
    else:
        covers.append(_own_noise("the audit alone"))
        where = f"d = {dim:,}" if dim else "samplers whose dimension the auditor chooses"
        caveats.append(f"The map has no pancake that is found at {where} with {samples:,} values.")
    if dim and (here is None or 2 * math.sqrt(dim) > here.size):
        assumes = "γ ≥ 2√d: the attacker wants the hardness of continuous LWE"
        covers.append(_cover(assumes, 2 * math.sqrt(dim), eta))
    if covers[0].tau == 1.0:
        caveats.append(
            "An attacker who gives up the hardness guarantee may take a γ that is not seen and "
            f"needs τ near σ; below γ = {_least_served(eta):.3g} no τ ≤ σ reaches η = {eta:g}. "
            "τ = σ is what two servers cost, and covers any source that does not see the query."
        )
    return Proposal(
        dim=dim,
        samples=samples,
        eta=eta,
        gamma_seen=None if here is None else here.size,
        seen="" if here is None else here.unit,
        covers=tuple(covers),
        caveats=tuple(caveats),
    )


def _cover(assumes: str, gamma: float, eta: float) -> Cover:
    try:
        tau = smoothing_tau(eta, sigma=1.0, gamma=gamma)
    except UsageError:
        return _own_noise(assumes)
    by = f"smoothing theorem at η = {eta:g}"
    return Cover(assumes=assumes, gamma_min=gamma, tau=tau, l2_factor=math.hypot(1.0, tau), by=by)


def _own_noise(assumes: str) -> Cover:
    by = "the defender's own noise alone"
    return Cover(assumes=assumes, gamma_min=0.0, tau=1.0, l2_factor=math.sqrt(2), by=by)


def _least_served(eta: float) -> float:
    """The smallest γ at which some τ ≤ σ reaches ``eta``."""
    low, high = 0.0, 64.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if _cover("", middle or 1e-3, eta).gamma_min else (middle, high)
    return high
