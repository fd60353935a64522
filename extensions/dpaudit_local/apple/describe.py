"""The report of an audit of Apple's deployment: ε permitted, submitted and shown by the bits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from dpaudit import wording
from dpaudit.codec import to_dict
from dpaudit.findings import MOST_ROWS, finding_checks, findings_table, known_facts
from dpaudit.harms import ALGORITHMS, PARAMETERS, TRUST, UNIT, Pyramid, no_verdict, odds_text
from dpaudit.report import (
    Block,
    Check,
    Column,
    Hazard,
    Meaning,
    Report,
    Section,
    Table,
    Text,
    with_verdict,
)
from dpaudit.types import Interval
from dpaudit.wording import NOTHING, count, quantity, upwards
from dpaudit_local.apple.audit import AppleResult
from dpaudit_local.apple.bits.estimates import ShownEpsilon
from dpaudit_local.apple.charts import claim_of, claims_chart, days_chart
from dpaudit_local.apple.ledger import Ledger, Line
from dpaudit_local.apple.observed import Observed, Spent

__all__ = ["describe"]

_VERDICTS = ("shows more", "not identified", "shows less", "agrees")  # the worst first
_FACTS_TOO = ("Unread or duplicate", "Busiest day")  # that a terminal shows


def describe(result: AppleResult) -> Report:
    """The report of an audit of Apple's deployment."""
    headline = _headline(result)
    checks = finding_checks(result.findings)
    if result.verdict == "no-finding":  # advice alone does not show that anything passed
        checks.insert(0, Check(group="verdict", name="verdict", outcome="pass", effect=headline))
    return Report(
        kind="deployment",
        label="deployment",
        subject=result.system,
        title=_title(result),
        verdict=result.verdict,
        headline=headline,
        meaning=tuple(_meaning(result)),
        checks=with_verdict(checks, result.verdict, headline),
        sections=tuple(_sections(result)),
        hazards=_hazards(result),
        facts={"ledger": to_dict(result.ledger.permitted)},
        data=to_dict(result),
        provenance=to_dict(result.provenance),
    )


def _title(result: AppleResult) -> str:
    """The system and its configuration, by its folder's name; the facts have the whole path."""
    folder = PurePath(result.configuration.folder).name
    system = f"{result.system.capitalize()}’s deployment"
    return f"{system}, configuration {folder}" if folder else system


def _headline(result: AppleResult) -> str:
    serious = sum(f.serious for f in result.findings)
    permitted = f"the configuration permits ε = {upwards(result.ledger.permitted.per_day)} per day"
    if result.verdict == "inconclusive":
        return f"Inconclusive: there is no verdict; {permitted}."
    if not serious:
        return f"No finding: {permitted}."
    findings = f"{serious} findings are" if serious > 1 else "a finding is"
    return f"Finding: {permitted}, and {findings} against the user{_worst_key(result)}."


def _worst_key(result: AppleResult) -> str:
    """The key whose bits show the most above what is claimed."""
    more = [
        (s.record.low / s.claimed, s.record.low, s.claimed, s.key)
        for s in result.shown
        if s.verdict == "shows more" and s.record is not None and s.claimed
    ]
    if not more:
        return ""
    _, low, claimed, key = max(more, key=lambda m: m[0])
    evidence = f"; the bits of {key} show ε {wording.bounds(low)} per record"
    return f"{evidence}, where {quantity(claimed)} is claimed"


def _meaning(result: AppleResult) -> Iterator[Meaning]:
    """The meaning of a deployed system's configuration for its users."""
    if result.verdict == "inconclusive":
        yield no_verdict()
        return
    permitted = result.ledger.permitted.per_day
    text = (
        f"A device may reveal up to ε = {upwards(permitted)} about its user each day, and every "
        f"day adds as much: {odds_text(permitted)} in one day. Compare this with what users were "
        "told, and limit the sum over all days, not only the amount per day."
    )
    yield Meaning(heading="What users may lose", says=text)
    more = sum(s.verdict == "shows more" for s in result.shown)
    if more:
        text = (
            f"The bits of {more:,} {'kind' if more == 1 else 'kinds'} of record were randomised "
            "less than is claimed, with 95 % confidence for all intervals together, so they reveal "
            "more about the user. Ask the operator which randomisation its code uses, and treat "
            "submitted records as less private than stated."
        )
        yield Meaning(heading="Records are less private than claimed", says=text)
    if sum(f.serious for f in result.findings) > more:
        text = (
            "Files of the system contradict what is announced, or each other, to the "
            "disadvantage of the user; each is a fact about a file, without chance. Ask the "
            "operator about each of them, as listed below."
        )
        yield Meaning(heading="Files contradict the announcement", says=text)


