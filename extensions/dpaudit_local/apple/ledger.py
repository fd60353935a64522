"""The loss that a configuration permits: ε per record, per day, over days and after a pause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpaudit.errors import UsageError
from dpaudit_local.apple.configuration import resolve
from dpaudit_local.apple.model import Budget, Configuration, ResolvedKey
from dpaudit_local.apple.rules import (
    DAY,
    MOST_RECORDS,
    NEVER_SUBMITTED,
    REPORT_SECONDS,
    coin_epsilon,
    reports_within,
    sessions_within,
)

__all__ = ["Ledger", "Line", "make_ledger"]

PLATFORMS = ("macOS", "iOS")


@dataclass(frozen=True, slots=True)
class Application:
    """An announced use, its budget, and the platforms on which its records were seen."""

    name: str
    budget: str
    platforms: tuple[str, ...] = PLATFORMS


ANNOUNCED = (
    Application("New words", "com.apple.keyboard.NewWords"),
    Application("Emoji", "com.apple.keyboard.Emoji"),
    Application("Deep links", "com.apple.parsec.AppDeepLink", ("iOS",)),
    Application("Lookup hints", "com.apple.parsec.Search"),
)
"""June 2016 (Tang et al. 2017, section 2.2).

Deep links were not implemented on macOS 10.12 and are common on iOS (5.4).
"""


def application_of(budget: str) -> Application | None:
    """The announced application that spends a budget; None for later, test and default budgets.

    >>> application_of("com.apple.parsec.Search").name
    'Lookup hints'
    """
    return next((a for a in ANNOUNCED if a.budget == budget), None)


_MOST_DAYS = 36_525


@dataclass(frozen=True, slots=True)
class Loss:
    """Pure ε by basic composition, in the worst case of records."""

    per_record: float
    """The largest of any key of the budget."""
    per_day: float
    """In the long run; a weekly budget counts a seventh per day."""
    over_days: float
    """From the opt-in on, including its own grant."""


@dataclass(frozen=True, slots=True)
class Burst:
    """The largest loss of a budget at once, after the ledger's days without use."""

    balance: int
    report_records: int
    report_epsilon: float
    day_records: int
    """Two reports fit into a day."""
    day_epsilon: float


@dataclass(frozen=True, slots=True)
class Line:
    """One budget."""

    budget: str
    application: str | None
    """The announced application that spends it."""
    keys: int
    """KeyNames that may submit."""
    silent_keys: int
    """KeyNames at priority 99999 (the daemon refuses the PrivacyParameter): never submitted."""
    patterns: bool
    """Whether a key may be a pattern (KeyPatternsAllowed) and stand for any number of keys."""
    algorithms: tuple[str, ...]
    session_amount: int
    session_seconds: float
    records_per_day: float
    claimed: Loss
    """By the PrivacyParameters, as the paper counts."""
    coin: Loss | None
    """By the code's flip probability (:func:`~.rules.coin_epsilon`); None if unknown."""
    burst: Burst


@dataclass(frozen=True, slots=True)
class Total:
    """Several budgets together."""

    name: str
    budgets: tuple[str, ...]
    per_day: float
    over_days: float
    coin_per_day: float | None
    """By the code's flip probabilities; None if one budget's is unknown."""
    coin_over_days: float | None


@dataclass(frozen=True, slots=True)
class Ledger:
    """A configuration's budgets and their sums.

    ``permitted`` sums the four initially announced applications (16 per day for macOS 10.12.3);
    ``platforms`` those of them confirmed active on macOS and on iOS (6 on macOS 10.12.3, 14 on iOS
    10.1.1); ``configured`` everything.

    Formal guarantee: a device that follows the configuration and the daemon's known rules submits
    no records whose claimed ε sum to more than ``over_days`` within ``days`` days of its opt-in.
    Not claimed: that the claimed ε is the true one (see ``coin``), nor anything about keys that
    were left out or balances that were changed from outside; nor that every budget grows: on macOS
    10.12 the authors saw those of default and AppDeepLink stay constant (footnote 5), and Figure
    2's health has not grown in 80 days either. The ledger takes the files at face value.
    """

    days: int
    announced: int
    """The number of initially announced applications: 4, whatever is configured."""
    left_out: int
    """KeyNames without a known budget (:func:`~.configuration.unresolved_findings`)."""
    lines: tuple[Line, ...]
    permitted: Total
    platforms: tuple[Total, ...]
    configured: Total

    def line(self, budget: str) -> Line | None:
        """The line of a budget."""
        return next((line for line in self.lines if line.budget == budget), None)


