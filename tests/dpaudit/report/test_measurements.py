"""Documents of measurements: the page, the figures on a grid, the terminal, and what is refused."""

from __future__ import annotations

import doctest
import importlib
import io
import itertools
import json
import re

import pytest
from rich.console import Console
from support import measured as given

from dpaudit.errors import UsageError
from dpaudit.report import document_of, measurements_table, render_report, write_json, write_report
from dpaudit.report.tables import measured

HOSTILE = given.documents.HOSTILE
PAGES = {"grid": (given.grid(), 1), "many": (given.many_forms(), 6), "bars": (given.bars(), 2)}
Page = given.documents.Page


def drawn(document, *, width, at=None) -> str:
    out = io.StringIO()
    Console(file=out, width=at or width, force_terminal=False).print(
        measurements_table(document_of(document), width=width)
    )
    return out.getvalue()


@pytest.fixture(scope="module")
def pages():
    return {name: render_report(document) for name, (document, _) in PAGES.items()}


@pytest.mark.parametrize("name", PAGES)
def test_figures_have_alt_text_and_ids_do_not_clash(pages, name):
    page = Page(pages[name])
    assert page.ordered
    assert page.open == []
    plots = [a for _, a in page.tags if a.get("role") == "img"]
    assert len(plots) == PAGES[name][1] == page.count("figure") == page.count("figcaption")
    assert all(len(a["aria-label"]) > 40 for a in plots)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', pages[name])) <= set(ids)
    svg = "".join(re.findall(r"<svg.*?</svg>", pages[name], flags=re.DOTALL))
    assert "currentColor" in svg
    assert re.findall(r"#[0-9a-f]{6}\b", svg) == []
    assert not re.search(r"\b(nan|inf)\b", re.sub(r"<text.*?</text>", "", svg))


def test_the_page_tells_it_in_order(pages):
    text = Page(pages["grid"]).text
    parts = [
        "237 of 240 cells agree",
        "Each panel is one dimension",
        "Success of the key holder by width",
        "Where ours differs from the published value",
        "All measurements",
        "Provenance",
    ]
    told = text[text.index("237 of 240") :]  # the contents, above, name some of these too
    places = [told.index(part) for part in parts]
    assert places == sorted(places)
    assert "d = 65536, ε = 0.125" in text
    assert all(f"γ = {gamma:g}" in text for gammas in given.GAMMAS.values() for gamma in gammas)
    assert "87.7 % [85.6, 89.7]" in text
    assert pages["grid"].count('<tr class="marked">') == 3
    alt = next(a["aria-label"] for _, a in Page(pages["grid"]).tags if a.get("role") == "img")
    assert "in 12 panels by d and ε" in alt
    assert "Published for 240 of these points; the largest difference is 0.064" in alt
    assert "Where ours differs" not in pages["bars"]
    assert len(pages["grid"].encode()) < 400_000


