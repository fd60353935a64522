"""Maps, rows that a figure picks, and the diagonal."""

from __future__ import annotations

import re

import pytest
from support import documents, measured

from dpaudit.errors import UsageError
from dpaudit.report import document_of, render_report
from dpaudit.report.figures.heat_map import measured_map
from dpaudit.report.measurements import read_measurements

COLUMNS = [{"key": "who", "format": "text"}, {"key": "n", "format": "setting"}]
MAP = {"title": "Where", "kind": "map", "points": "places", "x": "γ", "y": "δ", "value": "right"}


def place(i, j, value):
    return [0.125 + 0.25 * i, 0.1 + 0.2 * j, value]


def document(*figures, rows=None):
    made = [
        {
            "who": who,
            "n": n,
            "places": [
                place(i, j, min(1.0, n * (i + 1) * (j + 1) / 200))
                for i in range(4)
                for j in range(5)
            ],
            "curve": [[0.0, 0.1], [0.5, {"value": 0.4, "low": 0.3, "high": 0.5}], [1.0, 0.9]],
        }
        for who in ("weak", "strong")
        for n in (1, 10)
    ]
    rows = made if rows is None else rows
    return measured.document(columns=COLUMNS, rows=rows, figures=list(figures))


def drawn(figure, rows=None):
    read = read_measurements(document_of(document(figure, rows=rows)))
    return measured_map(read.plots[0], read.rows, prefix="figure-1")


@pytest.mark.slow
def test_a_map_says_where_and_how_much():
    picture = drawn({**MAP, "panels": ["who", "n"], "label_x": "interest"})
    assert picture.alt.startswith(
        "Where. Maps of right by interest (across) and δ (up), in 4 panels by who and n."
    )
    assert (
        "weak, n = 10: 5.0 % lower left, 100.0 % upper right, 5.0 % to 100.0 % overall"
        in picture.alt
    )
    assert "Darker: higher right" in picture.caption
    assert "evenly" not in picture.caption
    assert "50 % – 60 %" in picture.svg
    assert len(picture.svg) < 40_000


def test_equal_shades_are_one_path_and_each_cell_is_in_it():
    picture = drawn({**MAP, "where": {"who": "weak", "n": 10}})
    opacities = [
        float(o) for o in re.findall(r"fill: var\(--calm\); opacity: ([\d.]+)", picture.svg)
    ]
    values = [10 * (i + 1) * (j + 1) / 200 for i in range(4) for j in range(5)]
    shades = {min(9, int(v * 10)) for v in values}
    assert len(opacities) == len(shades) + 5  # and the legend's five
    cells = sum(
        path.count("z") for path in re.findall(r'<path d="([^"]*)"[^>]*clip-path', picture.svg)
    )
    assert cells == 20


def test_uneven_places_and_missing_ones():
    rows = [
        {"who": "weak", "n": n, "x": x, "δ": 1, "z": {"value": z, "low": 0, "high": 9}}
        for n, x, z in [(1, 1, 5.0), (1, 10, 7.0), (2, 1, "inf"), (2, 100, 6.0)]
    ]
    picture = drawn(
        {"title": "T", "kind": "map", "x": "x", "y": "δ", "value": "z", "panels": ["n"]}, rows
    )
    assert "evenly spaced, though their values are not" in picture.caption
    assert "the least to the largest value" in picture.caption
    assert "n = 2: 6 lower left" in picture.alt
    assert drawn({"title": "T", "kind": "map", "x": "x", "y": "δ", "value": "z"}, rows[2:3]) is None


def test_where_picks_rows_and_the_diagonal_is_said():
    line = {
        "title": "L",
        "points": "curve",
        "x": "said",
        "y": "was",
        "series": "n",
        "diagonal": True,
    }
    page = documents.Page(
        render_report(
            document({**line, "where": {"who": "weak"}}, {**line, "where": {"who": "nobody"}})
        )
    )
    assert page.count("figure") == 1
    assert "Dashed: where was and said are equal." in page.text
    assert "Thin vertical lines: intervals." in page.text


@pytest.mark.parametrize(
    "value",
    ["", None, [], {}, [[1]], [[1, 2, 3, 4]], [[[1], 2, 3]], [[{}, 2, 3]], [["a", "b", "c"]], 3],
)
def test_places_that_are_none(value):
    html = render_report(
        document({**MAP, "panels": ["n"]}, rows=[{"who": "w", "n": 1, "places": value}])
    )
    assert documents.Page(html).ordered


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": None},
        {"kind": "line"},
        {"kind": "globe"},
        {"where": "weak"},
        {"where": {"whose": "weak"}},
        {"values": "z"},
    ],
)
def test_figures_that_are_none(wrong):
    with pytest.raises(UsageError, match="figure"):
        read_measurements(document_of(document({**MAP, **wrong})))
