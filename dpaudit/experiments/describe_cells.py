"""The cells in every experiment's report: the finished ones, and those that failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpaudit import wording
from dpaudit.codec import to_dict
from dpaudit.experiments.results import ExperimentResult, MeasurementsResult
from dpaudit.report import (
    Check,
    Column,
    Command,
    Findings,
    Report,
    Section,
    Table,
    Text,
    with_verdict,
)
from dpaudit.types import CellFailure, CellResult, Verdict

__all__ = ["MOST_CELLS", "report_of", "with_record"]

MOST_CELLS = 400
"""Rows of a long table that the report shows; the rest is in its data."""


def report_of(
    result: ExperimentResult | MeasurementsResult,
    *,
    verdict: Verdict,
    headline: str,
    compared: Sequence[Check] = (),
    facts: Mapping[str, Any] | None = None,
    **more: Any,
) -> Report:
    """The report of an experiment: what is said of its rows, and all that its cells say.

    ``compared`` are checks in addition to the cells', ``more`` further fields of the report.
    """
    name, headline = result.name or result.kind, _missing_cells(result.failures) + headline
    checks = (*_cell_checks(result.cells, result.failures), *compared)
    return Report(
        kind=result.kind,
        label=result.kind,
        subject=name,
        title=result.title or name,
        verdict=verdict,
        headline=headline,
        checks=checks or with_verdict(checks, verdict, headline),
        facts={"rows": len(result.rows), **(facts or {}), "failures": len(result.failures)},
        data=to_dict(result),
        provenance=result.provenance,
        seconds=sum(check.seconds or 0.0 for check in checks),
        command=result.command,
        **more,
    )


def _cell_checks(cells: Sequence[CellResult], failures: Sequence[CellFailure]) -> tuple[Check, ...]:
    """One check per cell; one that raised is an error."""
    failed = [
        Check(
            group="cells",
            name=_name(cell),
            outcome="error",
            effect=cell.error or "the cell failed",
            seconds=wording.number(cell.seconds),
            facts={"traceback": cell.traceback},
        )
        for cell in failures
    ]
    finished = [
        Check(group="cells", name=_name(cell), outcome="pass", seconds=wording.number(cell.seconds))
        for cell in cells
    ]
    return (*failed, *finished)


def _name(cell: CellResult | CellFailure) -> str:
    """The cell's kind, the names in its settings, and its unique id."""
    plugins = [cell.settings.get(kind) for kind in ("source", "mitigation", "attack")]
    labels = [plugin.get("label") for plugin in plugins if isinstance(plugin, Mapping)]
    grid = cell.settings.get("grid")
    axes = (
        [f"{k}={wording.setting(v)}" for k, v in grid.items()] if isinstance(grid, Mapping) else []
    )
    options = ", ".join(str(word) for word in [*filter(None, labels), *axes])
    name = f"{cell.kind or 'cell'} {options}".strip()
    return f"{name} ({cell.cell})"


def with_record(
    result: ExperimentResult | MeasurementsResult, sections: Iterable[Section]
) -> tuple[Section, ...]:
    """The sections, after what was tested and before the finished cells."""
    return (*_opening(result), *sections, *_record(result.cells))


def _opening(result: ExperimentResult | MeasurementsResult) -> Iterable[Section]:
    """What was tested and how to repeat it; then the cells that failed, if any."""
    paragraphs = [Text(part) for part in result.story.split("\n\n") if part.strip()]
    again = [Command(result.command, "To repeat this run:")] if result.command else []
    if paragraphs or again:
        yield Section(title="What was tested", blocks=(*paragraphs, *again))
    if result.failures:
        text = (
            "These are missing from everything below. Repeat the command with --resume to retry "
            "them."
        )
        yield Section(title="Cells that failed", blocks=(Text(text), Findings()))


def _record(cells: Sequence[CellResult]) -> Iterable[Section]:
    """The finished cells: settings and scalar results."""
    listed = cells[:MOST_CELLS]
    if not listed:
        return
    table = Table(
        columns=(
            Column("Cell", tuple(c.cell for c in listed)),
            Column("Kind", tuple(c.kind for c in listed)),
            Column("Settings", tuple(_plain(c.settings) for c in listed)),
            Column("Outcome", tuple(_plain(c.outcome) for c in listed)),
            Column("Time", tuple(wording.seconds(c.seconds) for c in listed), True),
        ),
        caption="Finished cells, as stored",
        quiet=True,
        left_out=len(cells) - len(listed),
    )
    yield Section(title="Cells", blocks=(table,), folded=True, note=f"({len(cells)})")


def _plain(values: Mapping[str, Any]) -> str:
    scalars = [
        f"{k} {wording.setting(v)}"
        for k, v in values.items()
        if not isinstance(v, (Mapping, list, tuple))
    ]
    return ", ".join(scalars[:12]) + (", …" if len(scalars) > 12 else "") or wording.NOTHING


def _missing_cells(failures: Sequence[CellFailure]) -> str:
    """That cells are missing, for the beginning of a headline; '' if none is."""
    if not failures:
        return ""
    how = (
        "1 cell failed and is" if len(failures) == 1 else f"{len(failures):,} cells failed and are"
    )
    return f"Incomplete: {how} missing here. "
