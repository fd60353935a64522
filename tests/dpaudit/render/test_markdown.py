"""The summary for a pull request: short enough whatever is in it, and third-party text is text."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support import reports

from dpaudit.render.markdown import (
    MOST_CHARACTERS,
    MOST_ROWS,
    code_block,
    markdown_summary,
    prose,
)

GITHUB = MarkdownIt("gfm-like", {"linkify": False}).enable(["table", "strikethrough"])
OURS = {"h3", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "pre", "code", "details",
        "summary", "ul", "li", "sub"}  # fmt: skip
MENTION = re.compile(r"(^|\W)@\w")
URL = re.compile(r"(https?|ftp)://\w|\bwww\.\w", re.I)


def shown(markdown):
    """Rendered by an independent implementation; only the tags of our summaries."""
    page = GITHUB.render(markdown)
    tags = {tag.lower() for tag in re.findall(r"</?([a-zA-Z][\w-]*)", page)}
    assert tags <= OURS, tags - OURS
    for plain in re.split(r"<pre>.*?</pre>", page, flags=re.S):
        text = html.unescape(re.sub(r"<[^>]*>", "", plain))
        assert not MENTION.search(text)
        assert not URL.search(text)
    return page


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("name", reports.EVERY)
def test_every_report(name, hostile):
    report = reports.EVERY[name]
    report = reports.hostile(report) if hostile else report
    markdown = markdown_summary(report)
    assert markdown == markdown_summary(report)
    assert len(markdown) <= MOST_CHARACTERS
    page = shown(markdown)
    rows = page.count("<tr>") - page.count("<thead>")
    assert rows <= MOST_ROWS
    # every row has every column: no cell was split
    for row in re.findall(r"<tr>.*?</tr>", page, flags=re.S):
        assert row.count("</t") - 1 == page.split("</thead>")[0].count("<th") - 1


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "[x](y)", "@someone"])
def test_the_renderer_shows_what_is_not_escaped(text):
    with pytest.raises(AssertionError):
        shown(text)


def test_a_report_in_a_glance():
    markdown = markdown_summary(reports.report("finding"))
    assert markdown.startswith(
        "### dpaudit: Audit of python:./noise.py:draw\n\n"
        "**Finding:** moments contradicts gaussian:sigma=1."
    )
    assert markdown.index("| **moments** |") < markdown.index("| norms |")
    assert "Looks at" not in markdown
    assert "What a pass cannot exclude" not in markdown
    assert f"\n```sh\n{reports.AGAIN}\ndpaudit audit python:./noise.py:draw\n```" in markdown
    last = markdown.rstrip().splitlines()[-1]
    assert (
        last
        == "<sub>dpaudit 0.1.0 · seed 0x12 · 1 min 23 s · 2026-01-01 · sandbox full · CPU</sub>"
    )
    honest = markdown_summary(reports.report("no-finding"))
    assert "**No finding:** nothing contradicts" in honest
    assert "this cannot exclude is below." in honest
    assert (
        "<details><summary>What a pass cannot exclude</summary>\n\n"
        "- wrong scale (0.00091 of σ): 0.09 % pass" in honest
    )
    assert "**3 differ, incomplete:** Incomplete" in markdown_summary(reports.measurements())


def test_findings_come_first_and_the_rest_is_counted():
    calm = [reports.check(f"calm {i}", "pass") for i in range(30)]
    markdown = markdown_summary(reports.report("finding", *calm, reports.check()))
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert rows[2].startswith("| **moments** |")
    assert len(rows) == 2 + MOST_ROWS
    assert "…and 11 more in the report." in markdown


@pytest.mark.parametrize(
    "text", ["`" * 2500, "&" * 2500, "|" * 2500, "@a " * 900, "\n" * 2500, "é@" * 1200]
)
def test_never_too_long(text):
    checks = [reports.check(f"{i}") for i in range(80)]
    many = reports.report("finding", *checks, blind_spots=reports.SPOTS * 40)
    for report in (many, reports.huge()):
        assert len(markdown_summary(reports.hostile(report, text=text))) <= MOST_CHARACTERS


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.text(st.sampled_from("ab1 .-+=*_`~|<>[]()!&#@:/\\{}$^\n\t\"'w"), max_size=30),
    st.sampled_from(["{}", "- {}", "| {} |\n|---|", "**x.** {}"]),
)
def test_prose_shows_just_that_text(text, form):
    page = shown(form.format(prose(text)))
    seen = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).replace("\u2060", "").split())
    expected = form.replace("|---|", "").strip("|- *").replace("**", "")
    expected = " ".join(expected.format(" ".join(text.split())).split())
    if form == "| {} |\n|---|":
        expected = " ".join(text.split())
    assert seen == expected


@given(st.text(st.sampled_from("a`~\n #"), max_size=30))
def test_a_code_block_ends_where_it_ends(text):
    source = code_block(text) + "\n\nafter"
    token, *_ = GITHUB.parse(source)
    assert token.type == "fence"
    assert token.content.rstrip("\n") == text.rstrip("\n")
    assert GITHUB.render(source).endswith("<p>after</p>\n")
