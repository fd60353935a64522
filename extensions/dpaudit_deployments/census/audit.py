"""The audit of noisy measurement files: from rows to noise, sums, tests and one verdict."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np

from dpaudit.errors import UsageError
from dpaudit.results.text import printable
from dpaudit.types import Evidence, Provenance, TestResult, Verdict
from dpaudit_deployments.census.checks import LEAST, Tally, checks_of, levels_check, scale_interval
from dpaudit_deployments.census.files import (
    Bucket,
    Integers,
    Measurement,
    find_buckets,
    read_constraints,
    read_measurements,
)
from dpaudit_deployments.census.law import LEAST_SUMMED, MOST_VARIANCE, law_of_variance
from dpaudit_deployments.census.noise import Known, Place, Repeats, Rule, Sums
from dpaudit_deployments.census.result import (
    KINDS,
    Bin,
    CensusLevel,
    CensusResult,
    Kind,
    NoiseGroup,
)
from dpaudit_deployments.family import Check, judge_checks

__all__ = ["audit_files"]

_MOST_GROUPS = 5000
_MOST_NAMED = 20
_BINS = 33
_SHOWN = 4.0
_ONE = np.ones(1, dtype=np.bool_)
_PARTITIONS = ("hhinstlevels",)
"""Recodes whose cells together hold every record."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, order=True)
class _Group:
    product: str
    level: str
    query: str
    kind: Kind
    variance: float
    """That of a value; 0 where each has its own."""


@dataclass(slots=True)
class _LevelTotals:
    """What was read of one level."""

    files: int = 0
    cells: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    """The smallest variance of each query."""


@dataclass(slots=True)
class _Audit:
    sums: bool
    known: Known
    tallies: dict[_Group, Tally] = field(default_factory=dict)
    levels: dict[tuple[str, str], _LevelTotals] = field(default_factory=dict)
    repeats: dict[str, Repeats] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def tally(self, group: _Group) -> Tally:
        if group not in self.tallies:
            if len(self.tallies) >= _MOST_GROUPS:
                raise UsageError(
                    f"nmf: more than {_MOST_GROUPS:,} queries, levels and variances; "
                    "audit the files in parts"
                )
            self.tallies[group] = Tally(None if group.kind == "sums" else group.variance)
        return self.tallies[group]

    def sorted_tallies(self) -> list[tuple[_Group, Tally]]:
        """The tallies, by product, from the top level down."""
        places = {key: i for i, key in enumerate(self.levels)}
        return sorted(
            self.tallies.items(), key=lambda item: (places[item[0].product, item[0].level], item[0])
        )


def audit_files(
    paths: Sequence[str | Path],
    *,
    alpha: float,
    provenance: Provenance,
    rules: tuple[Rule, ...] = (),
    sums: bool = False,
    progress: Progress | None = None,
) -> CensusResult:
    """Audit the noisy measurement files that ``paths`` name.

    ``rules`` are structural zeros besides those that the files' constraints state. With ``sums``
    parents are compared with the sum of their children as well: that needs files with all children
    of each parent. ``progress`` is called with files read and all files.

    Raises:
        UsageError: a file that is not a noisy measurement file, or rules that fit no query.
        MissingExtraError: pyarrow is not installed.
    """
    started = time.monotonic()
    buckets = find_buckets(paths)
    audit = _Audit(sums, Known(rules))
    done, number = 0, sum(len(bucket.files) for bucket in buckets)
    for product, own in groupby(buckets, key=lambda bucket: bucket.product):
        for bucket in _read_levels(audit, product, list(own)):
            done += len(bucket.files)
            if progress is not None:
                progress(done, number)
    unused = set(range(len(rules))) - audit.known.used
    if unused:
        raise UsageError(
            f"zeros: rule {min(unused) + 1} fits no query; its axes must be columns of the files, "
            "and kept in full by some query"
        )
    tests = _tests(audit, alpha)
    return CensusResult(
        verdict=_verdict(tests),
        reason="" if tests else _why_untested(audit),
        alpha=alpha,
        files=tuple(printable(path, limit=400) for path in list(paths)[:_MOST_NAMED]),
        levels=tuple(_level(*key, totals) for key, totals in audit.levels.items()),
        groups=tuple(_group(g, t) for g, t in audit.sorted_tallies()),
        tests=tuple(tests),
        notes=tuple(audit.notes),
        seconds=time.monotonic() - started,
        provenance=provenance,
    )


