"""The primal lattice attack: a short vector of a quadratic form shows the hidden direction.

The form is on Z^n (:mod:`~dpaudit_attacks.keyless.form`); a reducer shortens its vectors k
(:mod:`~dpaudit_attacks.keyless.reduction.interface`), and u = (Xᵀ)⁺k.

Two choices make it cheap. The n rows of *least norm* of all that were drawn go in: det C shrinks
with them, at no cost in e, since e does not depend on the row (a hundred rows of 10^5 at d = 24 are
0.6 times as long). Rows shorter than 2 stay out: at γ = 2√d their ⟨x, u⟩ would round to 0 (that
matters for d < 10). And n is no larger than it must be
(:func:`~dpaudit_attacks.keyless.form.rows_for`).

A β̂ above the true β is no loss (k only gets shorter), so one search covers all β up to its own;
the same for γ̂.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dpaudit.errors import UsageError
from dpaudit_attacks.keyless.candidates import SHORTEST, refine, resonance
from dpaudit_attacks.keyless.form import Array, Form, rows_for
from dpaudit_attacks.keyless.reduction import reducer
from dpaudit_attacks.keyless.reduction.interface import Reducer, Stage, Whole

__all__ = ["SHORTEST_ROW", "Candidate", "Reduction", "find_direction"]

SHORTEST_ROW = 2.0
_PAIRED = 5  # of the first basis vectors, sums and differences are looked at too


def _with_pairs(k: Whole) -> Whole:
    pairs = [
        k[i] + sign * k[j]
        for i in range(min(_PAIRED, len(k)))
        for j in range(i)
        for sign in (1, -1)
    ]
    return np.concatenate([k, pairs])


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposed u = f·w (d,), its resonance on rows outside the lattice, and what it took."""

    u: Array
    score: float
    reduction: str
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the lattice is reduced, and of how many rows it is.

    The ``samples`` rows of least norm enter it (None: the best number for β and γ, or all there
    are). It is reduced up to BKZ-``block``, ``by`` a reducer (None: what is installed; above its
    most rows it gets as many as it takes).
    """

    samples: int | None = None
    block: int = 40
    by: Reducer | None = None


_DEFAULT = Reduction()


def find_direction(
    x: Array,
    *,
    beta: float,
    gamma: float,
    reduction: Reduction = _DEFAULT,
    check: Array | None = None,
    resume: Stage | None = None,
    keep: Callable[[Stage], None] | None = None,
) -> Iterator[Candidate]:
    """Search the hidden direction in normalised rows x (N, d).

    Yields the best candidate of each stage of reduction. Candidates are ranked by their resonance
    on ``check`` (m, d), or on x without it, and refined there; |u| < 0.25 scores 0 (see
    :mod:`~dpaudit_attacks.keyless.candidates`). Nothing is confirmed: for that see
    :func:`~dpaudit_attacks.keyless.candidates.confirm` and rows that are in neither x nor
    ``check``. Stop reading when satisfied. ``keep`` gets each stage before its candidate;
    ``resume`` continues from one, for the same rows, β and γ.

    Raises:
        UsageError: fewer rows than the lattice needs (d + 2), or β, γ not above 0.
        MissingExtraError: no reducer is installed.
        ReductionFailed: floating point was not precise enough.
    """
    d, samples = x.shape[1], reduction.samples
    for name, value in (("beta", beta), ("gamma", gamma)):
        if not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value}: must be a finite number > 0, e.g. 0.1")
    began = time.monotonic()
    norm = np.einsum("ij,ij->i", x, x)
    usable = np.flatnonzero(norm >= SHORTEST_ROW**2)
    if min(len(usable), samples or len(x)) < d + 2:
        raise UsageError(
            f"rows={len(usable)}, samples={samples}: the lattice needs at least d + 2 = {d + 2} "
            "rows of norm 2 or more; draw more rows"
        )
    order = usable[np.argsort(norm[usable])]
    if samples is None:
        shrink = math.sqrt(float(norm[order[: 4 * d]].mean()) / d)
        samples = rows_for(d, beta=beta, gamma=gamma, shrink=shrink)
    by = reduction.by or reducer()
    rows = x[order[: min(samples, len(usable), by.most_rows)]]
    judge = x if check is None else check
    inverse = np.linalg.pinv(rows).T
    form = Form(rows, gamma=gamma)
    for stage in by.stages(form, beta=beta, block=reduction.block, resume=resume):
        if keep is not None:
            keep(stage)
        u = _with_pairs(stage.k) @ inverse
        score = np.where(np.linalg.norm(u, axis=1) >= SHORTEST, resonance(judge, u), 0.0)
        best = int(score.argmax())
        yield Candidate(
            refine(judge, u[best]),
            float(score[best]),
            stage.name,
            len(rows),
            time.monotonic() - began,
        )