def _hazards(result: AppleResult) -> tuple[Hazard, ...]:
    pyramid, permitted = Pyramid(), result.ledger.permitted
    over = f"{permitted.over_days:.4g} over {result.ledger.days:,} days"
    pyramid.add(PARAMETERS, f"ε = {permitted.per_day:.4g} per day, {over}")
    pyramid.add(UNIT, "the budget is per day: a person’s loss is the sum over all days")
    if serious := sum(f.serious for f in result.findings):
        pyramid.add(ALGORITHMS, f"{serious:,} under Findings")
    pyramid.leave_open(ALGORITHMS, "code that leaves no trace in the files")
    pyramid.leave_open(TRUST, "who receives the records, and what else is sent")
    return pyramid.hazards()


def _sections(result: AppleResult) -> Iterator[Section]:
    ledger, observed = result.ledger, result.observed
    facts = known_facts(_facts(result), terminal=_FACTS_TOO if observed else ())
    yield Section(title="At a glance", blocks=(facts,))
    findings: Block = Text("No inconsistencies in the files.", terminal=True)
    if result.findings:
        against = "Against\nthe user"
        caption = "Findings against the user first"
        findings = findings_table(result.findings, serious=against, caption=caption)
    yield Section(title="Findings", blocks=(findings,))
    if ledger.lines:
        yield Section(title="What the configuration permits", blocks=tuple(_ledger_blocks(result)))
    if result.shown:
        text = (
            "The distribution of the noise does not depend on what was reported. These intervals "
            "are for the randomisation probability behind that noise. By the code: the ε of such a "
            "record if the code’s randomisation probability comes from the configured "
            "PrivacyParameter. All intervals hold together with 95 % confidence, if bits are "
            "randomised independently and laid out as in the announced algorithms. Not identified "
            "means neither confirmed nor contradicted."
        )
        shown = sorted(result.shown, key=lambda s: _VERDICTS.index(s.verdict))
        chart = claims_chart(shown)
        blocks: list[Block] = [Text(text, terminal=True), *([chart] if chart else [])]
        blocks += _shown_tables(shown)
        yield Section(title="What the bits of reports show", blocks=tuple(blocks))
    if observed is not None:
        days = days_chart(result)
        blocks = [Text(observed.says, terminal=True), *([days] if days else [])]
        blocks += _spent_tables(observed)
        yield Section(title="What was submitted", blocks=tuple(blocks))
    if result.database is not None and result.database.balances:
        balances = _balances_table(result)
        yield Section(title="Unspent budget on the device", blocks=(balances,))
    if result.differences is not None and result.against is not None:
        yield Section(title="What has changed", blocks=tuple(_difference_blocks(result)))


def _facts(result: AppleResult) -> list[tuple[str, str]]:
    ledger, observed = result.ledger, result.observed
    facts = [("ε per day, permitted", upwards(ledger.permitted.per_day))]
    facts += [(f"of that, active on {p.name}", upwards(p.per_day)) for p in ledger.platforms]
    facts.append((f"Over {_days(ledger)}", upwards(ledger.permitted.over_days)))
    if observed is not None:
        facts += [
            ("Reports", count(observed.reports)),
            ("Unread or duplicate", count(observed.unread) if observed.unread else NOTHING),
            ("Records submitted", count(observed.total.records)),
            ("ε submitted, as claimed", quantity(observed.total.claimed)),
            ("ε submitted, by the bits where they show it", _shown_interval(observed.total)),
        ]
        if (day := observed.busiest) is not None:
            records = f"{count(day.total.records)} records"
            facts.append(
                ("Busiest day", f"{day.date}, {records}, ε = {quantity(day.total.claimed)}")
            )
    facts.append(("Configuration", result.configuration.folder or NOTHING))
    return facts


