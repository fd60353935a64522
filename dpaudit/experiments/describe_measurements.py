"""What an experiment reports whose rows are measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpaudit import wording
from dpaudit.audit.describe import power_chart
from dpaudit.codec import to_dict
from dpaudit.experiments.describe_cells import MOST_CELLS, report_of, with_record
from dpaudit.experiments.figures import chart_of
from dpaudit.experiments.measurements import (
    Measure,
    Measurements,
    Row,
    is_numeric,
    measured,
    read_measurements,
    reading,
)
from dpaudit.experiments.results import MeasurementsResult
from dpaudit.report import (
    Check,
    Column,
    Meaning,
    Report,
    Section,
    Table,
)
from dpaudit.types import Verdict

__all__ = ["describe"]


def describe(result: MeasurementsResult) -> Report:
    """The report of an experiment whose rows are measurements.

    A difference from a published value is no finding about a product, since some differ by chance:
    the verdict is then a finding about these numbers, as the badge states.

    Raises:
        UsageError: a figure of an unknown key.
    """
    measurements, misses = read_measurements(result), result.misses
    verdict: Verdict = "no-finding" if result.rows and not result.failures else "inconclusive"
    return report_of(
        result,
        verdict="finding" if misses else verdict,
        headline=_headline(result),
        compared=[
            _published(row, measurements)
            for row in result.rows
            if isinstance(row.get("agrees"), bool)
        ],
        facts={"misses": len(misses)},
        badge=_badge(result),
        sign="≠" if misses else "",
        meaning=_meaning(result),
        sections=with_record(result, _sections(result, measurements)),
        advice=result.caveats,
    )


def _badge(result: MeasurementsResult) -> str:
    if not result.rows:
        return "No results yet"
    differ = len(result.misses)
    if differ:
        badge = f"{differ:,} {'differs' if differ == 1 else 'differ'}"
        return f"{badge}, incomplete" if result.failures else badge
    return "Incomplete" if result.failures else "Measured"


def _meaning(result: MeasurementsResult) -> tuple[Meaning, ...]:
    """How measurements compare with published values."""
    if not result.misses:
        return ()
    some = len(result.misses)
    statement = (
        f"{some:,} of {len(result.rows):,} measured {'number' if some == 1 else 'numbers'} "
        f"{'differs' if some == 1 else 'differ'} from the published one by more than chance in a "
        "single comparison. That is not a finding about a product: compare with how many "
        "differences chance alone makes, in the sentence above."
    )
    return (Meaning(heading="Some numbers differ from the published ones", says=statement),)


def _sections(result: MeasurementsResult, measurements: Measurements) -> Iterable[Section]:
    charts = [
        c for plot in measurements.plots if (c := chart_of(plot, measurements.rows)) is not None
    ]
    if result.power:
        charts += [c for c in (power_chart(result.power),) if c is not None]
    if charts:
        yield Section(title="Figures", blocks=tuple(charts))
    if measurements.misses:
        title = "Where ours differs from the published value"
        table = _table(
            measurements, measurements.misses, caption="The rows that disagree", terminal=title
        )
        yield Section(title=title, blocks=(table,))
    if measurements.rows:
        bold = "; bold: differs from the published value" if measurements.misses else ""
        table = _table(
            measurements,
            measurements.rows,
            caption=f"One row per measurement{bold}",
            terminal=result.title or result.name or "Measurements",
        )
        yield Section(title="All measurements", blocks=(table,))


def _table(
    measurements: Measurements, rows: Sequence[Row], *, caption: str, terminal: str
) -> Table:
    listed = rows[:MOST_CELLS]
    return Table(
        columns=tuple(_columns(measurements.columns, listed, of=measurements.rows)),
        caption=caption,
        marked=()
        if rows is measurements.misses
        else tuple(row in measurements.misses for row in listed),
        left_out=len(rows) - len(listed),
        terminal=terminal,
    )


def _columns(columns: Sequence[Measure], rows: Sequence[Row], *, of: Sequence[Row]) -> list[Column]:
    """Measurements in the order given; columns that are empty in ``of`` are left out."""
    texts = [tuple(measured(row.get(c.key), c.format) for row in rows) for c in columns]
    filled = [any(row.get(c.key) is not None for row in of) for c in columns]
    filled_columns = [
        Column(c.label, cells, is_numeric(c, rows))
        for c, cells, any_filled in zip(columns, texts, filled, strict=True)
        if any_filled
    ]
    return filled_columns or [
        Column(c.label, cells) for c, cells in zip(columns[:1], texts, strict=False)
    ]


def _published(row: Row, measurements: Measurements) -> Check:
    """A measured number compared with the published one."""
    keys = [c.key for c in measurements.columns if c.format in ("setting", "text")]
    settings = ", ".join(f"{k}={wording.setting(row[k])}" for k in keys if row.get(k) is not None)
    values = [c.key for c in measurements.columns if isinstance(row.get(c.key), Mapping)]
    ours = "; ".join(f"{k} {_ranged(row[k])}" for k in values)
    published = f"published {wording.setting(row.get('published'))}"
    return Check(
        group="published",
        name=settings or "row",
        outcome="pass" if row["agrees"] else "finding",
        looks_at="our number compared with the published one",
        effect=f"{published}; measured {ours}" if ours else published,
        facts={"published": to_dict(row.get("published"))},
    )


def _ranged(cell: Any) -> str:
    value, low, high = reading(cell)
    return wording.ranged(wording.quantity(value), low, high)


def _headline(result: MeasurementsResult) -> str:
    """The experiment's own summary of its measurements; without one, their number."""
    rows = len(result.rows)
    if result.summary:
        return result.summary
    if not rows:
        return "No results yet: no measurement of this experiment has finished."
    noun = "measurement" if rows == 1 else "measurements"
    return f"{rows:,} {noun}; the experiment gives no summary."
