"""Which cells of the search are tried, the likeliest find for the least time first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dpaudit_attacks.keyless.candidates import SCANNED_DIM
from dpaudit_attacks.keyless.form import rows_for
from dpaudit_attacks.keyless.reduction import reducer
from dpaudit_attacks.keyless.reduction.interface import Reducer

__all__ = ["Cell", "Job", "beta_reached", "covered_cells", "describe_cells", "jobs", "partial_cell"]

# Per reducer: BKZ block → hardness ln²(1/β)/(4·d·ln(γ'/β)), about the ln of the root-Hermite factor
# that is needed. fpylll: of specimens just at the threshold the search found, from 20,000 rows
# each, 11 of 11 (block 30; d = 24, 32) and 48 of 48 (10 at block 30, d = 8; 38 at block 40, d = 12
# … 32). Block 54 was measured at BKZ-50: 15 of 16 (d = 12, 16, 24), and d = 64 once.
_HARDNESS = {
    "fpylll": {30: 0.0150, 40: 0.0122, 54: 0.0104},
    "blaster": {0: 0.0152, 44: 0.0134, 48: 0.01275, 52: 0.0118, 60: 0.0108},
}
_LARGEST_BETA = 0.25
_SMALLEST_BETA = 1e-9  # double precision keeps phases to 1e-13
_WORTH = 1.1  # a larger block must reach this much more β
_CORES = 2
_WIDE = 3  # dimensions, the smallest not scanned, of which the larger γ̂ is planned with the rest
_TIMES = (2.0, 20.0)  # γ̂/√d: the least of the pancake's own guarantee, and far above


@dataclass(frozen=True, slots=True)
class Job:
    """One child process: dimension d, all β up to ``beta`` and γ up to ``gamma``.

    Reduced by ``reducer`` up to BKZ-``block``, with ``rows`` rows (0: the best number). ``kind`` is
    "easy" (numpy alone; β, γ and block are then 0) or "lattice", which begins with the easy part if
    ``easy``. ``cost`` is about its seconds on a core.
    """

    kind: str
    d: int
    beta: float = 0.0
    gamma: float = 0.0
    block: int = 0
    cost: float = 0.0
    rows: int = 0
    reducer: str = "fpylll"
    easy: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """What completed searches covered: dimension d, all β up to ``beta`` at all γ up to ``gamma``.

    Of pancakes at the bound nine in ten or more were found where that was measured (up to d = 128);
    beyond, the thresholds are extrapolated.
    """

    d: int
    beta: float
    gamma: float


def partial_cell(job: Job, stage: str, *, shrink: float) -> Job | None:
    """What an unfinished ``job`` completed before ``stage``: the same with a smaller block and β.

    None if that is nothing. ``shrink`` as for :func:`beta_reached`.
    """
    name, _, block = stage.partition("-")
    if job.kind != "lattice" or name != "BKZ":
        return None
    done = max((one for one in _HARDNESS[job.reducer] if one < int(block)), default=None)
    if done is None:
        return None
    by = reducer(job.reducer)
    beta = beta_reached(job.d, gamma=job.gamma, block=done, shrink=shrink, by=by)
    return None if beta is None else replace(job, block=done, beta=min(beta, job.beta))


def covered_cells(completed: Sequence[Job]) -> tuple[Cell, ...]:
    """The cells of these jobs that no other one contains, by d and γ."""
    lattice = [job for job in completed if job.kind == "lattice"]
    cells = {Cell(job.d, job.beta, job.gamma) for job in lattice}
    most = {
        cell
        for cell in cells
        if not any(
            other != cell
            and other.d == cell.d
            and other.beta >= cell.beta
            and other.gamma >= cell.gamma
            for other in cells
        )
    }
    return tuple(sorted(most, key=lambda cell: (cell.d, cell.gamma)))


def describe_cells(cells: Sequence[Cell]) -> str:
    """Cells by γ/√d and d: "d=8 (β ≤ 0.2), d=12 (β ≤ 0.1) at γ ≤ 2√d"."""
    by_times: dict[float, list[str]] = {}
    for cell in cells:
        times = round(cell.gamma / math.sqrt(cell.d), 3)
        by_times.setdefault(times, []).append(f"d={cell.d} (β ≤ {cell.beta:.2g})")
    return "; ".join(
        f"{', '.join(each)} at γ ≤ {times:g}√d" for times, each in sorted(by_times.items())
    )


def _hardness(d: int, beta: float, gamma: float, shrink: float, rows: int) -> float:
    return math.log(beta) ** 2 / (4 * d * math.log(gamma * shrink * math.sqrt(rows / d) / beta))


def beta_reached(
    d: int, *, gamma: float, block: int, shrink: float = 1.0, by: Reducer | None = None
) -> float | None:
    """The largest β that BKZ-``block`` reaches in dimension d, at most 0.25.

    None where that is below 1e-9. ``shrink`` is the length of the rows in the lattice, in units of
    √d; ``by`` reduces, in as many rows as it takes (None: fpylll, in any number).
    """
    hardness = _HARDNESS["fpylll" if by is None else by.name][block]
    most_rows = math.inf if by is None else by.most_rows

    def within(beta: float) -> bool:
        rows = rows_for(d, beta=beta, gamma=gamma, shrink=shrink)
        return rows <= most_rows and _hardness(d, beta, gamma, shrink, rows) >= hardness

    low, high = math.log(_SMALLEST_BETA), math.log(_LARGEST_BETA)
    if not within(_SMALLEST_BETA):
        return None
    if within(_LARGEST_BETA):
        return _LARGEST_BETA
    for _ in range(12):
        middle = (low + high) / 2
        if within(math.exp(middle)):
            low = middle
        else:
            high = middle
    return math.exp(low)


def _fpylll_cost(n: int, block: int) -> float:
    """Seconds on one core (2026), to a factor of two: LLL, then tours of BKZ."""
    return (
        0.4
        + 0.4 * math.pow(n / 100, 4.5)
        + 0.8 * math.pow(n / 100, 3) * math.pow(2, (block - 30) / 6)
    )


def _blaster_cost(n: int, block: int) -> float:
    """The same for BLASter: LLL and deep LLL, then all tours up to ``block``."""
    return 0.25 + 3.5 * math.pow(n / 347, 3.5) + _BLASTER_TOURS[block] * math.pow(n / 347, 3)


_BLASTER_TOURS = {0: 0.0, 44: 6.0, 48: 13.0, 52: 38.0, 60: 680.0}  # seconds at 347 rows
_COST = {"fpylll": _fpylll_cost, "blaster": _blaster_cost}


def jobs(
    dims: Mapping[int, float],
    *,
    seconds: float = 0.0,
    easy: bool = True,
    reducers: Sequence[Reducer] = (),
) -> list[Job]:
    """All jobs for dimensions d with their ``shrink``, those first that two cores finish in time.

    Of each d at γ̂ = 2√d, the least that the pancake's own guarantee allows (it covers smaller γ),
    and of the three smallest above 3 at γ̂ = 20√d, one job each: the largest β at which all of them
    together fit into ``seconds``; the two costliest first if they fit, as they decide when all end,
    then the cheapest. After these the others, cheapest first. Where a β needs more rows than a
    reducer takes, it gets the largest β that fits: while there is a reducer, no dimension is left
    out.
    """
    if not reducers:
        return [Job("easy", d, cost=_easy_cost(d)) for d in sorted(dims)] if easy else []
    ladders = {(d, times): _ladder(d, dims[d], times, reducers) for d in dims for times in _TIMES}
    wide = [d for d in sorted(dims) if d > SCANNED_DIM][:_WIDE]
    at_once = {(d, _TIMES[0]) for d in dims} | {(d, _TIMES[1]) for d in wide}
    left = _CORES * seconds - sum(_easy_cost(d) for d in dims if easy)
    step = _highest({name: ladders[name] for name in sorted(at_once)}, left)
    first = sorted((ladders[name][i] for name, i in step.items()), key=lambda job: job.cost)
    later = [job for name, ladder in ladders.items() for job in ladder[step.get(name, -1) + 1 :]]
    if first and first[-1].cost <= seconds:
        first = [*first[: -_CORES - 1 : -1], *first[:-_CORES]]
    if easy:
        first = [_with_easy(job) for job in first]
    return [*first, *sorted(later, key=lambda job: job.cost)]


def _with_easy(job: Job) -> Job:
    """``job`` with the easy part of its d before it, if it is the one at the least γ̂."""
    if job.gamma > _TIMES[0] * math.sqrt(job.d):
        return job
    return replace(job, easy=True, cost=job.cost + _easy_cost(job.d))


def _easy_cost(d: int) -> float:
    return 0.1 + (0.4 if d <= SCANNED_DIM else 0.0)


_Name = tuple[int, float]


def _highest(ladders: Mapping[_Name, Sequence[Job]], seconds: float) -> dict[_Name, int]:
    """The step of each ladder to climb to: what gains most d²·ln β per second, while there is time.

    A larger d counts for more, as an attacker would choose it. No job takes more than one core's
    share of the seconds, unless it is the first step.
    """
    step = dict.fromkeys(ladders, 0)
    left = seconds - sum(ladder[0].cost for ladder in ladders.values())

    def gain(name: _Name) -> float:
        now, then = ladders[name][step[name]], ladders[name][step[name] + 1]
        more = then.cost - now.cost
        if more > left or then.cost > seconds / _CORES:
            return 0.0
        return now.d**2 * math.log(then.beta / now.beta) / more

    while open_ := [each for each in ladders if step[each] + 1 < len(ladders[each]) and gain(each)]:
        best = max(open_, key=gain)
        left -= ladders[best][step[best] + 1].cost - ladders[best][step[best]].cost
        step[best] += 1
    return step


def _ladder(d: int, shrink: float, times: float, reducers: Sequence[Reducer]) -> list[Job]:
    """Jobs for one d and γ̂ = times·√d that each reach a larger β for more time; one at least."""
    gamma = times * math.sqrt(d)
    possible: list[Job] = []
    for by in reducers:
        for block in _HARDNESS[by.name]:
            beta = beta_reached(d, gamma=gamma, block=block, shrink=shrink, by=by)
            if beta is not None:
                n = rows_for(d, beta=beta, gamma=gamma, shrink=shrink)
                cost = _COST[by.name](n, block) * (1.0 if times == _TIMES[0] else 2.0)
                possible.append(Job("lattice", d, beta, gamma, block, cost, n, by.name))
    planned: list[Job] = []
    for job in sorted(possible, key=lambda job: job.cost):
        if job.beta >= _WORTH * max((one.beta for one in planned), default=0.0):
            planned.append(job)
    if planned:
        return planned
    by = max(reducers, key=lambda one: one.most_rows)
    n = min(by.most_rows, rows_for(d, beta=_SMALLEST_BETA, gamma=gamma, shrink=shrink))
    block = min(_HARDNESS[by.name])
    return [Job("lattice", d, _SMALLEST_BETA, gamma, block, _COST[by.name](n, block), n, by.name)]
