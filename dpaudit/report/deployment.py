"""The audit of a deployed system in words and tables: what it permits, what was submitted, what its bits show."""

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
"""Lines of a long table that the page shows; the rest is in the JSON document."""

SHOWN_WORDS = (
    "By its coin: what a record of this form has where the code’s coin has the configured PrivacyParameter. All intervals "
    "hold together with 95 % confidence, if coins are independent and laid out as the announced algorithms do. Not "
    "identified means neither confirmed nor contradicted."
)
"""What the columns of :func:`shown_table` mean."""

_DIGITS = 4
_VERDICTS = ("shows more", "not identified", "shows less", "agrees")
"""In the order in which they matter."""


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
    """What keys show, the worst first, otherwise as they came."""
    return sorted(shown, key=lambda s: _VERDICTS.index(s.verdict))


def claim_of(shown: Shown, by: str) -> float | None:
    """The ε that ``by`` (the configuration, the report) claims of a record."""
    return next((c.epsilon for c in shown.claims if c.by == by), None)


def deployment_title(document: AppleDocument) -> str:
    """Which system, and which configuration of it: its folder's own name, as the facts have the whole path."""
    folder = PurePath(one_line(document.configuration.folder, limit=2000)).name[:200]
    return f"Deployment of {document.system.capitalize()}" + (
        f", configured by {folder}" if folder else ""
    )


def deployment_sentence(document: AppleDocument) -> str:
    """The verdict in a sentence: what its ledger, bits and findings come to."""
    serious = sum(f.serious for f in document.findings)
    permitted = f"the configuration permits ε = {upwards(document.ledger.permitted.per_day)} a day"
    if document.verdict == "inconclusive":
        return f"Inconclusive: there is no verdict; {permitted}."
    if not serious:
        return f"No finding against the user; {permitted}."
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
    return f"; the bits of {key} show ε {fmt.bounds(low)} a record, where {fmt.quantity(claimed)} is claimed"


def deployment_facts(document: AppleDocument) -> list[tuple[str, str]]:
    """Names and values for the top of the page."""
    ledger, observed = document.ledger, document.observed
    facts = [
        ("ε a day, permitted", upwards(ledger.permitted.per_day)),
        *(
            (f"of that, seen on {printable(p.name, limit=40)}", upwards(p.per_day))
            for p in ledger.platforms
        ),
        (f"Over {_days(ledger)}", upwards(ledger.permitted.over_days)),
    ]
    if observed is not None:
        facts += [
            ("Reports", fmt.count(observed.reports)),
            ("Not read, or copies", fmt.count(observed.unread) if observed.unread else fmt.NOTHING),
            ("Records submitted", fmt.count(observed.total.records)),
            ("Their ε, as claimed", fmt.quantity(observed.total.claimed)),
            ("Their ε, by the bits where they show it", _between(observed.total)),
            ("Busiest day", _busiest(observed.busiest)),
        ]
    facts.append(
        ("Configuration", one_line(document.configuration.folder, limit=400) or fmt.NOTHING)
    )
    return [(name, value) for name, value in facts if value != fmt.NOTHING]


def ledger_table(ledger: Ledger) -> list[Column]:
    """A line a budget."""
    lines = ledger.lines[:MOST_LINES]
    over = f"ε in {_days(ledger)}"
    return [
        Column("Budget", [_name(x.budget) for x in lines]),
        Column("Application", [_name(x.application) or fmt.NOTHING for x in lines]),
        Column("Keys", [fmt.count(x.keys) for x in lines], True),
        Column("Records\na day", [upwards(x.records_per_day) for x in lines], True),
        Column("ε a record", [upwards(x.claimed.per_record) for x in lines], True),
        Column("ε a day", [upwards(x.claimed.per_day) for x in lines], True),
        Column(over, [upwards(x.claimed.over_days) for x in lines], True),
        Column(
            "ε a record\nby its coin",
            [upwards(x.coin.per_record if x.coin else None) for x in lines],
            True,
        ),
        Column(
            "ε a day\nby its coin",
            [upwards(x.coin.per_day if x.coin else None) for x in lines],
            True,
        ),
    ]


def bursts_table(ledger: Ledger) -> list[Column]:
    """What a budget may lose at once after a pause of the ledger's days."""
    lines = ledger.lines[:MOST_LINES]
    bursts = [x.burst for x in lines]
    return [
        Column("Budget", [_name(x.budget) for x in lines]),
        Column("Balance", [fmt.count(b.balance) for b in bursts], True),
        Column("Records in\none report", [fmt.count(b.report_records) for b in bursts], True),
        Column("ε of it", [upwards(b.report_epsilon) for b in bursts], True),
        Column("Records in\none day", [fmt.count(b.day_records) for b in bursts], True),
        Column("ε of it", [upwards(b.day_epsilon) for b in bursts], True),
    ]