def _read_levels(audit: _Audit, product: str, buckets: list[Bucket]) -> Iterator[Bucket]:
    """Read the buckets of a product, from the top level (the shortest geocodes) down."""
    by_level: dict[str, list[Bucket]] = {}
    for bucket in buckets:
        by_level.setdefault(bucket.level, []).append(bucket)
    levels = sorted(by_level, key=lambda level: (_geocode_length(by_level[level]), level))

    def emit(level: str, query: str, residual: Integers, variance: float) -> None:
        audit.tally(_Group(product, level, query, "sums", 0.0)).add_sum(residual, variance)

    sums = Sums(emit) if audit.sums else None
    for level in levels:
        if sums is not None:
            sums.begin(level, last=level == levels[-1])
        for bucket in by_level[level]:
            _read_bucket(audit, bucket, sums)
            yield bucket
        if sums is not None:
            sums.end()
    if sums is not None and sums.left_out:
        audit.notes.append(
            f"{product}: {sums.left_out:,} parents were not compared with their children; "
            "audit fewer levels or states at a time"
        )


def _geocode_length(buckets: Sequence[Bucket]) -> int:
    """The length of a level's geocodes, by its first ones; 0 if it has one geography alone."""
    first = ""
    for bucket in buckets:
        for path in bucket.files:
            for _, row in read_measurements(path):
                first = first or row.geocode
                if row.geocode != first:
                    return len(first)
    return 0


def _read_bucket(audit: _Audit, bucket: Bucket, sums: Sums | None) -> None:
    known = audit.known
    known.begin()
    totals = audit.levels.setdefault((bucket.product, bucket.level), _LevelTotals())
    totals.files += len(bucket.files)
    for path in bucket.files:
        for axes, constraint in read_constraints(path):
            known.add(axes, constraint)
    for path in bucket.files:
        for axes, row in read_measurements(path):
            totals.cells += row.value.size
            totals.rows[row.query] = totals.rows.get(row.query, 0) + 1
            totals.least[row.query] = min(totals.least.get(row.query, math.inf), row.variance)
            _tally_zeros(audit, bucket, known, axes, row)
            _tally_total(audit, bucket, known, axes, row)
            if sums is not None:
                sums.add(row)


def _tally_zeros(
    audit: _Audit, bucket: Bucket, known: Known, axes: tuple[str, ...], row: Measurement
) -> None:
    mask = known.zeros(bucket.level, axes, row)
    if not mask.any():
        return
    values = row.value[mask]
    group = _Group(bucket.product, bucket.level, row.query, "zeros", row.variance)
    audit.tally(group).add(mask, values)
    place = Place(bucket.level, row.query, row.geocode)
    repeats = audit.repeats.setdefault(bucket.product, Repeats())
    repeats.add(place, mask, values, law_of_variance(row.variance))


def _tally_total(
    audit: _Audit, bucket: Bucket, known: Known, axes: tuple[str, ...], row: Measurement
) -> None:
    total, cells = known.total(row.geocode), row.value.size
    complete = {"*", "detailed", *axes, *_PARTITIONS}
    if total is None or not set(row.specs) <= complete:
        return
    if cells > 1 and law_of_variance(row.variance).sigma < LEAST_SUMMED:
        return
    if cells * row.variance > MOST_VARIANCE:
        return
    group = _Group(bucket.product, bucket.level, row.query, "totals", cells * row.variance)
    residual = np.array([int(row.value.sum()) - total], dtype=np.int64)
    audit.tally(group).add(_ONE, residual)


