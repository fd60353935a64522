"""Charts as SVG: the page's colours, marks that can be read out, any value, hidden series."""

from __future__ import annotations

import doctest
import html
import importlib
import itertools
import math
import re
from xml.etree import ElementTree

import pytest
from support import reports

from dpaudit.render.charts import draw_chart
from dpaudit.render.charts.marks import scale_of
from dpaudit.report import Axis, Chart, Line, Mark, Panel, Series

PLAIN = {"title": "T", "caption": "C", "alt": "A chart of something."}


def drawn(chart):
    """The picture, whose SVG is well-formed and takes all colours from the page."""
    picture = draw_chart(chart, name="figure-9")
    assert ElementTree.fromstring(picture.svg.replace("\xa0", " ")).tag == "svg"
    assert re.findall(r"#[0-9a-f]{6}\b", picture.svg) == []
    assert not re.search(r"\b(nan|inf)\b", re.sub(r"<text.*?</text>", "", picture.svg, flags=re.S))
    ids = re.findall(r'\bid="([^"]*)"', picture.svg)
    assert len(ids) == len(set(ids))
    assert all(one.startswith("figure-9-") for one in ids)
    return picture


def plot(*series, log=False, **changes):
    axes = {"x": Axis(log=log), "y": Axis(log=log)}
    return Chart(kind="plot", panels=(Panel(series=series),), **PLAIN, **(axes | changes))


@pytest.mark.parametrize("chart", reports.charts(), ids=lambda c: f"{c.kind} {c.columns}")
def test_a_chart_is_the_same_each_time_and_has_the_colours_of_the_page(chart):
    picture = drawn(chart)
    assert picture == drawn(chart)
    assert "currentColor" in picture.svg
    assert "DejaVu" not in picture.svg
    assert (picture.alt, picture.caption, picture.name) == (chart.alt, chart.caption, "figure-9")
    assert picture.wide == (chart.columns > 2)
    for line in picture.points.splitlines():
        left, top, name, value, series, to = line.split("\t")
        assert 0 <= float(left) <= 100
        assert 0 <= float(top) <= 100
        assert name or value
        assert (series == "") == (picture.series == "")
        assert to == ""


def test_series_can_be_shown_and_hidden():
    picture = drawn(reports.charts()[0])
    assert picture.series.splitlines() == ["ours", "theirs"]
    assert 'class="s0"' in picture.svg
    assert 'class="s1"' in picture.svg
    alone = drawn(plot(Series(marks=(Mark(x=1.0, y=1.0, name="a"),), group=0, legend="ours")))
    assert alone.series == ""
    many = [Series(marks=(Mark(x=1.0, y=1.0),), group=k, legend=f"{k}") for k in range(9)]
    assert drawn(plot(*many)).series == ""


def test_marks_are_read_out_where_they_are():
    marks = tuple(Mark(x=x, y=x, name=f"{x:g}", says="here") for x in (1.0, 2.0, 3.0))
    picture = drawn(plot(Series(marks=(*marks, Mark(x=math.nan, y=1.0, name="nowhere")))))
    fields = [line.split("\t") for line in picture.points.splitlines()]
    assert [f[2] for f in fields] == ["1", "2", "3"]
    lefts, tops = ([float(f[i]) for f in fields] for i in (0, 1))
    assert lefts == sorted(lefts)
    assert tops == sorted(tops, reverse=True)
    uses = re.findall(r'<use [^>]*?x="([\d.]+)" y="([\d.]+)"', picture.svg)
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture.svg).groups())
    places = [(100 * float(x) / width, 100 * float(y) / height) for x, y in uses]
    for left, top in zip(lefts, tops, strict=True):
        assert min(abs(x - left) + abs(y - top) for x, y in places) < 1
    thousands = tuple(Mark(x=1.0, y=float(i), name="a") for i in range(1001))
    assert drawn(plot(Series(marks=thousands, look="line"))).points == ""


def test_what_contradicts_is_drawn_in_the_colour_of_a_warning():
    def of(**changes):
        return drawn(plot(Series(marks=(Mark(x=1.0, y=1.0, **changes),)))).svg

    assert "var(--alarm)" in of(alarm=True)
    assert "var(--alarm)" not in of()
    assert "var(--paper)" in of(filled=False)
    assert "var(--paper)" not in of()


def test_an_infinite_end_is_an_arrow_and_names_stand_at_the_right():
    endless = Mark(x=1.0, y=2.0, low=1.0, high=math.inf, name="endless", label="≥ 1")
    known = Mark(x=2.0, y=2.0, low=1.0, high=3.0, name="known")
    svg = drawn(plot(Series(marks=(endless, known)), names=True)).svg
    assert all(f">{word}<" in svg for word in ("endless", "known", "≥ 1"))
    names = [Mark(x=float(i), y=0.0, name=f"arm {i}") for i in range(8)]
    svg = drawn(plot(Series(marks=tuple(names)), names=True)).svg
    heights = re.findall(r'<text [^>]*y="([\d.]+)"[^>]*>arm \d<', svg)
    assert len(heights) == len(set(heights)) == 8  # no two names at one height


