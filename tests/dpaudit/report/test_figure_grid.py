"""Figures on a grid: panels, series, axes, and what is left out."""

from __future__ import annotations

import itertools

import pytest
from support import measured as given

from dpaudit.errors import UsageError
from dpaudit.report import document_of, render_report
from dpaudit.report.figures.axis import scale_of
from dpaudit.report.figures.grid_points import MOST_PANELS, MOST_SERIES, laid_out
from dpaudit.report.measurements import read_measurements

Page = given.documents.Page


VALUES = [[0.0], [-3.0, -2.0], [1e-300, 1e300], [-1.7e308, 1.7e308], [5e-324, 1e149], [1.0, "inf"],
          [0.5, {"value": 0.5, "low": "-inf", "high": "inf"}], [0, 10**400], [5e-324]]  # fmt: skip
MORE = [[1.0], [0.0, 0.0], [-1.0, 1.0]]
ALL = [
    *(
        (values, kind, log)
        for values in VALUES[2:5]
        for kind, log in (("line", True), ("bars", True), ("line", False))
    ),
    *((values, "line", False) for values in (VALUES[0], VALUES[1], VALUES[7])),
    *((values, "bars", True) for values in (VALUES[5], VALUES[6], VALUES[8])),
]
REST = [
    (values, kind, log)
    for values in VALUES + MORE
    for kind, log in itertools.product(("line", "bars"), (False, True))
    if (values, kind, log) not in ALL
]


@pytest.mark.parametrize(
    ("values", "kind", "log"),
    [*ALL, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)],
)
def test_no_value_stops_a_figure(values, kind, log):
    rows = [{"y": v, "low": 0, "up": v, "said": -1, "z": v} for v in values]
    columns = [{"key": k, "format": "number"} for k in ("y", "low", "up", "said", "z")]
    figure = given.figure(
        x="z",
        y="y",
        series=None,
        panels=[],
        log_x=log,
        log_y=log,
        band=["low", "up"],
        published="said",
        reference=0,
        kind=kind,
    )
    html = render_report(given.document(columns=columns, rows=rows, figures=[figure]))
    assert Page(html).ordered


def test_what_is_left_out_is_said(monkeypatch):
    # only the words count here
    monkeypatch.setattr("dpaudit.report.figures.grid.inline_svg", lambda draw, prefix: "")
    rows = [{"x": 1, "y": 1.0, "p": p, "s": s} for p in range(30) for s in range(20) if 0 in (p, s)]
    rows.append({"x": 0, "y": "inf", "p": 0, "s": 0})
    columns = [{"key": k, "format": "setting"} for k in "xyps"]
    figure = given.figure(x="x", y="y", series="s", panels=["p"], published=None)
    document = given.document(columns=columns, rows=rows, figures=[figure])
    text = Page(render_report(document)).text
    assert f"{30 - MOST_PANELS} more panels are in the table only." in text
    assert f"{20 - MOST_SERIES} more series are in the table only." in text
    assert (
        "2 values that are infinite, or not positive on a logarithmic axis, are in the table only."
        in text
    )


def test_panels_keep_their_places():
    plot = read_measurements(document_of(given.grid())).plots[0]
    rows = [r for r in given.grid()["rows"] if (r["d"], r["epsilon"]) != (4096, 0.25)]
    grid = laid_out(plot, rows)
    assert grid.columns == 4
    assert grid.panels[5] is None
    assert grid.panels[6].title == "d = 4096, ε = 0.5"
    turned = laid_out(plot._replace(panels=plot.panels[::-1], x=plot.panels[0]), rows)
    assert turned.columns == 3
    assert [p.x for p in grid.panels[0].lines[0]] == [1e-5, 1e-4, 1e-3, 1e-2, 0.1]


def test_an_axis_holds_its_values():
    for log in (False, True):
        scale = scale_of([0.2, 3.0, 40.0], log=log, form="number")
        assert scale.low < 0.2 < 40 < scale.high
    assert scale_of([2.0, 5.0], log=False, form="number", from_zero=True).low == 0
    assert scale_of([-2.0, -5.0], log=False, form="number", from_zero=True).high == 0
    assert scale_of([0.0, 1.0], log=False, form="proportion").high == 1.05


def test_a_row_can_hold_a_whole_curve():
    rows = [
        {"arm": "a", "curve": [[0, 0], [0, 0.4], [0.5, 0.6], [1, 1]]},
        {"arm": "b", "curve": None},
        {"arm": "c", "curve": [[0, 0.1], [1, 1]]},
    ]
    columns = [{"key": "arm", "format": "text"}]
    figure = {"title": "", "points": "curve", "x": "alarms", "y": "found", "panels": ["arm"]}
    document = given.document(columns=columns, rows=rows, figures=[figure])
    grid = laid_out(read_measurements(document_of(document)).plots[0], rows)
    assert [p.title for p in grid.panels] == ["a", "c"]
    assert [(p.x, p.y) for p in grid.panels[0].lines[0]] == [(0, 0.4), (0.5, 0.6), (1, 1)]
    with pytest.raises(UsageError, match="points='line'"):
        read_measurements(document_of({**document, "figures": [{**figure, "points": "line"}]}))
