"""The ε that the bits of reports show per key, compared with the claims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dpaudit.errors import UsageError
from dpaudit.findings import Finding
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit.types import Interval
from dpaudit_local.apple.bits.signs import HadamardSigns, HistogramSigns
from dpaudit_local.apple.bits.sketches import CHECKS, SketchVectors, epsilon_of_flip
from dpaudit_local.apple.model import Check, ResolvedKey, Segment
from dpaudit_local.apple.records import decode
from dpaudit_local.apple.rules import epsilon_by_coin
from dpaudit_local.mechanisms.reports import BitReports, HadamardReports, SketchReports

__all__ = [
    "ALPHA",
    "MOST_GROUPS",
    "Estimates",
    "Group",
    "ShownEpsilon",
    "group_of",
    "reported_epsilon",
    "shown_epsilons",
]

_LONGEST = 200
MOST_GROUPS = 1000
"""The most groups of one audit, the first to come; Apple's configuration has 160 keys."""


class Group(NamedTuple):
    """The properties by which flip probabilities of records may differ."""

    key: str
    algorithm: str
    parameters: tuple[tuple[str, str], ...]
    """Sorted; values as ``repr`` gives them, cut after 200 characters."""


def group_of(segment: Segment) -> Group:
    """The group that a segment's records belong to."""
    named = sorted(
        (str(name)[:_LONGEST], repr(value)[:_LONGEST]) for name, value in segment.parameters.items()
    )
    return Group(segment.key, segment.algorithm, tuple(named))


def reported_epsilon(segment: Segment) -> float | None:
    """The ``epsilon`` among a segment's parameters, if it is a finite number above 0."""
    value = segment.parameters.get("epsilon")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value < 1e300 and math.isfinite(value) else None


def whole_parameter(segment: Segment, name: str) -> int | None:
    """A parameter that is a whole number above 0 and below 2^32, else None."""
    value = segment.parameters.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value < 2**32 else None


ShownVerdict = Literal["agrees", "shows more", "shows less", "not identified"]


@dataclass(frozen=True, slots=True)
class StatedEpsilon:
    """A claimed ε of a record, by the ``configuration`` (PrivacyParameter in use) or ``report``."""

    by: str
    epsilon: float


@dataclass(frozen=True, slots=True)
class ShownEpsilon:
    """One key's records of one algorithm with one set of parameters: claims, estimate and verdict.

    Formal guarantee: the intervals of all keys of one audit hold together with probability ≥ 1 − α
    (Bonferroni), under the assumption that ``method`` names: independent bits of one bias, laid out
    as in the announced algorithm. Not claimed: that a record holds its object, nor anything about
    an algorithm of another form.
    """

    key: str
    algorithm: str
    claims: tuple[StatedEpsilon, ...]
    coin: float | None
    """ε of such a record by the code at the configured PrivacyParameter; None without one."""
    records: int
    """Records seen, readable or not."""
    used: int
    """Records that the estimate rests on."""
    method: str
    """How the interval was made; empty without one."""
    flip: Interval | None
    """The probability with which a bit or sign is flipped."""
    sketch: Interval | None
    """ε of one sketch; None if records hold none or checks fail."""
    record: Interval | None
    """ε of one record: of all its sketches, or of its sign."""
    verdict: ShownVerdict
    reason: str
    """The reason why nothing is identified, or the basis of the verdict."""
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()

    in_documents = ("claimed",)

    @property
    def claimed(self) -> float | None:
        """The strictest claim."""
        return min((c.epsilon for c in self.claims), default=None)


def judge(claims: tuple[StatedEpsilon, ...], record: Interval | None) -> ShownVerdict:
    """The verdict on the strictest of the ``claims``.

    An interval without an upper bound can contradict a claim but not confirm it.
    """
    if record is None or not claims:
        return "not identified"
    claimed = min(c.epsilon for c in claims)
    if record.low > claimed:
        return "shows more"
    if record.high < claimed:
        return "shows less"
    return "agrees" if record.high < float("inf") else "not identified"


ALPHA = 0.05
"""The probability that any statement on any key of one audit is wrong."""
_FOR_CHECKS = 0.2
"""The share of a key's α for the checks of its bits; the interval has the rest."""
_MOST_FINDINGS = 5
"""The most different errors of one kind of records that are reported."""


