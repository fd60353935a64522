"""What a source registers, its output states, and the laws that the specification gives it.

Constants are those of Attribution Reporting, each with the section that states it: "Constants" and
"Vendor-Specific Values" are sections of the specification; Chromium's values of the latter are in
``params/chromium-params.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb
from typing import Any, Literal, get_args

from dpaudit.claims import Claim
from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError, quoted

__all__ = [
    "CAPACITY",
    "DAY",
    "EVENT_EPSILON",
    "L1",
    "LARGEST_EVENT_EPSILON",
    "MOST_AGGREGATABLE_REPORTS",
    "MOST_ATTRIBUTIONS",
    "MOST_CONTRIBUTIONS",
    "MOST_ORIGINS",
    "MOST_STATES",
    "RATE_LIMIT_DAYS",
    "SERVICE_EPSILON",
    "Registration",
    "Report",
    "SourceType",
    "Trigger",
    "channel_capacity",
    "epsilon_of_flip",
    "epsilon_of_pick",
    "flip_probability",
    "pick_rate",
    "summary_claim",
]

SourceType = Literal["navigation", "event"]

DAY = 86_400
"""Seconds."""
EVENT_EPSILON = 14.0
"""Chromium's max settable event-level epsilon, which is also the default."""
CAPACITY: Mapping[str, float] = {"navigation": 11.5, "event": 6.5}
"""Chromium's max event-level channel capacity per source, in bits."""
MOST_STATES = 4_294_967_295
"""Chromium's max trigger-state cardinality."""
DEFAULT_REPORTS: Mapping[str, int] = {"navigation": 3, "event": 1}
"""Constants: default event-level attributions per source."""
DEFAULT_TRIGGER_DATA: Mapping[str, int] = {"navigation": 8, "event": 2}
"""Constants: default trigger data cardinality."""
DEFAULT_WINDOWS: Mapping[str, int] = {"navigation": 3, "event": 1}
"""Windows that end after 2, 7 and 30 days, or after 30 (EVENT.md)."""
MOST_REPORTS, MOST_WINDOWS, MOST_TRIGGER_DATA = 20, 5, 32
"""Constants: max settable event-level attributions and report windows, and distinct trigger data
per source."""
L1 = 65_536
"""Constants: allowed aggregatable budget per source, the L1 sensitivity of a summary report."""
SERVICE_EPSILON = 10.0
"""The aggregation service's default ε of a job (its ``docs/api.md``, ``debug_privacy_epsilon``)."""
LARGEST_AGGREGATE_EPSILON = 64.0
"""AGGREGATION_SERVICE_TEE.md: a range of epsilon values up to 64."""
MOST_AGGREGATABLE_REPORTS = 20
"""Chromium's max aggregatable reports per source (attribution reports)."""
MOST_CONTRIBUTIONS = 20
"""Constants: max aggregation keys per source registration; a report is padded to as many."""
RATE_LIMIT_DAYS = 30
"""Constants: attribution rate-limit window."""
MOST_ATTRIBUTIONS = 100
"""Chromium's max attributions per rate-limit window: per source site, destination, reporting
site."""
MOST_ORIGINS = 10
"""Chromium's max attribution reporting origins per rate-limit window: per source site and
destination."""


def pick_rate(states: int, epsilon: float) -> float:
    """The probability that a source's output is drawn at random: k/(k − 1 + e^ε).

    "Obtaining a randomized source response". A draw may hit the true output.

    >>> pick_rate(2925, 14.0)
    0.0024263221679834087
    """
    return states / (states - 1 + math.exp(epsilon))


def flip_probability(states: int, epsilon: float) -> float:
    """The probability that the output is not the true one: (k − 1)/(k − 1 + e^ε)."""
    return (states - 1) / (states - 1 + math.exp(epsilon))


def epsilon_of_flip(states: int, flip: float) -> float:
    """The ε at which outputs are not the true one with probability ``flip``; at least 0."""
    if states == 1 or flip >= 1:
        return 0.0
    return max(0.0, math.log((states - 1) * (1 - flip) / flip)) if flip > 0 else math.inf


