"""A deterministic simulation of ``dprivacyd``: budgets, stored records and reports, no bits."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from dpaudit.protocols import Stream
from dpaudit_local.apple.configuration import resolve
from dpaudit_local.apple.model import Balance, Budget, Configuration, ResolvedKey
from dpaudit_local.apple.rules import NEVER_SUBMITTED, REPORT_SECONDS

Platform = Literal["macos", "ios"]
TaskName = Literal[
    "PrivacyBudgetMaintenance",
    "ReportFilesMaintenance",
    "StorageCulling",
    "StorageMaintenance",
    "ReportGenerator",
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
"""In the order in which tasks due together run: that of their completion in Figure 21.

The paper does not say how often PrivacyBudgetMaintenance itself runs, only that budgets of
SessionSeconds = 86400 grow every 24 hours (§4.2.2); 24 hours is our reading.
"""

OLDEST_RECORD = timedelta(days=14)
"""StorageMaintenance deletes records older than two weeks."""
OLDEST_REPORT: dict[Platform, timedelta] = {"macos": timedelta(days=30), "ios": timedelta(days=7)}
"""ReportFilesMaintenance deletes report files older than a month, on iOS 7 days (§5.4)."""


class BudgetAccount:
    """A budget: SessionAmount at first, and again per whole SessionSeconds (Figures 18, 19)."""

    def __init__(self, budget: Budget, created: datetime) -> None:
        self._budget, self._period = budget, timedelta(seconds=budget.session_seconds)
        self._created = self._updated = created
        self.balance = self.accrued = budget.session_amount
        self.spent = 0

    def credit(self, now: datetime) -> None:
        """PrivacyBudgetMaintenance: credit whole periods; the rest counts at the next update."""
        periods = (now - self._updated) // self._period
        self._updated += periods * self._period
        self.balance += periods * self._budget.session_amount
        self.accrued += periods * self._budget.session_amount

    def spend(self) -> None:
        """Pay for one submitted record."""
        self.balance -= 1
        self.spent += 1

    def row(self) -> Balance:
        """The account as a row of the budget table."""
        return Balance(self._budget.name, self.balance, self._created, self._updated)


REPORT_VERSION = 11
"""As in Figures 1 and 11."""
MOST_STORED = 100_000
"""StorageMaintenance's limit on the database, in records; Apple's is unknown, this is ours."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A privatised datum in the daemon's database; ``number`` counts them from 0."""

    number: int
    key: str
    created: datetime
    version: int
    submitted: bool


@dataclass(frozen=True, slots=True)
class GeneratedReport:
    """The records of one run of ReportGenerator, sorted by key and number; never empty."""

    created: datetime
    records: tuple[StoredRecord, ...]


