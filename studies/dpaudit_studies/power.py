"""The smallest flaw of a kind that an audit of so many values finds nine times in ten."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.claims import Claim
from dpaudit.errors import SpecError
from dpaudit.experiments.measure import Cell, Grid, Measure
from dpaudit.experiments.trials import interval
from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.dependence import equicorrelated
from dpaudit_studies.zoo.digits import rounded
from dpaudit_studies.zoo.geometry import along, direction
from dpaudit_studies.zoo.laws import cut, scaled, shifted, student
from dpaudit_studies.zoo.specimen import Array, Draw, InProcessSampler, Make, each

__all__ = ["FLAWS", "MEASURE", "Flaw", "measure", "summary"]

ALPHA = 0.01
POWER = 0.9
_COARSE = 6  # audits at each size of the first search, of which all but one must find
_STEPS = 6
_FINER = 1.12  # what the size is raised by where the trials miss the power


@dataclass(frozen=True, slots=True)
class Flaw:
    """A kind of flaw by strength, from ``hard`` to find to ``easy``, which bracket the frontier.

    ``shown`` turns strength into the reported size, in ``unit``; ``tests`` are the families that
    test for it.
    """

    make: Callable[[float], Make]
    tests: tuple[str, ...]
    unit: str
    hard: float
    easy: float
    shown: Callable[[float], float] = float


def _ar1(strength: float) -> Make:
    def change(_: np.random.Generator, z: Array) -> Array:
        x = z.ravel()
        out = x.copy()
        out[1:] = math.sqrt(1 - strength**2) * x[1:] + strength * x[:-1]
        return out.reshape(z.shape)

    return each(change)


def _tail_threshold(probability: float) -> float:
    return float(-scipy.special.ndtri(probability / 2))


def _along(strength: float) -> Make:
    """Variance 1 + ``strength`` along one secret direction of each dimension."""

    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()

        def draw(n: int, d: int) -> Array:
            z = rng.standard_normal((n, d))
            if d > 1:
                w = direction(stream, d)
                z += np.outer((math.sqrt(1 + strength) - 1) * (z @ w), w)
            return z

        return draw

    return make


def _pancake(strength: float) -> Make:
    """A pancake with γ = 1/``strength`` and β = 0.01 along one secret direction of each dimension.

    Along it, x = (γ·k + β·g)/r with k a discrete Gaussian of parameter r = √(β²+γ²) over the
    integers, and all of it in units of 1/√(2π): the continuous LWE law (gaussian-pancake paper,
    Definition 3.1).
    """
    gamma, beta = 1 / strength, 0.01
    r = math.hypot(beta, gamma)
    reach = math.ceil(8 * r)
    k = np.arange(-reach, reach + 1)
    mass = np.exp(-math.pi * (k / r) ** 2)

    def law(rng: np.random.Generator, n: int) -> Array:
        peaks = rng.choice(k, size=n, p=mass / mass.sum()) * (gamma / r**2) * math.sqrt(2 * math.pi)
        return np.asarray(peaks + (beta / r) * rng.standard_normal(n))

    return along(law, least_dim=2)


_PLAIN = ("moments", "goodness-of-fit")
_TAILS = ("tails", "goodness-of-fit")
_DIRECTIONS = ("covariance", "hidden-direction")

FLAWS: Mapping[str, Flaw] = {
    "wrong scale": Flaw(lambda s: scaled(1 + s), _PLAIN, "% of the claimed scale", 1e-4, 0.1,
                        lambda s: 100 * s),
    "bias": Flaw(shifted, _PLAIN, "claimed standard deviations", 1e-4, 0.1),
    "correlation": Flaw(_ar1, ("correlation", "spectrum"), "correlation of neighbours", 2e-4, 0.1),
    "shared component": Flaw(equicorrelated, ("covariance", "projections"),
                             "correlation of all coordinates", 1e-5, 0.3),
    "truncated tails": Flaw(lambda s: cut(_tail_threshold(s)), _TAILS, "standard deviations", 1e-7,
                            0.05, _tail_threshold),
    "tail weight": Flaw(lambda s: student(1 / s, unit=True), _TAILS, "degrees of freedom of a t",
                        1e-4, 0.3, lambda s: 1 / s),
    "coarse noise": Flaw(rounded, ("granularity", "goodness-of-fit"), "bits after the point", 1e-10,
                         0.5, lambda s: -math.log2(s)),
    "variance along a direction": Flaw(_along, _DIRECTIONS, "% more variance", 1e-3, 4.0,
                                       lambda s: 100 * s),
    "Gaussian pancake, small γ": Flaw(_pancake, _DIRECTIONS, "γ (β = 0.01)", 0.05, 4.0,
                                      lambda s: 1 / s),
}  # fmt: skip


class PowerGrid(Grid, frozen=True):
    """A flaw by name, and an audit of so many values; ``dim`` 0 is the auditor's choice."""

    flaw: str
    samples: int
    dim: int


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """The size of a flaw that an audit finds (:class:`PowerGrid`).

    Found by halving on a logarithmic scale, then checked with ``trials`` fresh audits, and raised
    by 12 % until nine in ten of them find it; ``hits`` is the share in the last ``trials``. Only
    the families that look for the flaw are run, at the share of α = 0.01 that they have in the
    whole battery, so that the whole battery finds at least as often.

    Raises:
        SpecError: an unknown flaw.
    """
    del arm
    grid = cell.grid(PowerGrid)
    if grid.flaw not in FLAWS:
        raise SpecError(f"flaw={grid.flaw}: not known{registry.nearest(grid.flaw, FLAWS)}")
    flaw = FLAWS[grid.flaw]
    began = time.monotonic()
    trial = _Trial(flaw, grid, cell)
    low, high = math.log(flaw.hard), math.log(flaw.easy)
    for step in range(_STEPS):
        middle = (low + high) / 2
        if trial.findings(math.exp(middle), audits=_COARSE, label=step) >= _COARSE - 1:
            high = middle
        else:
            low = middle
    strength, trials = math.exp(high), cell.settings["trials"]
    hits = trial.findings(strength, audits=trials, label="check")
    while hits < POWER * trials and strength < flaw.easy:
        strength = min(strength * _FINER, flaw.easy)
        hits = trial.findings(strength, audits=trials, label=f"check {strength!r}")
    reached = hits >= POWER * trials
    return {
        "size": flaw.shown(strength) if reached else None,
        "unit": flaw.unit,
        "by": ", ".join(flaw.tests),
        "found": interval(hits, trials),
        "audit_seconds": (time.monotonic() - began) / trial.audits,
    }


