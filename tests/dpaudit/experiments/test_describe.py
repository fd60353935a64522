"""What experiments report: attacks compared with the claimed ε, measurements, their figures."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from support import documents, measured
from support.documents import Page
from support.results import failed_experiment, reported, typed

from dpaudit.errors import UsageError
from dpaudit.experiments import make_result
from dpaudit.experiments.describe_arms import arm_labels
from dpaudit.experiments.describe_cells import MOST_CELLS
from dpaudit.experiments.figures import MOST_PANELS, MOST_SERIES, chart_of, lay_out
from dpaudit.experiments.measurements import read_measurements
from dpaudit.render.page import render_page
from dpaudit.report import Chart, Table, Text
from dpaudit.types import CellResult

NO_KEY = {"epsilon": 2.0, "delta": 0.0}
PANCAKE = documents.experiment()["rows"][1]


def shown(success, epsilon, **changes):
    found = documents.attack(success, low=success - 0.02, high=min(1.0, success + 0.02))
    return found | {"epsilon_lower_bound": epsilon} | changes


def arm(source="gaussian", mitigation="none", *, attacks, **changes):
    """An honest arm at ε = 2 without a key and without an audit, unless changed."""
    plain = {"settings": NO_KEY, "epsilon_claimed": 2.0, "audit": None}
    return documents.row(source, mitigation, attacks, **(plain | changes))


def experiment(*rows):
    return documents.experiment() | {"rows": list(rows)}


def of(*rows):
    return reported(experiment(*rows))


def rows_of(*rows):
    return typed(experiment(*rows)).rows


def blocks(report, kind):
    return [b for section in report.sections for b in section.blocks if isinstance(b, kind)]


def charts(report):
    return {chart.title: chart for chart in blocks(report, Chart)}


HONEST = arm(attacks=[shown(0.78, 0.982)])
FLOATS = arm("laplace", attacks=[shown(0.999, 5.4)])


def test_what_the_claim_allows_is_no_success_of_an_attack():
    report = of(HONEST)
    assert report.headline == (
        "No attack shows more than the claimed ε. The strongest is on gaussian: "
        "the attacker identifies the right candidate in 78.0 % [76.0, 80.0] of 2,000 releases "
        "(guessing: 50 %); we can show ε ≥ 0.982, which is consistent with the claimed ε = 2. "
        "No black-box audit was run."
    )
    assert (report.verdict, report.badge) == ("no-finding", "Within the claim")
    assert any("lower bound that holds with 95 %" in b.text for b in blocks(report, Text))
    assert "key holder" not in f"{report}".lower()
    assert not any(blocks(report, Table)[0].marked)
    assert "allows up to 88.1 %" in report.meaning[0].says


@pytest.mark.parametrize(("bound", "finding"), [(2.0, False), (2.01, True), (0.0, False)])
def test_the_shown_epsilon_decides(bound, finding):
    report = of(arm(attacks=[shown(0.9, bound)]))
    assert (report.verdict == "finding") is finding
    assert (report.badge == "Attack succeeds") is finding
    assert blocks(report, Table)[0].marked == (finding,)
    (mark,) = charts(report)["Attacker’s success"].panels[0].series[0].marks
    assert mark.filled is mark.alarm is finding


def test_more_than_is_claimed_is_named_with_both_numbers_and_who_attacks():
    assert of(PANCAKE, HONEST).headline == (
        "pancake passes the black-box audit, yet its key holder identifies the right candidate in "
        "99.9 % [99.6, 100.0] of 2,000 releases (guessing: 50 %) and shows ε ≥ 6.1, where 0.25 is "
        "claimed."
    )
    floats = of(FLOATS)
    assert floats.headline == (
        "laplace: the attacker identifies the right candidate in 99.9 % [97.9, 100.0] of 2,000 "
        "releases (guessing: 50 %) and shows ε ≥ 5.4, where 2 is claimed; no black-box audit was "
        "run."
    )
    assert "key holder" not in f"{floats}".lower()
    audited = of(FLOATS | {"audit": PANCAKE["audit"]})
    assert "passes the black-box audit, yet an attacker identifies" in audited.headline


def test_of_several_attacks_the_one_that_shows_too_much_is_told():
    quiet, loud = shown(0.95, 1.5), shown(0.9, 2.6, attack="counts")
    report = of(arm(attacks=[quiet, loud]))
    assert "in 90.0 %" in report.headline
    assert "shows ε ≥ 2.6, where 2 is claimed" in report.headline
    series = charts(report)["Attacker’s success"].panels[0].series
    assert [one.legend for one in series] == ["likelihood-ratio", "counts"]


def test_a_mitigation_stops_an_attack_that_stays_within_the_claim():
    stopped = PANCAKE | {"mitigation": "rotation", "label": "b", "attacks": [shown(0.55, 0.1)]}
    said = of(PANCAKE, stopped).headline
    assert said.endswith("with rotation no attack here shows more than is claimed.")


def test_a_backdoor_that_the_named_defences_do_not_cover_is_told_too():
    other = PANCAKE | {"source": "seed", "label": "seed"}
    behind = other | {"mitigation": "smoothing", "label": "seed, smoothed"}
    report = of(PANCAKE, HONEST, other, behind)
    assert report.headline.endswith(
        "where 0.25 is claimed. More than is claimed is also shown on seed (99.9 % [99.6, 100.0]) "
        "and seed, smoothed (99.9 % [99.6, 100.0])."
    )
    assert [m.heading for m in report.meaning] == [
        f"More than claimed is read from {name}" for name in ("pancake", "seed", "seed, smoothed")
    ]
    rotated = PANCAKE | {"mitigation": "rotation", "label": "c", "attacks": [shown(0.5, 0.0)]}
    said = of(PANCAKE, HONEST, rotated, other).headline
    assert "with rotation no attack on it beats chance. More than is claimed" in said
    many = [PANCAKE | {"source": f"s{i}", "label": f"s{i}"} for i in range(7)]
    assert of(*many).meaning[-1].says.startswith("3 more arms show more than is claimed")


def test_audits_are_told_where_no_attack_shows_anything():
    found = PANCAKE["audit"] | {"verdict": "finding"}
    quiet = [shown(0.5, 0.0)]
    none = of(arm(attacks=quiet), arm("laplace", attacks=quiet, audit=found))
    assert none.headline.endswith(" The black-box audit reports a finding on laplace.")
    assert (none.badge, none.meaning[0].heading) == ("Attacks fail", "No attack tried here works")
    without = of(arm(attacks=[]))
    assert without.headline.endswith(" No black-box audit was run.")
    assert (without.verdict, without.badge) == ("inconclusive", "No attack run")
    empty = of()
    assert (empty.verdict, empty.badge) == ("inconclusive", "No results yet")


def test_cells_that_failed_make_it_incomplete():
    report = reported(failed_experiment())
    assert (report.verdict, report.badge) == ("finding", "Attack succeeds, incomplete")
    assert report.headline.startswith("Incomplete: 1 cell failed and is missing here. pancake")
    assert [(c.name, c.outcome) for c in report.checks] == [
        ("attack pancake (b-2)", "error"),
        ("attack (a-1)", "pass"),
    ]
    assert "ValueError" in report.checks[0].facts["traceback"]
    calm = reported(failed_experiment() | {"rows": [HONEST]})
    assert (calm.verdict, calm.badge) == ("inconclusive", "Incomplete")


def test_columns_name_a_key_holder_only_where_there_is_a_key():
    def headers(*rows):
        return [c.header for c in blocks(of(*rows), Table)[0].columns]

    assert "Key holder’s success\n[95 % interval]" in headers(PANCAKE)
    assert "ε to key holder" in headers(PANCAKE)
    keyless = PANCAKE | {"attacks": [PANCAKE["attacks"][0] | {"keyless": True}]}
    for rows in ((HONEST,), (HONEST, PANCAKE), (PANCAKE, keyless | {"label": "b"})):
        assert "Attacker’s success\n[95 % interval]" in headers(*rows)
    assert "ε by theory" in headers(HONEST)
    assert "yet an attacker identifies" in of(keyless).headline
    assert "key holder" not in f"{of(keyless).meaning}".lower()


def test_an_arm_without_a_claim_allows_nothing():
    assert of(arm(attacks=[shown(0.9, 0.1)], epsilon_claimed="nan")).verdict == "finding"
    assert of(arm(attacks=[shown(0.9, 9.0)], epsilon_claimed="inf")).verdict == "no-finding"


def test_the_success_that_a_claim_allows():
    (at_two,) = rows_of(HONEST)
    assert at_two.success_allowed == pytest.approx(math.exp(2) / (1 + math.exp(2)))
    (at_zero,) = rows_of(arm(attacks=[], epsilon_claimed=0.0, settings={"delta": 0.1}))
    assert at_zero.success_allowed == pytest.approx(0.55)  # total variation distance δ
    (of_many,) = rows_of(arm(attacks=[shown(0.5, 0, chance=0.1)]))
    assert of_many.success_allowed is None


def test_arms_that_differ_in_options_only_have_names_of_their_own():
    def smoothed(eta):
        settings = NO_KEY | {"host": "histogram"} | ({} if eta is None else {"eta": eta})
        changes = {"label": "pancake, smoothing", "settings": settings}
        return arm("pancake", "smoothing", attacks=[shown(0.5, 0)], **changes)

    labels = arm_labels(rows_of(smoothed(0.01), smoothed(1e-6)))
    assert labels == ["pancake, smoothing, eta 0.01", "pancake, smoothing, eta 1e-06"]
    assert arm_labels(rows_of(smoothed(0.01), smoothed(0.01), smoothed(None))) == [
        "pancake, smoothing, eta 0.01 (1)",
        "pancake, smoothing, eta 0.01 (2)",
        "pancake, smoothing",
    ]
    named = [{"label": "a"}, {"label": "a"}, {"label": "a (1)"}]
    labels = arm_labels(rows_of(*(smoothed(0.01) | n for n in named)))
    assert labels == ["a (2)", "a (3)", "a (1)"]


def test_options_of_a_run_reach_the_names_of_its_arms():
    """Two mitigations of one name that differ in an option, as the cells of a run store them."""
    none, interval = {"low": 0.0, "high": "inf", "says": ""}, documents.attack(0.5, low=0, high=1)
    outcome = interval | {"sigma": 1.0, "epsilon_key_holder": none, "l2_error": 1, "l2_expected": 1}

    def cell(eta):
        settings = {
            "epsilon": 1.0, "delta": 0.0, "host": {"name": "histogram", "table": "us-counties"},
            "source": {"name": "gaussian", "label": "honest"},
            "mitigation": {"name": "smoothing", "label": "smoothing", "eta": eta},
        }  # fmt: skip
        known = {"outcome": outcome, "seconds": 1.0, "provenance": {}}
        return CellResult(cell=f"{eta}", kind="attack", settings=settings, **known)

    spec = {"name": "x", "title": "x", "story": "", "columns": ()}
    rows = make_result(spec, [cell(0.01), cell(1e-6)], command="").rows
    assert arm_labels(rows) == ["honest, smoothing, eta 0.01", "honest, smoothing, eta 1e-06"]
    assert rows[0].settings["host"] == "histogram:table=us-counties"


def test_charts_of_an_experiment():
    report = reported(documents.experiment())
    assert list(charts(report)) == [
        "Key holder’s success", "Releases along the key", "Error against protection",
    ]  # fmt: skip
    phases = charts(report)["Releases along the key"]
    assert [p.title for p in phases.panels][1] == "pancake"
    heights = [m.y for m in phases.panels[1].series[0].marks]
    assert max(heights) == pytest.approx(16)  # two bins of 32 hold all
    assert sum(heights) == pytest.approx(32)
    many = reported(documents.grid(300))
    assert len(charts(many)["Key holder’s success"].y.categories) == 4  # source and mitigation
    assert len(charts(many)["Releases along the key"].panels) == 4
    titles = [section.title for section in many.sections]
    assert titles.index("Figures") < titles.index("What was found")


@pytest.mark.parametrize(
    "phases",
    [None, {}, {"edges": [0, 1], "counts": []}, {"edges": [0, 1], "counts": [-1]},
     {"edges": [1, 0], "counts": [1]}, {"edges": ["nan", 1], "counts": [1]},
     {"edges": [0, 1], "counts": [0]}, {"edges": list(range(2000)), "counts": [1] * 1999}],
)  # fmt: skip
def test_phases_that_are_none_are_no_chart(phases):
    report = of(arm(attacks=[shown(0.5, 0, details={"phases": phases})]))
    assert "Releases along the key" not in charts(report)


def test_a_misfit_is_a_finding_about_the_number_only():
    report = reported(measured.grid())
    assert (report.verdict, report.badge, report.sign) == ("finding", "3 differ", "≠")
    published = [c for c in report.checks if c.group == "published"]
    assert len(published) == 240
    first = next(c for c in published if c.outcome == "finding")
    assert first.name == "d=256, epsilon=0.125, gamma=16, beta=0.001"
    assert "published 0.929; measured success 0.8769 [" in first.effect
    assert "That is not a finding about a product" in report.meaning[0].says
    misses, whole = blocks(report, Table)[:2]
    assert (len(misses.columns[0].cells), sum(whole.marked)) == (3, 3)
    calm = reported(measured.grid() | {"misses": []})
    assert (calm.verdict, calm.badge, calm.sign) == ("no-finding", "Measured", "")
    assert reported(measured.result()).verdict == "inconclusive"


def test_long_tables_are_cut_and_say_so():
    rows = (measured.grid()["rows"] * 5)[:1000]
    report = reported(measured.grid() | {"figures": [], "rows": rows, "misses": rows[:450]})
    misses, whole = blocks(report, Table)[:2]
    assert (misses.left_out, whole.left_out) == (50, 600)
    assert len(whole.columns[0].cells) == len(whole.marked) == MOST_CELLS


@pytest.mark.parametrize("make", [measured.grid, measured.many_forms, measured.bars])
@pytest.mark.parametrize("rows", [0, 1, None])
def test_figures_have_alt_text_and_few_rows_are_told(make, rows):
    document = make()
    if rows is not None:
        document |= {"rows": document["rows"][:rows], "misses": [], "summary": ""}
        said = ("No results yet: no measurement", "1 measurement; the experiment gives no summary")
        assert reported(document).headline.startswith(said[rows])
    report = reported(document)
    assert Page(render_page(report)).ordered
    assert len(charts(report)) <= (0 if rows == 0 else len(document["figures"]))
    if rows is None:
        assert all(len(chart.alt) > 40 for chart in charts(report).values())


def test_values_that_have_no_place_are_no_figure():
    figure = {"x": "a", "y": "b", "log_x": True, "log_y": True}
    columns = [{"key": "a"}, {"key": "b", "format": "epsilon"}]
    for values in ([None, None], ["inf", "-inf"], [0, -1], [{}, {"value": None}], ["nan", True],
                   [[1], {"low": 1}]):  # fmt: skip
        rows = [{"a": v, "b": w} for v, w in itertools.product(values, repeat=2)] + [{}]
        result = measured.result(columns=columns, rows=rows, figures=[figure])
        assert charts(reported(result)) == {}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"columns": [{"key": "a"}, {"key": "a"}]}, "is repeated"),
        ({"columns": []}, "need columns"),
        ({"figures": [measured.figure(y="succes")]}, "y='succes': must be the key of a column"),
        ({"figures": [measured.figure(series="nothing")]}, "series='nothing'"),
        ({"figures": [measured.figure(panels=["d", "d", "d"])]}, "panels="),
        ({"figures": [measured.figure(band=["success"])]}, "band="),
        ({"figures": [measured.figure(reference="inf")]}, "must be a finite number"),
        ({"figures": [measured.figure(kind="map")]}, "figure"),
        ({"figures": [measured.figure(where={"whose": "weak"})]}, "figure"),
    ],
)
def test_what_is_unknown_is_refused(changes, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        reported(measured.grid() | changes)


def plot_of(result):
    read = read_measurements(typed(result))
    return read.plots[0], read.rows


def test_panels_keep_their_places():
    plot, rows = plot_of(measured.grid())
    rows = [r for r in rows if (r["d"], r["epsilon"]) != (4096, 0.25)]
    grid = lay_out(plot, rows)
    assert (grid.columns, grid.panels[5]) == (4, None)
    assert grid.panels[6].title == "d = 4096, ε = 0.5"
    turned = lay_out(plot._replace(panels=plot.panels[::-1], x=plot.panels[0]), rows)
    assert turned.columns == 3
    assert [p.x for p in grid.panels[0].lines[0]] == [1e-5, 1e-4, 1e-3, 1e-2, 0.1]


def test_what_is_left_out_is_said():
    rows = [{"x": 1, "y": 1.0, "p": p, "s": s} for p in range(30) for s in range(20) if 0 in (p, s)]
    rows.append({"x": 0, "y": "inf", "p": 0, "s": 0})
    columns = [{"key": k, "format": "setting"} for k in "xyps"]
    figure = measured.figure(x="x", y="y", series="s", panels=["p"], published=None)
    chart = chart_of(*plot_of(measured.result(columns=columns, rows=rows, figures=[figure])))
    unplaced = "2 values that are infinite, or not positive on a logarithmic axis,"
    panels, series = f"{30 - MOST_PANELS} more panels", f"{20 - MOST_SERIES} more series"
    for words in (unplaced, panels, series):
        assert f"{words} are in the table only." in chart.caption


def test_a_row_can_hold_a_whole_curve():
    rows = [
        {"arm": "a", "curve": [[0, 0], [0, 0.4], [0.5, 0.6], [1, 1]]},
        {"arm": "b", "curve": None},
        {"arm": "c", "curve": [[0, 0.1], [1, 1]]},
    ]
    figure = {"title": "", "points": "curve", "x": "alarms", "y": "found", "panels": ["arm"]}
    columns = [{"key": "arm", "format": "text"}]
    result = measured.result(columns=columns, rows=rows, figures=[figure])
    grid = lay_out(*plot_of(result))
    assert [p.title for p in grid.panels] == ["a", "c"]
    assert [(p.x, p.y) for p in grid.panels[0].lines[0]] == [(0, 0.4), (0.5, 0.6), (1, 1)]
    with pytest.raises(UsageError, match="points='line'"):
        plot_of(result | {"figures": [figure | {"points": "line"}]})


MAP = {"title": "Where", "kind": "map", "points": "places", "x": "γ", "y": "δ", "value": "right"}


def drawn(figure, rows=None):
    """The chart of rows with a map and a curve each."""
    made = [
        {"who": who, "n": n,
         "places": [[0.125 + 0.25 * i, 0.1 + 0.2 * j, min(1.0, n * (i + 1) * (j + 1) / 200)]
                    for i in range(4) for j in range(5)],
         "curve": [[0.0, 0.1], [0.5, {"value": 0.4, "low": 0.3, "high": 0.5}], [1.0, 0.9]]}
        for who in ("weak", "strong") for n in (1, 10)
    ]  # fmt: skip
    columns = [{"key": "who", "format": "text"}, {"key": "n", "format": "setting"}]
    rows = made if rows is None else rows
    return chart_of(*plot_of(measured.result(columns=columns, rows=rows, figures=[figure])))


def test_a_map_says_where_and_how_much():
    chart = drawn({**MAP, "panels": ["who", "n"], "label_x": "interest"})
    assert chart.alt.startswith(
        "Where. Maps of right by interest (across) and δ (up), in 4 panels by who and n."
    )
    corners = "weak, n = 10: 5.0 % lower left, 100.0 % upper right, 5.0 % to 100.0 % overall"
    assert corners in chart.alt
    assert "Darker: higher right" in chart.caption
    assert "evenly" not in chart.caption
    assert [len(p.series[0].marks) for p in chart.panels] == [20] * 4
    assert (len(chart.x.categories), len(chart.y.categories)) == (4, 5)
    one = drawn({**MAP, "where": {"who": "weak", "n": 10}})
    assert len(one.panels) == 1


def test_uneven_places_and_missing_ones():
    rows = [
        {"who": "weak", "n": n, "x": x, "δ": 1, "z": {"value": z, "low": 0, "high": 9}}
        for n, x, z in [(1, 1, 5.0), (1, 10, 7.0), (2, 1, "inf"), (2, 100, 6.0)]
    ]
    plain = {"title": "T", "kind": "map", "x": "x", "y": "δ", "value": "z"}
    chart = drawn({**plain, "panels": ["n"]}, rows)
    assert "evenly spaced, though their values are not" in chart.caption
    assert "the least to the largest value" in chart.caption
    assert "n = 2: 6 lower left" in chart.alt
    assert drawn(plain, rows[2:3]) is None


def test_where_picks_rows_and_the_diagonal_is_said():
    line = {"title": "L", "points": "curve", "x": "said", "y": "was", "series": "n",
            "diagonal": True}  # fmt: skip
    chart = drawn({**line, "where": {"who": "weak"}})
    assert "Dashed: where was and said are equal." in chart.caption
    assert "Thin vertical lines: intervals." in chart.caption
    assert chart.panels[0].lines[-1].sloped
    assert drawn({**line, "where": {"who": "nobody"}}) is None


@pytest.mark.parametrize(
    "value",
    ["", None, [], {}, [[1]], [[1, 2, 3, 4]], [[[1], 2, 3]], [[{}, 2, 3]], [["a", "b", "c"]], 3],
)
def test_places_that_are_none(value):
    chart = drawn({**MAP, "panels": ["n"]}, [{"who": "w", "n": 1, "places": value}])
    assert chart is None or value == [["a", "b", "c"]]
