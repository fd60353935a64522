"""A deployment's document for a terminal: permitted ε, changes, reports and findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dpaudit.deployments.apple.document import AppleDocument
from dpaudit.deployments.apple.ledger import Ledger
from dpaudit.deployments.apple.model import Finding
from dpaudit.deployments.apple.observed import Observed
from dpaudit.report import Column, quantity
from dpaudit.report.deployment import (
    SHOWN_WORDS,
    deployment_sentence,
    differences_table,
    shown_table,
    spent_table,
    upwards,
)
from dpaudit.report.format import NOTHING, count
from dpaudit.report.terminal.ledger import (
    announced_words,
    bursts_table,
    coin_sentence,
    days_words,
    implied_table,
    permitted_table,
)
from dpaudit.report.terminal.table import make_table
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

__all__ = ["deployment_text"]

_MOST = 40
"""Findings or differences that a terminal shows; the rest is in the JSON document."""
_LETTERS = 300
_WIDE = 110


def deployment_text(document: AppleDocument, *, width: int = 140) -> Group:
    """A ``deployment`` document as tables and sentences, of which the last is the verdict.

    If ``width`` is below 110, budgets are named without their ``com.apple.``.
    """
    from rich.console import Group
    from rich.text import Text

    ledger, sizes = document.ledger, document.configuration
    short = width < _WIDE
    verdict = Text(
        f"\n{deployment_sentence(document)}",
        style="bold dark_orange" if document.verdict == "finding" else "bold",
    )
    parts: list[RenderableType] = [
        Text(
            f"{printable(sizes.folder, limit=_LETTERS)}: {count(sizes.keys)} KeyNames with "
            f"{count(sizes.properties)} PropertiesNames spend {count(sizes.budgets)} budgets. A "
            "report is made every 18 hours and takes at most 40 records per KeyName."
        ),
        Text(),
        permitted_table(ledger, short=short),
        Text(),
        bursts_table(ledger, short=short),
        Text(),
        implied_table(ledger, short=short),
        Text(coin_sentence(ledger)),
    ]
    if document.differences is not None and document.against is not None:
        older = printable(document.against.folder, limit=_LETTERS)
        parts += [Text(), *_differences(document, older)]
        parts += [Text(printable(document.against.effect))] if document.differences else []
    if document.observed is not None:
        parts += [Text(), *_observed(document, document.observed)]
    parts += [Text(), *_findings(document.findings), Text(), *_permitted(ledger), verdict]
    return Group(*parts)


def _differences(document: AppleDocument, older: str) -> Iterable[RenderableType]:
    from rich.text import Text

    if not document.differences:
        yield Text(f"No differences from {older}.")
        return
    *columns, notes = _first(differences_table(document))
    noted = [cell.replace(NOTHING, "") for cell in notes.cells]
    yield make_table([*columns, Column("", noted)], title=f"What has changed since {older}")
    yield from _more(len(document.differences) - _MOST, "differences")


def _observed(document: AppleDocument, observed: Observed) -> Iterable[RenderableType]:
    from rich.text import Text

    columns = spent_table(observed)
    last = len(columns[0].cells) - 1
    reports, unread = observed.reports, observed.unread
    title = f"What {count(reports)} report{'' if reports == 1 else 's'} submitted"
    title += f"; {count(unread)} unreadable, empty or duplicate" if unread else ""
    yield make_table(columns, title=title, lines_after={last - 1}, bold={last})
    if observed.busiest is not None:
        day, total = observed.busiest.date, observed.busiest.total
        yield Text(
            f"Busiest day: {day}, {count(total.records)} records, ε = {quantity(total.claimed)}."
        )
    yield Text(printable(observed.says))
    if not document.shown:
        return
    columns = _first(shown_table(document)[:-1])
    marked = [i for i, cell in enumerate(columns[1].cells) if cell == "shows more"]
    yield Text()
    yield make_table(columns, title="ε of one record, as its bits show", bold=marked)
    yield Text(SHOWN_WORDS)
    yield from _more(len(document.shown) - _MOST, "kinds of record")


def _first(columns: Iterable[Column]) -> list[Column]:
    return [column._replace(cells=column.cells[:_MOST]) for column in columns]


def _findings(findings: Sequence[Finding]) -> Iterable[RenderableType]:
    from rich.text import Text

    if not findings:
        yield Text("No inconsistencies in the files.")
        return
    serious = sum(f.serious for f in findings)
    yield Text(
        f"Findings: {count(len(findings))}, of which {count(serious)} against the user",
        style="bold",
    )
    shown = sorted(findings, key=lambda f: not f.serious)[:_MOST]
    for finding in shown:
        text = f"{printable(finding.where, limit=_LETTERS)}: {printable(finding.message)}"
        yield Text(
            f"{'!' if finding.serious else '·'} {text}",
            style="bold dark_orange" if finding.serious else "",
        )
    yield from _more(len(findings) - len(shown), "findings")


def _more(left: int, what: str) -> Iterable[RenderableType]:
    from rich.text import Text

    if left > 0:
        yield Text(f"{count(left)} more with --format json ({what}).", style="dim")


def _permitted(ledger: Ledger) -> Iterable[RenderableType]:
    from rich.text import Text

    permitted = ledger.permitted
    active = ", ".join(f"{upwards(total.per_day)} on {total.name}" for total in ledger.platforms)
    yield Text(
        f"In {days_words(ledger)} this is ε = {upwards(permitted.over_days)}; budgets are renewed "
        "without end. Counting only the applications confirmed active there, this configuration "
        f"permits ε per day of {active}."
    )
    if ledger.left_out:
        keys = f"{count(ledger.left_out)} KeyName{'s' if ledger.left_out > 1 else ''}"
        yield Text(
            f"Not counted: {keys} that could not be traced to a budget; see the findings.",
            style="bold",
        )
    yield Text(
        f"Permitted privacy loss: ε = {upwards(permitted.per_day)} per day "
        f"({announced_words(ledger)})",
        style="bold",
    )
