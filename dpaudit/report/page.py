"""Writing the page and the JSON document.

The page needs no script: figures are static SVG, and everything that the script of ours adds (reading marks out, sorting,
copying) is said without it. The script is small and plain; libraries of plots take megabytes for what is needed here. The
page's Content-Security-Policy allows that one script, by its hash, and nothing else that runs or loads.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpaudit.errors import UsageError
from dpaudit.report import format as fmt
from dpaudit.report.found import found
from dpaudit.report.mechanism import bounds_table, events_table, mechanism_facts, mechanism_sentence
from dpaudit.report.rows import shared_settings
from dpaudit.report.sentences import audit_sentence, experiment_sentence, failures_of, measurements_sentence
from dpaudit.report.tables import (
    blind_spots_table,
    cells_table,
    facts_table,
    measured_table,
    summary_table,
    tests_table,
)
from dpaudit.report.verdict import badge

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["render_report", "write_json", "write_report"]

MOST_CELLS = 400
"""Lines of a long table that the page shows; the rest is in the JSON document."""
MOST_FAILURES = 50
"""Failed cells that the page shows, each with its traceback; the rest is in the JSON document."""


def write_report(document: Mapping[str, Any], path: Path) -> Path:
    """Write a document as one self-contained HTML file (it loads nothing), atomically; returns ``path``.

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
    context["badge"] = badge(
        context["verdict"], context["sentence"], word=context.get("word", ""), sign=context.get("sign", "")
    )
    script, digest = _script()
    context |= {"contents": [], "script": script, "script_hash": digest}
    return _environment().get_template(f"{document['kind']}.html.j2").render(context)


def _audit(result: Mapping[str, Any]) -> dict[str, Any]:
    from dpaudit.report.figure_power import power_map
    from dpaudit.report.figures import p_value_ladder

    dims, refused = result.get("dims") or (), result.get("dims_refused") or ()
    used, asked = fmt.count(result.get("samples")), fmt.count(result.get("samples_requested"))
    facts = [
        ("Claim", fmt.printable(result.get("claim", fmt.NOTHING), limit=400)),
        ("Values", used if used == asked else f"{used} ({asked} asked for)"),
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
        "reason": _reason(result),
        "facts": facts,
        "found": found(result),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "figures": _drawn(p_value_ladder(result, prefix="ladder")),
        **_spots(result),
        "maps": _drawn(power_map(result.get("power") or (), prefix="power")),
        "provenance": facts_table(result.get("provenance")),
    }


def _reason(result: Mapping[str, Any]) -> str:
    """What the verdict rests on, where its sentence does not say it already."""
    reason, judged = (
        fmt.printable(result.get("reason") or ""),
        [t for t in result.get("tests") or () if not t.get("advisory")],
    )
    match result.get("verdict"):
        case "no-finding" if judged:
            alpha = fmt.quantity(result.get("alpha"))
            none = (
                "The one test does not contradict" if len(judged) == 1 else f"None of {len(judged)} tests contradicts"
            )
            return f"{none} the claim, at α = {alpha} for all of them together."
        case "finding" | "inconclusive":
            return ""
    return reason


def _mechanism(result: Mapping[str, Any]) -> dict[str, Any]:
    from dpaudit.report.figure_curve import shown_and_claimed
    from dpaudit.report.figure_power import power_map

    tests = bounds_table(result)
    return {
        "title": f"Audit of {fmt.printable(result.get('mechanism', 'a mechanism'), limit=300)}",
        "verdict": _verdict(result.get("verdict")),
        "sentence": mechanism_sentence(result),
        "facts": mechanism_facts(result),
        "advice": [fmt.printable(a) for a in result.get("advice") or ()],
        "found": found(result),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "figures": _drawn(shown_and_claimed(result, prefix="curve")) if result.get("tests") else [],
        "events": events_table(result),
        **_spots(result),
        "maps": _drawn(power_map(result.get("power") or (), prefix="power")),
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
    told = _told(document)
    failed = bool(told["failures"])
    attacked = any(attacks_of(row) for row in rows)
    return told | {
        "verdict": "finding" if any(beaten) else "no-finding" if attacked and not failed else "inconclusive",
        "word": _word(
            rows,
            failed=failed,
            words=("Attack succeeds", "Attacks fail" if attacked else "No attack run"),
            bad=any(beaten),
        ),
        "sentence": experiment_sentence(rows, failures=failures_of(document)),
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
    told = _told(document)
    failed, differ = bool(told["failures"]), len(read.misses)
    words = (f"{differ:,} {'differs' if differ == 1 else 'differ'}", "Measured")
    return told | {
        # A row beside a published one that differs is no finding against anybody: chance makes some differ.
        "verdict": "no-finding" if read.rows and not read.misses and not failed else "inconclusive",
        "sign": "≠" if read.misses else "",
        "word": _word(read.rows, failed=failed, words=words, bad=bool(read.misses)),
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
    failed = failures_of(document)
    return {
        "failures": [_failure(f) for f in failed[:MOST_FAILURES]],
        "failures_left_out": max(0, len(failed) - MOST_FAILURES),
        "title": fmt.printable(
            document.get("title") or document.get("name") or str(document["kind"]).title(), limit=300
        ),
        "story": [p for p in fmt.printable(document.get("story") or "", limit=20_000).split("\n\n") if p.strip()],
        "command": fmt.printable(document.get("command") or ""),
        "cells": cells_table(cells[:MOST_CELLS]),
        "cells_left_out": max(0, len(cells) - MOST_CELLS),
        "provenance": facts_table(document.get("provenance")),
    }


def _word(rows: Sequence[Any], *, failed: bool, words: tuple[str, str], bad: bool) -> str:
    """The badge of an experiment: what came out, and that it is incomplete where cells failed."""
    if not rows:
        return "Nothing yet"
    told = words[0] if bad else words[1]
    return told if not failed else f"{told}, incomplete" if bad else "Incomplete"


def _failure(failure: Mapping[str, Any]) -> dict[str, str]:
    settings = failure.get("settings")
    items = settings.items() if isinstance(settings, Mapping) else ()
    said = ", ".join(f"{fmt.printable(k, limit=60)} {fmt.setting(v)}" for k, v in list(items)[:20])
    return {
        "cell": fmt.printable(failure.get("cell") or "a cell", limit=200),
        "settings": fmt.printable(said, limit=1000),
        "error": fmt.printable(failure.get("error") or "no message", limit=1000),
        "traceback": fmt.printable(failure.get("traceback") or "", limit=8000),
    }


def _spots(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a pass leaves room for: flaws that no size shows in words, the others as a table by size."""
    spots = result.get("cannot_rule_out") or ()
    sized = [s for s in spots if fmt.number(s.get("size")) is not None]
    never = [s for s in spots if fmt.number(s.get("size")) is None]
    return {
        "blind_spots": blind_spots_table({"cannot_rule_out": sized}),
        "never": [
            (fmt.printable(s.get("flaw", ""), limit=400), fmt.printable(s.get("says", ""), limit=600)) for s in never
        ],
    }


def _drawn(*pictures: object) -> list[object]:
    return [p for p in pictures if p is not None]


def _verdict(value: object) -> str:
    """A CSS class: one of three words, whatever the document says."""
    return str(value) if value in {"finding", "no-finding"} else "inconclusive"


@cache
def _script() -> tuple[Markup, str]:
    """The page's script, and the SHA-256 by which its policy lets that script, and no other, run."""
    from importlib.resources import files

    from markupsafe import Markup

    text = files("dpaudit.report").joinpath("templates/page.js").read_text(encoding="utf-8")
    return Markup(text), base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()  # noqa: S704


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
