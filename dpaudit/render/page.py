"""A report as one self-contained HTML page.

The page needs no script: figures are static SVG, and the script only adds convenience (reading out
marks, sorting, copying). The page's Content-Security-Policy allows that one script, by its hash,
and nothing else that runs or loads.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dpaudit import wording
from dpaudit.render.html import Linker, get_template, glossary
from dpaudit.render.parts import (
    badge,
    blind_spots_table,
    hazards_table,
    made_facts,
    provenance_table,
    safe,
)
from dpaudit.report import (
    BlindSpots,
    Block,
    Chart,
    Check,
    Findings,
    Report,
    Section,
    Table,
)
from dpaudit.results.text import harmless

if TYPE_CHECKING:
    from markupsafe import Markup

    from dpaudit.render.charts.svg import Picture

__all__ = ["render_page"]

_LONG = 24  # rows of a folded table that is not printed


def render_page(report: Report) -> str:
    """The HTML of a report, the same bytes for the same report."""
    report = safe(report)
    script, digest = _script()
    figures = _Drawn()
    context = {
        "label": report.label,
        "title": report.title,
        "badge": badge(report, where="below"),
        "meaning": report.meaning,
        "sections": [
            one for s in report.sections if (one := _section(report, s, figures))["blocks"]
        ],
        "hazards": hazards_table(report.hazards),
        "provenance": provenance_table(report.provenance),
        "contents": [],
        "script": script,
        "script_hash": digest,
        "made": made_facts(report.provenance),
        "glossary": glossary(),
        "terms": Linker(),
    }
    page = get_template("report.html.j2").render(context)
    return harmless(page, tabs=True)  # tabs are between the fields of a mark


class _Drawn:
    """Numbers the charts and tables of a page, whose names its links use."""

    def __init__(self) -> None:
        self.charts = self.tables = 0
        self.checks = False
        self.linked = ""  # the chart whose marks lead to the table of checks

    def picture(self, chart: Chart) -> Picture | None:
        """The next chart, drawn."""
        from dpaudit.render.charts import draw_chart

        self.charts += 1
        name = f"figure-{self.charts}"
        if any(mark.link for panel in chart.panels for s in panel.series for mark in s.marks):
            self.linked = name
        return draw_chart(chart, name=name)

    def names(self, table: Table) -> dict[str, str]:
        """The name of the next table, and of the chart that its rows lead back to."""
        if table.checks and not self.checks:
            self.checks = True
            return {"name": "check", "back": self.linked}
        self.tables += 1
        return {"name": f"table-{self.tables}", "back": ""}


def _section(report: Report, section: Section, figures: _Drawn) -> dict[str, Any]:
    blocks = list(_blocks(report, section.blocks, figures))
    tables = [b for b in section.blocks if isinstance(b, Table) and b.columns]
    rows = max((b.rows for b in tables), default=0)
    return {
        "title": section.title,
        "folded": section.folded,
        "note": section.note,
        "long": rows > _LONG,
        "blocks": blocks,
    }


def _blocks(report: Report, blocks: Sequence[Block], figures: _Drawn) -> Iterator[dict[str, Any]]:
    for charts, group in groupby(blocks, key=lambda block: isinstance(block, Chart)):
        if charts:
            pictures = [figures.picture(block) for block in group if isinstance(block, Chart)]
            elements = [{"tag": "charts", "pictures": [p for p in pictures if p is not None]}]
        else:
            elements = [_block(report, block, figures) for block in group]
        yield from (one for one in elements if one.get("pictures", one.get("found", True)))


def _block(report: Report, block: Block, figures: _Drawn) -> dict[str, Any]:
    tag = block.__struct_config__.tag
    if isinstance(block, Findings):
        findings = (c for c in report.checks if c.outcome in _CARDS and c.group != "verdict")
        return {"tag": tag, "found": [_card(c) for c in findings]}
    if isinstance(block, BlindSpots):
        sized = [s for s in report.blind_spots if s.size is not None]
        never = [(s.flaw, s.says) for s in report.blind_spots if s.size is None]
        caption = "A flaw up to this size would have been missed more than one time in ten"
        table = Table(columns=blind_spots_table(sized), caption=caption)
        return {"tag": tag, "never": never, "sized": table}
    fields = {name: getattr(block, name) for name in block.__struct_fields__}
    if isinstance(block, Table):
        fields |= figures.names(block) | {"rows": block.rows}
    return {"tag": tag, **fields}


_CARDS = {"finding", "error"}


def _card(check: Check) -> dict[str, Any]:
    facts = [("Adjusted p", wording.p_value(check.p_adjusted))]
    if (interval := check.interval) is not None:
        low, high, sure = interval.low, interval.high, interval.confidence
        if high == float("inf"):
            facts.append(("At least", f"{check.unit} {wording.bounds(low)}".strip()))
        else:
            level = f"{100 * sure:.4g} % interval" if 0 < sure < 1 else "Interval"
            ends = ", ".join(wording.quantity(end, digits=6) for end in (low, high))
            facts.append((level, f"[{ends}] {check.unit}".strip()))
    if (samples := check.facts.get("seen_after")) is not None:
        facts.append(("Found after", f"{wording.count(samples)} values"))
    if check.cause:
        facts.append(("Likely cause", check.cause))
    return {
        "name": check.name,
        "looks_at": check.looks_at,
        "effect": check.effect or wording.NOTHING,
        "facts": [(name, value) for name, value in facts if value != wording.NOTHING],
        "command": check.reproduce,
        "trace": check.facts.get("traceback", ""),
    }


@cache
def _script() -> tuple[Markup, str]:
    """The page's script, and its SHA-256 for the page's Content-Security-Policy."""
    from importlib.resources import files

    from markupsafe import Markup

    text = files("dpaudit.render").joinpath("templates/page.js").read_text(encoding="utf-8")
    return Markup(text), base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()  # noqa: S704
