"""The pages of experiments: arms under attack, and measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpaudit.documents import Arm, ExperimentDocument, MeasurementsDocument
from dpaudit.report import format as fmt
from dpaudit.report.figures.svg import present
from dpaudit.report.hazards import hazards_of_attacks
from dpaudit.report.meaning import experiment_meaning, measurements_meaning
from dpaudit.report.measurements import Measurements, Row, read_measurements
from dpaudit.report.rows import above_chance, attacks_of, exceeds_claim, shared_settings
from dpaudit.report.sentences import experiment_sentence, measurements_sentence
from dpaudit.report.tables import Column, cells_table, facts_table, measured_table, summary_table
from dpaudit.results.text import printable
from dpaudit.types import CellFailure

__all__ = ["experiment_page", "measurements_page"]

MOST_CELLS = 400
"""Rows of a long table that the page shows; the rest is in the JSON document."""
MOST_FAILURES = 50
"""Failed cells that the page shows, each with its traceback; the rest is in the JSON document."""


def experiment_page(document: ExperimentDocument) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report.figures.arms import MOST_ARMS, successes
    from dpaudit.report.figures.error import protection_against_error
    from dpaudit.report.figures.phases import phases

    rows = document.rows
    settings = shared_settings(rows)
    shared = _shared(document)
    failed = bool(shared["failures"])
    beyond = [exceeds_claim(row) for row in rows]
    attacked = any(attacks_of(row) for row in rows)
    verdict = "no-finding" if attacked and not failed else "inconclusive"
    words = ("Attack succeeds", _word_of_a_pass(rows))
    return shared | {
        "verdict": "finding" if any(beyond) else verdict,
        "word": _word(rows, failed=failed, words=words, bad=any(beyond)),
        "sentence": experiment_sentence(rows, failures=document.failures),
        "meaning": experiment_meaning(document),
        "hazards": hazards_of_attacks(document),
        "many": len(rows) > MOST_ARMS,
        "summary": summary_table(rows, narrow=True),
        "marked": beyond,
        "settings": [(name, value) for name, value, everywhere in settings if everywhere],
        "some_settings": [(name, value) for name, value, everywhere in settings if not everywhere],
        "figures": present(
            successes(rows, prefix="success"),
            phases(rows, prefix="phases"),
            protection_against_error(rows, prefix="error"),
        ),
    }


def _word_of_a_pass(rows: Sequence[Arm]) -> str:
    """The badge of an experiment without an attack that shows more than is claimed."""
    attacks = [a for row in rows for a in attacks_of(row)]
    if not attacks:
        return "No attack run"
    return "Within the claim" if any(map(above_chance, attacks)) else "Attacks fail"


def measurements_page(document: MeasurementsDocument) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report.figures.grid import measured_grid
    from dpaudit.report.figures.heat_map import measured_map
    from dpaudit.report.figures.power import power_map

    read = read_measurements(document)
    plots = [
        (measured_map if p.value else measured_grid, p, f"figure-{i}")
        for i, p in enumerate(read.plots, 1)
    ]
    shared = _shared(document)
    failed, differ = bool(shared["failures"]), len(read.misses)
    words = (f"{differ:,} {'differs' if differ == 1 else 'differ'}", "Measured")
    return shared | {
        # a difference from a published value is no finding: some differ by chance
        "verdict": "no-finding" if read.rows and not read.misses and not failed else "inconclusive",
        "sign": "≠" if read.misses else "",
        "word": _word(read.rows, failed=failed, words=words, bad=bool(read.misses)),
        "sentence": measurements_sentence(document),
        "meaning": measurements_meaning(document),
        "hazards": [],
        "figures": present(
            *(draw(plot, read.rows, prefix=prefix) for draw, plot, prefix in plots),
            power_map(document.power, prefix="power"),
        ),
        "misses": _first(read, read.misses),
        "misses_left_out": max(0, len(read.misses) - MOST_CELLS),
        "table": _first(read, read.rows),
        "marked": [row in read.misses for row in read.rows[:MOST_CELLS]],
        "rows_left_out": max(0, len(read.rows) - MOST_CELLS),
    }


def _first(read: Measurements, rows: Sequence[Row]) -> list[Column]:
    return measured_table(read.columns, rows[:MOST_CELLS], of=read.rows) if rows else []


def _shared(document: ExperimentDocument | MeasurementsDocument) -> dict[str, Any]:
    """The variables that experiments and measurements share."""
    cells, failed = document.cells, document.failures
    return {
        "failures": [_failure(f) for f in failed[:MOST_FAILURES]],
        "failures_left_out": max(0, len(failed) - MOST_FAILURES),
        "title": printable(document.title or document.name or document.kind.title(), limit=300),
        "story": [p for p in printable(document.story, limit=20_000).split("\n\n") if p.strip()],
        "command": printable(document.command),
        "cells": cells_table(cells[:MOST_CELLS]),
        "cells_left_out": max(0, len(cells) - MOST_CELLS),
        "provenance": facts_table(document.provenance),
    }


def _word(rows: Sequence[Any], *, failed: bool, words: tuple[str, str], bad: bool) -> str:
    """The badge of an experiment: its result, and that it is incomplete if cells failed."""
    if not rows:
        return "No results yet"
    if not failed:
        return words[0] if bad else words[1]
    return f"{words[0]}, incomplete" if bad else "Incomplete"


def _failure(failure: CellFailure) -> dict[str, str]:
    items = list(failure.settings.items())[:20]
    said = ", ".join(f"{printable(k, limit=60)} {fmt.setting(v)}" for k, v in items)
    return {
        "cell": printable(failure.cell, limit=200),
        "settings": printable(said, limit=1000),
        "error": printable(failure.error or "no message", limit=1000),
        "traceback": printable(failure.traceback, limit=8000),
    }