VALUES = [[0.0], [-3.0, -2.0], [1e-300, 1e300], [-1.7e308, 1.7e308], [5e-324, 1e149],
          [1.0, math.inf], [math.nan, 1.0], [0.5, -math.inf], [5e-324], [1.0]]  # fmt: skip
LOOKS = ("points", "stems", "line", "steps", "bars", "band")


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("log", [False, True])
def test_no_value_stops_a_chart(values, log):
    marks = tuple(
        Mark(x=1.0 + i, y=v, low=-v, high=v, width=0.5, name="a", label="b")
        for i, v in enumerate(values)
    )
    series = [Series(marks=marks, look=look, group=k) for k, look in enumerate(LOOKS)]
    lines = (Line(at=values[0] if math.isfinite(values[0]) else 0.0), Line(sloped=True))
    panel = Panel(series=tuple(series), lines=lines)
    chart = Chart(kind="plot", panels=(panel,), x=Axis(log=log), y=Axis(log=log), **PLAIN)
    if any(abs(v) < 1e150 and (v > 0 or not log) for v in values):
        drawn(chart)
    else:
        assert draw_chart(chart, name="x") is None


def test_maps_are_one_path_for_each_shade():
    cells = tuple(
        Mark(x=float(j), y=float(i), value=10 * (i + 1) * (j + 1) / 200)
        for i in range(4) for j in range(5)
    )  # fmt: skip
    axes = {"x": Axis(categories=tuple("abcde")), "y": Axis(categories=tuple("wxyz"))}
    panel = Panel(series=(Series(marks=cells, look="cells"),))
    share = Axis(label="right", form="proportion")
    svg = drawn(Chart(kind="map", panels=(panel,), value=share, **axes, **PLAIN)).svg
    opacities = re.findall(r"fill: var\(--calm\); opacity: ([\d.]+)", svg)
    shades = {min(9, int(cell.value * 10)) for cell in cells}
    assert len(opacities) == len(shades) + 5  # and the legend's five
    assert sum(p.count("z") for p in re.findall(r'<path d="([^"]*)"[^>]*clip-path', svg)) == 20
    assert "50 % – 60 %" in svg


def test_a_chart_without_marks_is_none():
    for series in ((), (Series(marks=()),)):
        assert draw_chart(plot(*series), name="x") is None


def test_an_axis_holds_its_values():
    for log in (False, True):
        scale = scale_of([0.2, 3.0, 40.0], log=log, form="number")
        assert scale.low < 0.2 < 40 < scale.high
    assert scale_of([2.0, 5.0], log=False, form="number", from_zero=True).low == 0
    assert scale_of([-2.0, -5.0], log=False, form="number", from_zero=True).high == 0
    assert scale_of([0.0, 1.0], log=False, form="proportion").high == 1.05


def test_axes_are_shared_or_of_their_own():
    def ticks(**axis):
        panels = tuple(
            Panel(series=(Series(marks=(Mark(x=5.0, y=y), Mark(x=6.0, y=2 * y))),))
            for y in (1.0, 1000.0)
        )
        chart = Chart(kind="plot", panels=panels, x=Axis(), y=Axis(**axis), columns=2, **PLAIN)
        return drawn(chart).svg

    assert ">1.2<" in ticks(shared=False).replace("1.25", "1.2")
    assert ">1.2<" not in ticks()


def test_labels_are_text_without_markup_of_any_kind():
    evil = "$\\frac{a}{b}$ <script>x</script>\n" + "long " * 40
    marks = (Mark(x=1.0, y=1.0, name=evil, says=evil, label=evil),)
    axes = {"x": Axis(label=evil), "y": Axis(label=evil, categories=(evil,))}
    kinds = ({"kind": "rows"}, {"kind": "plot", "names": True})
    for kind, look in itertools.product(kinds, ("points", "bars")):
        one = Series(marks=marks, look=look, group=0, legend=evil)
        panel = Panel(series=(one, Series(marks=marks, group=1, legend="b")), title=evil,
                      lines=(Line(at=1.0, label=evil),))  # fmt: skip
        picture = drawn(Chart(panels=(panel,), **kind, **axes, **PLAIN))
        assert "<script" not in picture.svg
        assert "$\\frac" in html.unescape(picture.svg)
        assert {line.count("\t") for line in picture.points.splitlines()} == {5}


def test_doctests():
    assert doctest.testmod(importlib.import_module("dpaudit.render.charts.svg")).failed == 0
