"""Writing the page and the JSON document."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpaudit.errors import UsageError
from dpaudit.report import format as fmt
from dpaudit.report.mechanism import bounds_table, events_table, mechanism_facts, mechanism_sentence
from dpaudit.report.rows import shared_settings
from dpaudit.report.sentences import audit_sentence, experiment_sentence, measurements_sentence
from dpaudit.report.tables import (
    blind_spots_table,
    cells_table,
    facts_table,
    findings_table,
    measured_table,
    summary_table,
    tests_table,
)

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["render_report", "write_json", "write_report"]

MOST_CELLS = 400
"""Lines of a long table that the page shows; the rest is in the JSON document."""


def write_report(document: Mapping[str, Any], path: Path) -> Path:
    """Write a document as one self-contained HTML file (no script, no network), atomically; returns ``path``.

    Raises:
        UsageError: the document is of none of the kinds known here, or measurements with an unknown format or key.
    """
    return _write(render_report(document), path)


def write_json(document: Mapping[str, Any], path: Path) -> Path:
    """Write a document as indented UTF-8 JSON, atomically; returns ``path``.

    Raises:
        UsageError: it holds something that JSON has no word for (infinities, NaN, objects); ``to_dict`` mends that.
    """
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"document is not JSON-ready ({error}): pass it through dpaudit.types.to_dict first"
        ) from error
    return _write(text + "\n", path)


def render_report(document: Mapping[str, Any]) -> str:
    """The HTML of a document, the same bytes for the same document.

    Raises:
        UsageError: the document is of none of the kinds known here, or measurements with an unknown format or key.
    """
    match document.get("kind"):
        case "audit" if isinstance(document.get("result"), Mapping):
            context = _audit(document["result"])
        case "mechanism" if isinstance(document.get("result"), Mapping):
            context = _mechanism(document["result"])
        case "experiment":
            context = _experiment(document)
        case "measurements":
            context = _measurements(document)
        case "deployment":
            context = _deployment(document)
        case kind:
            raise UsageError(
                f"kind={fmt.printable(kind, limit=60)!r}: a report is made from a document of kind "
                "'audit' or 'mechanism' (with 'result'), 'experiment', 'measurements' or 'deployment'"
            )
    return _environment().get_template(f"{document['kind']}.html.j2").render(context)


def _audit(result: Mapping[str, Any]) -> dict[str, Any]:
    from dpaudit.report.figure_power import power_map
    from dpaudit.report.figures import p_value_ladder

    dims, refused = result.get("dims") or (), result.get("dims_refused") or ()
    used, asked = fmt.count(result.get("samples")), fmt.count(result.get("samples_requested"))
    facts = [
        ("Claim", fmt.printable(result.get("claim", fmt.NOTHING), limit=400)),
        ("Values", used if used == asked else f"{used} of {asked} asked for"),
        ("Dimensions", ", ".join(fmt.count(d) for d in dims) or fmt.NOTHING),
        *([("Dimensions refused", ", ".join(fmt.count(d) for d in refused))] if refused else []),
        *([("Mode", "sequential: valid whenever it stopped")] if result.get("sequential") else []),
        ("α, for all tests together", fmt.quantity(result.get("alpha"))),
        ("Time", fmt.seconds(result.get("seconds"))),
    ]
    tests = tests_table(result)
    return {
        "title": f"Audit of {fmt.printable(result.get('sampler', 'a sampler'), limit=300)}",
        "verdict": _verdict(result.get("verdict")),
        "sentence": audit_sentence(result),
        "reason": "" if result.get("verdict") == "inconclusive" else fmt.printable(result.get("reason") or ""),
        "facts": facts,
        "findings": findings_table(result),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "figures": _drawn(p_value_ladder(result, prefix="ladder")),
        "blind_spots": blind_spots_table(result),
        "maps": _drawn(power_map(result.get("power") or (), prefix="power")),
        "provenance": facts_table(result.get("provenance")),
    }


def _mechanism(result: Mapping[str, Any]) -> dict[str, Any]:
    from dpaudit.report.figure_curve import shown_and_claimed

    tests = bounds_table(result)
    return {
        "title": f"Audit of {fmt.printable(result.get('mechanism', 'a mechanism'), limit=300)}",
        "verdict": _verdict(result.get("verdict")),
        "sentence": mechanism_sentence(result),
        "facts": mechanism_facts(result),
        "advice": [fmt.printable(a) for a in result.get("advice") or ()],
        "findings": findings_table(result),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "figures": _drawn(shown_and_claimed(result, prefix="curve")),
        "events": events_table(result),
        "blind_spots": blind_spots_table(result),
        "provenance": facts_table(result.get("provenance")),
    }


def _experiment(document: Mapping[str, Any]) -> dict[str, Any]:
    from dpaudit.report.figure_error import protection_against_error
    from dpaudit.report.figure_phases import phases
    from dpaudit.report.figures import MOST_ARMS, successes
    from dpaudit.report.rows import above_chance, attacks_of

    rows: Sequence[Mapping[str, Any]] = document.get("rows") or ()
    beaten = [any(above_chance(a) for a in attacks_of(row)) for row in rows]
    settings = shared_settings(rows)
    return _told(document) | {
        "verdict": "finding" if any(beaten) else "no-finding" if rows else "inconclusive",
        "sentence": experiment_sentence(rows),
        "many": len(rows) > MOST_ARMS,
        "summary": summary_table(rows),
        "marked": beaten,
        "settings": [(name, value) for name, value, everywhere in settings if everywhere],
        "some_settings": [(name, value) for name, value, everywhere in settings if not everywhere],
        "figures": _drawn(
            successes(rows, prefix="success"),
            phases(rows, prefix="phases"),
            protection_against_error(rows, prefix="error"),
        ),
    }


def _measurements(document: Mapping[str, Any]) -> dict[str, Any]:
    from dpaudit.report.figure_grid import measured_grid
    from dpaudit.report.figure_map import measured_map
    from dpaudit.report.figure_power import power_map
    from dpaudit.report.measurements import read_measurements

    read = read_measurements(document)
    plots = [(measured_map if p.value else measured_grid, p, f"figure-{i}") for i, p in enumerate(read.plots, 1)]
    return _told(document) | {
        "verdict": "finding" if read.misses else "no-finding" if read.rows else "inconclusive",
        "sentence": measurements_sentence(document),
        "figures": _drawn(
            *(draw(plot, read.rows, prefix=prefix) for draw, plot, prefix in plots),
            power_map(document.get("power") or (), prefix="power"),
        ),
        "misses": measured_table(read.columns, read.misses[:MOST_CELLS], of=read.rows) if read.misses else [],
        "misses_left_out": max(0, len(read.misses) - MOST_CELLS),
        "table": measured_table(read.columns, read.rows[:MOST_CELLS], of=read.rows) if read.rows else [],
        "marked": [row in read.misses for row in read.rows[:MOST_CELLS]],
        "rows_left_out": max(0, len(read.rows) - MOST_CELLS),
    }


def _deployment(document: Mapping[str, Any]) -> dict[str, Any]:
    from dpaudit.report import deployment as told
    from dpaudit.report.figure_deployment import claimed_and_shown, spent_by_day

    findings, shown = told.deployment_findings_table(document), told.shown_table(document)
    marked, listed = told.serious_rows(findings), told.listed
    observed = told.part(document, "observed")
    lengths = {
        "findings": listed(document.get("findings")),
        "shown": listed(document.get("shown")),
        "differences": listed(document.get("differences")),
        "days": listed(observed.get("days")),
    }
    return {
        "title": told.deployment_title(document),
        "verdict": _verdict(str(document.get("verdict") or "") or ("finding" if any(marked) else "no-finding")),
        "sentence": told.deployment_sentence(document),
        "facts": told.deployment_facts(document),
        "findings": findings,
        "marked": marked,
        "ledger": told.ledger_table(document),
        "sums": told.sums_table(document),
        "bursts": told.bursts_table(document),
        "bursts_title": told.bursts_title(document),
        "shown_words": told.SHOWN_WORDS,
        "balances": told.balances_table(document),
        "shown": shown,
        "coins": told.coins_table(document),
        "more": [cell == "shows more" for cell in shown[1].cells],
        "claimed": _drawn(claimed_and_shown(document, prefix="claimed")),
        "rate": fmt.printable(observed.get("says") or "", limit=600),
        "spent": told.spent_table(document),
        "day_by_day": told.days_table(document),
        "days": _drawn(spent_by_day(document, prefix="days")),
        "effect": fmt.printable(told.part(document, "against").get("effect") or "", limit=600),
        "differences": told.differences_table(document),
        "provenance": facts_table(told.part(document, "provenance")),
        **{f"{name}_left_out": max(0, len(rows) - told.MOST_LINES) for name, rows in lengths.items()},
    }


def _told(document: Mapping[str, Any]) -> dict[str, Any]:
    """What experiments and measurements have in common: title, story and command above, cells and provenance below."""
    cells = document.get("cells") or ()
    return {
        "title": fmt.printable(
            document.get("title") or document.get("name") or str(document["kind"]).title(), limit=300
        ),
        "story": [p for p in fmt.printable(document.get("story") or "", limit=20_000).split("\n\n") if p.strip()],
        "command": fmt.printable(document.get("command") or ""),
        "cells": cells_table(cells[:MOST_CELLS]),
        "cells_left_out": max(0, len(cells) - MOST_CELLS),
        "provenance": facts_table(document.get("provenance")),
    }


def _drawn(*pictures: object) -> list[object]:
    return [p for p in pictures if p is not None]


def _verdict(value: object) -> str:
    """A CSS class: one of three words, whatever the document says."""
    return str(value) if value in {"finding", "no-finding"} else "inconclusive"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("dpaudit.report", "templates")
    return Environment(autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _write(text: str, path: Path) -> Path:
    """Write beside the target, then rename: a reader sees the old file or the new one, never half of either."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # A lone surrogate (a file name that is not UTF-8) becomes \udcxx, which JSON reads back as it was.
        part.write_bytes(text.encode("utf-8", errors="backslashreplace"))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path