class Estimates:
    """Collects segments one by one, and then estimates what each group of records shows.

    Memory does not grow with the text of the reports: up to 9 bytes per record, and for each of at
    most 1000 groups (records of others are skipped, which ``observed`` counts) and each sketch 128
    KiB and a byte per bit.
    """

    def __init__(self, resolved: Sequence[ResolvedKey] = ()) -> None:
        """``resolved`` is the configuration to compare with."""
        self._configured = {r.key.name: r.epsilon for r in resolved}
        self._groups: dict[Group, _GroupRecords] = {}

    def add(self, segment: Segment) -> None:
        """Add the records of one segment."""
        group = group_of(segment)
        if group not in self._groups:
            if len(self._groups) == MOST_GROUPS:
                return
            self._groups[group] = _GroupRecords(segment)
        self._groups[group].add(segment)

    def epsilons(self, *, alpha: float = ALPHA) -> Mapping[Group, ShownEpsilon]:
        """The estimate of each group, in the order in which groups came.

        Each group gets ``alpha`` divided by their number, so that all statements hold together with
        probability ≥ 1 − ``alpha``. Signs that predict each other are always in the same order.

        Raises:
            UsageError: an ``alpha`` outside (0, 0.5).
        """
        _check(alpha)
        stream = KeyedStream.from_seed("signs of one place")
        share = alpha / max(1, len(self._groups))
        return {
            group: records_of_group.epsilon(
                self._configured.get(group.key), alpha=share, stream=stream.child(*map(str, group))
            )
            for group, records_of_group in self._groups.items()
        }


def shown_epsilons(
    segments: Iterable[Segment],
    *,
    resolved: Sequence[ResolvedKey] = (),
    alpha: float = ALPHA,
) -> tuple[ShownEpsilon, ...]:
    """The estimates from all ``segments``, per key, algorithm and set of parameters.

    Raises:
        UsageError: an ``alpha`` outside (0, 0.5).
    """
    estimates = Estimates(resolved)
    for segment in segments:
        estimates.add(segment)
    return tuple(estimates.epsilons(alpha=alpha).values())


