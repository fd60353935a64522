"""Whether releases of one call depend on each other, which no bound here allows for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy

__all__ = ["ASSUMPTION_LEVEL", "dependence"]

ASSUMPTION_LEVEL = 1e-3
"""Of each test of an assumption: how often an audit in which it holds is inconclusive for that test."""
_COLUMNS = 2
_ENOUGH = 10.0
"""Values other than the commonest one that a call should have on average, for mean ranks to be taken as normal."""
_CHECKS = 2 * 2 + 2 * (_COLUMNS + 1)

_MIX = np.uint64(0x9E3779B97F4A7C15)

Array = npt.NDArray[np.float64]


def dependence(calls: tuple[Sequence[Array], Sequence[Array]]) -> str:
    """How releases of one call depend on each other, in words; nothing where no dependence is seen.

    ``calls`` has for each neighbour the releases (n, k) of each call; the i-th calls of both were made one after the
    other. Three things are looked at:

    - at each neighbour, are releases that occur more than once within one call more often than across calls;
    - are equal releases at the same place of two successive calls more often than at places next to each other, as from
      a generator that is seeded anew in every call;
    - do the two neighbours' i-th calls differ in location or spread by more than independent releases would (mean ranks
      of the first columns and of the row means, and of their distances from the median). Slow drift, which moves both
      calls alike, is no dependence.

    Null: releases are independent, with one law at each neighbour. Guarantee: something is said with probability at most
    10^-3 then (binomial tails; χ² where it is a good approximation, not looked at elsewhere; Bonferroni). Not claimed:
    dependence within a call that leaves calls alike, or one too weak to be seen.
    """
    level = ASSUMPTION_LEVEL / _CHECKS
    pairs = [(a, b) for a, b in zip(*calls, strict=True) if len(a) and len(b)]
    if len(pairs) < 2:
        return ""
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    for blocks in sides:
        repeated, inside = _repeated_within(blocks)
        if _binomial_tail(inside, repeated, _same_call(blocks)) <= level:
            return f"{inside:,} of {repeated:,} releases that occur more than once occur within one call only"
        same, beside = _aligned(blocks)
        if _binomial_tail(same, same + beside, 0.5) <= level:
            return f"{same:,} releases are those at the same place of the call before"
    if min(_calls_differ(a, b, sides) for a, b in zip(_columns(sides[0]), _columns(sides[1]), strict=True)) <= level:
        return "releases of one call are more alike than releases of different calls"
    return ""


def _binomial_tail(k: int, n: int, p: float) -> float:
    return float(scipy.special.bdtrc(k - 1, n, p)) if k else 1.0


def _keys(rows: Array) -> npt.NDArray[np.uint64]:
    """Rows (n, k) as whole numbers (n,) that are equal where the rows are, and hardly ever elsewhere."""
    bits = np.ascontiguousarray(rows).view(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(31))) * _MIX
    mixed ^= mixed >> np.uint64(29)
    weights = np.arange(1, 2 * rows.shape[1], 2, dtype=np.uint64) * _MIX
    return np.asarray((mixed * weights).sum(axis=1, dtype=np.uint64))


def _same_call(blocks: Sequence[Array]) -> float:
    """P(another release is of the same call as a given one), at most."""
    sizes = np.array([len(block) for block in blocks])
    return float(sizes.max() / sizes.sum())


def _repeated_within(blocks: Sequence[Array]) -> tuple[int, int]:
    """How many different releases occur more than once, and how many of them in one call only."""
    keys = np.concatenate([_keys(block) for block in blocks])
    call = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    _, inverse, times = np.unique(keys, return_inverse=True, return_counts=True)
    often = times > 1
    if not often.any():
        return 0, 0
    first, last = np.full(len(times), len(blocks)), np.full(len(times), -1)
    np.minimum.at(first, inverse, call)
    np.maximum.at(last, inverse, call)
    return int(often.sum()), int((often & (first == last)).sum())


def _aligned(blocks: Sequence[Array]) -> tuple[int, int]:
    """Equal releases at the same place of two successive calls, and at places next to each other."""
    same = beside = 0
    for i in range(0, len(blocks) - 1, 2):
        a, b = _keys(blocks[i]), _keys(blocks[i + 1])
        n = min(len(a), len(b)) - 1
        same += int(np.count_nonzero(a[:n] == b[:n]))
        beside += int(np.count_nonzero(a[:n] == b[1 : n + 1]))
    return same, beside


def _columns(blocks: Sequence[Array]) -> list[Array]:
    """Numbers (n,) of all releases by which calls are compared."""
    k = blocks[0].shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        columns = [np.concatenate([x[:, j] for x in blocks]) for j in range(min(_COLUMNS, k))]
        columns += [np.concatenate([x.mean(axis=1) for x in blocks])] if k > 1 else []
        columns += [np.abs(column - np.median(column)) for column in columns]
    return [np.nan_to_num(column) for column in columns]


def _calls_differ(first: Array, second: Array, sides: Sequence[Sequence[Array]]) -> float:
    """p-value of: the differences of the neighbours' mean ranks in their i-th calls vary by chance only.

    1 where there are too few different values for the approximation.
    """
    means, variances = [], []
    for values, blocks in zip((first, second), sides, strict=True):
        ranks, untied = _ranks(values)
        if untied * len(values) / 3 < _ENOUGH * len(blocks):
            return 1.0
        sizes = np.array([len(block) for block in blocks])
        means.append(np.add.reduceat(ranks, np.cumsum(sizes) - sizes) / sizes)
        variances.append(untied / 12 / sizes)
    difference, weight = means[1] - means[0], 1 / (variances[0] + variances[1])
    centre = float((weight * difference).sum() / weight.sum())
    return float(scipy.special.chdtrc(len(weight) - 1, float((weight * (difference - centre) ** 2).sum())))


def _ranks(values: Array) -> tuple[Array, float]:
    """Ranks in 0…1, ties sharing their middle, and 1 − Σ(ties/n)³: 12 times their variance."""
    n = len(values)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    start = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    times = np.diff(np.append(start, n))
    ranks = np.empty(n)
    ranks[order] = np.repeat((start + (times + 1) / 2) / n, times)
    return ranks, 1 - float(np.sum((times / n) ** 3))