class Daemon:
    """A daemon opted in at ``start``; its methods let time pass.

    As Tang et al. (§4.2, §5.1, §5.2) describe it. At the opt-in every budget holds its
    SessionAmount, and each task is due for the first time one period later. ReportGenerator takes
    at most min(SessionAmount, 40) records of a key and, of all keys of a budget, no more than its
    balance, which falls by one per record; PrivacyBudgetMaintenance adds SessionAmount for every
    whole SessionSeconds since the last update. Our readings, where the paper is silent: among the
    waiting records of a budget those of the smaller SubmissionPriority come first, in random order
    within one priority, and those of priority 99999 never; tasks that came due while the computer
    slept run once when it wakes.

    Guarantee, tested for any usage: at any time ``submitted[b] + balance(b) == accrued[b]`` and the
    balance is never negative, so over t days, the first and last included in whole SessionSeconds,
    a budget's records are at most (t + 1)·SessionAmount. Not claimed: Apple's true order, times of
    day or random generator.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        start: datetime,
        stream: Stream,
        platform: Platform = "macos",
        most_stored: int = MOST_STORED,
    ) -> None:
        self.now = start
        self.platform = platform
        self.version = REPORT_VERSION
        self.keys: Mapping[str, ResolvedKey] = {k.key.name: k for k in resolve(configuration)}
        self._accounts = {
            b.name: BudgetAccount(b, self.now) for b in configuration.budgets.values()
        }
        self._most_stored = most_stored
        self._random = stream.child("dprivacyd").numpy()
        self._due = {task.name: self.now + task.period for task in TASKS}
        self._stored: dict[int, StoredRecord] = {}
        self._next = 0
        self._on_disk: deque[GeneratedReport] = deque()
        self._new: list[GeneratedReport] = []

    @property
    def balances(self) -> tuple[Balance, ...]:
        """The budget table, in the configuration's order."""
        return tuple(account.row() for account in self._accounts.values())

    @property
    def accrued(self) -> dict[str, int]:
        """By budget: everything credited so far, including the first SessionAmount."""
        return {name: account.accrued for name, account in self._accounts.items()}

    @property
    def submitted(self) -> dict[str, int]:
        """By budget: all records submitted so far."""
        return {name: account.spent for name, account in self._accounts.items()}

    @property
    def records(self) -> tuple[StoredRecord, ...]:
        """The records in the database now, the oldest first."""
        return tuple(self._stored.values())

    @property
    def report_files(self) -> tuple[GeneratedReport, ...]:
        """The reports still on disk, the oldest first."""
        return tuple(self._on_disk)

    def record(self, key: str, when: datetime) -> StoredRecord:
        """Store a privatised datum of ``key`` at ``when``, after the tasks due by then."""
        self._advance(when)
        record = StoredRecord(self._next, key, self.now, self.version, submitted=False)
        self._stored[record.number] = record
        self._next += 1
        return record

    def run_until(self, when: datetime) -> tuple[GeneratedReport, ...]:
        """Let time pass up to and including ``when``; returns the reports since the last call."""
        self._advance(when)
        new, self._new = tuple(self._new), []
        return new

    def sleep_until(self, when: datetime) -> None:
        """Let the computer sleep until ``when``; each task that came due then runs once."""
        assert when >= self.now
        self.now = when
        for task in TASKS:
            if self._due[task.name] <= when:
                self._run(task.name)
                self._due[task.name] = when + task.period

    def upgrade(self, version: int) -> None:
        """Set the report version of new records; StorageCulling deletes those of any other."""
        self.version = version

    def _advance(self, when: datetime) -> None:
        assert when >= self.now
        while True:
            # of tasks due together, the first in TASKS
            task = min(TASKS, key=lambda task: self._due[task.name])
            if self._due[task.name] > when:
                break
            self.now = self._due[task.name]
            self._run(task.name)
            self._due[task.name] += task.period
        self.now = when

    def _run(self, name: TaskName) -> None:
        match name:
            case "PrivacyBudgetMaintenance":
                for account in self._accounts.values():
                    account.credit(self.now)
            case "ReportFilesMaintenance":
                while (
                    self._on_disk
                    and self.now - self._on_disk[0].created > OLDEST_REPORT[self.platform]
                ):
                    self._on_disk.popleft()
            case "StorageCulling":
                self._keep(lambda record: not record.submitted and record.version == self.version)
            case "StorageMaintenance":
                self._keep(lambda record: self.now - record.created <= OLDEST_RECORD)
                for number in list(self._stored)[: max(0, len(self._stored) - self._most_stored)]:
                    del self._stored[number]
            case "ReportGenerator":
                self._report()

    def _keep(self, kept: Callable[[StoredRecord], bool]) -> None:
        self._stored = {number: record for number, record in self._stored.items() if kept(record)}

    def _report(self) -> None:
        waiting: dict[str, list[StoredRecord]] = defaultdict(list)
        for record in self._stored.values():
            resolved = self.keys[record.key]
            if not record.submitted and resolved.priority < NEVER_SUBMITTED:
                waiting[resolved.budget.name].append(record)
        chosen = [r for budget, rows in waiting.items() for r in self._choose(budget, rows)]
        if not chosen:
            return
        chosen.sort(key=lambda r: (r.key, r.number))
        sent = [replace(record, submitted=True) for record in chosen]
        self._stored.update((record.number, record) for record in sent)
        report = GeneratedReport(self.now, tuple(sent))
        self._on_disk.append(report)
        self._new.append(report)

    def _choose(self, budget: str, waiting: list[StoredRecord]) -> list[StoredRecord]:
        """Choose and pay for the waiting records of a budget that go into this report."""
        account = self._accounts[budget]
        order = self._random.permutation(len(waiting))
        shuffled = sorted((waiting[i] for i in order), key=lambda r: self.keys[r.key].priority)
        taken: dict[str, int] = defaultdict(int)
        chosen = []
        for record in shuffled:
            if account.balance <= 0:
                break
            if taken[record.key] < self.keys[record.key].records_per_report:
                taken[record.key] += 1
                account.spend()
                chosen.append(record)
        return chosen