def epsilon_of_pick(states: int, rate: float) -> float:
    """The ε of a stated ``randomized_trigger_rate``; at least 0."""
    if rate <= 0:
        return math.inf
    return max(0.0, math.log(max(states / rate - states + 1, 1.0)))


def channel_capacity(states: int, epsilon: float) -> float:
    """Bits that one source's output can carry ("Computing channel capacity").

    >>> round(channel_capacity(2925, 14.0), 12), round(channel_capacity(3, 14.0), 12)
    (11.461727965385, 1.584926511508)
    """
    if states == 1:
        return 0.0
    p = flip_probability(states, epsilon)
    entropy = sum(-x * math.log2(x) for x in (p, 1 - p) if x > 0)
    return math.log2(states) - entropy - p * math.log2(states - 1)


def summary_claim(epsilon: float) -> Claim:
    """The noise of one value of a summary report: discrete Laplace of scale L1/ε.

    AGGREGATION_SERVICE_TEE.md, "Added noise to summary reports": a discrete version of the Laplace
    distribution, by the L1 sensitivity of 2¹⁶ and ε.

    Raises:
        UsageError: ε outside 0 … 64, or so small that the scale is above 1e5.

    >>> summary_claim(10.0)
    Claim(family='discrete-laplace', scale=6553.6)
    """
    if not 0 < epsilon <= LARGEST_AGGREGATE_EPSILON:
        raise UsageError(f"epsilon={epsilon}: the aggregation service allows 0 < ε ≤ 64")
    return Claim.parse(f"discrete-laplace:scale={L1 / epsilon!r}")


Report = tuple[int, int]
"""Trigger data and report window."""
State = tuple[Report, ...]
"""The event-level reports of one source, sorted: one output of the API."""
_MOST_LISTED = 1_000_000
LARGEST_EVENT_EPSILON = 700
_DATA = 1 << 32


@dataclass(frozen=True)
class Trigger:
    """One value of trigger data, its number of windows, and the most reports with it."""

    data: int
    windows: int
    most: int