def _ledger_blocks(result: AppleResult) -> Iterator[Block]:
    ledger, sizes = result.ledger, result.configuration
    yield Text(
        f"{count(sizes.keys)} KeyNames with {count(sizes.properties)} PropertiesNames spend "
        f"{count(sizes.budgets)} budgets. A report is made every 18 hours and takes at most 40 "
        "records per KeyName.",
        terminal=True,
    )
    yield Text(
        "Each budget permits a number of records per day. Each record has an ε by the "
        "PrivacyParameter, and one by the randomisation probability in the code. A person’s loss "
        "is the sum over budgets (basic composition). Unspent budget rolls over, and budgets are "
        "renewed without end."
    )
    if ledger.left_out:
        keys = f"{count(ledger.left_out)} KeyName{'s' if ledger.left_out > 1 else ''}"
        yield Text(
            f"Not counted: {keys} that could not be traced to a budget; see the findings.",
            terminal=True,
        )
    yield Text("By budget", look="heading")
    yield _ledger_table(ledger)
    yield _bursts_table(ledger)
    yield Text("By the code", look="heading")
    yield Text(_code_text(ledger), terminal=True)
    yield _code_table([line for line in ledger.lines if line.keys])
    yield Text("Sums", look="heading")
    yield _sums_table(ledger)


def _ledger_table(ledger: Ledger) -> Table:
    """One row per budget."""
    lines = ledger.lines[:MOST_ROWS]
    return Table(
        columns=(
            Column("Budget", tuple(x.budget for x in lines)),
            Column("Application", tuple(x.application or NOTHING for x in lines)),
            Column("Keys", tuple(count(x.keys) + "+" * x.patterns for x in lines), True),
            Column("Records", tuple(map(_records, lines)), True),
            Column("ε per record", tuple(upwards(x.claimed.per_record) for x in lines), True),
            Column("ε per day", tuple(upwards(x.claimed.per_day) for x in lines), True),
            Column(
                f"ε in {_days(ledger)}",
                tuple(upwards(x.claimed.over_days) for x in lines),
                True,
            ),
        ),
        caption="What the budgets permit, by the PrivacyParameters; +: a key may stand for many",
        left_out=len(ledger.lines) - len(lines),
        terminal="What the budgets permit, by the PrivacyParameters",
    )


def _records(line: Line) -> str:
    """The records granted; fewer if reports cannot take that many."""
    granted = line.session_amount * 86_400 / line.session_seconds
    if line.keys and line.records_per_day < granted * (1 - 1e-9):
        return f"{upwards(line.records_per_day)} per day"
    periods = {86_400.0: "per day", 604_800.0: "per week"}
    period = periods.get(line.session_seconds, f"per {quantity(line.session_seconds)} s")
    return f"{count(line.session_amount)} {period}"


def _bursts_table(ledger: Ledger) -> Table:
    """The ε of one report and of one day after the ledger's days without use."""
    lines = ledger.lines[:MOST_ROWS]
    bursts = [x.burst for x in lines]
    title = f"After {_days(ledger)} without use: unspent budget rolls over without limit"
    return Table(
        columns=(
            Column("Budget", tuple(x.budget for x in lines)),
            Column("Balance", tuple(count(b.balance) for b in bursts), True),
            Column("Records in\none report", tuple(count(b.report_records) for b in bursts), True),
            Column("their ε", tuple(upwards(b.report_epsilon) for b in bursts), True),
            Column("Records in\none day", tuple(count(b.day_records) for b in bursts), True),
            Column("their ε", tuple(upwards(b.day_epsilon) for b in bursts), True),
        ),
        caption=title,
        left_out=len(ledger.lines) - len(lines),
        summary="After a period without use",
        terminal=title,
    )


