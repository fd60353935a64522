"""Each measure on a small grid, and the join with published values."""

import math

import pytest
from support.small_experiments import result_of

from dpaudit.errors import SpecError
from dpaudit.experiments.arm import build_arm
from dpaudit.experiments.published import _rows, agrees, published_value
from dpaudit.experiments.trials import batches, share
from dpaudit.render.page import render_page
from dpaudit.report import describe

BASE = """
name = "t"
seed = 3
epsilon = 0.5
delta = 1e-10
trials = {trials}
measure = "{measure}"
host = {{ name = "histogram", table = "uniform", bins = {bins} }}
key = {{ beta = [1e-5, 0.5], gamma = "2sqrtd" }}
source = [{{ name = "pancake" }}]
column = [{{ key = "beta", format = "setting" }}]
{extra}
"""


@pytest.fixture
def rows(tmp_path):
    def run(measure, *, trials=40, bins=64, extra=""):
        text = BASE.format(measure=measure, trials=trials, bins=bins, extra=extra)
        made = result_of(text, tmp_path)
        assert made.kind == "measurements"
        assert made.title in render_page(describe(made))
        return made.rows

    return run


def test_gain(rows):
    thin, thick = rows("gain", trials=600)
    assert thin["nearest"]["value"] > 0.98
    assert thin["likelihood"]["value"] > 0.98
    assert not thin["worse"]
    assert not thick["worse"]
    assert thick["likelihood"]["low"] < 0.9


def test_precision(rows):
    got = rows("precision", trials=100, extra='[grid]\ndtype = ["float64", "float32", "integers"]')
    by = {(r["beta"], r["dtype"]): r for r in got}
    fine, coarse = by[1e-5, "float64"], by[1e-5, "float32"]
    assert fine["phase_error"] == 0
    assert fine["phase_spread"] == pytest.approx(fine["phase_width"], rel=0.25)
    assert coarse["phase_spread"] > 10 * fine["phase_spread"]
    # rounding is uniform on ±1/2 in every bin, so its part along the key has variance 1/12
    whole = by[1e-5, "integers"]
    spacing = math.sqrt(2 * math.pi) * whole["sigma"] / 16
    assert whole["phase_error"] * spacing == pytest.approx(12**-0.5, rel=0.2)
    assert by[1e-5, "float64"]["success"]["value"] > 0.95


def _settings():
    pancake, none = ({"name": name, "label": name} for name in ("pancake", "none"))
    host = {"name": "histogram", "table": "uniform", "bins": 64}
    levels = {"epsilon": 0.5, "delta": 1e-10, "calibration": "exact", "grid": {}, "keys": 3}
    key = {"beta": 1e-3, "gamma": "2sqrtd"}
    return {**levels, "host": host, "key": key, "source": pancake, "mitigation": none, "seed": "3"}


def test_error(rows):
    for row in rows("error", trials=200):
        assert row["pancake"]["low"] < row["expected"] * 1.01
        assert row["pancake"]["high"] > row["expected"] * 0.99
        assert abs(row["off"]) < 2


def test_profile_lies_between_the_bounds(rows):
    thin, thick = rows("profile")
    for row in (thin, thick):
        assert row["lower"] <= row["exact"]["high"]
        assert row["exact"]["low"] <= row["upper"]
    assert thin["exact"]["value"] > 1e6 * thick["exact"]["value"]


@pytest.mark.slow
def test_which_bin(rows):
    got = {
        (r["beta"], r["releases"]): r for r in rows("which-bin", extra="[grid]\nreleases = [1, 3]")
    }
    assert got[1e-5, 1]["success"]["value"] > 0.9
    assert got[1e-5, 1]["rank"] == 1
    assert got[0.5, 1]["success"]["value"] < 0.5
    assert got[0.5, 1]["chance"] == 1 / 64


def test_timing(rows):
    for row in rows("timing", trials=5, extra='[grid]\ndtype = "float32"'):
        assert row["ratio"]["low"] <= row["ratio"]["value"] <= row["ratio"]["high"]
        assert row["pancake"] > 0


@pytest.mark.slow
def test_reconstruction(rows):
    pytest.importorskip("fpylll")
    got = {
        (r["beta"], r["unknown"]): r
        for r in rows("reconstruction", trials=10, extra="[grid]\nunknown = [1, 6]")
    }
    assert got[1e-5, 1]["success"]["value"] == 1
    assert got[0.5, 6]["success"]["value"] == 0
    assert got[0.5, 6]["trusted"]["value"] == 0
    assert got[0.5, 6]["bits_needed"] > got[0.5, 6]["bits_available"]


