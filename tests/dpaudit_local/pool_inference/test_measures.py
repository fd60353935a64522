"""The measures of pool inference: options, published values by row, utility and its theory."""

import csv
import math
import re
from importlib.resources import files

import numpy as np
import pytest
from support.small_experiments import result_of

from dpaudit import registry
from dpaudit.errors import SpecError, UsageError
from dpaudit.experiments import load_spec
from dpaudit.experiments.measure import Cell, gather_rows, summary
from dpaudit.experiments.published import agrees, published_value
from dpaudit.experiments.run import run_cell
from dpaudit.randomness import KeyedStream
from dpaudit.render.page import render_page
from dpaudit.report import describe
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch
from dpaudit_local.pool_inference.measures import (
    CountedPolicy,
    attack_of,
    errors,
    expected_errors,
    setting_of,
)

SMALL = {"setting": "news", "universe": 200, "epsilon": 8.0, "m": 256, "functions": 64}
SMALL |= {"popularity_submissions": 20_000}
PLAY = {**SMALL, "adversaries": ["weak", "strong", "non-private"], "observations": [5, 40]}
TABLES = [f"bpia-table{n}" for n in (2, 3, 5, 6, 7, 8)]
KINDS = ("pool-inference", "pool-defences", "sketch-utility")


def rows(kind, *, trials, **grid):
    made = Cell(kind, {"grid": grid, "seed": "1", "trials": trials})
    return gather_rows(kind, [{**made.written["grid"], "trials": trials, **run_cell(made).outcome}])


def test_options_go_where_they_belong():
    attack = attack_of({**SMALL, "adversaries": ["weak", "non-private"], "observations": [3, 9]})
    assert (attack.people.name, attack.people.universe, attack.m) == ("news", 200, 256)
    assert (attack.adversaries, attack.observations) == (("weak", "non-private"), (3, 9))
    assert attack_of({"setting": "news:universe=300"}).people.universe == 300
    pools = setting_of({"setting": "equal-pools", "size": 5, "zipf": 0.0})
    assert pools.entropies()[0] == pytest.approx(math.log2(5))


@pytest.mark.parametrize(
    ("grid", "error", "says"),
    [
        ({}, SpecError, "setting"),
        ({"setting": 3}, SpecError, "setting"),
        ({"setting": "news", "observations": "7 days"}, SpecError, "observations='7 days'"),
        ({"setting": "news", "univers": 300}, UsageError, "univers"),
        ({"setting": "papers"}, UsageError, "papers"),
        ({"setting": "news", "submissions": "sometimes"}, UsageError, "sometimes"),
    ],
)
def test_options_that_are_none(grid, error, says):
    with pytest.raises(error, match=says):
        attack_of(grid)


@pytest.mark.slow
def test_a_game_becomes_rows():
    found = rows("pool-inference", trials=400, **PLAY)
    area = {(r["adversary"], r["n"]): r["auc_pn"]["value"] for r in found}
    assert list(area) == [(a, n) for a in ("weak", "strong", "non-private") for n in (5, 40)]
    assert {(r["setting"], r["universe"], r["trials"]) for r in found} == {("news", 200, 400)}
    assert 0.4 < area["weak", 5] < area["weak", 40] < area["non-private", 40]
    assert rows("pool-inference", trials=400, **PLAY) == found


@pytest.mark.slow
def test_an_experiment_from_its_file_to_its_page(tmp_path):
    text = (files("dpaudit_studies") / "specs" / "bpia-figures.toml").read_text(encoding="utf-8")
    text = text.replace('adversaries = ["weak", "strong", ', 'adversaries = ["weak", ')
    made = result_of(re.sub(r"(?m)^trials = \d+", "trials = 50", text), tmp_path)
    assert len(made.rows) == 2 * 2 * 4
    assert all(row["published"] is not None for row in made.rows)
    assert render_page(describe(made)).count("<figure") == 5


@pytest.mark.parametrize("name", TABLES)
def test_every_published_value_is_met_by_a_row(name):
    """The cells of the spec, expanded as in a run, cover each row of the published table once."""
    spec = load_spec(name)
    met = []
    for cell in spec.cells():
        grid = cell.settings["grid"]
        for adversary in grid.get("adversaries", ["-"]):
            for n in grid.get("observations", [0]):
                for metric in ("MAE", "MAPE80") if name == "bpia-table7" else ("-",):
                    row = {**grid, "adversary": adversary, "n": n, "metric": metric}
                    met.append(published_value(spec.published, row))
    text = (files("dpaudit_studies") / "published" / f"{name}.csv").read_text(encoding="utf-8")
    theirs = [float(r[spec.published["value"]]) for r in csv.DictReader(text.splitlines())]
    assert sorted(met) == sorted(theirs)


