"""The page: self-contained, the same bytes each time, and strangers' text is only text."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys

import pytest
from support import reports
from support.documents import Page

from dpaudit.harms import COMPONENTS
from dpaudit.render import write_report
from dpaudit.render.page import Linker, breakable, glossary, glossary_text, kept_whole, render_page
from dpaudit.render.parts import hazards_table, provenance_table
from dpaudit.report import Check, Findings, Hazard, Section, Table, Text, replace
from dpaudit.types import Interval

FIGURES = {"finding": 1, "no-finding": 1, "inconclusive": 1, "measurements": 4, "empty": 0}
OUTSIDE = {"link", "img", "iframe", "object", "embed", "base", "form"}


@pytest.fixture(scope="module")
def pages():
    return {name: render_page(one) for name, one in reports.EVERY.items()}


@pytest.mark.parametrize("name", reports.EVERY)
def test_a_page_is_self_contained_and_well_formed(pages, name):
    page, html = Page(pages[name]), pages[name]
    assert page.ordered
    assert page.open == []
    assert not {tag for tag, _ in page.tags} & OUTSIDE
    assert page.scripts() == 0
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) <= set(ids)
    for _, attributes in page.tags:
        assert not any(a.startswith("on") for a in attributes)
        for value in filter(None, (attributes.get(a) for a in ("href", "src", "xlink:href"))):
            assert value.startswith("#")
    assert "http" not in re.sub(r"http-equiv", "", html)
    assert not re.search(r"@import|@font-face|url\((?!#)", html)
    plots = [a for _, a in page.tags if a.get("role") == "img"]
    assert len(plots) == FIGURES[name] == page.count("figure") == page.count("figcaption")
    assert all(len(a["aria-label"]) > 40 for a in plots)


def test_the_policy_allows_the_one_script_by_its_hash(pages):
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', pages["finding"])
    (script,) = re.findall(r"<script>(.*?)</script>", pages["finding"], re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")


@pytest.mark.parametrize("name", reports.EVERY)
def test_strangers_text_is_only_text(pages, name):
    html = render_page(reports.hostile(reports.EVERY[name]))
    page, ours = Page(html), {tag for plain in pages.values() for tag, _ in Page(plain).tags}
    assert page.ordered
    assert page.scripts() == page.count("img") == page.count("iframe") == 0
    assert {tag for tag, _ in page.tags} <= ours | {"wbr"}
    assert not any(a.startswith("on") for _, attributes in page.tags for a in attributes)
    assert "<script>alert(1)</script>" in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", html)


def test_the_same_report_gives_the_same_bytes(pages, tmp_path):
    for name in ("measurements", "finding"):
        path = write_report(reports.EVERY[name], tmp_path / "a" / f"{name}.html")
        assert path.read_bytes() == pages[name].encode()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "finding.html",
        "measurements.html",
    ]


def test_a_page_goes_from_the_verdict_to_what_repeats_it(pages):
    text = Page(pages["no-finding"]).text
    told = text[text.rindex("this cannot exclude") :]  # the contents, above, name some of these too
    parts = ("is below.", "What this means", "The noise is weak.", "Found by moments",
             "What was tested", "10,000,000", "What was found", "What a pass cannot exclude",
             "a secret direction", "no size helps", "0.00091 of σ", "All tests",
             "NIST SP 800-226", "Trust models", "Provenance", "0x12", "Glossary")  # fmt: skip
    places = [told.index(part) for part in parts]
    assert places == sorted(places)
    assert 'class="sign" aria-hidden="true">✓</span>No finding</strong>' in pages["no-finding"]
    assert "≠</span>3 differ, incomplete</strong>" in pages["measurements"]


def test_a_finding_has_its_numbers_its_cause_and_its_command(pages):
    card = pages["finding"].split('<li class="card">')[1]
    text = " ".join(Page(card).text.split())
    for part in ("looks at single values", "Adjusted p 1.0e-08", "At least ε ≥ 6.7",
                 "Likely cause a scale", f"To see it again: {reports.AGAIN}"):  # fmt: skip
        assert re.sub(r"\W", "", part) in re.sub(r"\W", "", text)
    between = Interval(low=0.8, high=0.9, confidence=0.95, method="χ²")
    one = reports.check(interval=between, unit="× the claim", facts={"seen_after": 2000})
    text = Page(render_page(reports.report("finding", one))).text
    assert "[0.8, 0.9] × the claim" in text
    assert "2,000 values" in text


def test_the_date_and_the_person_stand_above():
    for by, said in (("Ada", "Ada"), (None, "not stated")):
        made = reports.provenance() | {"started": "2026-11-23T06:20:01+00:00", "by": by}
        page = render_page(reports.report(provenance=made))
        assert f"<dt>Run by</dt><dd>{said}</dd>" in page
        assert "<dd>2026-11-23 06:20:01 UTC</dd>" in page


def test_tables_mark_rows_say_what_is_left_out_and_fold(pages):
    html = pages["measurements"]
    assert html.count('<tr id="table-2-6" class="marked">') == 1
    assert "7 more are in the JSON document only." in html
    assert '<table class=" long">' in html
    folded = html.split("All cells</summary>")[1].split("</table>")[0]
    assert '<table class="quiet">' in folded  # neither sorted nor filtered
    assert 'class="part stored"' in html  # 30 rows: not on paper


def test_the_marks_of_a_chart_lead_to_rows_of_checks_and_these_back(pages):
    html = pages["finding"]
    rows = re.findall(r'<tr id="(check-\d)"[^>]*><th[^>]*><a href="#figure-1"', html)
    assert rows == [f"check-{i}" for i in (1, 2, 3, 4)]
    points = re.findall(r'data-points="([^"]*)"', html)[0].splitlines()
    assert [line.split("\t")[-1] for line in points] == [f"#{row}" for row in rows]
    assert '<a tabindex="-1" href="#check-1"' in html
    report = reports.report()
    twice = replace(report, sections=(*report.sections, report.sections[-1]))
    ids = [
        a["id"] for _, a in Page(render_page(twice)).tags if "id" in a and a["id"][:5] == "check"
    ]
    assert ids == rows  # one table of checks is led to


def test_a_command_that_is_cut_is_not_copied():
    commands = ("dpaudit audit x --alpha 0.1", "a\nrm -rf b", "a \u202eb\x1b[2J", "a" * 20_001)
    checks = [reports.check(f"t{i}", reproduce=line) for i, line in enumerate(commands)]
    html = render_page(reports.report("finding", *checks))
    assert html.count('<pre class="command" data-copy') == 1
    assert html.count("This command is not shown in full") == 2


def test_rendering_is_imported_when_it_is_needed():
    heavy = {"matplotlib", "rich", "jinja2", "scipy", "torch", "numpy"}
    code = f"import sys, dpaudit.render; print({heavy} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_hazards_name_each_component_once_and_what_was_not_looked_at():
    table = hazards_table([Hazard(component="Side channels", found=("a", "b"))])
    component, _, found, left = (c.cells for c in table.columns)
    assert component == tuple(name for name, _ in COMPONENTS)
    assert dict(zip(component, found, strict=True))["Side channels"] == "a; b"
    assert set(zip(component, left, strict=True)) >= {
        ("Side channels", "–"),
        ("Utility", "not looked at"),
    }
    assert hazards_table([]).columns[0].cells == ()


def test_plugins_of_one_package_take_one_line():
    def value(*plugins):
        table = provenance_table(reports.provenance() | {"plugins": list(plugins)})
        return dict(zip(*(column.cells for column in table.columns), strict=True))["plugins"]

    one = {"kind": "tests", "name": "a", "distribution": "x", "version": "1", "sha256": "ff"}
    other = {"kind": "tests", "name": "c", "distribution": "y", "version": "2", "sha256": "00"}
    assert value(one, one | {"name": "b"}, other) == "tests a, b x 1 ff\ntests c y 2 00"
    assert (value(), value({}), value("odd", 1)) == ("–", "–", "odd, 1")


def test_the_glossary_of_the_docs_is_that_of_the_report():
    docs = (reports.ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert "```{include} ../dpaudit/render/glossary.md\n" in docs
    entries = glossary_text().split("\n\n")[1:]
    assert len({term.id for term in glossary()}) == len(glossary()) == len(entries) >= 25
    assert all(re.fullmatch(r"term-[a-z-]+", term.id) for term in glossary())
    assert not any(mark in term.says for term in glossary() for mark in "*`")


def test_terms_are_linked_once_and_text_stays_text():
    link = Linker()
    assert link("An ε <b> of attackers") == (
        'An <a class="term" href="#term-epsilon">ε</a> &lt;b&gt; of '
        '<a class="term" href="#term-adversary">attackers</a>'
    )
    assert link("ε, the adversary") == "ε, the adversary"
    assert link("a lower bound for ε") == (
        'a <a class="term" href="#term-lower-bound-for">lower bound for ε</a>'
    )
    assert "<a" not in link("unclaimed farm disclaim non-power")


def test_line_breaks():
    assert kept_whole("ε ≥ 7.69 <i> --real-numbers") == (
        '<span class="whole">ε ≥ 7.69</span> &lt;i&gt; <span class="whole">--real-numbers</span>'
    )
    assert breakable("a com.apple.keyboard.Emoji <b>") == (
        "a com.<wbr>apple.<wbr>keyboard.<wbr>Emoji &lt;b&gt;"
    )
    assert breakable("<script>alert(1)</script>=a") == "&lt;script&gt;alert(1)&lt;/script&gt;=a"
    assert breakable("1,001,004") == "1,001,004"


def test_a_failed_check_is_shown_with_its_traceback():
    failed = Check(name="b-2", outcome="error", facts={"traceback": "Traceback\n <b>no</b>"})
    section = Section(title="Cells that failed", blocks=(Text("Missing."), Findings()))
    report = replace(reports.empty(), checks=(failed,), sections=(section,))
    assert "<code>Traceback\n &lt;b&gt;no&lt;/b&gt;</code>" in render_page(report)


def test_an_empty_table_is_no_table():
    blocks = (
        Table(columns=(), caption="none"),
        Table(columns=reports.long_table(0).columns, caption=""),
    )
    page = Page(
        render_page(replace(reports.empty(), sections=(Section(title="A", blocks=blocks),)))
    )
    assert page.count("table") == 0


def test_an_inconclusive_page_says_its_verdict_once():
    sections = (Section(title="What was found", blocks=(Findings(),)),)
    said = "Inconclusive: signal 9; this says nothing either way."
    verdict = reports.check("verdict", "error", group="verdict", effect=said)
    report = reports.report("inconclusive", verdict, headline=said, sections=sections)
    page = Page(render_page(report)).text
    assert page.count("signal 9") == 1
    assert "What was found" not in page
    failed = reports.check("cell 3", "error", group="cells", effect="no memory")
    page = Page(render_page(replace(report, checks=(verdict, failed)))).text
    assert page.count("no memory") == page.count("What was found\n") - 1 == 1
