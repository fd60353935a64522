"""A deployed system in words and tables: the ε permitted, submitted and shown by the bits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Decimal
from pathlib import PurePath

from dpaudit.deployments.apple.bits.shown import Shown
from dpaudit.deployments.apple.document import AppleDocument
from dpaudit.deployments.apple.ledger import Ledger
from dpaudit.deployments.apple.observed import Day, Observed, Spent
from dpaudit.report import format as fmt
from dpaudit.report.tables import Column
from dpaudit.results.text import one_line, printable
from dpaudit.types import Interval

__all__ = [
    "MOST_LINES",
    "SHOWN_WORDS",
    "balances_table",
    "bursts_table",
    "bursts_title",
    "claim_of",
    "coins_table",
    "days_table",
    "deployment_facts",
    "deployment_findings_table",
    "deployment_sentence",
    "deployment_title",
    "differences_table",
    "ledger_table",
    "ranked",
    "serious_rows",
    "shown_table",
    "spent_table",
    "sums_table",
    "upwards",
]

MOST_LINES = 400
"""Rows of a long table that the page shows; the rest is in the JSON document."""

SHOWN_WORDS = (
    "By the code: the ε of such a record if the code’s randomisation probability comes from the "
    "configured PrivacyParameter. All intervals hold together with 95 % confidence, if bits are "
    "randomised independently and laid out as in the announced algorithms. Not identified means "
    "neither confirmed nor contradicted."
)
"""What the columns of :func:`shown_table` mean."""

_DIGITS = 4
_VERDICTS = ("shows more", "not identified", "shows less", "agrees")
"""The worst first."""


def upwards(value: object) -> str:
    """An upper bound to four digits, never rounded down.

    >>> upwards(2 / 7), upwards(16.0), upwards(None)
    ('0.2858', '16', '–')
    """
    bound = fmt.number(value)
    if not bound or not math.isfinite(bound):
        return fmt.quantity(bound)
    exact = Decimal(bound)
    step = Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1)
    return fmt.quantity(float(exact.quantize(step, ROUND_CEILING)), digits=_DIGITS)


def ranked(shown: Iterable[Shown]) -> list[Shown]:
    """What keys show, the worst first, otherwise in the order given."""
    return sorted(shown, key=lambda s: _VERDICTS.index(s.verdict))


def claim_of(shown: Shown, by: str) -> float | None:
    """The ε of a record that ``by`` (the configuration, the report) claims."""
    return next((c.epsilon for c in shown.claims if c.by == by), None)


def deployment_title(document: AppleDocument) -> str:
    """The system and its configuration, by its folder's name; the facts have the whole path."""
    folder = PurePath(one_line(document.configuration.folder, limit=2000)).name[:200]
    system = f"{document.system.capitalize()}’s deployment"
    return f"{system}, configuration {folder}" if folder else system


def deployment_sentence(document: AppleDocument) -> str:
    """The verdict in a sentence, from the ledger, the bits and the findings."""
    serious = sum(f.serious for f in document.findings)
    permitted = (
        f"the configuration permits ε = {upwards(document.ledger.permitted.per_day)} per day"
    )
    if document.verdict == "inconclusive":
        return f"Inconclusive: there is no verdict; {permitted}."
    if not serious:
        return f"No finding: {permitted}."
    found = f"{serious} findings are" if serious > 1 else "a finding is"
    return f"Finding: {permitted}, and {found} against the user{_worst(document)}."


def _worst(document: AppleDocument) -> str:
    """The key whose bits show the most above what is claimed."""
    more = [
        (s.record.low / s.claimed, s.record.low, s.claimed, s)
        for s in document.shown
        if s.verdict == "shows more" and s.record is not None and s.claimed
    ]
    if not more:
        return ""
    _, low, claimed, s = max(more, key=lambda m: m[0])
    key = one_line(s.key, limit=120)
    shown = f"; the bits of {key} show ε {fmt.bounds(low)} per record"
    return f"{shown}, where {fmt.quantity(claimed)} is claimed"


