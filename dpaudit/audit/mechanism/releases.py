"""Releases at two neighbours: drawn in turns, tested for independence, of any kind as numbers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.mechanism.encoding import Encoding, Raw
from dpaudit.audit.options import Progress
from dpaudit.audit.progress import TimeLimit
from dpaudit.audit.result import MechanismResult
from dpaudit.errors import SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.protocols import Dataset, Facts, Reply, Request, Session
from dpaudit.results.text import one_line

__all__ = [
    "ASSUMPTION_LEVEL",
    "EncodedReleases",
    "Releases",
    "dependence",
    "draw_releases",
    "release_block",
    "same_width",
    "turns",
]

_LARGEST_BLOCK = 1 << 16
_LARGEST_TIMED = 1 << 10
_PAIRS = 16
"""Minimum number of turns of each half."""
_MOST_NUMBERS = 1 << 28
"""Maximum of numbers kept (2 GiB)."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Releases:
    """Releases at the two neighbours, to learn from and to count.

    ``late`` says why there are fewer than asked for. Shape (n, k) each; if they were timed, the
    last column is the seconds of the call. ``sizes`` has the number from each call, in order: those
    to learn from and those to count, at each neighbour; empty if each release took its own call.
    """

    learn: tuple[Array, Array]
    count: tuple[Array, Array]
    late: str
    sizes: tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]] = (([], []), ([], []))

    @property
    def calls(self) -> tuple[list[Array], list[Array]]:
        """All releases by call, at each neighbour: views, shape (n, k) each."""
        blocks: tuple[list[Array], list[Array]] = ([], [])
        for half, sizes in zip((self.learn, self.count), self.sizes, strict=True):
            for side in (0, 1):
                if sizes[side]:
                    blocks[side].extend(np.split(half[side], np.cumsum(sizes[side])[:-1]))
        return blocks


