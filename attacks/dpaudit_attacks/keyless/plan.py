"""Which cells of the search are tried, the likeliest find for the least time first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpaudit_attacks.keyless.candidates import SCANNED_DIM
from dpaudit_attacks.keyless.lattice import MOST_ROWS, rows_for

__all__ = ["Job", "beta_reached", "jobs"]

# BKZ block → hardness ln²(1/β)/(4·d·ln(γ'/β)), about the ln of the root-Hermite factor that is
# needed. Of specimens just at the threshold the search found, from 20,000 rows each, 11 of 11
# (block 30; d = 24, 32) and 48 of 48 (10 at block 30, d = 8; 38 at block 40, d = 12 … 32). Block 54
# was measured at BKZ-50: 15 of 16 (d = 12, 16, 24), and d = 64 once.
_HARDNESS = {30: 0.0150, 40: 0.0122, 54: 0.0104}
_LARGEST_BETA = 0.25
_SMALLEST_BETA = 1e-6
_WORTH = 1.1  # a larger block must reach this much more β


@dataclass(frozen=True, slots=True)
class Job:
    """One child process: dimension d, all β up to ``beta`` and γ up to ``gamma``.

    Reduced up to BKZ-``block``. ``kind`` is "easy" (numpy alone; β, γ and block are then 0) or
    "lattice". ``cost`` is about its seconds on a core.
    """

    kind: str
    d: int
    beta: float = 0.0
    gamma: float = 0.0
    block: int = 0
    cost: float = 0.0


def _hardness(d: int, beta: float, gamma: float, shrink: float) -> float:
    n = rows_for(d, beta=beta, gamma=gamma, shrink=shrink)
    return math.log(beta) ** 2 / (4 * d * math.log(gamma * shrink * math.sqrt(n / d) / beta))


def beta_reached(d: int, *, gamma: float, block: int, shrink: float = 1.0) -> float | None:
    """The largest β that BKZ-``block`` reaches in dimension d, at most 0.25.

    None where that is below 1e-6. ``shrink`` is the length of the rows in the lattice, in units of
    √d.
    """
    low, high = math.log(_SMALLEST_BETA), math.log(_LARGEST_BETA)
    wanted = _HARDNESS[block]
    if _hardness(d, math.exp(low), gamma, shrink) < wanted:
        return None
    if _hardness(d, math.exp(high), gamma, shrink) >= wanted:
        return _LARGEST_BETA
    for _ in range(12):
        middle = (low + high) / 2
        if _hardness(d, math.exp(middle), gamma, shrink) >= wanted:
            low = middle
        else:
            high = middle
    return math.exp(low)


def _cost(n: int, block: int) -> float:
    """Seconds on one core (2026), to a factor of two: LLL, then tours of BKZ."""
    return (
        0.4
        + 0.4 * math.pow(n / 100, 4.5)
        + 0.8 * math.pow(n / 100, 3) * math.pow(2, (block - 30) / 6)
    )


def jobs(dims: dict[int, float], *, easy: bool = True, lattice: bool = True) -> list[Job]:
    """All jobs for dimensions d with their ``shrink``, cheapest first.

    γ̂ is 2√d, the least that the pancake's own guarantee allows, which covers smaller ones; then
    20√d.
    """
    planned = [Job("easy", d, cost=0.3 + d / 1000 + (d <= SCANNED_DIM)) for d in dims if easy]
    for d, shrink in dims.items() if lattice else ():
        for times in (2.0, 20.0):
            gamma, before = times * math.sqrt(d), 0.0
            for block in _HARDNESS:
                beta = beta_reached(d, gamma=gamma, block=block, shrink=shrink)
                if beta is None or beta < _WORTH * before:
                    continue
                n = rows_for(d, beta=beta, gamma=gamma, shrink=shrink)
                if n > MOST_ROWS:
                    continue
                planned.append(
                    Job(
                        "lattice",
                        d,
                        beta,
                        gamma,
                        block,
                        _cost(n, block) * (1.0 if times == 2 else 2.0),
                    )
                )
                before = beta
    return sorted(planned, key=lambda job: job.cost)