def _code_text(ledger: Ledger) -> str:
    """The reason why the code's ε differs from the claim, and its sums."""
    permitted, everything = ledger.permitted.coin_per_day, ledger.configured.coin_per_day
    sums = "The sum is not known, as not every algorithm is."
    if permitted is not None:
        sums = f"By the code, the announced applications may lose ε = {upwards(permitted)} per day "
        sums += f"instead of {upwards(ledger.permitted.per_day)}"
        everything_too = (
            "" if everything is None else f"; with everything configured, {upwards(everything)}"
        )
        sums += f"{everything_too}."
    return (
        "A sketch flips each bit with probability 1/(e^P + 1), where P is the PrivacyParameter. "
        "Two words differ in two bits, so its ε is 2·P; the record of a new word holds two "
        f"sketches. A one-bit record’s ε is P. {sums}"
    )


def _code_table(lines: Sequence[Line]) -> Table:
    """The claimed ε, and the ε by the randomisation probability in the code."""
    rows = lines[:MOST_ROWS]
    coins = [(x.coin.per_record, x.coin.per_day) if x.coin else (None, None) for x in rows]
    return Table(
        columns=(
            Column("Budget", tuple(x.budget for x in rows)),
            Column("Algorithms", tuple(", ".join(x.algorithms) for x in rows)),
            Column("ε per record", tuple(upwards(x.claimed.per_record) for x in rows), True),
            Column("by the code", tuple(_or_unknown(record) for record, _ in coins), True),
            Column("ε per day", tuple(upwards(x.claimed.per_day) for x in rows), True),
            Column("by the code", tuple(_or_unknown(day) for _, day in coins), True),
        ),
        caption="ε by the randomisation probability in the code (not in the paper’s sums)",
        left_out=len(lines) - len(rows),
        terminal="ε by the randomisation probability in the code (not in the paper’s sums)",
    )


def _or_unknown(epsilon: float | None) -> str:
    return "not known" if epsilon is None else upwards(epsilon)


def _sums_table(ledger: Ledger) -> Table:
    """The sums of ε that budgets permit."""
    here, announced = len(ledger.permitted.budgets), ledger.announced
    first = f"{here if here == announced else f'{here} of {announced}'} {ledger.permitted.name}"
    active = [f"of that, confirmed active on {t.name}" for t in ledger.platforms]
    rows = [ledger.permitted, *ledger.platforms, ledger.configured]
    over = f"ε in {_days(ledger)}"
    return Table(
        columns=(
            Column("Sum of", (first, *active, ledger.configured.name)),
            Column("ε per day", tuple(upwards(t.per_day) for t in rows), True),
            Column(over, tuple(upwards(t.over_days) for t in rows), True),
            Column(
                "ε per day\nby the code",
                tuple(_or_unknown(t.coin_per_day) for t in rows),
                True,
            ),
            Column(
                f"{over}\nby the code",
                tuple(_or_unknown(t.coin_over_days) for t in rows),
                True,
            ),
        ),
        caption="Sums of ε",
        terminal="Sums of ε",
    )


def _shown_tables(every: Sequence[ShownEpsilon]) -> Iterator[Table]:
    """Claims, what the bits show, and on what basis; then flip probabilities and checks."""
    shown = every[:MOST_ROWS]
    keys = Column("Key", tuple(s.key for s in shown))
    yield Table(
        columns=(
            keys,
            Column("The bits", tuple(s.verdict for s in shown)),
            Column("ε claimed", tuple(map(_claims, shown)), True),
            Column("by the\ncode", tuple(quantity(s.coin) for s in shown), True),
            Column("ε shown", tuple(_epsilon(s.record) for s in shown), True),
            Column("Basis", tuple(s.reason for s in shown), terminal=False),
        ),
        caption="ε of one record; one row per key, algorithm and set of parameters",
        marked=tuple(s.verdict == "shows more" for s in shown),
        left_out=len(every) - len(shown),
        terminal="ε of one record, as its bits show",
    )
    used = tuple(f"{count(s.used)} of {count(s.records)}" for s in shown)
    yield Table(
        columns=(
            keys,
            Column("Algorithm", tuple(s.algorithm for s in shown)),
            Column("Records used", used, True),
            Column("Flip probability", tuple(_flip(s.flip) for s in shown), True),
            Column("ε per sketch", tuple(_epsilon(s.sketch) for s in shown), True),
            Column("Checks of the bits", tuple(map(_checks, shown))),
        ),
        caption="The probability that a bit or sign is flipped, and whether bits are independent "
        "of each other",
        quiet=True,
        summary="Flip probabilities",
    )