def draw_releases(
    mechanism: Session,
    neighbours: tuple[Array, Array],
    *,
    samples: int,
    limit: TimeLimit,
    rng: np.random.Generator,
    learning: bool = True,
    timed: bool = False,
    progress: Progress | None = None,
) -> Releases:
    """Draw about ``samples`` releases at each neighbour, in alternating blocks in random order.

    The first half, to learn from, has as many at each (none without ``learning``: all are counted).
    In the second half a fair coin decides for every release at which neighbour it is made; after
    every pair of blocks that is exactly so, and the time ``limit`` ends drawing only there. A block
    takes the mechanism one call.

    ``timed`` releases take one call each, in random order: anything else that slows the machine
    down, for however long, then affects both neighbours alike.

    Raises:
        UsageError: more numbers than fit into 2 GiB, or calls of this mechanism cannot be timed.
        SamplerError: the mechanism failed, or the first half was not finished in time.
    """
    if timed and "releases in calls" not in mechanism.facts.accepts:
        raise UsageError(
            f"mechanism={mechanism.name}: its calls cannot be timed; "
            "choose an attack on releases alone"
        )
    half = samples // 2 if learning else samples
    pairs = max(_PAIRS, -(-half // (_LARGEST_TIMED if timed else _LARGEST_BLOCK)))
    blocks = [b for b in np.diff(np.linspace(0, half, pairs + 1).round().astype(int)).tolist() if b]
    halves: list[list[list[Array]]] = [[[], []], [[], []]]
    done, width, late = 0, 0, ""
    for counting in (False, True) if learning else (True,):
        for block in blocks:
            if late:
                break
            second = int(rng.binomial(2 * block, 0.5)) if counting else block
            sizes = (2 * block - second, second)
            pair: list[list[Array]] = [[], []]
            try:
                for side, n in turns(sizes, rng=rng, timed=timed):
                    rows = release_block(mechanism, neighbours[side], n, limit=limit, timed=timed)
                    width = same_width(mechanism, rows, width, samples=samples)
                    pair[side].append(rows)
            except SamplerTimeoutError as error:
                if not halves[1][0]:
                    raise
                late = str(error)
                break
            for side in (0, 1):
                halves[counting][side].append(_joined(pair[side], width))
            done += sum(sizes)
            if progress is not None:
                progress(done, 4 * half if learning else 2 * half)
    learn, count = ((_joined(a, width), _joined(b, width)) for a, b in halves)
    by_call = [([], []) if timed else ([*map(len, a)], [*map(len, b)]) for a, b in halves]
    return Releases(learn, count, late, (by_call[0], by_call[1]))


def turns(
    sizes: tuple[int, int], *, rng: np.random.Generator, timed: bool = False
) -> Iterable[tuple[int, int]]:
    """(Neighbour, releases) of each turn: both blocks in random order, or releases one by one."""
    if timed:
        return ((int(side), 1) for side in rng.permutation(np.repeat([0, 1], sizes)))
    order = (0, 1) if rng.random() < 0.5 else (1, 0)
    return ((side, sizes[side]) for side in order if sizes[side])


def _joined(blocks: list[Array], width: int) -> Array:
    return np.concatenate([np.empty((0, width)), *blocks])


def release_block(
    mechanism: Session, value: Array, n: int, *, limit: TimeLimit, timed: bool = False
) -> Array:
    """``n`` releases at ``value``, (n, k), in one call; timed ones with their seconds."""
    left = limit.left(mechanism.name)
    if not timed:
        return np.asarray(mechanism.ask(Request(n, input=value), timeout=left).values)
    reply = mechanism.ask(Request(1, input=value, calls=n), timeout=left)
    return np.column_stack((reply.values, np.asarray(reply.seconds)))


def same_width(mechanism: Session, releases: Array, width: int, *, samples: int) -> int:
    """The numbers of a release, as many as ``width`` unless that is 0.

    Raises:
        SamplerOutputError: they are not.
        UsageError: ``samples`` at two neighbours would not fit into 2 GiB.
    """
    k = int(releases.shape[1])
    if width and k != width:
        raise SamplerOutputError(
            f"{mechanism.name} released {k} numbers, {width} before; "
            "a release must always have the same length"
        )
    if 2 * samples * k > _MOST_NUMBERS:
        raise UsageError(
            f"samples={samples}: releases of {k} numbers at two neighbours are too many to keep; "
            f"use --samples {_MOST_NUMBERS // (2 * k)} or fewer"
        )
    return k


ASSUMPTION_LEVEL = 1e-3
"""Level of each test of an assumption: how often it ends a valid audit as inconclusive."""
_COLUMNS = 2
_ENOUGH = 10.0
"""Least mean number per call of values other than the commonest, for normal mean ranks."""
_CHECKS = 2 * 2 + 2 * (_COLUMNS + 1)

_MIX = np.uint64(0x9E3779B97F4A7C15)


def dependence(calls: tuple[Sequence[Array], Sequence[Array]]) -> str:
    """Describe how releases of one call depend on each other; empty if no dependence is seen.

    ``calls`` has for each neighbour the releases (n, k) of each call; the i-th calls of both were
    made one after the other. Three things are tested:

    - at each neighbour, whether releases that occur more than once do so within one call more often
      than across calls;
    - whether releases at the same place of two successive calls are equal more often than at
      neighbouring places, as from a generator that is seeded anew in every call;
    - whether the two neighbours' i-th calls differ in location or spread by more than independent
      releases would (mean ranks of the first columns and of the row means, and of their distances
      from the median). Slow drift, which moves both calls alike, is no dependence.

    Null: releases are independent, with one law at each neighbour. Guarantee: the result is then
    not empty with probability at most 10^-3 (binomial tails; χ² where it is a good approximation,
    not used elsewhere; Bonferroni). Not claimed: finding dependence within a call that leaves calls
    alike, or one too weak to be seen.
    """
    level = ASSUMPTION_LEVEL / _CHECKS
    pairs = [(a, b) for a, b in zip(*calls, strict=True) if len(a) and len(b)]
    if len(pairs) < 2:
        return ""
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    for blocks in sides:
        repeated, inside = _repeated_within(blocks)
        if _binomial_tail(inside, repeated, _same_call(blocks)) <= level:
            return (
                f"{inside:,} of {repeated:,} releases that occur more than once occur "
                "within one call only"
            )
        same, beside = _aligned(blocks)
        if _binomial_tail(same, same + beside, 0.5) <= level:
            return f"{same:,} releases are those at the same place of the call before"
    columns = zip(_columns(sides[0]), _columns(sides[1]), strict=True)
    if min(_calls_differ(a, b, sides) for a, b in columns) <= level:
        return "releases of one call are more alike than releases of different calls"
    return ""


def _binomial_tail(k: int, n: int, p: float) -> float:
    return float(scipy.special.bdtrc(k - 1, n, p)) if k else 1.0


def _keys(rows: Array) -> npt.NDArray[np.uint64]:
    """Keys (n,) of rows (n, k): equal where the rows are, and hardly ever elsewhere."""
    bits = np.ascontiguousarray(rows).view(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(31))) * _MIX
    mixed ^= mixed >> np.uint64(29)
    weights = np.arange(1, 2 * rows.shape[1], 2, dtype=np.uint64) * _MIX
    return np.asarray((mixed * weights).sum(axis=1, dtype=np.uint64))


def _same_call(blocks: Sequence[Array]) -> float:
    """An upper bound for P(another release is of the same call as a given one)."""
    sizes = np.array([len(block) for block in blocks])
    return float(sizes.max() / sizes.sum())


def _repeated_within(blocks: Sequence[Array]) -> tuple[int, int]:
    """Number of different releases that occur more than once, and of those in one call only."""
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
    """Numbers of equal releases at the same place of successive calls, and at adjacent places."""
    same = beside = 0
    for i in range(0, len(blocks) - 1, 2):
        a, b = _keys(blocks[i]), _keys(blocks[i + 1])
        n = min(len(a), len(b)) - 1
        same += int(np.count_nonzero(a[:n] == b[:n]))
        beside += int(np.count_nonzero(a[:n] == b[1 : n + 1]))
    return same, beside


def _columns(blocks: Sequence[Array]) -> list[Array]:
    """The numbers (n,) of all releases by which calls are compared."""
    k = blocks[0].shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        columns = [np.concatenate([x[:, j] for x in blocks]) for j in range(min(_COLUMNS, k))]
        columns += [np.concatenate([x.mean(axis=1) for x in blocks])] if k > 1 else []
        columns += [np.abs(column - np.median(column)) for column in columns]
    return [np.nan_to_num(column) for column in columns]


def _calls_differ(first: Array, second: Array, sides: Sequence[Sequence[Array]]) -> float:
    """p-value of the differences of the neighbours' mean ranks in their i-th calls.

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
    square = float((weight * (difference - centre) ** 2).sum())
    return float(scipy.special.chdtrc(len(weight) - 1, square))


def _ranks(values: Array) -> tuple[Array, float]:
    """Ranks in 0…1, ties sharing their middle, and 1 − Σ(ties/n)³: 12 times their variance."""
    n, times = len(values), np.unique(values, return_counts=True)[1]
    return scipy.stats.rankdata(values) / n, 1 - float(np.sum((times / n) ** 3))


_WORTH_SAYING = 0.05
_MOST_VALUES = 20


class EncodedReleases:
    """A mechanism on data sets as one that releases numbers: each release is first its place.

    :meth:`ask` keeps what was released and answers with its number in the order made;
    :meth:`encoded`, called once all are drawn, turns these numbers into rows by an
    :class:`~dpaudit.audit.mechanism.encoding.Encoding` that the first half of the learning releases
    fixes.
    """

    def __init__(self, mechanism: Session, datasets: tuple[Any, Any]) -> None:
        self.name, self.facts = mechanism.name, Facts({"releases"})
        self.neighbours = np.empty(0), np.empty(0)
        """Stand for the two data sets."""
        self.encoding: Encoding | None = None
        self._mechanism = mechanism
        self._datasets = datasets
        self._blocks: list[Raw] = []
        self._made = self._fitted = 0
        self._learnt: list[Array] = []

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """The numbers (n, 1), in the order made, of ``n`` releases at one of :attr:`neighbours`.

        Raises:
            SamplerError: as the mechanism's own session.
        """
        dataset = Dataset(self._datasets[0 if request.input is self.neighbours[0] else 1])
        reply = self._mechanism.ask(Request(request.n, input=dataset), timeout=timeout)
        self._blocks.append(reply.values)
        first, self._made = self._made, self._made + request.n
        return Reply(np.arange(first, self._made, dtype=np.float64).reshape(-1, 1))

    def encoded(self, drawn: Releases) -> Releases:
        """The same releases as rows (n, k).

        Calls of the learning half are left out of :attr:`~Releases.calls`: the encoding was fitted
        to some of them, so that their rows differ in law from those of later ones.
        """
        encoding = self.fit(*(x[: max(1, len(x) // 2)] for x in drawn.learn))
        rows = np.concatenate([encoding.rows(block) for block in self._blocks])
        self._learnt = [rows[x[:, 0].astype(np.intp)] for x in drawn.learn]
        learn, count = (
            (rows[a[:, 0].astype(np.intp)], rows[b[:, 0].astype(np.intp)])
            for a, b in (drawn.learn, drawn.count)
        )
        nothing: tuple[list[int], list[int]] = ([], [])
        return dataclasses.replace(drawn, learn=learn, count=count, sizes=(nothing, drawn.sizes[1]))

    def fit(self, first: Array, second: Array) -> Encoding:
        """Fix the encoding by releases whose numbers (n, 1) were answered at each data set."""
        both = (self._at(x[:, 0].astype(np.intp)) for x in (first, second))
        self.encoding, self._fitted = Encoding.fit(*both), self._made
        return self.encoding

    def after_fit(self, drawn: Releases) -> Releases:
        """Of counted releases by number, those made after the encoding was fixed, as rows."""
        nothing: tuple[list[int], list[int]] = ([], [])
        rows, sizes = [], []
        for numbers, calls in zip(drawn.count, drawn.sizes[1], strict=True):
            first = numbers[np.cumsum([0, *calls])[:-1], 0]
            late = [n for n, at in zip(calls, first, strict=True) if at >= self._fitted]
            rows.append(self.rows(numbers[len(numbers) - sum(late) :]))
            sizes.append(late)
        count, calls_of = (rows[0], rows[1]), (nothing, (sizes[0], sizes[1]))
        return dataclasses.replace(drawn, count=count, sizes=calls_of)

    def rows(self, numbers: Array) -> Array:
        """The releases with these numbers (n, 1) as rows (n, k), by the encoding fixed last."""
        assert self.encoding is not None  # noqa: S101 fitted before
        return self.encoding.rows(self._at(numbers[:, 0].astype(np.intp)))

    def shown(self, first: Array, second: Array) -> None:
        """Remember releases (n, 1) at each data set, to say where they differ most."""
        self._learnt = [self.rows(x) for x in (first, second)]

    def _at(self, places: npt.NDArray[np.intp]) -> Raw:
        starts = np.cumsum([0, *map(len, self._blocks)])
        arrays = [block for block in self._blocks if isinstance(block, np.ndarray)]
        if len(arrays) == len(self._blocks) and len({x.shape[1:] for x in arrays}) == 1:
            return np.asarray(np.concatenate(arrays)[places])
        blocks = np.searchsorted(starts, places, side="right") - 1
        return [
            _item(self._blocks[b], int(i - starts[b]))
            for b, i in zip(blocks.tolist(), places.tolist(), strict=True)
        ]

    def _apart(self) -> str:
        """In words, the column whose values differ most between the neighbours, if one does."""
        if self.encoding is None:
            return ""
        sides = zip(*(x.T for x in self._learnt), strict=True)
        columns = [(*_most_apart(a, b), -j) for j, (a, b) in enumerate(sides)]
        gap, share0, share1, value, place = max(columns, key=lambda f: (f[0], f[-1]))
        if gap < _WORTH_SAYING:
            return ""
        statement = one_line(self.encoding.describe_value(-int(place), value), limit=120)
        return (
            f"Releases differ most in this: {statement}, in {share0:.3g} of those at the first and "
            f"{share1:.3g} at the second data set (learning half)."
        )

    def named(self, result: MechanismResult) -> MechanismResult:
        """``result`` with what columns of a row are in place of their numbers."""
        names = [] if self.encoding is None else self.encoding.names
        plain_numbers = names == ["release"]

        def says(text: str) -> str:
            if plain_numbers:
                return text
            if len(names) == 1:
                return re.sub(r"\bx\b(?!\[)", lambda _: one_line(names[0], limit=60), text)
            return re.sub(r"\bx\[(\d+)\]", lambda m: one_line(names[int(m[1])], limit=60), text)

        tests = tuple(
            dataclasses.replace(
                test,
                effect=says(test.effect),
                details={
                    **test.details,
                    **({"statistic": says(str(test.details["statistic"]))} if test.details else {}),
                },
            )
            for test in result.tests
        )
        apart = self._apart()
        if apart and not plain_numbers:
            result = dataclasses.replace(result, advice=(apart, *result.advice))
        details = {**result.details, "columns": [one_line(name, limit=80) for name in names]}
        return dataclasses.replace(result, tests=tests, details=details)


def _item(block: Raw, i: int) -> Any:
    item = block[i]
    return float(item) if isinstance(item, np.floating) else item


def _most_apart(a: Array, b: Array) -> tuple[float, float, float, float]:
    """How far apart the shares of one frequent value are at most, both shares, and the value."""
    values, counts = np.unique(np.concatenate([a, b]), return_counts=True)
    often = values[np.argsort(-counts)[:_MOST_VALUES]]
    shares = [(float(np.mean(a == v)), float(np.mean(b == v)), float(v)) for v in often]
    return max((abs(p - q), p, q, v) for p, q, v in shares)
