"""The audit of a deployed system in words and tables: what it permits, what was submitted, what its bits show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from pathlib import PurePath
from typing import Any

from dpaudit.report import format as fmt
from dpaudit.report.tables import Column
from dpaudit.results.text import one_line, printable

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
    "deployment_verdict",
    "differences_table",
    "ledger_table",
    "listed",
    "part",
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


def listed(value: object) -> list[Mapping[str, Any]]:
    """The mappings in a JSON list; nothing of anything else."""
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, (list, tuple)) else []


def part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A JSON object inside another; an empty one where there is none."""
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def ranked(shown: object) -> list[Mapping[str, Any]]:
    """What keys show, the worst first, otherwise as they came."""
    verdicts = {verdict: i for i, verdict in enumerate(_VERDICTS)}
    return sorted(listed(shown), key=lambda s: verdicts.get(str(s.get("verdict")), len(verdicts)))


def claim_of(shown: Mapping[str, Any], by: str) -> float | None:
    """The ε that ``by`` (the configuration, the report) claims of a record."""
    return next((fmt.number(c.get("epsilon")) for c in listed(shown.get("claims")) if c.get("by") == by), None)


def deployment_title(document: Mapping[str, Any]) -> str:
    """Which system, and which configuration of it: its folder's own name, as the facts have the whole path."""
    if document.get("title"):
        return _name(document, "title", 300)
    folder = PurePath(_name(part(document, "configuration"), "folder", 2000)).name[:200]
    system = _name(document, "system", 60).capitalize() or "a system"
    return f"Deployment of {system}" + (f", configured by {folder}" if folder else "")


def deployment_verdict(document: Mapping[str, Any]) -> str:
    """One of three words: what is against the user is a finding, whatever else is said; no verdict is no pass."""
    if any(f.get("serious") for f in listed(document.get("findings"))):
        return "finding"
    said = document.get("verdict")
    return str(said) if said in ("finding", "no-finding") else "inconclusive"


def deployment_sentence(document: Mapping[str, Any]) -> str:
    """The verdict in a sentence: the document's own, or what its ledger, bits and findings come to."""
    if isinstance(document.get("sentence"), str) and document["sentence"].strip():
        return printable(document["sentence"])
    serious = sum(bool(f.get("serious")) for f in listed(document.get("findings")))
    a_day = upwards(part(part(document, "ledger"), "permitted").get("per_day"))
    permitted = f"the configuration permits ε = {a_day} a day" if a_day != fmt.NOTHING else "there is no ledger"
    if deployment_verdict(document) == "inconclusive":
        return f"Inconclusive: there is no verdict; {permitted}."
    if not serious:
        return f"No finding against the user; {permitted}."
    found = f"{serious} findings are" if serious > 1 else "a finding is"
    return f"Finding: {permitted}, and {found} against the user{_worst(document)}."


def _worst(document: Mapping[str, Any]) -> str:
    """The key whose bits show the most above what is claimed."""
    more = [
        (low / claimed, low, claimed, s)
        for s in listed(document.get("shown"))
        if s.get("verdict") == "shows more"
        and (low := fmt.number(part(s, "record").get("low"))) is not None
        and (claims := [c for by in ("configuration", "report") if (c := claim_of(s, by)) is not None])
        and (claimed := min(claims)) > 0
    ]
    if not more:
        return ""
    _, low, claimed, s = max(more, key=lambda m: m[0])
    shown = fmt.epsilon({"low": low, "high": "inf"})
    return f"; the bits of {_name(s, 'key', 120)} show ε {shown} a record, where {fmt.quantity(claimed)} is claimed"


