"""What a source registers about its event-level reports, and the output states that follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb
from typing import Any, get_args

from dpaudit.results.foreign import RefusedError, shown
from dpaudit_deployments.attribution.parameters import (
    DEFAULT_REPORTS,
    DEFAULT_TRIGGER_DATA,
    DEFAULT_WINDOWS,
    EVENT_EPSILON,
    MOST_REPORTS,
    MOST_TRIGGER_DATA,
    MOST_WINDOWS,
    SourceType,
)

__all__ = ["LARGEST_EVENT_EPSILON", "Registration", "Report", "State", "Trigger"]

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
        """Read a source-registration JSON, with its ``source_type`` beside the header's keys.

        Read are ``max_event_level_reports``, ``event_report_windows.end_times``, ``trigger_data``,
        ``event_level_epsilon`` (``epsilon`` without it), and the ``trigger_specs`` of
        ``flexible_event_config.md`` with ``summary_buckets``. Other keys say nothing about the
        output states.

        Raises:
            RefusedError: a key breaks a rule of "Parsing source-registration JSON".
        """
        if not isinstance(header, Mapping):
            raise RefusedError(f"a registration is an object, not {shown(header)}")
        kind = header.get("source_type", "navigation")
        if kind not in get_args(SourceType):
            raise RefusedError(f"source_type={shown(kind)}: must be navigation or event")
        plain = cls.default(kind)
        windows = _windows(header, DEFAULT_WINDOWS[kind])
        reports = _whole(header, "max_event_level_reports", plain.reports, MOST_REPORTS)
        stated = header.get("event_level_epsilon", epsilon)
        number = isinstance(stated, (int, float)) and not isinstance(stated, bool)
        if not number or not 0 <= stated <= LARGEST_EVENT_EPSILON:
            rule = f"must be a number from 0 to {LARGEST_EVENT_EPSILON}"
            raise RefusedError(f"event_level_epsilon={shown(stated)}: {rule}")
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
        raise RefusedError(f"trigger_specs={shown(specs)}: must be a list of objects")
    made = []
    for spec in specs:
        buckets = spec.get("summary_buckets")
        if buckets is not None and not isinstance(buckets, list):
            raise RefusedError(f"summary_buckets={shown(buckets)}: must be a list")
        most = reports if buckets is None else min(reports, len(buckets))
        own = _windows(spec, windows)
        made += [Trigger(x, own, most) for x in _data(spec, range(0))]
    return tuple(made)


def _data(header: Mapping[str, Any], default: range) -> list[int]:
    data = header.get("trigger_data", list(default))
    if not isinstance(data, list) or not all(
        isinstance(x, int) and not isinstance(x, bool) and 0 <= x < _DATA for x in data
    ):
        raise RefusedError(
            f"trigger_data={shown(data)}: must be a list of whole numbers of 32 bits"
        )
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
        raise RefusedError(f"{name}={shown(value)}: must be a whole number from 0 to {most}")
    return value