class _Trial:
    """Audits of one flaw by size; each has its own randomness."""

    def __init__(self, flaw: Flaw, grid: PowerGrid, cell: Cell) -> None:
        self._flaw, self._grid = flaw, grid
        self._stream = cell.stream
        tests = (registry.load("tests", name) for name in registry.plugins("tests"))
        counted = sum(not getattr(test, "advisory", False) for test in tests)
        self._alpha = ALPHA * len(flaw.tests) / counted
        self.audits = 0

    def findings(self, strength: float, *, audits: int, label: int | str) -> int:
        """How many of ``audits`` find the flaw."""
        return sum(self._one(strength, self._stream.child(label, i)) for i in range(audits))

    def _one(self, strength: float, stream: KeyedStream) -> bool:
        self.audits += 1
        sampler = InProcessSampler(
            self._flaw.make(strength), name="flawed", stream=stream, dim=self._grid.dim or None
        )
        with sampler.open(timeout=60) as session:
            options = AuditOptions(
                samples=self._grid.samples,
                alpha=self._alpha,
                seed=stream.child("audit").entropy().hex(),
                tests=tuple(self._flaw.tests),
            )
            result = run_audit(session, claim=Claim.parse("gaussian:sigma=1"), options=options)
        return result.verdict == "finding"


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the largest sample sees."""
    most = max(row["samples"] for row in rows)
    listed = [
        f"{row['flaw']} {row['size']:.3g} {row['unit']}"
        for row in rows
        if row["samples"] == most and row["size"]
    ]
    return f"Found nine times in ten or more with {most:,} values: {'; '.join(listed)}."


MEASURE = Measure(run=measure, grid=PowerGrid, needs_arm=False, summary=summary)