def deployment_facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values for the top of the page."""
    ledger, observed = part(document, "ledger"), part(document, "observed")
    days = fmt.count(ledger.get("days"))
    total, busiest = part(observed, "total"), part(observed, "busiest")
    facts = [
        ("ε a day, permitted", upwards(part(ledger, "permitted").get("per_day"))),
        *(
            (f"of that, seen on {printable(p.get('name', ''), limit=40)}", upwards(p.get("per_day")))
            for p in listed(ledger.get("platforms"))
        ),
        (f"Over {days} day{_s(ledger)}", upwards(part(ledger, "permitted").get("over_days"))),
        ("Reports", fmt.count(observed.get("reports"))),
        ("Not read, or copies", fmt.count(observed.get("unread")) if observed.get("unread") else fmt.NOTHING),
        ("Records submitted", fmt.count(total.get("records"))),
        ("Their ε, as claimed", fmt.quantity(total.get("claimed"))),
        ("Their ε, by the bits where they show it", _between(total) if observed else fmt.NOTHING),
        ("Busiest day", _busiest(busiest)),
        ("Configuration", _name(part(document, "configuration"), "folder", 400) or fmt.NOTHING),
    ]
    return [(name, value) for name, value in facts if value != fmt.NOTHING]


def ledger_table(document: Mapping[str, Any]) -> list[Column]:
    """A line a budget."""
    ledger = part(document, "ledger")
    lines = listed(ledger.get("lines"))[:MOST_LINES]
    return [
        Column("Budget", [_name(x, "budget") for x in lines]),
        Column("Application", [_name(x, "application") or fmt.NOTHING for x in lines]),
        Column("Keys", [fmt.count(x.get("keys")) for x in lines], True),
        Column("Records\na day", [upwards(x.get("records_per_day")) for x in lines], True),
        Column("ε a record", [_loss(x, "claimed", "per_record") for x in lines], True),
        Column("ε a day", [_loss(x, "claimed", "per_day") for x in lines], True),
        Column(_over(ledger), [_loss(x, "claimed", "over_days") for x in lines], True),
        Column("ε a record\nby its coin", [_loss(x, "coin", "per_record") for x in lines], True),
        Column("ε a day\nby its coin", [_loss(x, "coin", "per_day") for x in lines], True),
    ]


def bursts_table(document: Mapping[str, Any]) -> list[Column]:
    """What a budget may lose at once after a pause of the ledger's days."""
    lines = listed(part(document, "ledger").get("lines"))[:MOST_LINES]
    bursts = [part(x, "burst") for x in lines]
    return [
        Column("Budget", [_name(x, "budget") for x in lines]),
        Column("Balance", [fmt.count(b.get("balance")) for b in bursts], True),
        Column("Records in\none report", [fmt.count(b.get("report_records")) for b in bursts], True),
        Column("ε of it", [upwards(b.get("report_epsilon")) for b in bursts], True),
        Column("Records in\none day", [fmt.count(b.get("day_records")) for b in bursts], True),
        Column("ε of it", [upwards(b.get("day_epsilon")) for b in bursts], True),
    ]


def bursts_title(document: Mapping[str, Any]) -> str:
    """What :func:`bursts_table` is of."""
    ledger = part(document, "ledger")
    days = f"{fmt.count(ledger.get('days'))} day{_s(ledger)}"
    return f"After {days} without use: what is unspent rolls over, without limit"


def sums_table(document: Mapping[str, Any]) -> list[Column]:
    """What budgets permit together."""
    ledger = part(document, "ledger")
    platforms = [{**p, "name": f"of that, seen to work on {p.get('name')}"} for p in listed(ledger.get("platforms"))]
    rows = [t for t in (part(ledger, "permitted"), *platforms, part(ledger, "configured")) if t]
    return [
        Column("Together", [_name(t, "name") for t in rows]),
        Column("ε a day", [upwards(t.get("per_day")) for t in rows], True),
        Column(_over(ledger), [upwards(t.get("over_days")) for t in rows], True),
        Column("ε a day\nby their coins", [upwards(t.get("coin_per_day")) for t in rows], True),
        Column(f"{_over(ledger)}\nby their coins", [upwards(t.get("coin_over_days")) for t in rows], True),
    ]


def balances_table(document: Mapping[str, Any]) -> list[Column]:
    """The balances that the device's database holds."""
    rows = listed(part(document, "database").get("balances"))[:MOST_LINES]
    return [
        Column("Budget", [_name(r, "key") for r in rows]),
        Column("Balance", [fmt.count(r.get("balance")) for r in rows], True),
        Column("Created", [_name(r, "created", 40) for r in rows]),
        Column("Last updated", [_name(r, "updated", 40) for r in rows]),
    ]


def shown_table(document: Mapping[str, Any]) -> list[Column]:
    """A line for each kind of records: claims, what the bits show, and what that rests on."""
    shown = ranked(document.get("shown"))[:MOST_LINES]
    return [
        Column("Key", [_name(s, "key", 300) for s in shown]),
        Column("The bits", [_name(s, "verdict", 40) for s in shown]),
        Column("ε claimed", [_claims(s) for s in shown], True),
        Column("by its\ncoin", [fmt.quantity(s.get("coin")) for s in shown], True),
        Column("ε shown", [_epsilon(s.get("record")) for s in shown], True),
        Column("It rests on", [_name(s, "reason", 600) for s in shown]),
    ]


def coins_table(document: Mapping[str, Any]) -> list[Column]:
    """The same records: their algorithm, the coin behind their noise, and whether its throws look independent."""
    shown = ranked(document.get("shown"))[:MOST_LINES]
    return [
        Column("Key", [_name(s, "key", 300) for s in shown]),
        Column("Algorithm", [_name(s, "algorithm") for s in shown]),
        Column("Records used", [f"{fmt.count(s.get('used'))} of {fmt.count(s.get('records'))}" for s in shown], True),
        Column("Flip probability", [_flip(s.get("flip")) for s in shown], True),
        Column("ε of a sketch", [_epsilon(s.get("sketch")) for s in shown], True),
        Column("Checks of the bits", [_checks(s) for s in shown]),
    ]


