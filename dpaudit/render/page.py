"""A report as one self-contained HTML page, and as a card in a notebook.

The page needs no script: figures are static SVG, and the script only adds convenience (reading out
marks, sorting, copying). The page's Content-Security-Policy allows that one script, by its hash,
and nothing else that runs or loads.

A line may break within long identifiers, not in ``--option`` or ``ε ≥ 1``. The glossary is a
section of the report that its own prose links to; its words are in ``glossary.md`` beside this
module, and ``docs/glossary.md`` includes them.

The card, with the verdict and the main table, works on light and dark pages, is scoped by its class
and variable names, has no script, and is escaped like the page.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from dpaudit import wording
from dpaudit.render.parts import (
    badge,
    blind_spots_table,
    cut_rows,
    finding_text,
    hazards_table,
    headline,
    made_facts,
    main_table,
    provenance_table,
    safe,
    width_of,
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
from dpaudit.results.text import harmless, one_line

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

    from dpaudit.render.charts.svg import Picture

__all__ = [
    "Linker",
    "breakable",
    "glossary",
    "glossary_text",
    "kept_whole",
    "notebook_card",
    "plain_text",
    "render_page",
]

_WHOLE = re.compile(r"(?<![\w-])--\w[\w-]*|\b[αδεμ] [≥≤=] [\d.e+-]*\d")
_LONG_WORD = re.compile(r"\S{16,}")
_JOINT = re.compile(r"(?<=\w)[./:_,=+]+(?=\w)")


def kept_whole(text: str) -> Markup:
    """The text, escaped, with every ``--option`` and ``ε ≥ 1.5`` on one line."""
    from markupsafe import Markup, escape

    return Markup(_WHOLE.sub(r'<span class="whole">\g<0></span>', str(escape(text))))  # noqa: S704


def breakable(text: str) -> Markup:
    """The text, escaped, with words of 16 letters or more that may break after ``.``, ``:`` ….

    What is selected, searched and copied is the text itself.
    """
    from markupsafe import Markup

    parts, at = [], 0
    for word in _LONG_WORD.finditer(text):
        parts.append(kept_whole(text[at : word.start()]))
        ends = [joint.end() for joint in _JOINT.finditer(word[0])]
        cuts = zip([0, *ends], [*ends, len(word[0])], strict=True)
        parts.append(Markup("<wbr>").join(word[0][a:b] for a, b in cuts))
        at = word.end()
    return Markup("").join([*parts, kept_whole(text[at:])])


@cache
def get_template(name: str) -> Template:
    """The template ``name`` of this package; it escapes every value and refuses undefined ones."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        loader=PackageLoader("dpaudit.render", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": breakable, "kept_whole": kept_whole, "look": width_of}
    return environment.get_template(name)


_ENTRY = re.compile(r"^(?P<names>[^\n#:].*)\n: (?P<says>.+)$", re.MULTILINE)
_MARKUP = re.compile(r"[*`]")


class Term(NamedTuple):
    """An entry: its id on the page, its heading, the words that link to it, and what it says."""

    id: str
    heading: str
    words: tuple[str, ...]
    says: str


def glossary_text() -> str:
    """The glossary as Markdown: a definition list."""
    from importlib.resources import files

    return files("dpaudit.render").joinpath("glossary.md").read_text(encoding="utf-8")


@cache
def glossary() -> tuple[Term, ...]:
    """All entries, in order."""
    return tuple(
        _term(entry["names"], _MARKUP.sub("", entry["says"]))
        for entry in _ENTRY.finditer(glossary_text())
    )


def _term(heading: str, meaning: str) -> Term:
    """An entry; ``α (alpha)`` is linked as α and has ``alpha`` in its id."""
    sign, _, spoken = heading.partition(" (")
    signs = tuple(word.strip() for word in sign.split(","))
    name = spoken.removesuffix(")") or signs[0]
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return Term(f"term-{re.sub('[^a-z]+', '-', plain).strip('-')}", heading, signs, meaning)


class Linker:
    """Links the first occurrence of each term on one page to its entry in the glossary.

    For dpaudit's own prose only. The text is escaped.
    """

    def __init__(self) -> None:
        self._left = {word.lower(): term.id for term in glossary() for word in term.words}
        longest = sorted(self._left, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest))
        self._pattern = re.compile(rf"(?<![\w-])({pattern})s?(?![\w-])", re.IGNORECASE)

    def __call__(self, text: str) -> Markup:
        from markupsafe import Markup

        parts, at = [], 0
        for match in self._pattern.finditer(text):
            place = self._left.get(match[1].lower())
            if place is None:
                continue
            for word in [word for word, to in self._left.items() if to == place]:
                del self._left[word]
            parts += [kept_whole(text[at : match.start()])]
            parts += [Markup('<a class="term" href="#{}">{}</a>').format(place, match[0])]
            at = match.end()
        return Markup("").join([*parts, kept_whole(text[at:])])


_MOST_ROWS = 12
_MOST_LINES = 8
_LONGEST = 20_000  # characters of a command


def plain_text(report: Report) -> str:
    """The verdict; then the findings and how to see them again, or what a pass cannot exclude."""
    report = safe(report)
    lines = [headline(report, where="below")]
    checks = report.findings
    lines += [f"  {finding_text(check)}" for check in checks[:_MOST_LINES]]
    if len(checks) > _MOST_LINES:
        lines.append(f"  and {len(checks) - _MOST_LINES} more: see tests")
    if again := next(iter(report.reproducers), ""):
        lines.append(f"To see it again: {one_line(again, limit=_LONGEST)}")
    if report.verdict == "no-finding" and report.blind_spots:
        flaws = [one_line(spot.flaw, limit=200) for spot in report.blind_spots]
        more = f"; and {len(flaws) - 3} more: see cannot_rule_out" if len(flaws) > 3 else ""
        lines.append(f"  Not excluded: {'; '.join(flaws[:3])}{more}")
    return "\n".join(lines)


def notebook_card(report: Report) -> str:
    """A report as an HTML fragment of a few kB, the same for the same report."""
    report = safe(report)
    table = main_table(report)
    spots = len(report.blind_spots) if report.verdict != "finding" else 0
    sandbox = report.facts.get("sandbox")
    notes = [
        f"A pass cannot exclude {spots} kinds of flaw: see cannot_rule_out." if spots else "",
        f"Sandbox: {sandbox}" if sandbox else "",
        *report.advice,
    ]
    return get_template("card.html.j2").render(
        title=report.title,
        badge=badge(report, where="in cannot_rule_out"),
        columns=cut_rows(table.columns, range(min(table.rows, _MOST_ROWS))),
        marked=table.marked,
        left_out=max(0, table.rows - _MOST_ROWS),
        notes=[note for note in notes if note],
    )


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
