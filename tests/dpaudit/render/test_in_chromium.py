"""The page in a real browser: what runs and loads, contrast, keyboard, print."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from support import documents, mechanisms, proofs, reports, results
from support.chromium import CHROMIUM, NEEDED, sync_api

from dpaudit.render.page import render_page
from dpaudit.report import replace

pytestmark = [pytest.mark.browser, NEEDED]


CANARY = "window.canary=1"
HOSTILE = (
    f"</script><script>{CANARY}</script><img src=x onerror={CANARY}>\"'>"
    f"<svg onload={CANARY}>]]>--></style>"
    "javascript:window.canary=1\u2028\u202e\x00\t{{7*7}}"
)

CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const known = new Map();
  const rgb = (c) => { if (known.has(c)) return known.get(c);
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
    known.set(c, [...canvas.getImageData(0, 0, 1, 1).data]); return known.get(c); };
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const under = (e) => { for (let at = e; at; at = at.parentElement) {
    const c = rgb(getComputedStyle(at).backgroundColor); if (c[3] > 250) return c; }
    return [255, 255, 255, 255]; };
  const bad = []; let seen = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || ["SCRIPT", "STYLE"].includes(e.tagName)
        || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize), svg = e.ownerSVGElement;
    const colour = rgb(svg && style.fill !== "none" ? style.fill : style.color);
    const [a, b] = [light(colour), light(under(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    seen += 1;
    if (ratio < (large ? 3 : 4.5)) bad.push([walk.currentNode.data.trim().slice(0, 40), ratio]);
  }
  const paper = light(rgb(getComputedStyle(document.body).backgroundColor));
  const series = [1, 2, 3, 4, 5, 6].map((k) => "series-" + k);
  for (const name of ["calm", "alarm", "quiet", "edge", ...series]) {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = `var(--${name})`;
    const mark = light(rgb(getComputedStyle(probe).color)); probe.remove();
    const ratio = (Math.max(mark, paper) + 0.05) / (Math.min(mark, paper) + 0.05);
    if (ratio < 3) bad.push(["--" + name, ratio]);
  }
  return {bad, seen};
}"""


def with_and_without() -> dict[str, Any]:
    document = documents.experiment()
    for row in document["rows"]:
        for one in row["attacks"]:
            one["details"]["phases"]["without_key"] = [60 + i % 5 for i in range(32)]
    return document