def _tests(audit: _Audit, alpha: float) -> list[TestResult]:
    """Every test of every group, and those between groups, at one family-wise α (Holm)."""
    several = len({group.product for group in audit.tallies}) > 1
    checks: list[Check] = []
    for group, tally in audit.sorted_tallies():
        prefix = f"{group.product}: " if several else ""
        name = f"{prefix}{group.level}, {group.query}, {KINDS[group.kind]}"
        checks += checks_of(name, tally)
    for product in audit.repeats:
        prefix = f"{product}: " if several else ""
        zeros = [g for g, _ in audit.sorted_tallies() if (g.product, g.kind) == (product, "zeros")]
        for query in dict.fromkeys(group.query for group in zeros):
            same = [(g.level, audit.tallies[g]) for g in zeros if g.query == query]
            checks += levels_check(f"{prefix}all levels, {query}", same)
        checks += _repeats_check(f"{prefix}all levels", audit.repeats[product])
    return judge_checks(checks, alpha=alpha)


def _repeats_check(name: str, repeats: Repeats) -> Iterator[Check]:
    if repeats.number < 2:
        return
    number, p, pair = repeats.repeated()
    if pair and pair[0] == pair[1]:
        raise UsageError(f"nmf: {pair[0]} occurs twice with the same values; name each file once")
    effect = f"first in {pair[0]} and {pair[1]}" if pair else "no run of noise occurs twice"
    looks_at = f"{repeats.number:,} runs of noise, anywhere in the files"
    yield f"{name}: repeats", looks_at, Evidence(p=p, statistic=number, effect=effect)


def _verdict(tests: Sequence[TestResult]) -> Verdict:
    if not tests:
        return "inconclusive"
    return "finding" if any(test.finding for test in tests) else "no-finding"


def _why_untested(audit: _Audit) -> str:
    if audit.tallies:
        return f"no group of cells of known count has {LEAST} values; add files"
    hint = "" if audit.sums else ", or use --sums if the files hold all children of each parent"
    return (
        "the files state no structural zeros and no totals; add the Constraint files, give the "
        f"zeros in a table with --zeros{hint}"
    )


def _level(product: str, level: str, totals: _LevelTotals) -> CensusLevel:
    return CensusLevel(
        product=product,
        level=level,
        files=totals.files,
        geographies=max(totals.rows.values(), default=0),
        queries=len(totals.rows),
        measurements=totals.cells,
        rho=math.fsum(law_of_variance(v).sigma ** -2 for v in totals.least.values()),
    )


def _group(group: _Group, tally: Tally) -> NoiseGroup:
    law = None if tally.variance is None else law_of_variance(tally.variance)
    return NoiseGroup(
        product=group.product,
        level=group.level,
        query=group.query,
        kind=group.kind,
        geographies=tally.rows,
        values=tally.n,
        sigma=None if law is None else law.sigma,
        ratio=math.sqrt(tally.squares / tally.n / (1.0 if law is None else law.variance)),
        interval=scale_interval(tally),
        farthest=tally.largest,
        tested=tally.n >= LEAST,
        bins=_bins(tally),
    )


def _bins(tally: Tally) -> tuple[Bin, ...]:
    """The histogram in about 33 bins of equal numbers of integers, within four σ."""
    if tally.variance is None:
        return ()
    law = law_of_variance(tally.variance)
    expected, edges = tally.n * law.between(tally.edges), tally.edges
    inside = [
        i for i in range(1, len(edges)) if abs(edges[i - 1 : i + 1]).max() <= _reach(law.sigma)
    ]
    step = max(1, math.ceil(len(inside) / _BINS))
    parts = [inside[i : i + step] for i in range(0, len(inside), step)]
    return tuple(
        Bin(
            low=float(edges[part[0] - 1] - 0.5) / law.sigma,
            high=float(edges[part[-1]] - 0.5) / law.sigma,
            observed=int(tally.histogram[part].sum()),
            expected=round(float(expected[part].sum()), 6),
        )
        for part in parts
    )


def _reach(sigma: float) -> int:
    return max(3, math.ceil(_SHOWN * sigma))