def test_keys_are_renewed_and_rounds_shared_out():
    assert share(10, 3) == [3, 3, 4]
    assert share(2, 5) == [1, 1]
    made = [list(batches(build_arm(_settings(), cell="x"), trials=9, keys=3)) for _ in range(2)]
    seen, again = ([b.arm.key.fingerprint for b in some] for some in made)
    assert len(set(seen)) == 3
    assert seen == again
    assert sum(len(b.truth) for b in made[0]) == 9


FIG5 = {
    "file": "hist-da",
    "on": {"d": "num_bins", "beta": "beta", "gamma": "gamma", "epsilon": "eps_comp"},
    "value": "success_rate",
    "trials": 1000,
}


def test_published_values_are_joined_by_setting():
    row = {"d": 256, "beta": 1e-5, "gamma": 32.0, "epsilon": 0.125}
    assert published_value(FIG5, row) == 1.0
    assert published_value(FIG5, {**row, "beta": 3e-5}) is None
    timing = {"file": "hist-rt-cpu", "on": {"d": "num_bins"}, "value": "rt"}
    assert 1 < published_value({**timing, "over": {"mech": ["GPM", "GM"]}}, {"d": 256}) < 5
    with pytest.raises(SpecError, match="no such file"):
        published_value({**FIG5, "file": "nothing"}, row)
    with pytest.raises(SpecError, match="no column"):
        published_value({**FIG5, "on": {"d": "bins"}}, row)


def test_the_printed_tables_and_the_authors_logs_differ_where_we_say():
    names = ("model", "converged", "clip_norm", "beta", "eps_comp")
    logs = {"on": {k: k for k in names}, "value": "success_rate"}
    both = {
        **logs,
        "file": ["cifar10-da", "cifar10-da-addl"],
        "on": logs["on"] | {"gamma": "gamma"},
    }
    apart, trained = [], 0
    for row in _rows("printed-table2"):
        theirs = published_value({"file": "cifar10-da", **logs}, row)
        if theirs is not None:
            apart.append(abs(theirs - float(row["success_rate"])))
        gamma = 12483.416519527016 if row["model"] == "vgg19_bn" else 0
        found = published_value(both, {**row, "gamma": gamma})
        trained += row["converged"] == "True" and found is not None
    assert (len(apart), sum(x > 1e-9 for x in apart), round(max(apart), 9)) == (72, 20, 0.04)
    assert trained == 2
    l2 = {"file": "l2", "on": {"dim": "dim", "eps": "eps"}}
    found = [
        (row["dim"], row["eps"], name, row[name])
        for row in _rows("printed-table4")
        for name in ("expect", "gm", "gpm")
        if abs(published_value({**l2, "value": name}, row) - float(row[name])) > 0.1
    ]
    assert found == [("256", "1.0", "expect", "103.2"), ("65536", "0.25", "gpm", "6526.8")]


@pytest.mark.parametrize(
    ("options", "ours", "theirs", "trials", "fits"),
    [
        ({}, {"value": 0.95}, 0.96, 1000, True),
        ({}, {"value": 0.95}, 0.99, 1000, False),
        ({}, {"value": 0.95}, 0.97, 1000, True),  # p = 0.029 at 1,000 each
        ({"level": 0.02}, {"value": 0.95}, 0.97, 1000, True),
        ({"level": 0.05}, {"value": 0.95}, 0.97, 1000, False),
        ({"tolerance": 0.01}, 100.5, 100.0, 1, True),
        ({"tolerance": 0.01}, 102.0, 100.0, 1, False),
    ],
)
def test_agreement_can_fail(options, ours, theirs, trials, fits):
    assert agrees({**FIG5, **options}, ours, theirs, trials=trials) is fits
    assert agrees({"file": "l2"}, 1.0, 2.0, trials=1) is None


def test_whole_query(tmp_path):
    def run(source):
        text = BASE.format(measure="whole-query", trials=20, bins=64, extra="")
        text = text.replace('"pancake"', f'"{source}"').replace("[1e-5, 0.5]", "0.5")
        return result_of(text, tmp_path, source)

    (row,) = run("seed-in-noise").rows
    assert (row["success"]["value"], row["values"], row["wrong"]) == (1.0, 1.0, 0)
    with pytest.raises(SpecError, match="reads the source seed-in-noise only"):
        run("gaussian")