PAGES = {
    "demo": results.reported(with_and_without()),
    "mechanism": results.reported(mechanisms.ALL["finding"]),
    "proof": results.reported(proofs.long("refuted")),
    "neutral": reports.measurements(),
    **{name: results.reported(name) for name in ("failed", "measurements", "deployment")},
    **{v: results.reported(f"audit {v}") for v in ("finding", "no-finding", "inconclusive")},
    **{n.partition(" ")[0]: results.reported(n) for n in (
        "attribution finding", "census no-finding", "determinism finding")},
    "privacy": results.reported("proof privacy"),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, report in PAGES.items():
        (folder / f"{name}.html").write_text(render_page(report), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def context(browser):
    """One browser context for all pages without special needs: local pages keep nothing."""
    made = browser.new_context(reduced_motion="reduce")
    yield made
    made.close()


@pytest.fixture
def opened(browser, context, files):
    """Open a page; afterwards nothing may have been asked of a network or said on the console."""
    closed, noise = [], []

    def visit(
        name: str,
        *,
        html: str | None = None,
        width: int = 1280,
        scheme: str = "light",
        **options: Any,
    ) -> Any:
        own = browser.new_context(reduced_motion="reduce", **options) if options else context
        page = own.new_page()
        closed.append(own if options else page)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        path = files / f"{name}.html"
        page.on(
            "request",
            lambda request: noise.append(request.url) if request.url != path.as_uri() else None,
        )
        if html is not None:
            path.write_bytes(html.encode("utf-8", errors="backslashreplace"))
        page.goto(path.as_uri())
        return page

    yield visit
    for one in closed:
        one.close()
    assert noise == []


def overflow(page) -> int:
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


SAID = """() => { const main = document.querySelector("main").cloneNode(true);
  main.querySelectorAll("output, .copy, .series, .filter").forEach(e => e.remove());
  return main.textContent.replace(/\\s+/g, " ").trim(); }"""


@pytest.mark.parametrize("width", [1200, 1280])
def test_the_last_column_of_an_experiment_is_seen_without_scrolling(opened, width):
    document = with_and_without()
    for row in document["rows"]:  # as in the demo
        row["label"] = "seed in noise, smoothed"
        row["attacks"][0]["attack"] = "likelihood-ratio"
    other = {**document["rows"][0]["attacks"][0], "attack": "seed-reader"}
    document["rows"][0]["attacks"] = [other]
    page = opened("long", width=width, html=render_page(results.reported(document)))
    beyond = "e => e.scrollWidth - e.clientWidth"
    assert page.eval_on_selector("#what-was-found ~ .scroll", beyond) <= 0


@pytest.mark.parametrize("name", PAGES)
def test_contrast_width_order_and_what_it_says_without_script(opened, name):
    page = opened(name)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate(CONTRAST)
        assert found["bad"] == []
        assert found["seen"] > 20
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert overflow(page) <= 0
    assert page.evaluate("document.querySelectorAll('h1, main').length") == 2
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4')].map(e => Number(e.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    unnamed = "[...document.querySelectorAll('.scroll')]"
    unnamed += ".filter(e => e.tabIndex || !e.getAttribute('aria-label')).length"
    assert page.evaluate(unnamed) == 0
    assert page.evaluate("[...document.querySelectorAll('th:not([scope])')].length") == 0
    # The read-outs, copy buttons and filters of the script are all that it adds.
    without = opened(name, java_script_enabled=False)
    assert " ".join(without.locator("main").text_content().split()) == page.evaluate(SAID)
    assert without.locator("main section, main details, .verdict").count() > 1
    assert without.locator("button, output").count() == 0


def test_the_switch_of_colours(opened):
    page = opened("finding", scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.focus("#scheme-auto")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(paper) == light
    page.keyboard.press("ArrowRight")
    assert page.evaluate(paper) != light
    assert page.evaluate(CONTRAST)["bad"] == []


def test_a_bad_colour_is_seen(opened, files):
    html = (files / "finding.html").read_text(encoding="utf-8")
    planted = html.replace(
        "<h1>", '<p style="color:#999;background:#fff">too pale</p><h1>'
    ).replace("--quiet: light-dark(#7c848c", "--quiet: light-dark(#cccccc")
    bad = opened("planted", html=planted).evaluate(CONTRAST)["bad"]
    assert {text for text, _ in bad} == {"too pale", "--quiet"}


@pytest.mark.parametrize("name", ["demo", "finding"])
def test_tab_reaches_everything(opened, name):
    page = opened(name)
    wanted = page.evaluate(
        """() => { const wanted = "a[href], button, input, summary, [tabindex='0']";
        const found = [...document.querySelectorAll(wanted)]
        .filter(e => e.tabIndex >= 0 && e.checkVisibility() && !(e.type === "radio" && !e.checked));
        found.forEach((e, i) => e.dataset.n = i); return found.length; }"""
    )
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.n"))
    assert reached >= {str(i) for i in range(wanted)}


def test_arrow_keys_read_marks_out(opened):
    page = opened("finding")
    plot, out = page.locator("#figure-1 .plot"), page.locator("#figure-1 output")
    plot.focus()
    page.keyboard.press("Home")
    assert out.inner_text().startswith("moments adjusted p < 1e-300; a finding")
    page.keyboard.press("ArrowRight")
    assert out.inner_text().startswith("tails adjusted p 1")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('tr').id") == "check-2"
    page.keyboard.press("Enter")  # the row leads back to the figure
    assert page.url.endswith("#figure-1")


def test_the_ring_is_where_the_mark_is(opened):
    page = opened("demo")
    page.locator("#figure-1 .plot").focus()
    page.keyboard.press("Home")
    ring = page.locator("#figure-1 .ring").bounding_box()
    middle = ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2
    marks = page.evaluate(
        "[...document.querySelectorAll('#figure-1 svg use')]"
        ".map(e => e.getBoundingClientRect().toJSON())"
    )
    assert (
        min(
            abs(m["x"] + m["width"] / 2 - middle[0]) + abs(m["y"] + m["height"] / 2 - middle[1])
            for m in marks
        )
        < 2
    )
    page.mouse.move(0, 0)
    page.keyboard.press("Escape")
    page.mouse.move(*middle)
    assert page.locator("#figure-1 output").inner_text().startswith("gaussian 50.1 % [47.9, 52.4]")


def test_series_are_shown_and_hidden(opened):
    page = opened("demo")
    hidden = "[...document.querySelectorAll('#figure-2 svg .s0')]"
    hidden += ".map(e => getComputedStyle(e).display === 'none')"
    assert set(page.evaluate(hidden)) == {False}
    page.get_by_label("with the key", exact=True).uncheck()
    assert set(page.evaluate(hidden)) == {True}
    page.locator("#figure-2 .plot").focus()
    page.keyboard.press("Home")
    assert "without the key" in page.locator("#figure-2 output").inner_text()


def test_long_tables_are_sorted_and_filtered(opened):
    page = opened("measurements")
    table = page.locator("table.long").last
    column = [h.strip() for h in table.locator("thead th").all_inner_texts()].index("published")
    head = table.locator("thead button").nth(column)
    head.click()
    cells = table.locator(f"tbody tr > :nth-child({column + 1})").all_inner_texts()
    numbers = [float(c.split()[0]) for c in cells]
    assert numbers == sorted(numbers)
    assert numbers[0] < numbers[-1]
    page.get_by_label("Filter").last.fill("65536 0.125")
    assert 0 < table.locator("tbody tr:visible").count() < len(numbers)


@pytest.mark.parametrize("times", [["2 s", "1 min 15 s", "9 min 0 s", "0.5 s", "\u2013"]])
@pytest.mark.parametrize("numbers", [["1e-05", "0.3", "< 1e-300", "-1 [-3, \u221e]", "\u221e"]])
def test_numbers_are_sorted_by_what_they_are(opened, times, numbers):
    """1e-05 is below 0.3, 2 s are less than a minute, an interval's \u221e is not its value."""
    words = [f"arm {i}" for i in (10, 2, 1, 20, 3)]
    rows = "".join(
        f"<tr><th>{w}</th><td>{n}</td><td>{t}</td></tr>"
        for w, n, t in zip(words, numbers, times, strict=True)
    )
    head = '<th class="word">arm</th><th class="number">p</th><th class="number">time</th>'
    table = f'<table class="long"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    table = f'<div class="scroll">{table}</div>'
    html = render_page(reports.report("finding")).replace("<h1>", table + "<h1>")
    page = opened("sorted", html=html)

    def pressed(column):
        page.locator("table.long thead button").nth(column).click()
        return [
            c.strip()
            for c in page.locator(
                f"table.long tbody tr > :nth-child({column + 1})"
            ).all_inner_texts()
        ]

    assert pressed(0) == ["arm 1", "arm 2", "arm 3", "arm 10", "arm 20"]
    assert pressed(1) == ["-1 [-3, \u221e]", "< 1e-300", "1e-05", "0.3", "\u221e"]
    assert pressed(2) == ["0.5 s", "2 s", "1 min 15 s", "9 min 0 s", "\u2013"]
    assert pressed(2) == ["9 min 0 s", "1 min 15 s", "2 s", "0.5 s", "\u2013"]


COMMAND = "dpaudit audit 'python:./a b;$(touch x).py:\"f\"' --claim 'g  --h' --seed 1"


def test_a_command_is_copied_exactly_or_not_at_all(opened):
    """A command that was cut, has replaced characters, or has several lines is not copied."""
    commands = (COMMAND, "a\nrm -rf b", "a \u202eb\x1b[2J", "a " * 20_000)
    checks = [reports.check(f"t{i}", reproduce=line) for i, line in enumerate(commands)]
    html = render_page(reports.report("finding", *checks))
    page = opened("copied", html=html, permissions=["clipboard-read", "clipboard-write"])
    assert page.locator("pre.command").count() == 4
    page.get_by_role("button", name="Copy this command").click()  # the only one
    page.locator(".copy", has_text=re.compile("Copied|Selected")).wait_for(timeout=10_000)
    assert page.evaluate("navigator.clipboard.readText()") == COMMAND
    assert page.get_by_text("This command is not shown in full").count() == 2


@pytest.mark.parametrize("name", ["demo", "proof", "neutral"])
def test_print_has_every_part(opened, name, tmp_path):
    page = opened(name)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert overflow(page) <= 0
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000
    folded = "[...document.querySelectorAll('details:not(.numbers, .stored) > :not(summary)')]"
    folded += ".every(e => e.closest('.stored') || e.getBoundingClientRect().height > 0)"
    assert page.evaluate(folded)
    numbers = "[...document.querySelectorAll('details.numbers, details.stored')]"
    numbers += ".map(e => getComputedStyle(e).display)"
    assert set(page.evaluate(numbers)) == {"none"}
    still = opened(name, java_script_enabled=False)
    still.emulate_media(media="print")
    assert still.locator("details table").last.bounding_box()["height"] > 20


def test_paper_repeats_headers_and_breaks_no_word(opened):
    page = opened("finding")
    page.emulate_media(media="print")
    style = "(e, name) => getComputedStyle(document.querySelector(e)).getPropertyValue(name)"

    def computed(selector, name):
        return page.evaluate(f"([e, name]) => ({style})(e, name)", [selector, name])

    assert computed("thead", "display") == "table-header-group"
    assert computed("thead th", "position") == "static"
    assert computed("td", "overflow-wrap") == "break-word"  # anywhere: narrow columns cut words
    assert computed("td.number", "white-space") == "pre"
    assert computed("h2", "break-after") == computed("caption", "break-after") == "avoid"
    assert computed("footer", "display") == "none"  # it would be alone on a last page
    few = opened("demo")
    few.emulate_media(media="print")
    kept = "[...document.querySelectorAll('table')].map(e => [e.tBodies[0].rows.length, "
    kept += "getComputedStyle(e).breakInside])"
    tables = few.evaluate(kept)
    assert {rows <= 8 for rows, _ in tables} == {True, False}
    assert all((inside == "avoid") == (rows <= 8) for rows, inside in tables)
    many = opened("measurements")
    many.emulate_media(media="print")
    shown = "[...document.querySelectorAll('thead .sort')].map(e => getComputedStyle(e).display)"
    assert set(many.evaluate(shown)) == {"contents"}  # Chromium repeats no buttons


@pytest.mark.parametrize("name", sorted(PAGES.keys() - {"measurements", "neutral"}))
def test_no_column_is_cut_at_1280_pixels(opened, name):
    page = opened(name)
    page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    cut = "[...document.querySelectorAll(':not(.numbers) > .scroll')]"
    cut += ".filter(e => e.scrollWidth > e.clientWidth)"
    assert page.evaluate(f"{cut}.map(e => e.getAttribute('aria-label'))") == []


def test_a_term_leads_to_the_folded_glossary(opened):
    page = opened("finding")
    assert not page.locator("#term-claim").is_visible()
    page.locator("a.term[href='#term-claim']").click()
    assert page.locator("#term-claim").is_visible()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_of_a_sampler_runs(opened, name):
    report = replace(reports.hostile(PAGES[name], text=HOSTILE), badge="", sign="", label="x")
    html = render_page(report)
    page = opened(f"hostile-{name}", html=html, width=360)
    for plot in page.locator("figure[data-points] .plot").all():
        plot.focus()
        page.keyboard.press("Home")
    assert page.evaluate("window.canary") is None
    assert page.evaluate("document.scripts.length") == 1
    assert page.locator("img").count() == 0
    assert overflow(page) <= 0


def test_the_policy_stops_what_is_planted(browser, files):
    html = (files / "finding.html").read_text(encoding="utf-8")
    planted = html.replace("<h1>", f"<script>{CANARY}</script><img src=x onerror={CANARY}><h1>")
    (files / "stopped.html").write_text(planted, encoding="utf-8")
    page = browser.new_page()
    page.goto((files / "stopped.html").as_uri())
    assert page.evaluate("window.canary") is None
    assert page.locator("output").count() > 0  # while ours did run
    html = re.sub("<meta http-equiv[^>]*>", "", planted)
    (files / "free.html").write_text(html, encoding="utf-8")
    page.goto((files / "free.html").as_uri())
    assert page.evaluate("window.canary") == 1
    page.close()


def test_a_name_of_a_megabyte(opened):
    long = "x" * 1_000_000
    report = replace(reports.report("finding", reports.check(long)), title=long)
    page = opened("long", html=render_page(report), width=360)
    assert overflow(page) <= 0
    assert len(page.content()) < 400_000
