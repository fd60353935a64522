from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from support import documents

from dpaudit.report import document_of, render_report, write_json, write_report
from dpaudit.types import to_dict

ALL = {
    "experiment": documents.experiment(),
    "grid": documents.grid(300),
    **{verdict: documents.audit(verdict) for verdict in ("no-finding", "finding", "inconclusive")},
}
FIGURES = {"experiment": 3, "grid": 3, "no-finding": 1, "finding": 1, "inconclusive": 0}
Page = documents.Page


@pytest.fixture(scope="module")
def pages():
    return {name: render_report(document) for name, document in ALL.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_page_is_self_contained_and_well_formed(pages, name):
    page = Page(pages[name])
    assert page.ordered
    assert page.open == []
    names = {tag for tag, _ in page.tags}
    assert not names & {"link", "img", "iframe", "object", "embed", "base", "form"}
    assert page.scripts() == 0
    for _, attributes in page.tags:
        assert not any(a.startswith("on") for a in attributes)
        for value in filter(None, (attributes.get(a) for a in ("href", "src", "xlink:href"))):
            assert value.startswith("#")
    assert "http" not in re.sub(r"http-equiv", "", pages[name])
    assert "@import" not in pages[name]
    assert "@font-face" not in pages[name]
    assert not re.search(r"url\((?!#)", pages[name])


@pytest.mark.parametrize("name", ALL)
def test_figures_have_alt_text_and_ids_do_not_clash(pages, name):
    page = Page(pages[name])
    plots = [a for _, a in page.tags if a.get("role") == "img"]
    assert len(plots) == FIGURES[name] == page.count("figure")
    assert all(len(a["aria-label"]) > 40 for a in plots)
    assert page.count("figcaption") == FIGURES[name]
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', pages[name]))
    assert used <= set(ids)


@pytest.mark.parametrize("name", ["experiment", "finding"])
def test_figures_take_the_colours_of_the_page(pages, name):
    svg = "".join(re.findall(r"<svg.*?</svg>", pages[name], flags=re.DOTALL))
    assert "currentColor" in svg
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) == set()
    assert "DejaVu" not in svg


def test_the_page_says_who_ran_it_or_that_nobody_is_named():
    document = document_of(ALL["no-finding"])
    for by, said in (("Ada", "Ada"), (None, "not stated")):
        made = replace(document.result.provenance, started="2026-11-23T06:20:01+00:00", by=by)
        page = render_report(replace(document, result=replace(document.result, provenance=made)))
        assert f"<dt>Run by</dt><dd>{said}</dd>" in page


def test_the_figure_of_p_values_has_the_tests_that_spend_alpha():
    document = document_of(ALL["no-finding"])
    honest = replace(document.result.tests[0], p_adjusted=1.0, finding=False, advisory=False)
    tests = [replace(honest, name=f"test {i}") for i in range(18)]
    tests.append(replace(honest, name="forks", advisory=True))
    result = replace(document.result, tests=tuple(tests))
    assert "all 18 tests" in render_report(replace(document, result=result))


@pytest.mark.parametrize("name", ["experiment", "no-finding", "finding", "inconclusive"])
def test_hostile_names_are_only_text(name):
    html = render_report(documents.made_hostile(ALL[name]))
    page = Page(html)
    assert page.ordered
    assert page.scripts() == page.count("img") == 0
    assert not any(a.startswith("on") for _, attributes in page.tags for a in attributes)
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in html
    assert "\u202e" not in html
    html.encode("utf-8")


@pytest.mark.slow
def test_same_document_gives_the_same_bytes(pages, tmp_path):
    for name in ("experiment", "finding"):
        path = write_report(ALL[name], tmp_path / "a" / f"{name}.html")
        assert path.read_bytes() == pages[name].encode()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["experiment.html", "finding.html"]


def test_json_is_written_whole_and_legible(tmp_path):
    document = document_of(documents.audit("finding") | {"σ": 1})
    named = replace(
        document, result=replace(document.result, sampler="σ \udcff", seconds=float("nan"))
    )
    path = write_json(named, tmp_path / "out" / "r.json")
    text = path.read_text(encoding="utf-8")
    assert "σ" in text
    assert json.loads(text) == to_dict(named)
    assert [p.name for p in path.parent.iterdir()] == ["r.json"]


@pytest.mark.slow
def test_importing_is_cheap():
    heavy = {"matplotlib", "rich", "jinja2", "scipy", "torch"}
    code = f"import sys, dpaudit.report; print({heavy} & set(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "set()"


def test_marks_that_can_be_read_out_have_all_their_fields(pages):
    """Six fields between tabs, which a cleaning of the page once made spaces."""
    points = [p for page in pages.values() for p in re.findall(r'data-points="([^"]*)"', page)]
    assert len(points) > 3
    assert {line.count("\t") for p in points for line in p.splitlines()} == {5}