@dataclass(frozen=True)
class Registration:
    """The output space of a source's event-level reports, and its ε.

    >>> Registration.default("navigation").states, Registration.default("event").states
    (2925, 3)
    """

    source_type: SourceType
    reports: int
    triggers: tuple[Trigger, ...]
    epsilon: float = EVENT_EPSILON

    @classmethod
    def default(cls, source_type: SourceType, *, epsilon: float = EVENT_EPSILON) -> Registration:
        """That of a source which registers nothing about its reports."""
        reports, windows = DEFAULT_REPORTS[source_type], DEFAULT_WINDOWS[source_type]
        data = range(DEFAULT_TRIGGER_DATA[source_type])
        triggers = tuple(Trigger(x, windows, reports) for x in data)
        return cls(source_type, reports, triggers, epsilon)

    @classmethod
    def parse(cls, header: object, *, epsilon: float = EVENT_EPSILON) -> Registration:
        """Read a source-registration JSON, with ``source_type`` among the header's keys.

        Read are ``max_event_level_reports``, ``event_report_windows.end_times``, ``trigger_data``,
        ``event_level_epsilon`` (``epsilon`` without it), and the ``trigger_specs`` of
        ``flexible_event_config.md`` with ``summary_buckets``. Other keys say nothing about the
        output states.

        Raises:
            RefusedError: a key breaks a rule of "Parsing source-registration JSON".
        """
        if not isinstance(header, Mapping):
            raise RefusedError(f"a registration is an object, not {quoted(header)}")
        kind = header.get("source_type", "navigation")
        if kind not in get_args(SourceType):
            raise RefusedError(f"source_type={quoted(kind)}: must be navigation or event")
        plain = cls.default(kind)
        windows = _windows(header, DEFAULT_WINDOWS[kind])
        reports = _whole(header, "max_event_level_reports", plain.reports, MOST_REPORTS)
        stated = header.get("event_level_epsilon", epsilon)
        number = isinstance(stated, (int, float)) and not isinstance(stated, bool)
        if not number or not 0 <= stated <= LARGEST_EVENT_EPSILON:
            rule = f"must be a number from 0 to {LARGEST_EVENT_EPSILON}"
            raise RefusedError(f"event_level_epsilon={quoted(stated)}: {rule}")
        triggers = _triggers(header, windows, reports, range(DEFAULT_TRIGGER_DATA[kind]))
        if len({t.data for t in triggers}) < len(triggers) or len(triggers) > MOST_TRIGGER_DATA:
            raise RefusedError(f"trigger_data: at most {MOST_TRIGGER_DATA} values, each once")
        return cls(kind, reports, triggers, float(stated))

    @cached_property
    def states(self) -> int:
        """The number of output states ("Obtaining a randomized source response").

        With one list of windows and no summary buckets this is stars and bars, (windows · data +
        reports choose reports). In general, trigger data with w windows fills j reports in
        C(j + w − 1, j) ways, and the numbers of all trigger data together stay within ``reports``.
        """
        ways = [1] + [0] * self.reports
        for trigger in self.triggers:
            own = [comb(j + trigger.windows - 1, j) for j in range(trigger.most + 1)]
            ways = [
                sum(own[j] * ways[total - j] for j in range(min(trigger.most, total) + 1))
                for total in range(self.reports + 1)
            ]
        return sum(ways)

    @cached_property
    def index(self) -> Mapping[State, int]:
        """Every output state and its place, in the order of the specification.

        Raises:
            RefusedError: more than a million states.
        """
        if self.states > _MOST_LISTED:
            raise RefusedError(f"{self.states:,} output states; at most {_MOST_LISTED:,} audited")
        return {state: place for place, state in enumerate(self._all())}

    def _all(self) -> Iterator[State]:
        bins = [(t.data, window) for t in self.triggers for window in range(t.windows)]
        most = {t.data: t.most for t in self.triggers}
        for reports in range(self.reports + 1):
            for state in combinations_with_replacement(bins, reports):
                used = [data for data, _ in state]
                if all(used.count(data) <= most[data] for data in set(used)):
                    yield tuple(sorted(state))


def _triggers(
    header: Mapping[str, Any], windows: int, reports: int, default: range
) -> tuple[Trigger, ...]:
    specs = header.get("trigger_specs")
    if specs is None:
        return tuple(Trigger(x, windows, reports) for x in _data(header, default))
    if not isinstance(specs, list) or not all(isinstance(spec, Mapping) for spec in specs):
        raise RefusedError(f"trigger_specs={quoted(specs)}: must be a list of objects")
    triggers = []
    for spec in specs:
        buckets = spec.get("summary_buckets")
        if buckets is not None and not isinstance(buckets, list):
            raise RefusedError(f"summary_buckets={quoted(buckets)}: must be a list")
        most = reports if buckets is None else min(reports, len(buckets))
        own = _windows(spec, windows)
        triggers += [Trigger(x, own, most) for x in _data(spec, range(0))]
    return tuple(triggers)


def _data(header: Mapping[str, Any], default: range) -> list[int]:
    data = header.get("trigger_data", list(default))
    if not isinstance(data, list) or not all(
        isinstance(x, int) and not isinstance(x, bool) and 0 <= x < _DATA for x in data
    ):
        raise RefusedError(f"trigger_data={quoted(data)}: must be a list of 32-bit whole numbers")
    return data


def _windows(header: Mapping[str, Any], default: int) -> int:
    windows = header.get("event_report_windows")
    if windows is None:
        return default
    ends = windows.get("end_times") if isinstance(windows, Mapping) else None
    if not isinstance(ends, list) or not 1 <= len(ends) <= MOST_WINDOWS:
        raise RefusedError(f"event_report_windows: must have 1 to {MOST_WINDOWS} end_times")
    return len(ends)


def _whole(header: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = header.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise RefusedError(f"{name}={quoted(value)}: must be a whole number from 0 to {most}")
    return value
