"""Whether a data loader draws its batches as the accountant assumes: Poisson sampling."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from dpaudit.audit.options import fresh_seed
from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.ranks import Ranks
from dpaudit.stats import binomial_two_sided
from dpaudit.types import TestResult, Verdict

__all__ = ["LoaderResult", "audit_loader"]

_LEAST_BATCHES = 20
_LEAST_RECORDS = 20
_SIMULATED = 30
"""Times 1/α: the number of simulated loaders, so that a p-value can be small enough."""
_MOST_SIMULATED = 50_000

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderResult:
    """The verdict on a loader's batches against Poisson sampling at ``rate``.

    Guarantee: for a loader that puts every record into every batch independently with probability
    ``rate``, the verdict is ``finding`` with probability at most ``alpha``. Not claimed: that a
    pass excludes a dependence other than those that ``tests`` name.
    """

    verdict: Verdict
    alpha: float
    rate: float
    records: int
    batches: int
    tests: tuple[TestResult, ...]

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        findings = [f"{t.name} ({t.effect})" for t in self.tests if t.finding]
        if findings:
            return f"Finding: the batches are not Poisson samples at rate {self.rate:g}: " + (
                "; ".join(findings)
            )
        return (
            f"No finding: nothing contradicts Poisson sampling at rate {self.rate:g} in "
            f"{self.batches:,} batches of {self.records:,} records"
        )

    def __str__(self) -> str:
        return self.sentence


def audit_loader(
    batches: Iterable[Any],
    *,
    records: int,
    rate: float,
    alpha: float = 0.01,
    seed: int | str | None = None,
) -> LoaderResult:
    """Audit the batches of a loader against Poisson sampling, which DP-SGD's accountants assume.

    ``batches`` are what the loader gives over some epochs (at least 20 batches), each with the
    numbers of its records, 0 … ``records`` - 1: load a data set that holds the numbers, e.g.
    ``TensorDataset(torch.arange(n))``. ``rate`` is the probability with which the accountant counts
    every record into every batch. Seven tests, Bonferroni: the number of records drawn; how the
    batches' sizes vary; how often each record is drawn; how many records two successive batches
    share, and two batches one epoch apart; how often neighbours in the data set are drawn together;
    records twice in a batch. Five are exact (binomial), two compare with simulated loaders,
    whose p-value is exact as well.

    Under ``torch.distributed`` with more than one rank all ranks call this together, each with its
    own batches; a step's batches are joined, as the accountant's ``rate`` is that of a step over
    all ranks. One rank's batches alone are no Poisson sample of all records, even if all ranks'
    together are: do not look at them alone. A loader that gives every rank the same records has
    *records twice*.

    Formal guarantee: see :class:`LoaderResult`.

    >>> rng = np.random.default_rng(1)
    >>> poisson = [np.flatnonzero(rng.random(200) < 0.1) for _ in range(100)]
    >>> audit_loader(poisson, records=200, rate=0.1, seed=1).verdict
    'no-finding'
    >>> shuffled = [b for _ in range(10) for b in rng.permutation(200).reshape(10, 20)]
    >>> audit_loader(shuffled, records=200, rate=0.1, seed=1).verdict
    'finding'

    Raises:
        UsageError: too few batches or records, a number that is no record's, a rate or α out of
            range, or ranks with different numbers of batches.
        SamplerCrashError: a rank's loader raised, or a rank did not answer within the group's
            timeout.
    """
    for name, value in (("rate", rate), ("alpha", alpha)):
        if not 0 < value < 1:
            raise UsageError(f"{name}={value}: must lie strictly between 0 and 1")
    if records < _LEAST_RECORDS:
        raise UsageError(f"records={records}: at least {_LEAST_RECORDS} are needed")
    ranks = Ranks.here()
    numbers = _over_ranks(batches, records, ranks)
    seed = ranks.exchange(fresh_seed(seed).encode)[0].decode()
    if len(numbers) < _LEAST_BATCHES:
        raise UsageError(f"batches={len(numbers)}: at least {_LEAST_BATCHES} are needed; load more")
    member = np.zeros((len(numbers), records), dtype=bool)
    for row, batch in zip(member, numbers, strict=True):
        row[batch] = True
    twice = sum(map(len, numbers)) - int(member.sum())
    simulated = min(_MOST_SIMULATED, max(1_000, round(_SIMULATED / alpha)))
    rng = KeyedStream.from_seed(seed).child("loader").numpy()
    spread = partial(_spread, rate=rate, times=simulated, rng=rng)
    rows = (
        *_exact(member, rate),
        spread("batch sizes", "batches differ in size", member.sum(axis=1), of=records),
        spread("inclusion", "records differ in number", member.sum(axis=0), of=len(member)),
        _Row(
            "records twice",
            "records that occur more than once in a batch",
            0.0 if twice else 1.0,
            float(twice),
            f"{twice:,} repetitions",
        ),
    )
    tests = tuple(row.test(alpha, of=len(rows)) for row in rows)
    return LoaderResult(
        verdict="finding" if any(test.finding for test in tests) else "no-finding",
        alpha=alpha,
        rate=rate,
        records=records,
        batches=len(numbers),
        tests=tests,
    )


class _Row(NamedTuple):
    """A test of the batches, before α is divided."""

    name: str
    looks_at: str
    p: float
    statistic: float
    effect: str

    def test(self, alpha: float, *, of: int) -> TestResult:
        """The test as one ``of`` so many at ``alpha``, by Bonferroni."""
        return TestResult(
            **self._asdict(),
            p_adjusted=min(1.0, self.p * of),
            finding=self.p <= alpha / of,
            parts={},
        )


def _numbers(batch: Any, records: int) -> Counts:
    while isinstance(batch, (tuple, list)) and len(batch) == 1 and np.ndim(batch[0]) > 0:
        batch = batch[0]
    numbers = np.asarray(batch.tolist() if hasattr(batch, "tolist") else batch).ravel()
    if not numbers.size:
        return np.empty(0, dtype=np.int64)
    if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= records:
        raise UsageError(
            f"batches: must hold whole numbers in 0…{records - 1}, the numbers of their records"
        )
    return numbers.astype(np.int64)


def _over_ranks(batches: Iterable[Any], records: int, ranks: Ranks) -> list[Counts]:
    """The numbers in each batch; of all ranks at a step together."""
    if ranks.size == 1:
        return [_numbers(batch, records) for batch in batches]
    shares = [
        json.loads(share)
        for share in ranks.exchange(
            lambda: json.dumps([_numbers(batch, records).tolist() for batch in batches]).encode()
        )
    ]
    if len(lengths := {len(share) for share in shares}) > 1:
        raise UsageError(
            f"batches={sorted(lengths)}: every rank must give one for each step, an empty one "
            "where it has no record"
        )
    return [np.array([*chain(*step)], dtype=np.int64) for step in zip(*shares, strict=True)]


def _exact(member: npt.NDArray[np.bool_], rate: float) -> list[_Row]:
    """Counts that are binomial: of disjoint pairs, as a batch must not be used twice."""
    batches, records = member.shape
    epoch = max(1, round(1 / rate))
    first = np.arange(batches - epoch)
    first = first[(first // epoch) % 2 == 0]
    both = records // 2 * 2
    counted = [
        ("rate", "how many records are drawn in all", member, rate),
        (
            "successive batches",
            "records that are in two successive batches",
            member[: batches // 2 * 2 : 2] & member[1 : batches // 2 * 2 : 2],
            rate**2,
        ),
        (
            "batches an epoch apart",
            "records that are in two batches one epoch apart",
            member[first] & member[first + epoch],
            rate**2,
        ),
        (
            "neighbours in the data",
            "neighbours in the data set that are drawn together",
            member[:, :both:2] & member[:, 1:both:2],
            rate**2,
        ),
    ]
    return [
        _Row(
            name,
            looks_at,
            binomial_two_sided(int(hits.sum()), hits.size, chance) if hits.size else 1.0,
            float(hits.mean()) if hits.size else 0.0,
            f"{int(hits.sum()):,} of {hits.size:,}, {chance * hits.size:,.0f} expected",
        )
        for name, looks_at, hits, chance in counted
    ]


def _spread(
    name: str, effect: str, counts: Counts, *, of: int, rate: float, times: int, rng: Generator
) -> _Row:
    """The variance of independent binomial counts, two-sided, against simulated ones."""
    expected = of * rate * (1 - rate)

    def spread(sample: Counts) -> npt.NDArray[np.float64]:
        return np.asarray(((sample - of * rate) ** 2).mean(axis=-1) / expected)

    here = float(spread(counts))
    rows = max(1, 2_000_000 // len(counts))
    simulated = np.concatenate(
        [
            spread(rng.binomial(of, rate, (min(rows, times - at), len(counts))))
            for at in range(0, times, rows)
        ]
    )
    beyond = min((simulated >= here).sum(), (simulated <= here).sum())
    p = min(1.0, 2 * (1 + int(beyond)) / (times + 1))
    variance = f"variance {here:.3g} times that of Poisson sampling"
    return _Row(name, f"how much {effect}", p, here, variance)