def deployment_facts(document: AppleDocument) -> list[tuple[str, str]]:
    """Names and values for the top of the page."""
    ledger, observed = document.ledger, document.observed
    facts = [("ε per day, permitted", upwards(ledger.permitted.per_day))]
    facts += [
        (f"of that, active on {printable(p.name, limit=40)}", upwards(p.per_day))
        for p in ledger.platforms
    ]
    facts.append((f"Over {_days(ledger)}", upwards(ledger.permitted.over_days)))
    if observed is not None:
        unread = fmt.count(observed.unread) if observed.unread else fmt.NOTHING
        facts += [
            ("Reports", fmt.count(observed.reports)),
            ("Unread or duplicate", unread),
            ("Records submitted", fmt.count(observed.total.records)),
            ("ε submitted, as claimed", fmt.quantity(observed.total.claimed)),
            ("ε submitted, by the bits where they show it", _between(observed.total)),
            ("Busiest day", _busiest(observed.busiest)),
        ]
    folder = one_line(document.configuration.folder, limit=400)
    facts.append(("Configuration", folder or fmt.NOTHING))
    return [(name, value) for name, value in facts if value != fmt.NOTHING]


def ledger_table(ledger: Ledger) -> list[Column]:
    """One row per budget."""
    lines = ledger.lines[:MOST_LINES]
    coins = [(x.coin.per_record, x.coin.per_day) if x.coin else (None, None) for x in lines]
    return [
        Column("Budget", [_name(x.budget) for x in lines]),
        Column("Application", [_name(x.application) or fmt.NOTHING for x in lines]),
        Column("Keys", [fmt.count(x.keys) for x in lines], True),
        Column("Records\nper day", [upwards(x.records_per_day) for x in lines], True),
        Column("ε per record", [upwards(x.claimed.per_record) for x in lines], True),
        Column("ε per day", [upwards(x.claimed.per_day) for x in lines], True),
        Column(f"ε in {_days(ledger)}", [upwards(x.claimed.over_days) for x in lines], True),
        Column("ε per record\nby the code", [upwards(record) for record, _ in coins], True),
        Column("ε per day\nby the code", [upwards(day) for _, day in coins], True),
    ]


def bursts_table(ledger: Ledger) -> list[Column]:
    """The ε of one report and of one day after the ledger's days without use."""
    lines = ledger.lines[:MOST_LINES]
    bursts = [x.burst for x in lines]
    return [
        Column("Budget", [_name(x.budget) for x in lines]),
        Column("Balance", [fmt.count(b.balance) for b in bursts], True),
        Column("Records in\none report", [fmt.count(b.report_records) for b in bursts], True),
        Column("their ε", [upwards(b.report_epsilon) for b in bursts], True),
        Column("Records in\none day", [fmt.count(b.day_records) for b in bursts], True),
        Column("their ε", [upwards(b.day_epsilon) for b in bursts], True),
    ]


def bursts_title(ledger: Ledger) -> str:
    """The title of :func:`bursts_table`."""
    return f"After {_days(ledger)} without use: unspent budget rolls over without limit"


def sums_table(ledger: Ledger) -> list[Column]:
    """The sums of ε that budgets permit."""
    rows = [ledger.permitted, *ledger.platforms, ledger.configured]
    names = [
        f"of that, confirmed active on {t.name}" if t in ledger.platforms else t.name for t in rows
    ]
    over = f"ε in {_days(ledger)}"
    return [
        Column("Sum of", [_name(name) for name in names]),
        Column("ε per day", [upwards(t.per_day) for t in rows], True),
        Column(over, [upwards(t.over_days) for t in rows], True),
        Column("ε per day\nby the code", [upwards(t.coin_per_day) for t in rows], True),
        Column(f"{over}\nby the code", [upwards(t.coin_over_days) for t in rows], True),
    ]


def balances_table(document: AppleDocument) -> list[Column]:
    """The balances that the device's database holds."""
    rows = document.database.balances[:MOST_LINES] if document.database else ()
    return [
        Column("Budget", [_name(r.key) for r in rows]),
        Column("Balance", [fmt.count(r.balance) for r in rows], True),
        Column("Created", [r.created.isoformat() for r in rows]),
        Column("Last updated", [r.updated.isoformat() for r in rows]),
    ]


def shown_table(document: AppleDocument) -> list[Column]:
    """One row per kind of record: claims, what the bits show, and on what basis."""
    shown = ranked(document.shown)[:MOST_LINES]
    return [
        Column("Key", [_name(s.key, 300) for s in shown]),
        Column("The bits", [s.verdict for s in shown]),
        Column("ε claimed", [_claims(s) for s in shown], True),
        Column("by the\ncode", [fmt.quantity(s.coin) for s in shown], True),
        Column("ε shown", [_epsilon(s.record) for s in shown], True),
        Column("Basis", [_name(s.reason, 600) for s in shown]),
    ]


