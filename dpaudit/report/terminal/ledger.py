"""A ledger's tables for a terminal: permitted ε, unspent budgets, and ε by the code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dpaudit.deployments.apple.ledger import Ledger, Line, Total
from dpaudit.report import Column, quantity
from dpaudit.report.deployment import bursts_table as bursts
from dpaudit.report.deployment import bursts_title, upwards
from dpaudit.report.format import NOTHING, count
from dpaudit.report.terminal.table import make_table
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "announced_words",
    "bursts_table",
    "coin_sentence",
    "days_words",
    "implied_table",
    "permitted_table",
]

_PREFIX = "com.apple."
_LETTERS = 300


def permitted_table(ledger: Ledger, *, short: bool) -> Table:
    """Budgets: the announced ones with their sum, then the others and the sum of all."""
    announced = [line for line in ledger.lines if line.application]
    others = [line for line in ledger.lines if not line.application]
    rows = [_permitted_row(line, short=short) for line in announced]
    sums = {len(rows) - 1}
    rows.append(_sum_row(ledger.permitted, announced_words(ledger)))
    rows += [_sum_row(t, f"  confirmed active on {t.name}") for t in ledger.platforms]
    marked = {len(rows) - 1 - len(ledger.platforms)}
    sums.add(len(rows) - 1)
    rows += [_permitted_row(line, short=short) for line in others]
    sums.add(len(rows) - 1)
    rows.append(_sum_row(ledger.configured, "everything configured"))
    headers = ["Budget", "For", "Keys", "Records", "ε per record", "ε per day"]
    headers.append(f"ε in {days_words(ledger)}")
    columns = [Column(h, [row[i] for row in rows], i > 1) for i, h in enumerate(headers)]
    if short:
        del columns[1]
    title = "What the budgets permit, by the PrivacyParameters"
    return make_table(columns, title=title, lines_after=sums, bold=marked)


def _permitted_row(line: Line, *, short: bool) -> tuple[str, ...]:
    claimed = line.claimed
    return (
        _name(line, short=short),
        line.application or NOTHING,
        count(line.keys) + ("+" if line.patterns else ""),
        _records(line),
        *(upwards(loss) for loss in (claimed.per_record, claimed.per_day, claimed.over_days)),
    )


def _records(line: Line) -> str:
    """The records granted; fewer if reports cannot take that many."""
    granted = line.session_amount * 86_400 / line.session_seconds
    if line.keys and line.records_per_day < granted * (1 - 1e-9):
        return f"{upwards(line.records_per_day)} per day"
    return f"{count(line.session_amount)} {_period(line.session_seconds)}"


def _sum_row(total: Total, name: str) -> tuple[str, ...]:
    return (name, "", "", "", "", upwards(total.per_day), upwards(total.over_days))


def bursts_table(ledger: Ledger, *, short: bool) -> Table:
    """The ε of one report and of one day after the ledger's days without use."""
    columns = bursts(ledger)
    columns[0] = Column("Budget", [_name(line, short=short) for line in ledger.lines])
    return make_table(columns, title=bursts_title(ledger))


def implied_table(ledger: Ledger, *, short: bool) -> Table:
    """The claimed ε and the ε by the randomisation probability in the code."""
    lines = [line for line in ledger.lines if line.keys]
    algorithms = [printable(", ".join(line.algorithms), limit=_LETTERS) for line in lines]
    columns = [
        Column("Budget", [_name(line, short=short) for line in lines]),
        Column("Algorithms", algorithms),
        Column("ε per record", [upwards(line.claimed.per_record) for line in lines], True),
        Column("by the code", [_coin(line, "per_record") for line in lines], True),
        Column("ε per day", [upwards(line.claimed.per_day) for line in lines], True),
        Column("by the code", [_coin(line, "per_day") for line in lines], True),
    ]
    title = "ε by the randomisation probability in the code (not in the paper’s sums)"
    return make_table(columns, title=title)


def _coin(line: Line, field: Literal["per_record", "per_day"]) -> str:
    return "not known" if line.coin is None else upwards(getattr(line.coin, field))


def coin_sentence(ledger: Ledger) -> str:
    """Why the code's ε differs from the claim, and its sums."""
    permitted, everything = ledger.permitted.coin_per_day, ledger.configured.coin_per_day
    if permitted is None:
        sums = "The sum is not known, as not every algorithm is."
    else:
        sums = f"By the code, the announced applications may lose ε = {upwards(permitted)} per day "
        sums += f"instead of {upwards(ledger.permitted.per_day)}"
        sums += (
            "." if everything is None else f"; with everything configured, {upwards(everything)}."
        )
    return (
        "A sketch flips each bit with probability 1/(e^P + 1), where P is the PrivacyParameter. "
        "Two words differ in two bits, so its ε is 2·P; the record of a new word holds two "
        f"sketches. A one-bit record’s ε is P. {sums}"
    )


def days_words(ledger: Ledger) -> str:
    """The number of days that the ledger sums over."""
    return f"{count(ledger.days)} day{'' if ledger.days == 1 else 's'}"


def announced_words(ledger: Ledger) -> str:
    """The number of initially announced applications that are counted."""
    here, of = len(ledger.permitted.budgets), ledger.announced
    return f"{here if here == of else f'{here} of {of}'} initially announced applications"


def _name(line: Line, *, short: bool) -> str:
    return printable(line.budget.removeprefix(_PREFIX) if short else line.budget, limit=60)


def _period(seconds: float) -> str:
    if seconds == 86_400:
        return "per day"
    return "per week" if seconds == 604_800 else f"per {quantity(seconds)} s"
