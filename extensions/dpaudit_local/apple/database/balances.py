"""Checks of the budget table's rows, alone and against the configuration."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from dpaudit.findings import Finding
from dpaudit_local.apple.database.schema import BUDGETS
from dpaudit_local.apple.model import Balance, Configuration, Database
from dpaudit_local.apple.quoting import quoted

__all__ = ["check_balances", "odd_balances"]

_DAY = timedelta(days=1)
_CLOCK = timedelta(milliseconds=1)


def odd_balances(balances: Iterable[Balance]) -> tuple[Finding, ...]:
    """What is inconsistent in these rows under any configuration.

    Negative balances, duplicate names, updates before the creation, and the jump that Tang et al.
    saw twice and could not explain (§A.2): a balance that equals the days from ZCREATIONDATE to
    ZLASTUPDATE. Ordinary use can also lead to that number, so it is no proof.
    """
    balances = tuple(balances)
    messages = [
        f"{quoted(key)} has {n} rows; each is shown, and which one the daemon uses is unknown"
        for key, n in Counter(b.key for b in balances).items()
        if n > 1
    ]
    for row in balances:
        name, lived = quoted(row.key), row.updated - row.created
        if row.balance < 0:
            messages.append(
                f"{name}: the balance is {row.balance}; "
                "nothing is submitted until it is positive again"
            )
        days = row.balance if 0 <= row.balance < 10**6 else 0  # of more, a timedelta overflows
        if lived < timedelta(0):
            messages.append(f"{name}: last updated before it was created")
        elif lived >= _DAY and abs(lived - days * _DAY) <= _CLOCK:
            messages.append(
                f"{name}: the balance {row.balance} equals (ZLASTUPDATE − ZCREATIONDATE)/86400, "
                "the jump that Tang et al. (§A.2) could not explain; or chance"
            )
    return tuple(Finding(BUDGETS, message) for message in messages)


def check_balances(database: Database, configuration: Configuration) -> tuple[Finding, ...]:
    """Where the balances are impossible under ``configuration``.

    A budget starts with SessionAmount and gains SessionAmount for every whole SessionSeconds up to
    ZLASTUPDATE (Figure 19), so it holds at most (⌊(ZLASTUPDATE − ZCREATIONDATE)/SessionSeconds⌋ +
    1)·SessionAmount; more is a serious finding: somebody raised it (anyone with root can, §5.2), or
    it ran under another configuration. Budgets without a row, and rows without a budget, are
    findings. Not claimed: that a balance within the bound is honest, since submitted records are
    deleted from the database within a day.
    """
    findings = []
    for row in database.balances:
        budget = configuration.budgets.get(row.key)
        name = quoted(row.key)
        if budget is None:
            findings.append(Finding(BUDGETS, f"{name}: the configuration has no such budget"))
            continue
        if not (math.isfinite(budget.session_seconds) and budget.session_seconds > 0):
            message = f"{name}: SessionSeconds={budget.session_seconds:g}: nothing to compare with"
            findings.append(Finding(BUDGETS, message))
            continue
        lived = max(0.0, (row.updated - row.created + _CLOCK).total_seconds())
        periods = int(lived // budget.session_seconds)
        most = (periods + 1) * budget.session_amount
        if row.balance > most:
            message = (
                f"{name}: the balance is {row.balance}, but {budget.session_amount} at first and "
                f"{budget.session_amount} every {budget.session_seconds:g} s cannot give more than "
                f"{most} in {periods} periods"
            )
            findings.append(Finding(BUDGETS, message, serious=True))
    held = {row.key for row in database.balances}
    findings += [
        Finding(BUDGETS, f"{quoted(name)}: the configuration's budget has no row")
        for name in configuration.budgets
        if name not in held
    ]
    return tuple(findings)
