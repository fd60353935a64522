"""The battery's plug-in: the keyless search as a test of a closed sampler."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.accounting.hardness import blur, measured
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.types import BlindSpot, Evidence, Interval
from dpaudit_attacks.keyless.plan import (
    Cell,
    Job,
    covered_cells,
    describe_cells,
    jobs,
    partial_cell,
)
from dpaudit_attacks.keyless.recovered import save
from dpaudit_attacks.keyless.reduction import installed_reducers, reducer
from dpaudit_attacks.keyless.search import CONFIRMED, Rows, Search

__all__ = ["KeylessSearch"]

_DIMS = range(2, 257)
_REMEDY = "pip install 'dpaudit[lattice]'"
_FASTER = "pip install 'dpaudit[blaster]'"
_SWEPT = (8, 12, 16, 24, 32, 48, 64, 96, 128)  # of those that an auditor who may choose draws

_MEASURED_DIM = 128  # thresholds were measured up to here
_FLOAT32 = math.sqrt(3) * blur("float32")  # of noise drawn so, in σ


def _measured_threshold(dim: int, seconds: float) -> dict[int, float]:
    betas = [
        cell.beta
        for cell in measured()
        if cell.dim >= dim and cell.found == cell.keys and cell.seconds <= seconds
    ]
    return {dim: max(betas)} if betas and reducer().name == "blaster" else {}


class KeylessSearch:
    """Looks for a Gaussian pancake without its key.

    Easy cases by numpy, the rest by lattice reduction.

    Null: the rows are independent N(0, I). Formal guarantee: p is super-uniform then (Hoeffding's
    bound on held-out rows, summed over every candidate;
    :class:`~dpaudit_attacks.keyless.search.Search`). Gaussian claims only; for others p = 1.
    ``update`` keeps at most 1,024 rows and 4d + 64 more of each d in 2…256 (of the auditor's first
    process), looks at the first 2^20 rows of each d, and starts nothing; ``search`` runs child
    processes until its deadline. Lattices are reduced by what is installed: BLASter or fpylll.

    Not claimed: anything where one w is not kept over the calls, where values are rounded or noise
    was added (both blind this search before they blind the holder of the key), or beyond the (d, β)
    that the evidence names.
    """

    looks_at = "a secret direction with evenly spaced peaks (the Gaussian pancake), without its key"
    harm = "hidden"
    causal_order = 8

    def __init__(
        self,
        claim: Claim,
        stream: Stream,
        *,
        block: int = 60,
        beta: float = 0.0,
        by: str = "",
        planned: float = 0.0,
    ) -> None:
        """Search up to BKZ-``block``.

        ``beta`` > 0: only that β, γ = 2√d, in one job. ``by``: the one reducer that is used.
        ``planned`` > 0: the plan is for that many seconds, whatever the deadline is.

        Raises:
            UsageError: no reducer has this name.
        """
        del stream
        self._applies = claim.family == "gaussian"
        self._block, self._beta, self._planned = block, beta, planned
        self._rows: dict[int, Rows] = {}
        self._search: Search | None = None
        self._reducers = (reducer(by),) if by else installed_reducers()

    def update(self, block: Block) -> None:
        d = block.z.shape[1]
        if not self._applies or block.process != 0 or d not in _DIMS:
            return
        if d not in self._rows:
            self._rows[d] = Rows(d)
        self._rows[d].add(block.z)

    def search(self, *, deadline: float) -> None:
        """Run the planned jobs until a candidate is confirmed, all are done, or time is up."""
        usable = {d: rows for d, rows in self._rows.items() if rows.enough}
        self._search = Search(usable)
        seconds = self._planned or max(0.0, deadline - time.monotonic())
        self._search.run(self._jobs(usable, seconds), deadline=deadline)

    def _jobs(self, rows: Mapping[int, Rows], seconds: float) -> Sequence[Job]:
        if self._beta and self._reducers:
            by = max(self._reducers, key=lambda one: one.most_rows).name
            return [
                Job("lattice", d, self._beta, 2 * math.sqrt(d), self._block, reducer=by)
                for d in rows
            ]
        shrink = {d: kept.shrink for d, kept in rows.items()}
        planned = jobs(shrink, seconds=seconds, reducers=self._reducers)
        return [job for job in planned if job.block <= self._block]

    @staticmethod
    def reach(*, dim: int | None, seconds: float) -> tuple[BlindSpot, ...]:
        """What a search of ``seconds`` on two cores completes at γ = 2√d, by what is installed.

        In dimension ``dim``, or in those that the auditor sweeps. From measured thresholds and
        costs to a factor of two (:mod:`~dpaudit_attacks.keyless.plan`); above d = 128 from the
        cells of :func:`dpaudit.accounting.hardness.measured` whose keys were all found in that
        time. One entry per dimension: the largest β.
        """
        spent, best = 0.0, dict[int, float]()
        dims = dict.fromkeys([dim] if dim else _SWEPT, 1.0)
        for job in jobs(dims, seconds=seconds, easy=False, reducers=installed_reducers()):
            spent += job.cost / 2
            if max(spent, job.cost) > seconds:
                continue
            if job.gamma < 3 * math.sqrt(job.d) and job.d <= _MEASURED_DIM:
                best[job.d] = max(best.get(job.d, 0.0), job.beta)
        if dim is not None and dim > _MEASURED_DIM:
            best |= _measured_threshold(dim, seconds)
        return tuple(
            BlindSpot(
                test="keyless-search",
                flaw=f"Gaussian pancake, γ = 2√d, d = {d}",
                size=beta,
                unit="β, or any smaller",
                says="a thicker pancake in this dimension; "
                "in more dimensions only thinner ones are found",
            )
            for d, beta in sorted(best.items())
        )

    @staticmethod
    def save(details: Mapping[str, Any], path: str | Path) -> None:
        """Write the recovered direction of a finding's ``details`` to a new file of mode 0600.

        ``recovered-direction:recovered=FILE,sigma=…`` is the attack that reads releases with it.

        Raises:
            KeyFileError: the file exists, or cannot be written.
        """
        save(details, path)

    def close(self) -> None:
        """Kill what still runs."""
        if self._search is not None:
            self._search.close()

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha  # a hit's p-value is below any share that a battery gives out
        if not self._applies:
            return Evidence(
                p=1.0, statistic=0.0, effect="not applicable: the search is for Gaussian claims"
            )
        search = self._search
        if search is None or not (search.completed or search.unfinished or search.best):
            return Evidence(
                p=1.0,
                statistic=0.0,
                effect="not searched: "
                + ("no time was given" if self._rows else "no rows of 2 to 256 values"),
                blind_spots=(self._blind_spot(()),),
            )
        if search.best is not None and search.p <= CONFIRMED:
            return self._finding(search)
        return Evidence(
            p=search.p,
            statistic=float(search.candidates),
            effect=self._effect(search),
            blind_spots=(self._blind_spot(self._covered_cells(search)),),
            details={
                "covered": [asdict(cell) for cell in self._covered_cells(search)],
                "completed": [asdict(job) for job in search.completed],
                "broken": [asdict(job) for job in search.broken],
                "candidates": search.candidates,
                "seconds": search.seconds,
            },
        )

    def _finding(self, search: Search) -> Evidence:
        candidate = search.best
        assert candidate is not None  # noqa: S101 for mypy: the caller looked
        e, d = candidate.estimate, candidate.job.d
        details: dict[str, Any] = {
            "d": d,
            "w": e.direction,
            "beta": e.beta,
            "beta_interval": [e.beta_low, e.beta_high],
            "gamma": e.gamma,
            "gamma_interval": [e.gamma_low, e.gamma_high],
            "angle": e.angle,
            "reduction": candidate.reduction,
            "reducer": candidate.job.reducer,
            "lattice_rows": candidate.rows,
            "seconds": candidate.seconds,
            "cpu_seconds": candidate.cpu_seconds,
            "search_seconds": search.seconds,
        }
        proof = _proof(details, self._rows[d].held_out)
        reads = ""
        if proof is not None:
            correct, shift = proof
            rows = len(self._rows[d].held_out)
            details["proof"] = {"told_apart": correct, "of": rows, "shift_in_sigma": shift}
            reads = f": {correct} of {rows} distinguished from a copy {shift:.2g} σ away"
        return Evidence(
            p=search.p,
            statistic=e.beta,
            effect=(
                f"recovered a Gaussian pancake at d={d}: β = {e.beta:.3g} "
                f"({e.beta_low:.3g}…{e.beta_high:.3g}), γ = {e.gamma:.4g}, its direction to "
                f"{e.angle:.1g} radians, by {candidate.reduction} in {candidate.seconds:.1f} s; "
                f"whoever holds it reads the releases{reads}"
            ),
            cause="a Gaussian pancake along a secret direction",
            cause_rank=8,
            interval=Interval(
                low=e.beta_low, high=e.beta_high, confidence=0.95, method="χ² of the phases"
            ),
            unit="β",
            details=details,
        )

    def _covered_cells(self, search: Search) -> tuple[Cell, ...]:
        """By completed searches, and by the completed part of those that the deadline ended."""
        parts = (
            partial_cell(job, stage, shrink=self._rows[job.d].shrink)
            for job, stage in search.unfinished
        )
        return covered_cells([*search.completed, *(part for part in parts if part is not None)])

    def _effect(self, search: Search) -> str:
        effect = f"searched {describe_cells(self._covered_cells(search)) or 'wide peaks only'}"
        if search.unfinished or search.waiting:
            effect += (
                f"; stopped by the time limit after {search.seconds:.0f} s "
                f"with {search.waiting} searches waiting"
            )
        if search.broken:
            effect += f"; {len(search.broken)} searches broke off"
        return effect + self._reducer_hint()

    def _reducer_hint(self) -> str:
        if not self._reducers:
            return f"; the lattice search was not run: no lattice reducer is installed ({_REMEDY})"
        if all(one.name == "fpylll" for one in self._reducers):
            most = self._reducers[0].most_rows
            return f"; by fpylll alone, lattices of at most {most} rows ({_FASTER} takes more)"
        return ""

    def _blind_spot(self, cells: Sequence[Cell]) -> BlindSpot:
        reached = describe_cells(cells)
        blurred = {cell.d: None for cell in cells if cell.beta < cell.gamma * _FLOAT32}
        return BlindSpot(
            test="keyless-search",
            flaw="a Gaussian pancake at γ ≥ 2√d",
            size=None,
            unit="",
            says=(
                (
                    f"beyond {reached}, or with a fresh direction at each call"
                    if reached
                    else "at any d and β"
                )
                + self._reducer_hint()
                + "; rounded releases hide it too"
                + "".join(
                    f"; float32 noise at d={d}, which is as if β ≥ "
                    f"{2 * math.sqrt(d) * _FLOAT32:.1g}"
                    for d in blurred
                )
            ),
        )


def _proof(details: Mapping[str, Any], held_out: npt.NDArray[np.float64]) -> tuple[int, float]:
    """How many held-out rows the recovered direction tells from the same a shift away.

    With the shift. The shift is half the spacing of the peaks along the
    direction, in σ; honest noise lets nobody be right in more than Φ(shift/2) of such rows, 53 % at
    γ = 8.
    """
    from dpaudit_attacks.keyless.proof import RecoveredDirection

    square = details["beta"] ** 2 + details["gamma"] ** 2
    length = math.sqrt(2 * math.pi) * details["gamma"] / square / 2
    shift = length * np.asarray(details["w"], dtype=np.float64)
    scores = RecoveredDirection(recovered=details, sigma=1.0).score(
        held_out, np.stack([np.zeros_like(shift), shift])
    )
    return int((scores[:, 0] > scores[:, 1]).sum()), length
