"""The constants of Attribution Reporting, each with the section that states it.

"Constants" and "Vendor-Specific Values" are sections of the specification; Chromium's values of the
latter are in ``params/chromium-params.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

__all__ = [
    "CAPACITY",
    "DAY",
    "DEFAULT_REPORTS",
    "DEFAULT_TRIGGER_DATA",
    "DEFAULT_WINDOWS",
    "EVENT_EPSILON",
    "L1",
    "LARGEST_AGGREGATE_EPSILON",
    "MOST_AGGREGATABLE_REPORTS",
    "MOST_ATTRIBUTIONS",
    "MOST_CONTRIBUTIONS",
    "MOST_ORIGINS",
    "MOST_REPORTS",
    "MOST_STATES",
    "MOST_TRIGGER_DATA",
    "MOST_WINDOWS",
    "NULL_RATE",
    "RATE_LIMIT_DAYS",
    "SERVICE_EPSILON",
    "SourceType",
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
NULL_RATE: Mapping[bool, float] = {False: 0.05, True: 0.008}
"""Chromium's randomized null attribution report rate, by whether the source registration time is
included."""
RATE_LIMIT_DAYS = 30
"""Constants: attribution rate-limit window."""
MOST_ATTRIBUTIONS = 100
"""Chromium's max attributions per rate-limit window: per source site, destination, reporting
site."""
MOST_ORIGINS = 10
"""Chromium's max attribution reporting origins per rate-limit window: per source site and
destination."""