class _GroupRecords:
    """The records of one group."""

    def __init__(self, segment: Segment) -> None:
        self.key, self.algorithm = segment.key, segment.algorithm
        self.reported = reported_epsilon(segment)
        self.positions = whole_parameter(segment, "p")
        self.records = self.left_out = 0
        self.findings: dict[str, Finding] = {}
        self.sketches: list[SketchVectors] = []
        self.hadamard: HadamardSigns | None = None
        self.histogram: HistogramSigns | None = None

    def add(self, segment: Segment) -> None:
        decoded = decode(segment)
        self.records += len(segment.records)
        self.left_out += decoded.left_out
        for finding in decoded.findings[:_MOST_FINDINGS]:
            if len(self.findings) < _MOST_FINDINGS:
                self.findings.setdefault(finding.message, finding)
        for part, reports in enumerate(decoded.reports):
            match reports:
                case SketchReports(bits=bits):
                    if len(self.sketches) <= part:
                        self.sketches.append(SketchVectors(8 * bits.shape[1]))
                    self.sketches[part].add(bits)
                case HadamardReports():
                    self.hadamard = self.hadamard or HadamardSigns()
                    self.hadamard.add(reports.function, reports.coordinate, reports.sign)
                case BitReports():
                    self.histogram = self.histogram or HistogramSigns()
                    self.histogram.add(reports.position, reports.sign)

    def epsilon(self, configured: float | None, *, alpha: float, stream: Stream) -> ShownEpsilon:
        """The estimate from the records, right with probability ≥ 1 − ``alpha``."""
        stated = (("configuration", configured), ("report", self.reported))
        claims = tuple(StatedEpsilon(by, epsilon) for by, epsilon in stated if epsilon is not None)
        if self.sketches:
            return self._sketches(claims, alpha, configured)
        if self.hadamard is not None:
            flip, reason = self.hadamard.estimate(alpha=alpha, stream=stream)
            return self._signs(claims, flip, reason, configured)
        if self.histogram is not None:
            flip, reason = self.histogram.estimate(positions=self.positions, alpha=alpha)
            return self._signs(claims, flip, reason, configured)
        return self._result(claims, None, reason="no record could be read")

    def _sketches(
        self, claims: tuple[StatedEpsilon, ...], alpha: float, configured: float | None
    ) -> ShownEpsilon:
        coin = (
            None if configured is None else epsilon_by_coin(configured, sketches=len(self.sketches))
        )
        share = alpha / len(self.sketches)
        interval_alpha, check_alpha = (1 - _FOR_CHECKS) * share, _FOR_CHECKS * share / CHECKS
        parts = [
            s.estimate(interval_alpha=interval_alpha, check_alpha=check_alpha)
            for s in self.sketches
        ]
        estimates = [p for p in parts if p is not None]
        if not estimates:
            return self._result(claims, None, reason="no record could be read")
        flips = [p.flip for p in estimates if p.flip is not None]
        if len(flips) < len(estimates):
            return self._result(
                claims, None, coin=coin, reason="", broken="no bias explains so few or so many ones"
            )
        each = [epsilon_of_flip(flip, differing=2) for flip in flips]
        checks = tuple(c for p in estimates for c in p.checks)
        broken = "; ".join(
            f"{c.name}: {c.says} (p = {c.p:.1e})" for c in checks if c.p <= check_alpha
        )
        confidence = 1 - alpha
        return self._result(
            claims,
            _hull(flips, confidence),
            coin=coin,
            sketch=_hull(each, confidence),
            record=Interval(
                low=sum(e.low for e in each),
                high=sum(e.high for e in each),
                confidence=confidence,
                method=each[0].method,
            ),
            reason=" and ".join(
                f"{p.vectors} vectors of {s.m} bits"
                for p, s in zip(estimates, self.sketches, strict=True)
            ),
            checks=checks,
            broken=broken,
        )

    def _signs(
        self,
        claims: tuple[StatedEpsilon, ...],
        flip: Interval | None,
        reason: str,
        configured: float | None,
    ) -> ShownEpsilon:
        record = None if flip is None else epsilon_of_flip(flip, differing=1)
        coin = None if configured is None else epsilon_by_coin(configured, sketches=0)
        return self._result(claims, flip, coin=coin, record=record, reason=reason)

    def _result(
        self,
        claims: tuple[StatedEpsilon, ...],
        flip: Interval | None,
        *,
        reason: str,
        coin: float | None = None,
        sketch: Interval | None = None,
        record: Interval | None = None,
        checks: tuple[Check, ...] = (),
        broken: str = "",
    ) -> ShownEpsilon:
        findings = list(self.findings.values())
        if broken:
            sketch = record = None
            reason = f"bits are not independent with one bias: {broken}"
            message = f"{reason}; the ε of such records is unknown"
            findings.append(Finding(self.key, message, serious=True))
        verdict = "not identified" if broken else judge(claims, record)
        if verdict == "shows more" and record is not None:
            findings.append(Finding(self.key, _more(claims, record, coin), serious=True))
        elif len({c.epsilon for c in claims}) > 1:
            stated = ", ".join(f"the {c.by} says {c.epsilon:g}" for c in claims)
            findings.append(Finding(self.key, f"the claims of a record's ε differ: {stated}"))
        return ShownEpsilon(
            key=self.key,
            algorithm=self.algorithm,
            claims=claims,
            coin=coin,
            records=self.records,
            used=self.records - self.left_out,
            method="" if flip is None else flip.method,
            flip=flip,
            sketch=sketch,
            record=record,
            verdict=verdict,
            reason=reason,
            checks=checks,
            findings=tuple(findings),
        )


def _hull(intervals: Sequence[Interval], confidence: float) -> Interval:
    """The smallest interval that contains all ``intervals``."""
    return Interval(
        low=min(i.low for i in intervals),
        high=max(i.high for i in intervals),
        confidence=confidence,
        method=intervals[0].method,
    )


def _check(alpha: float) -> None:
    if not 0 < alpha < 0.5:
        raise UsageError(f"alpha={alpha}: must lie strictly between 0 and 0.5")


def _more(claims: tuple[StatedEpsilon, ...], record: Interval, coin: float | None) -> str:
    """The message that bits show more than is claimed, and whether the code explains it."""
    exceeded: dict[float, list[str]] = {}
    for claim in claims:
        if claim.epsilon < record.low:
            exceeded.setdefault(claim.epsilon, []).append(claim.by)
    stated = ", ".join(
        f"{epsilon:g} by the {' and the '.join(by)}" for epsilon, by in exceeded.items()
    )
    message = f"the bits show ε ≥ {_round_down(record.low)} per record; claimed: {stated}"
    if coin is None:
        return message
    return f"{message} (by the code: {'only ' if record.low > coin else ''}{coin:g})"


def _round_down(epsilon: float) -> str:
    """Round down to two decimals."""
    return f"{math.floor(100 * epsilon) / 100:g}"
