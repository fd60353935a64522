"""The charts of a deployment: ε claimed and shown by key, and ε submitted by day."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from dpaudit.report import Axis, Chart, Line, Mark, Panel, Series
from dpaudit.wording import bounds, quantity
from dpaudit_local.apple.audit import AppleResult
from dpaudit_local.apple.bits.estimates import ShownEpsilon
from dpaudit_local.apple.observed import Day

__all__ = ["claim_of", "claims_chart", "days_chart"]

_MOST_KEYS = 24
_MOST_DAYS = 120
_MOST_BUDGETS = 5  # that have a colour of their own
_LARGEST = 1e6  # a larger ε is drawn as unbounded


def claim_of(shown: ShownEpsilon, by: str) -> float | None:
    """The ε of a record that ``by`` (the configuration, the report) claims."""
    return next((c.epsilon for c in shown.claims if c.by == by), None)


def claims_chart(shown: Sequence[ShownEpsilon]) -> Chart | None:
    """One row per key: the interval of a record's ε that its bits show, and marks for claims."""
    rows = [(s, ends) for s in shown if (ends := _finite_interval(s)) is not None]
    charted = rows[:_MOST_KEYS]
    if not charted:
        return None
    intervals = [
        Mark(
            x=low,
            y=float(y),
            low=low,
            high=high,
            name=s.key,
            says=f"shown {bounds(low, high)}",
            alarm=s.verdict == "shows more",
        )
        for y, (s, (low, high)) in enumerate(charted)
    ]
    claims = {
        by: [m for y, (s, _) in enumerate(charted) for m in _claim_marks(s, by, y)]
        for by in ("configuration", "report")
    }
    values = [
        *(x for _, ends in charted for x in ends),
        *(m.x for ms in claims.values() for m in ms),
    ]
    top = 1.15 * max([*(v for v in values if v < math.inf), 1.0])
    listed = "; ".join(
        f"{s.key}: claimed {' and '.join(_claim_texts(s)) or 'nothing'}, shown {bounds(low, high)}"
        for s, (low, high) in charted[:12]
    )
    caption = (
        "ε of one record. Lines: what the bits themselves show, with an exact interval; an arrow "
        "if only a lower bound is known. Circles: the configuration’s claim; diamonds: the "
        "report’s own. Filled, in the warning colour: the bits show more than is claimed."
    )
    if len(rows) > len(charted):
        caption += f" {len(rows) - len(charted)} more are in the table only."
    return Chart(
        kind="rows",
        title="Claimed and shown, by key",
        caption=caption,
        alt=f"ε of one record, claimed and shown. {listed}.",
        panels=(
            Panel(
                series=(
                    Series(marks=tuple(intervals), marker="|", legend="shown"),
                    *(
                        Series(marks=tuple(claims[by]), marker=marker, legend=by)
                        for by, marker in (("configuration", "o"), ("report", "D"))
                    ),
                )
            ),
        ),
        x=Axis(label="ε of one record", low=0.0, high=top),
        y=Axis(categories=tuple(_tail(s.key) for s, _ in charted)),
    )


def _claim_marks(shown: ShownEpsilon, by: str, y: int) -> Iterator[Mark]:
    claimed, more = claim_of(shown, by), shown.verdict == "shows more"
    if claimed is not None and 0 < claimed < _LARGEST:
        text = f"claimed {quantity(claimed)} by the {by}"
        yield Mark(x=claimed, y=float(y), name=shown.key, says=text, filled=more, alarm=more)


def _claim_texts(shown: ShownEpsilon) -> list[str]:
    claims = [claim_of(shown, by) for by in ("configuration", "report")]
    return [quantity(c) for c in claims if c is not None and 0 < c < _LARGEST]


def days_chart(result: AppleResult) -> Chart | None:
    """Claimed ε submitted per day, stacked by budget, and what is permitted per day."""
    observed = result.observed
    days = [(at, d) for d in (observed.days if observed else ()) if (at := _date(d)) is not None]
    days = sorted(days, key=lambda pair: pair[0])[-_MOST_DAYS:]
    if len(days) < 2 or (days[-1][0] - days[0][0]).days > 10 * _MOST_DAYS:
        return None
    first, last = days[0][0], days[-1][0]
    amounts: dict[str, dict[int, float]] = {}
    for at, day in days:
        for spent in day.budgets:
            if 0 < spent.claimed < _LARGEST:
                amounts.setdefault(spent.budget, {})[(at - first).days] = spent.claimed
    if not amounts:
        return None
    order = sorted(amounts, key=lambda name: -sum(amounts[name].values()))
    stacks = [(name, amounts[name]) for name in order[:_MOST_BUDGETS]]
    others: dict[int, float] = {}
    for name in order[_MOST_BUDGETS:]:
        for x, value in amounts[name].items():
            others[x] = others.get(x, 0.0) + value
    stacks += [("others", others)] if others else []
    base: dict[int, float] = {}
    series = []
    for k, (name, stack) in enumerate(stacks):
        marks = []
        for x, value in sorted(stack.items()):
            mark = Mark(
                x=x,
                y=value,
                base=base.get(x, 0.0),
                width=0.8,
                name=f"{first + timedelta(x)}, {name}",
                says=f"claimed ε {quantity(value)}",
            )
            base[x] = base.get(x, 0.0) + value
            marks.append(mark)
        series.append(Series(marks=tuple(marks), look="bars", group=k, legend=_tail(name)))
    permitted, end = result.ledger.configured.per_day, (last - first).days
    lines = [Line(at=permitted, label="permitted per day")] if 0 < permitted < _LARGEST else []
    places = range(0, end + 1, max(1, math.ceil((end + 1) / 5)))
    total = sum(sum(stack.values()) for _, stack in stacks)
    span = f"{len(days)} days from {first} to {last}, {quantity(total)} in total"
    return Chart(
        kind="plot",
        title="ε submitted by day",
        caption="Claimed ε submitted per day (UTC, by the names of reports), stacked by budget: "
        f"{span}. The dashed line is what the whole configuration permits per day in the long run; "
        "unused budget rolls over, so a day can exceed it.",
        alt=f"Claimed ε submitted per day, by budget: {span}.",
        panels=(Panel(series=tuple(series), lines=tuple(lines)),),
        x=Axis(
            low=-0.6,
            high=end + 0.6,
            ticks=tuple((float(x), str(first + timedelta(x))) for x in places),
        ),
        y=Axis(label="claimed ε", zero=True),
    )


def _finite_interval(shown: ShownEpsilon) -> tuple[float, float] | None:
    """A record's interval; None if it excludes nothing."""
    if shown.record is None:
        return None
    low, high = shown.record.low, shown.record.high
    if not 0 <= low < _LARGEST or not high >= low or (low == 0 and high == math.inf):
        return None
    return low, high if high < _LARGEST else math.inf


def _date(day: Day) -> date | None:
    try:
        return date.fromisoformat(day.date)
    except ValueError:
        return None


def _tail(name: str) -> str:
    """The end of a long dotted name, which distinguishes it."""
    line = " ".join(name.split())
    return line if len(line) <= 30 else "…" + line[-29:]
