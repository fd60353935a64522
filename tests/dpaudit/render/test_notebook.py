"""Results in a notebook: the card is small, escaped and scoped; what ``print`` shows."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import reports
from support.documents import Page

from dpaudit.render import notebook_card, plain_text


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("name", reports.EVERY)
def test_a_card_is_small_whole_and_keeps_to_itself(name, hostile):
    report = reports.EVERY[name]
    report = reports.hostile(report) if hostile else report
    html = notebook_card(report)
    page = Page(html)
    assert page.ordered
    assert page.open == []
    assert page.count("script") == page.count("h1") == page.count("img") == 0
    assert html == notebook_card(report)
    assert hostile or len(html) < 8000
    assert ("<script>alert(1)</script>" in page.text) == hostile
    assert not set("\u202e\x1b") & set(html + plain_text(report))
    style = html[html.index("<style>") + 7 : html.index("</style>")].strip()
    assert all(rule.startswith(".dpaudit-card ") for rule in style.splitlines())


def test_a_card_says_the_verdict_the_main_rows_and_what_to_know():
    text = Page(notebook_card(reports.report("no-finding"))).text
    for part in ("this cannot exclude is in cannot_rule_out.", "norms", "Sandbox: full",
                 "A pass cannot exclude 2 kinds of flaw: see cannot_rule_out.",
                 "ask for more releases"):  # fmt: skip
        assert part in text
    many = reports.report("finding", *(reports.check(f"t{i}") for i in range(15)))
    page = Page(notebook_card(many))
    assert "3 more rows." in page.text
    assert page.count("tr") == 13


def test_what_print_shows():
    many = reports.report("finding", *(reports.check(f"t{i}") for i in range(10)))
    lines = plain_text(many).splitlines()
    assert lines[0] == "Finding: moments contradicts gaussian:sigma=1."
    assert lines[1] == "  t0: 5 of 9 against 0 (adjusted p 1.0e-08)"
    assert lines[-2:] == ["  and 2 more: see tests", f"To see it again: {reports.AGAIN}"]
    lines = plain_text(reports.report("no-finding", blind_spots=reports.SPOTS * 2)).splitlines()
    assert lines[-1] == (
        "  Not excluded: wrong scale; a secret direction; wrong scale; "
        "and 1 more: see cannot_rule_out"
    )


def test_rendering_is_imported_when_a_result_is_shown():
    """A result's class knows its description and the card by the names of entry points only."""
    code = (
        "import sys\n"
        "from dpaudit.audit.result import AuditResult\n"
        "assert AuditResult._repr_html_ and AuditResult.__str__\n"
        "print({'dpaudit.render', 'jinja2', 'numpy'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