def _claims(shown: ShownEpsilon) -> str:
    """The claims; each on a line of its own if they differ."""
    claims = {
        by: quantity(claimed)
        for by in ("configuration", "report")
        if (claimed := claim_of(shown, by)) is not None
    }
    if len(set(claims.values())) <= 1:
        return next(iter(claims.values()), NOTHING)
    return "\n".join(f"{by} {value}" for by, value in claims.items())


def _checks(shown: ShownEpsilon) -> str:
    return "\n".join(f"{c.name}: p = {wording.p_value(c.p)}" for c in shown.checks) or NOTHING


def _epsilon(interval: Interval | None) -> str:
    return NOTHING if interval is None else wording.bounds(interval.low, interval.high)


def _flip(interval: Interval | None) -> str:
    if interval is None or not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return NOTHING
    low, high = math.floor(1e4 * interval.low) / 1e4, math.ceil(1e4 * interval.high) / 1e4
    return f"{low:.4f} … {high:.4f}"


def _spent_tables(observed: Observed) -> Iterator[Table]:
    """Submitted records and ε: by budget with the total, and by day."""
    rows, days = (*observed.budgets, observed.total), observed.days[:MOST_ROWS]
    reports = f"{count(observed.reports)} report{'' if observed.reports == 1 else 's'}"
    yield Table(
        columns=(
            Column("Budget", tuple(r.budget or "total" for r in rows)),
            *_amounts(rows),
        ),
        caption="Reports still on the device, by budget",
        terminal=f"What {reports} submitted",
    )
    yield Table(
        columns=(
            Column("Day (UTC)", tuple(d.date for d in days)),
            *_amounts([d.total for d in days]),
        ),
        caption="Days with reports, by the time in their names",
        left_out=len(observed.days) - len(days),
        quiet=True,
        summary="By day",
    )


def _amounts(rows: Iterable[Spent]) -> tuple[Column, ...]:
    rows = tuple(rows)
    return (
        Column("Records", tuple(count(r.records) for r in rows), True),
        Column("ε as claimed", tuple(quantity(r.claimed) for r in rows), True),
        Column("ε by the bits,\nelse as claimed", tuple(map(_shown_interval, rows)), True),
    )


def _shown_interval(spent: Spent) -> str:
    return wording.bounds(spent.shown_low, spent.shown_high)


def _balances_table(result: AppleResult) -> Table:
    """The balances that the device's database holds."""
    balances = result.database.balances if result.database else ()
    rows = balances[:MOST_ROWS]
    return Table(
        columns=(
            Column("Budget", tuple(r.key for r in rows)),
            Column("Balance", tuple(count(r.balance) for r in rows), True),
            Column("Created", tuple(wording.date_text(r.created.isoformat()) for r in rows)),
            Column("Last updated", tuple(wording.date_text(r.updated.isoformat()) for r in rows)),
        ),
        caption="Balances in its database, in records",
        left_out=len(balances) - len(rows),
    )


def _difference_blocks(result: AppleResult) -> Iterator[Block]:
    """The differences between two configurations."""
    older = result.against.folder if result.against else ""
    differences = result.differences or ()
    if not differences:
        yield Text(f"No differences from {older}.", terminal=True)
        return
    rows = differences[:MOST_ROWS]
    if result.against and result.against.effect:
        yield Text(result.against.effect, terminal=True)
    yield Table(
        columns=(
            Column("What", tuple(d.what for d in rows)),
            Column("Before", tuple(d.old for d in rows)),
            Column("Now", tuple(d.new for d in rows)),
            Column("Note", tuple(d.note or NOTHING for d in rows)),
        ),
        caption=f"Compared with the older configuration, {older}",
        left_out=len(differences) - len(rows),
        terminal=f"What has changed since {older}",
    )


def _days(ledger: Ledger) -> str:
    return f"{count(ledger.days)} day{'' if ledger.days == 1 else 's'}"
