"""Reading the map: from the table that ``dpaudit run frontier`` measured to what one audit can see."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from dpaudit.types import BlindSpot, PowerPoint

__all__ = ["COLUMNS", "blind_spots", "frontier", "measured_curves", "parse", "read_table"]

COLUMNS = ("flaw", "dim", "samples", "size", "unit", "by", "found_low", "found_high")
_AUDITOR_CHOOSES = 0


@cache
def read_table() -> tuple[PowerPoint, ...]:
    """The table of the package: measured by ``dpaudit run frontier``, hardware in its first lines, the seed in its spec."""
    text = (files("dpaudit.audit.power") / "frontier.csv").read_text(encoding="utf-8")
    return parse(text.splitlines())


def parse(lines: Iterable[str]) -> tuple[PowerPoint, ...]:
    """Points from lines of CSV; lines that begin with # are comments."""
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return tuple(_point(row) for row in rows)


def _point(row: Mapping[str, str]) -> PowerPoint:
    return PowerPoint(
        flaw=row["flaw"],
        dim=int(row["dim"]),
        samples=int(row["samples"]),
        size=float(row["size"]),
        unit=row["unit"],
        by=row["by"],
        found_low=float(row["found_low"]),
        found_high=float(row["found_high"]),
    )


def frontier(*, dim: int | None, samples: int, table: Iterable[PowerPoint] | None = None) -> tuple[PowerPoint, ...]:
    """What an audit of ``samples`` values of dimension ``dim`` (None: the auditor chooses) finds nine times in ten.

    Between measured sample sizes, sizes are interpolated on logarithmic scales; above the largest its own are given, and
    for a dimension that was not measured those of the next larger one: both err towards seeing less. Below the smallest
    sample size, and above the largest dimension, nothing is known and nothing is returned for that flaw; nor, at d = 1,
    for a flaw of several coordinates.
    """
    points = read_table() if table is None else tuple(table)
    found = (_between(curve, samples) for curve in measured_curves(points, dim=dim).values())
    return tuple(p for p in found if p is not None)


def measured_curves(table: Iterable[PowerPoint], *, dim: int | None) -> dict[str, list[PowerPoint]]:
    """Of each flaw the measured points that hold for ``dim``, by sample size."""
    points = tuple(table)
    curves: dict[str, list[PowerPoint]] = {}
    for flaw in dict.fromkeys(p.flaw for p in points):
        own = [p for p in points if p.flaw == flaw]
        dims = sorted({p.dim for p in own})
        if dims == [_AUDITOR_CHOOSES]:
            wanted = dims
        else:
            wanted = [d for d in dims if d >= dim > 1] if dim else [d for d in dims if d == _AUDITOR_CHOOSES]
        if wanted:
            curves[flaw] = sorted((p for p in own if p.dim == wanted[0]), key=lambda p: p.samples)
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
    "correlation": "neighbouring values that hang together less than this",
    "shared component": "something that all coordinates of a vector share, smaller than this",
    "truncated tails": "a sampler that never goes beyond this or a larger value",
    "tail weight": "heavier tails than normal, with more degrees of freedom than this",
    "coarse noise": "noise rounded to more bits after the binary point than this",
    "variance along a direction": "one secret direction with less additional variance than this",
    "Gaussian pancake, small γ": "a pancake with a larger γ (a key holder then reads everything all the same)",
}


def blind_spots(points: Iterable[PowerPoint]) -> tuple[BlindSpot, ...]:
    """Points of the map in the words of a verdict."""
    return tuple(
        BlindSpot(test=f"simulated: {p.by}", flaw=p.flaw, size=p.size, unit=p.unit, says=_SAYS.get(p.flaw, ""))
        for p in points
    )