@pytest.mark.slow
def test_same_document_gives_the_same_bytes(pages, tmp_path):
    path = write_json(document_of(PAGES["bars"][0]), tmp_path / "results.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert write_report(document, tmp_path / "r.html").read_bytes() == pages["bars"].encode()


@pytest.mark.parametrize(
    "name",
    [
        "many",
        pytest.param("bars", marks=pytest.mark.slow),
        pytest.param("grid", marks=pytest.mark.slow),
    ],
)
def test_hostile_strings_are_only_text(name):
    document = given.documents.made_hostile(PAGES[name][0])
    document["rows"] = document["rows"][:60]
    for row in document["rows"]:
        row[HOSTILE] = row.pop(document["columns"][-1]["key"], None)
        row[document["columns"][-1]["key"]] = HOSTILE
    document["columns"].append({"key": HOSTILE, "label": HOSTILE, "format": "text"})
    document["figures"].append(
        given.figure(
            title=HOSTILE,
            x=document["columns"][0]["key"],
            series=HOSTILE,
            y=document["columns"][2]["key"],
            panels=[HOSTILE],
            published=HOSTILE,
            label_x=HOSTILE,
            label_y=HOSTILE,
        )
    )
    document["misses"] = document["rows"][:2]
    html = render_report(document)
    page = Page(html)
    assert page.ordered
    assert page.scripts() == page.count("img") == 0
    assert not any(a.startswith("on") for _, attributes in page.tags for a in attributes)
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in html
    assert "\u202e" not in html
    html.encode("utf-8")
    text = drawn(document, width=400)
    assert "[red]" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_long_tables_are_cut_and_say_so():
    document = given.grid() | {"figures": []}
    document["rows"] = [
        row | {"beta": 10.0 ** (-i % 7)} for i, row in enumerate((document["rows"] * 5)[:1000])
    ]
    document["misses"] = document["rows"][:450]
    page = Page(render_report(document))
    assert "600 more are in the JSON document only." in page.text
    assert "50 more are in the JSON document only." in page.text
    assert page.count("tr") < 2 * 401 + 20
    text = drawn(document, width=100)
    assert "Only in results.json: 960 more rows." in text
    assert "Only in results.json: 410 more rows." in text
    assert len(text.splitlines()) < 110


@pytest.mark.parametrize("width", [80, 120])
def test_terminal_fits_and_says_what_the_page_says(width):
    text = drawn(given.grid(), width=width)
    assert " ".join(text.split()).startswith("237 of 240 cells agree with the published value")
    assert text.index("Where ours differs from the published value") < text.index("Figure 5")
    assert "87.7 % [85.6, 89.7]" in text
    assert "Only in results.json: 200 more rows." in text
    for document, _ in PAGES.values():
        assert drawn(document, width=width) == drawn(document, width=width, at=width)
        assert (
            max(
                len(line.rstrip()) for line in drawn(document, width=width, at=300).splitlines()[2:]
            )
            <= width
        )
    wide = drawn(given.many_forms(), width=width)
    assert "arm 6" in wide or "a text" in wide.split("Only in results.json")[1]


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("name", PAGES)
def test_few_rows(name, rows):
    document = PAGES[name][0] | {"rows": PAGES[name][0]["rows"][:rows], "misses": [], "summary": ""}
    page = Page(render_report(document))
    assert page.ordered
    assert page.count("figure") <= (PAGES[name][1] if rows else 0)
    said = (
        "1 measurement; the experiment gives no summary"
        if rows
        else "No results yet: no measurement"
    )
    assert said in page.text
    assert said in " ".join(drawn(document, width=80).split())


def test_values_that_have_no_place_are_no_figure():
    assert "No results yet" in render_report(given.document())
    assert "No results yet" in drawn(given.document(), width=80)
    figure = {"x": "a", "y": "b", "log_x": True, "log_y": True}
    for values in (
        [None, None],
        ["inf", "-inf"],
        [0, -1],
        [{}, {"value": None}],
        ["nan", True],
        [[1], {"low": 1}],
    ):
        rows = [{"a": v, "b": w} for v, w in itertools.product(values, repeat=2)] + [{}]
        columns = [{"key": "a"}, {"key": "b", "format": "epsilon"}]
        page = Page(render_report(given.document(columns=columns, rows=rows, figures=[figure])))
        assert page.ordered
        assert page.count("figure") == 0


@pytest.mark.parametrize(
    ("cell", "form", "text"),
    [
        ({"value": 0.9, "low": 0.88888, "high": 0.91}, "proportion", "90.0 % [88.8, 91.0]"),
        ({"value": 1.5, "low": 1.23456, "high": "inf"}, "number", "1.5 [1.234, ∞]"),
        ({"value": 2, "low": None, "high": 3}, "ratio", "2×"),
        ({"low": 0.25, "high": "inf"}, "epsilon", "≥ 0.25"),
        ({"value": 0.2, "low": 0.1, "high": 0.3}, "epsilon", "0.2 [0.1, 0.3]"),
        ({"value": 75, "low": 60, "high": 90}, "seconds", "1 min 15 s [1 min 0 s, 1 min 30 s]"),
        ("not run", "number", "not run"),
        ("nan", "ratio", "–"),
        ("inf", "setting", "∞"),
        (None, "flag", "–"),
        (True, "flag", "yes"),
        (False, "flag", "no"),
        (1e-5, "setting", "1e-05"),
        (65536, "setting", "65536"),
    ],
)
def test_cells_as_text(cell, form, text):
    assert measured(cell, form) == text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"columns": [{"key": "a", "format": "colour"}]}, "`$.columns[0].format`"),
        ({"columns": [{"key": "a", "unit": "s"}]}, "unknown field `unit`"),
        ({"columns": [{"key": "a"}, {"key": "a"}]}, "is repeated"),
        ({"columns": []}, "need columns"),
        ({"figures": [given.figure(colour="red")]}, "unknown field `colour`"),
        ({"figures": [given.figure(y="succes")]}, "y='succes': must be the key of a column"),
        ({"figures": [given.figure(series="nothing")]}, "series='nothing'"),
        ({"figures": [given.figure(panels=["d", "d", "d"])]}, "panels="),
        ({"figures": [given.figure(band=["success"])]}, "band="),
        ({"figures": [given.figure(kind="pie")]}, "`$.figures[0].kind`"),
        ({"figures": [given.figure(reference="inf")]}, "must be a finite number"),
    ],
)
def test_what_is_unknown_is_refused(changes, says, tmp_path):
    document = given.grid() | changes
    with pytest.raises(UsageError, match=re.escape(says)):
        write_report(document, tmp_path / "r.html")
    with pytest.raises(UsageError):
        measurements_table(document_of(document), width=80)
    assert list(tmp_path.iterdir()) == []


def test_doctests():
    assert doctest.testmod(importlib.import_module("dpaudit.report.measurements")).failed == 0
