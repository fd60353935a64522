"""One privacy budget as the daemon keeps it: credited by whole periods, spent one record at a time."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from dpaudit.deployments.apple.model import Balance, Budget
from dpaudit.errors import UsageError

__all__ = ["BudgetAccount"]

_LONGEST = timedelta.max.total_seconds()


class BudgetAccount:
    """Starts with SessionAmount; gains it for each whole SessionSeconds since the last update (Figures 18 and 19)."""

    def __init__(self, budget: Budget, opened: datetime) -> None:
        """Open it.

        Raises:
            UsageError: SessionSeconds not above 0, or below a microsecond; a SessionAmount below 0.
        """
        if not (math.isfinite(budget.session_seconds) and budget.session_seconds >= 1e-6):
            raise UsageError(f"SessionSeconds={budget.session_seconds} of {budget.name}: a number of seconds above 0")
        if budget.session_amount < 0:
            raise UsageError(f"SessionAmount={budget.session_amount} of {budget.name}: a whole number from 0")
        self._budget = budget
        self._period = timedelta(seconds=budget.session_seconds) if budget.session_seconds < _LONGEST else timedelta.max
        self._opened = self._updated = opened
        self.balance = self.accrued = budget.session_amount
        self.spent = 0

    def credit(self, now: datetime) -> None:
        """PrivacyBudgetMaintenance: whole periods only; what is left of a period counts at the next update."""
        periods = (now - self._updated) // self._period
        self._updated += periods * self._period
        self.balance += periods * self._budget.session_amount
        self.accrued += periods * self._budget.session_amount

    def spend(self) -> None:
        """One record is submitted."""
        self.balance -= 1
        self.spent += 1

    def row(self) -> Balance:
        """As the budget table has it."""
        return Balance(self._budget.name, self.balance, self._opened, self._updated)