def test_agreement_within_so_much():
    near = {"file": "bpia-table2", "ours": "auc_pn", "within": 0.01}
    assert agrees(near, {"value": 0.41}, 0.40, trials=10)
    assert not agrees(near, {"value": 0.4101}, 0.40, trials=10)
    ours = {"value": 0.45, "low": 0.45 - 0.0196, "high": 0.45 + 0.0196}  # standard error 0.01
    among = {**near, "users": 1000}
    reach = 0.01 + 3.2905 * 0.01 * math.sqrt(1 + 250 / 1000)
    for off, fits in ((reach - 1e-4, True), (reach + 1e-4, False)):
        assert agrees(among, ours, 0.45 - off, trials=250) is fits
        assert agrees(among, ours, 0.45 + off, trials=250) is fits
    assert not agrees({**among, "level": 0.05}, ours, 0.45 - 0.04, trials=250)
    with pytest.raises(SpecError):
        agrees(among, 0.45, 0.40, trials=250)


def test_errors_by_hand():
    p, estimate = np.array([0.5, 0.3, 0.1, 0.06, 0.04]), np.array([0.4, 0.3, 0.13, 0.06, 0.11])
    found = errors(estimate, p)
    assert found["MAE"] == pytest.approx((0.1 + 0.03 + 0.07) / 5)
    assert found["MAPE80"] == pytest.approx((0.2 + 0.3) / 4)  # the least popular is left out
    expected = expected_errors(np.full(5, 0.01), p)
    assert expected["MAE"] == pytest.approx(0.01 * math.sqrt(2 / math.pi))


def test_utility_meets_its_theory_down_to_the_floor_of_collisions():
    """Errors fall as 1/√Z, until only hash collisions are left: √(Σp²/(k·m)) a website."""
    some = [
        rows("sketch-utility", trials=1, setting="news", epsilon=8.0, records=z, functions=256)
        for z in (10**5, 10**9)
    ]
    (few, few_relative), (many, many_relative) = some
    assert few["error"] == pytest.approx(few["theory"], rel=0.08)
    assert few_relative["error"] == pytest.approx(few_relative["theory"], rel=0.12)
    p = setting_of({"setting": "news"}).popularity
    floor = math.sqrt((p**2).sum() / (256 * 1024)) * math.sqrt(2 / math.pi)
    assert many["theory"] == pytest.approx(floor, rel=0.03)
    assert many["error"] == pytest.approx(floor, rel=0.15)
    assert many_relative["metric"] == "MAPE80"
    assert "within" in summary("sketch-utility", [few, many])
    with pytest.raises(SpecError, match="records"):
        rows("sketch-utility", trials=1, setting="news", epsilon=8.0)


def test_a_watched_policy_is_the_policy():
    mechanism = CountMeanSketch(epsilon=6.0, m=64, functions=32)
    objects = np.random.default_rng(1).integers(0, 50, (40, 9))
    plain = registry.create("submissions", "capped:limit=4")
    watched, stream = CountedPolicy(plain, universe=50), KeyedStream.from_seed(2)
    (reports, owner), (seen, whose) = (
        p.submit(objects, mechanism, stream=stream) for p in (plain, watched)
    )
    assert (reports.bits == seen.bits).all()
    assert (owner == whose).all()
    assert (watched.reports, watched.chosen.sum()) == (160, 360)  # chosen, submitted or not
    asked = {"objects": 9, "users": 40, "delta": 1e-6}
    assert watched.epsilon(mechanism, **asked) == plain.epsilon(mechanism, **asked)


def test_defences_cost_what_they_say():
    grid = {**SMALL, "adversaries": ["weak"], "observations": [60], "crowd": 1_000_000}
    every, capped, shuffled = (
        rows("pool-defences", trials=400, **grid, submissions=policy)[0]
        for policy in ("every", "capped:limit=5", "shuffled")
    )
    area = [row["auc_pn"]["value"] for row in (every, capped, shuffled)]
    assert area[0] > 0.85
    assert area[2] < area[1] < area[0] - 0.1
    assert capped["submitted"] == 5
    assert capped["MAE"] > 2 * every["MAE"]  # √12 times as large in expectation
    assert shuffled["MAE"] == pytest.approx(every["MAE"], rel=0.3)
    assert every["epsilon_person"] > capped["epsilon_person"] == pytest.approx(40, rel=0.01)
    with pytest.raises(SpecError, match="adversaries"):
        rows("pool-defences", trials=10, **{**grid, "adversaries": ["non-private"]})
    with pytest.raises(UsageError, match="can be estimated for"):
        rows("pool-defences", trials=10, **{**grid, "mechanism": "one-bit-histogram"})


@pytest.mark.parametrize(("kind", "policy", "names"), [
    ("pool-inference", None, ["pool-inference"]),
    ("pool-defences", {"name": "capped", "limit": 2}, ["pool-inference", "capped"]),
])  # fmt: skip
def test_a_result_says_which_plugins_made_it(kind, policy, names):
    policies = {} if policy is None else {"submissions": policy}
    grid = {**SMALL, "observations": [3], "adversaries": ["weak"], **policies}
    made = run_cell(Cell(kind, {"grid": grid, "seed": "1", "trials": 20}))
    assert [p["name"] for p in made.provenance["plugins"]] == names