def spent_table(document: Mapping[str, Any]) -> list[Column]:
    """What reports hold, a line a budget, and the sum below."""
    observed = part(document, "observed")
    rows = [*listed(observed.get("budgets")), *([part(observed, "total")] if part(observed, "total") else [])]
    return [
        Column("Budget", [_name(r, "budget") or "all together" for r in rows]),
        Column("Records", [fmt.count(r.get("records")) for r in rows], True),
        Column("ε as claimed", [fmt.quantity(r.get("claimed")) for r in rows], True),
        Column("ε by the bits,\nelse as claimed", [_between(r) for r in rows], True),
    ]


def days_table(document: Mapping[str, Any]) -> list[Column]:
    """What reports hold, a line a day."""
    days = listed(part(document, "observed").get("days"))[:MOST_LINES]
    totals = [part(d, "total") for d in days]
    return [
        Column("Day (UTC)", [_name(d, "date", 20) for d in days]),
        Column("Records", [fmt.count(t.get("records")) for t in totals], True),
        Column("ε as claimed", [fmt.quantity(t.get("claimed")) for t in totals], True),
        Column("ε by the bits,\nelse as claimed", [_between(t) for t in totals], True),
    ]


def differences_table(document: Mapping[str, Any]) -> list[Column]:
    """What changed between two configurations."""
    rows = listed(document.get("differences"))[:MOST_LINES]
    return [
        Column("What", [_what(d) for d in rows]),
        Column("Before", [_name(d, "old", 300) for d in rows]),
        Column("Now", [_name(d, "new", 300) for d in rows]),
        Column("Note", [_name(d, "note", 400) or fmt.NOTHING for d in rows]),
    ]


def deployment_findings_table(document: Mapping[str, Any]) -> list[Column]:
    """What an auditor must know, what is against the user first."""
    rows = sorted(listed(document.get("findings")), key=lambda f: not f.get("serious"))[:MOST_LINES]
    return [
        Column("Finding", [_name(f, "message", 1000) for f in rows]),
        Column("Where", [_name(f, "where", 300) for f in rows]),
        Column("Against\nthe user", ["yes" if f.get("serious") else "no" for f in rows]),
    ]


def _what(difference: Mapping[str, Any]) -> str:
    table, name, field = (_name(difference, part, 300) for part in ("table", "name", "field"))
    if not field:
        return f"{table} {name}".strip()
    return f"{field} for {name}" if name else field


def _name(row: Mapping[str, Any], key: str, limit: int = 200) -> str:
    value = row.get(key)
    return "" if value is None else one_line(value, limit=limit)


def _loss(line: Mapping[str, Any], by: str, what: str) -> str:
    return upwards(part(line, by).get(what))


def _over(ledger: Mapping[str, Any]) -> str:
    return f"ε in {fmt.count(ledger.get('days'))} day{_s(ledger)}"


def _s(ledger: Mapping[str, Any]) -> str:
    return "" if ledger.get("days") == 1 else "s"


def _claims(shown: Mapping[str, Any]) -> str:
    """The claims, in a line each where they differ."""
    told = {by: fmt.quantity(c) for by in ("configuration", "report") if (c := claim_of(shown, by)) is not None}
    if len(set(told.values())) <= 1:
        return next(iter(told.values()), fmt.NOTHING)
    return "\n".join(f"{by} {value}" for by, value in told.items())


def _checks(shown: Mapping[str, Any]) -> str:
    checks = listed(shown.get("checks"))
    return "\n".join(f"{_name(c, 'name', 40)}: p = {fmt.p_value(c.get('p'))}" for c in checks) or fmt.NOTHING


def _epsilon(interval: object) -> str:
    return fmt.epsilon(interval) if isinstance(interval, Mapping) else fmt.NOTHING


def _flip(interval: object) -> str:
    if not isinstance(interval, Mapping):
        return fmt.NOTHING
    low, high = fmt.number(interval.get("low")), fmt.number(interval.get("high"))
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return fmt.NOTHING
    return f"{math.floor(1e4 * low) / 1e4:.4f} … {math.ceil(1e4 * high) / 1e4:.4f}"


def _between(spent: Mapping[str, Any]) -> str:
    return fmt.epsilon({"low": spent.get("shown_low"), "high": spent.get("shown_high")})


def _busiest(day: Mapping[str, Any]) -> str:
    if not day:
        return fmt.NOTHING
    return f"{_name(day, 'date', 20)}: ε = {fmt.quantity(part(day, 'total').get('claimed'))}"


def serious_rows(columns: Sequence[Column]) -> list[bool]:
    """Which lines of the table of findings are against the user."""
    return [cell == "yes" for cell in columns[-1].cells]