def make_ledger(configuration: Configuration, *, days: int = 30) -> Ledger:
    """Add up what ``configuration`` permits over ``days`` days.

    Announced applications come first, then the other budgets by name; a budget without any key that
    may submit permits nothing and has a line with zeros.

    Source: Tang et al. 2017, section 4.2: PrivacyParameter · SessionAmount every SessionSeconds, a
    report every 18 hours with at most min(SessionAmount, 40) records per KeyName, balances that
    roll over.

    Raises:
        UsageError: days below 1, or more than a century.
    """
    if not 1 <= days <= _MOST_DAYS:
        raise UsageError(f"days={days}: must be from 1 to {_MOST_DAYS:,}")
    by_budget: dict[str, list[ResolvedKey]] = defaultdict(list)
    resolved = resolve(configuration)
    for key in resolved:
        by_budget[key.budget.name].append(key)
    order = {application.budget: place for place, application in enumerate(ANNOUNCED)}
    budgets = sorted(
        configuration.budgets.values(), key=lambda b: (order.get(b.name, len(order)), b.name)
    )
    lines = tuple(_line(budget, by_budget[budget.name], days) for budget in budgets)
    announced = [line for line in lines if line.application is not None]
    return Ledger(
        days=days,
        announced=len(ANNOUNCED),
        left_out=len(configuration.keys) - len(resolved),
        lines=lines,
        permitted=_total("initially announced applications", announced),
        platforms=tuple(
            _total(platform, [line for line in announced if _works_on(platform, line)])
            for platform in PLATFORMS
        ),
        configured=_total("everything configured", lines),
    )


def _line(budget: Budget, keys: Sequence[ResolvedKey], days: int) -> Line:
    submitting = [key for key in keys if key.priority < NEVER_SUBMITTED]
    patterns = any(key.properties.patterns_allowed for key in submitting)
    sessions = sessions_within(days * DAY, budget.session_seconds)
    granted = budget.session_amount * DAY / budget.session_seconds
    in_report = _in_report(budget, submitting, patterns=patterns)
    if in_report is None:
        records_per_day, records = granted, sessions * budget.session_amount
    else:
        records_per_day = min(granted, in_report * DAY / REPORT_SECONDS)
        records = min(sessions * budget.session_amount, in_report * reports_within(days * DAY))
    claimed = max((key.epsilon for key in submitting), default=0.0)
    coins = [coin_epsilon(key) for key in submitting]
    known = [c for c in coins if c is not None]
    coin = _loss(max(known, default=0.0), records_per_day, records)
    application = application_of(budget.name)
    return Line(
        budget=budget.name,
        application=application.name if application else None,
        keys=len(submitting),
        silent_keys=len(keys) - len(submitting),
        patterns=patterns,
        algorithms=tuple(sorted({key.properties.algorithm for key in submitting})),
        session_amount=budget.session_amount,
        session_seconds=budget.session_seconds,
        records_per_day=records_per_day,
        claimed=_loss(claimed, records_per_day, records),
        coin=coin if len(known) == len(coins) else None,
        burst=_burst(budget, in_report, claimed, days),
    )


def _in_report(budget: Budget, keys: Sequence[ResolvedKey], *, patterns: bool) -> int | None:
    """Records of a budget that fit into one report; None (no limit) if a key may be a pattern."""
    per_key = min(budget.session_amount, MOST_RECORDS)
    return None if patterns and per_key else len(keys) * per_key


def _loss(per_record: float, records_per_day: float, records: int) -> Loss:
    return Loss(per_record, per_record * records_per_day, per_record * records)


def _burst(budget: Budget, in_report: int | None, epsilon: float, days: int) -> Burst:
    """The opt-in's own grant counts: Figure 2's testBudget has 324 = 4·(80 + 1) after 80 days."""
    balance = budget.session_amount * (1 + int(days * DAY // budget.session_seconds))
    report = balance if in_report is None else min(balance, in_report)
    # the budget also grows on that day
    day = budget.session_amount * sessions_within((days + 1) * DAY, budget.session_seconds)
    day = day if in_report is None else min(day, in_report * reports_within(DAY))
    return Burst(balance, report, report * epsilon, day, day * epsilon)


def _works_on(platform: str, line: Line) -> bool:
    application = application_of(line.budget)
    return application is not None and platform in application.platforms


def _total(name: str, lines: Iterable[Line]) -> Total:
    lines = tuple(lines)
    coins = [line.coin for line in lines if line.coin is not None]
    known = len(coins) == len(lines)
    return Total(
        name=name,
        budgets=tuple(line.budget for line in lines),
        per_day=sum(line.claimed.per_day for line in lines),
        over_days=sum(line.claimed.over_days for line in lines),
        coin_per_day=sum(c.per_day for c in coins) if known else None,
        coin_over_days=sum(c.over_days for c in coins) if known else None,
    )
