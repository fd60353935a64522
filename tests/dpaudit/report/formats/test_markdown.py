"""The summary for a pull request: short enough whatever is in it, and third-party text is text."""

import html
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support import formats as made

from dpaudit.report import document_of
from dpaudit.report.formats import markdown_summary
from dpaudit.report.formats.markdown import MOST_CHARACTERS, MOST_ROWS, code_block, prose

GITHUB = MarkdownIt("gfm-like", {"linkify": False}).enable(["table", "strikethrough"])
OURS = {
    "h3",
    "p",
    "strong",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "pre",
    "code",
    "details",
    "summary",
    "ul",
    "li",
    "sub",
}
MENTION = re.compile(r"(^|\W)@\w")
URL = re.compile(r"(https?|ftp)://\w|\bwww\.\w", re.I)


def summary(document):
    return markdown_summary(document_of(document))


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
@pytest.mark.parametrize("name", made.EVERY_KIND)
def test_every_kind(name, hostile):
    document = made.of_kind(name)
    markdown = summary(made.made_hostile(document) if hostile else document)
    assert len(markdown) <= MOST_CHARACTERS
    page = shown(markdown)
    rows = page.count("<tr>") - page.count("<thead>")
    assert rows <= MOST_ROWS
    # every row has every column: no cell was split
    for row in re.findall(r"<tr>.*?</tr>", page, flags=re.S):
        assert row.count("</t") - 1 == page.split("</thead>")[0].count("<th") - 1


def test_the_renderer_shows_what_is_not_escaped():
    with pytest.raises(AssertionError):
        shown("<script>alert(1)</script>")
    with pytest.raises(AssertionError):
        shown("[x](y)")
    with pytest.raises(AssertionError):
        shown("@someone")


def test_an_audit_in_a_glance():
    markdown = summary(made.documents.audit("finding"))
    assert markdown.startswith(
        "### dpaudit: Audit of python&#58;vendor:noise\n\n"
        "**Finding:** moments contradicts gaussian:sigma=1"
    )
    assert markdown.index("| moments |") < markdown.index("| tails |")
    assert "What a pass cannot exclude" not in markdown
    assert (
        markdown.rstrip().splitlines()[-1].startswith("<sub>dpaudit 0.1.0 · seed 0x12 · 1 min 23 s")
    )
    honest = summary(made.documents.audit("no-finding"))
    assert "**No finding:**" in honest
    assert (
        "<details><summary>What a pass cannot exclude</summary>\n\n"
        "- wrong scale (0.00091 of σ): 0.091 % would pass" in honest
    )
    assert "\n```sh\ndpaudit mechanism numpy:laplace:scale=0.5 " in summary(made.mechanism())
    lost = summary(made.documents.audit("inconclusive"))
    assert "**Inconclusive:** the process ended with signal 9" in lost


def test_an_experiment_is_told_by_its_sentence():
    markdown = summary(made.documents.experiment())
    assert "No finding" not in markdown
    assert "passes the black-box audit, yet its key holder" in markdown
    grid = made.measured.grid()
    # a header, a line, the misses, and not the other 237
    assert summary(grid).count("\n| ") == 2 + len(grid["misses"])
    grid |= {"misses": [], "rows": [row | {"agrees": True} for row in grid["rows"]]}
    assert "…and 220 more in the report." in summary(grid)


@pytest.mark.parametrize(
    "text", ["`" * 2500, "&" * 2500, "|" * 2500, "@a " * 900, "\n" * 2500, "é@" * 1200]
)
def test_never_too_long(text):
    for document in map(made.of_kind, made.EVERY_KIND):
        if "tests" in document.get("result", ()):
            document["result"]["tests"] = document["result"]["tests"] * 40
            document["result"]["cannot_rule_out"] = document["result"]["cannot_rule_out"] * 40
        assert len(summary(made.made_hostile(document, text=text))) <= MOST_CHARACTERS


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.text(st.sampled_from("ab1 .-+=*_`~|<>[]()!&#@:/\\{}$^\n\t\"'w"), max_size=30),
    st.sampled_from(["{}", "- {}", "| {} |\n|---|", "**x.** {}"]),
)
def test_prose_shows_just_that_text(text, form):
    page = shown(form.format(prose(text)))
    seen = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).replace("\u2060", "").split())
    expected = " ".join(
        form.replace("|---|", "")
        .strip("|- *")
        .replace("**", "")
        .format(" ".join(text.split()))
        .split()
    )
    if form == "| {} |\n|---|":
        expected = " ".join(text.split())
    assert seen == expected


@given(st.text(st.sampled_from("a`~\n #"), max_size=30))
def test_a_code_block_ends_where_it_ends(text):
    (token, *_), after = (
        GITHUB.parse(code_block(text) + "\n\nafter"),
        GITHUB.render(code_block(text) + "\n\nafter"),
    )
    assert token.type == "fence"
    assert token.content.rstrip("\n") == text.rstrip("\n")
    assert after.endswith("<p>after</p>\n")
