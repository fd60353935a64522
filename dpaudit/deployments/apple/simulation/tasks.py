"""The daemon's periodic tasks, with Apple's periods (Tang et al. 2017, Figure 10, §4.2 and §5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from dpaudit.deployments.apple.rules import REPORT_SECONDS

__all__ = ["OLDEST_RECORD", "OLDEST_REPORT", "TASKS", "Platform", "Task", "TaskName"]

Platform = Literal["macos", "ios"]
TaskName = Literal[
    "PrivacyBudgetMaintenance", "ReportFilesMaintenance", "StorageCulling", "StorageMaintenance", "ReportGenerator"
]


@dataclass(frozen=True, slots=True)
class Task:
    """A task and how often it runs."""

    name: TaskName
    period: timedelta


TASKS = (
    Task("PrivacyBudgetMaintenance", timedelta(hours=24)),
    Task("ReportFilesMaintenance", timedelta(hours=24)),
    Task("StorageCulling", timedelta(hours=24)),
    Task("StorageMaintenance", timedelta(hours=12)),
    Task("ReportGenerator", timedelta(seconds=REPORT_SECONDS)),
)
"""In the order in which those that are due together run: that of their completion in Figure 21.

How often PrivacyBudgetMaintenance itself runs the paper does not say, only that budgets of SessionSeconds = 86400 grow
every 24 hours (§4.2.2); 24 hours is our reading.
"""

OLDEST_RECORD = timedelta(days=14)
"""StorageMaintenance deletes records older than two weeks."""
OLDEST_REPORT: dict[Platform, timedelta] = {"macos": timedelta(days=30), "ios": timedelta(days=7)}
"""ReportFilesMaintenance deletes report files older than a month, on iOS than 7 days (§5.4)."""