def bursts_title(ledger: Ledger) -> str:
    """What :func:`bursts_table` is of."""
    return f"After {_days(ledger)} without use: what is unspent rolls over, without limit"


def sums_table(ledger: Ledger) -> list[Column]:
    """What budgets permit together."""
    rows = [ledger.permitted, *ledger.platforms, ledger.configured]
    names = [
        f"of that, seen to work on {t.name}" if t in ledger.platforms else t.name for t in rows
    ]
    over = f"ε in {_days(ledger)}"
    return [
        Column("Together", [_name(name) for name in names]),
        Column("ε a day", [upwards(t.per_day) for t in rows], True),
        Column(over, [upwards(t.over_days) for t in rows], True),
        Column("ε a day\nby their coins", [upwards(t.coin_per_day) for t in rows], True),
        Column(f"{over}\nby their coins", [upwards(t.coin_over_days) for t in rows], True),
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
    """A line for each kind of records: claims, what the bits show, and what that rests on."""
    shown = ranked(document.shown)[:MOST_LINES]
    return [
        Column("Key", [_name(s.key, 300) for s in shown]),
        Column("The bits", [s.verdict for s in shown]),
        Column("ε claimed", [_claims(s) for s in shown], True),
        Column("by its\ncoin", [fmt.quantity(s.coin) for s in shown], True),
        Column("ε shown", [_epsilon(s.record) for s in shown], True),
        Column("It rests on", [_name(s.reason, 600) for s in shown]),
    ]


def coins_table(document: AppleDocument) -> list[Column]:
    """The same records: their algorithm, the coin behind their noise, and whether its throws look independent."""
    shown = ranked(document.shown)[:MOST_LINES]
    return [
        Column("Key", [_name(s.key, 300) for s in shown]),
        Column("Algorithm", [_name(s.algorithm) for s in shown]),
        Column(
            "Records used", [f"{fmt.count(s.used)} of {fmt.count(s.records)}" for s in shown], True
        ),
        Column("Flip probability", [_flip(s.flip) for s in shown], True),
        Column("ε of a sketch", [_epsilon(s.sketch) for s in shown], True),
        Column("Checks of the bits", [_checks(s) for s in shown]),
    ]


def spent_table(observed: Observed | None) -> list[Column]:
    """What reports hold, a line a budget, and the sum below."""
    rows = () if observed is None else (*observed.budgets, observed.total)
    return [
        Column("Budget", [_name(r.budget) or "all together" for r in rows]),
        Column("Records", [fmt.count(r.records) for r in rows], True),
        Column("ε as claimed", [fmt.quantity(r.claimed) for r in rows], True),
        Column("ε by the bits,\nelse as claimed", [_between(r) for r in rows], True),
    ]


def days_table(observed: Observed | None) -> list[Column]:
    """What reports hold, a line a day."""
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
    """What an auditor must know, what is against the user first."""
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
    """The claims, in a line each where they differ."""
    told = {
        by: fmt.quantity(c)
        for by in ("configuration", "report")
        if (c := claim_of(shown, by)) is not None
    }
    if len(set(told.values())) <= 1:
        return next(iter(told.values()), fmt.NOTHING)
    return "\n".join(f"{by} {value}" for by, value in told.items())


def _checks(shown: Shown) -> str:
    return (
        "\n".join(f"{_name(c.name, 40)}: p = {fmt.p_value(c.p)}" for c in shown.checks)
        or fmt.NOTHING
    )


def _epsilon(interval: Interval | None) -> str:
    return fmt.NOTHING if interval is None else fmt.bounds(interval.low, interval.high)


def _flip(interval: Interval | None) -> str:
    if interval is None or not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return fmt.NOTHING
    return (
        f"{math.floor(1e4 * interval.low) / 1e4:.4f} … {math.ceil(1e4 * interval.high) / 1e4:.4f}"
    )


def _between(spent: Spent) -> str:
    return fmt.bounds(spent.shown_low, spent.shown_high)


def _busiest(day: Day | None) -> str:
    return (
        fmt.NOTHING
        if day is None
        else f"{_name(day.date, 20)}: ε = {fmt.quantity(day.total.claimed)}"
    )


def serious_rows(columns: Sequence[Column]) -> list[bool]:
    """Which lines of the table of findings are against the user."""
    return [cell == "yes" for cell in columns[-1].cells]