def coins_table(document: AppleDocument) -> list[Column]:
    """The same records: algorithm, flip probability, and checks of independence."""
    shown = ranked(document.shown)[:MOST_LINES]
    used = [f"{fmt.count(s.used)} of {fmt.count(s.records)}" for s in shown]
    return [
        Column("Key", [_name(s.key, 300) for s in shown]),
        Column("Algorithm", [_name(s.algorithm) for s in shown]),
        Column("Records used", used, True),
        Column("Flip probability", [_flip(s.flip) for s in shown], True),
        Column("ε per sketch", [_epsilon(s.sketch) for s in shown], True),
        Column("Checks of the bits", [_checks(s) for s in shown]),
    ]


def spent_table(observed: Observed | None) -> list[Column]:
    """What reports hold, one row per budget, and the total."""
    rows = () if observed is None else (*observed.budgets, observed.total)
    return [
        Column("Budget", [_name(r.budget) or "total" for r in rows]),
        Column("Records", [fmt.count(r.records) for r in rows], True),
        Column("ε as claimed", [fmt.quantity(r.claimed) for r in rows], True),
        Column("ε by the bits,\nelse as claimed", [_between(r) for r in rows], True),
    ]


def days_table(observed: Observed | None) -> list[Column]:
    """What reports hold, one row per day."""
    days = () if observed is None else observed.days[:MOST_LINES]
    return [
        Column("Day (UTC)", [_name(d.date, 20) for d in days]),
        Column("Records", [fmt.count(d.total.records) for d in days], True),
        Column("ε as claimed", [fmt.quantity(d.total.claimed) for d in days], True),
        Column("ε by the bits,\nelse as claimed", [_between(d.total) for d in days], True),
    ]


def differences_table(document: AppleDocument) -> list[Column]:
    """What changed between two configurations."""
    rows = (document.differences or ())[:MOST_LINES]
    return [
        Column("What", [_name(d.what, 600) for d in rows]),
        Column("Before", [_name(d.old, 300) for d in rows]),
        Column("Now", [_name(d.new, 300) for d in rows]),
        Column("Note", [_name(d.note, 400) or fmt.NOTHING for d in rows]),
    ]


def deployment_findings_table(document: AppleDocument) -> list[Column]:
    """The findings, those against the user first."""
    rows = sorted(document.findings, key=lambda f: not f.serious)[:MOST_LINES]
    return [
        Column("Finding", [_name(f.message, 1000) for f in rows]),
        Column("Where", [_name(f.where, 300) for f in rows]),
        Column("Against\nthe user", ["yes" if f.serious else "no" for f in rows]),
    ]


def _name(text: str | None, limit: int = 200) -> str:
    return "" if text is None else one_line(text, limit=limit)


def _days(ledger: Ledger) -> str:
    return f"{fmt.count(ledger.days)} day{'' if ledger.days == 1 else 's'}"


def _claims(shown: Shown) -> str:
    """The claims; each on a line of its own if they differ."""
    told = {
        by: fmt.quantity(c)
        for by in ("configuration", "report")
        if (c := claim_of(shown, by)) is not None
    }
    if len(set(told.values())) <= 1:
        return next(iter(told.values()), fmt.NOTHING)
    return "\n".join(f"{by} {value}" for by, value in told.items())


def _checks(shown: Shown) -> str:
    checks = [f"{_name(c.name, 40)}: p = {fmt.p_value(c.p)}" for c in shown.checks]
    return "\n".join(checks) or fmt.NOTHING


def _epsilon(interval: Interval | None) -> str:
    return fmt.NOTHING if interval is None else fmt.bounds(interval.low, interval.high)


def _flip(interval: Interval | None) -> str:
    if interval is None or not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return fmt.NOTHING
    low, high = math.floor(1e4 * interval.low) / 1e4, math.ceil(1e4 * interval.high) / 1e4
    return f"{low:.4f} … {high:.4f}"


def _between(spent: Spent) -> str:
    return fmt.bounds(spent.shown_low, spent.shown_high)


def _busiest(day: Day | None) -> str:
    if day is None:
        return fmt.NOTHING
    return f"{_name(day.date, 20)}: ε = {fmt.quantity(day.total.claimed)}"


def serious_rows(columns: Sequence[Column]) -> list[bool]:
    """Which rows of the table of findings are against the user."""
    return [cell == "yes" for cell in columns[-1].cells]
