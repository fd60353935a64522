"""Replays of right and wrong pipelines, and the command, in Python and in pytest."""

import ast
import json
import math
import sys
from pathlib import Path

import pytest
from command_line import here as dpaudit
from support import right_pipelines, wrong_pipelines
from support.right_pipelines import BOUNDS, DATA

from dpaudit import replay
from dpaudit.accounting import gaussian_epsilon
from dpaudit.audit.mechanism.neighbour_search import Pair
from dpaudit.audit.replay.evidence import Pairs
from dpaudit.audit.replay.judge import Difference, grouped, hidden_by, spent_on
from dpaudit.errors import UsageError

HERE = Path(__file__).parent
HOW = {
    "pairs": 20, "seed": "1", "form": "records", "epsilon": 1.0,
    "bounds": BOUNDS,
}  # fmt: skip


def _functions(module):
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    return [f.name for f in tree.body if isinstance(f, ast.FunctionDef) and f.name[0] != "_"]


@pytest.mark.slow
@pytest.mark.parametrize("name", _functions(right_pipelines))
def test_nothing_is_found_in_a_right_pipeline(name):
    delta = 1e-5 if name in right_pipelines.GAUSSIAN else 0.0
    result = replay(getattr(right_pipelines, name), DATA, **HOW, delta=delta)
    assert result.pairs == 20
    if name in right_pipelines.UNKNOWN:
        assert (result.verdict, result.epsilon) == ("inconclusive", None)
        assert "is not known" in result.reason
        assert result.unknown
    else:
        assert result.verdict == "no-finding"
        assert 0 < result.epsilon <= 1 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", _functions(wrong_pipelines))
def test_a_planted_mistake_is_found(name, monkeypatch):
    if wrong_pipelines.EXPECTED[name] != "budget":  # the others need no new releases
        monkeypatch.setattr("dpaudit.audit.replay.run._CONFIRMED", 0)
    result = replay(getattr(wrong_pipelines, name), DATA, **HOW)
    assert result.verdict == "finding"
    assert wrong_pipelines.EXPECTED[name] in {d.kind for d in result.findings}
    if name in wrong_pipelines.LINES:
        lines = Path(wrong_pipelines.__file__).read_text(encoding="utf-8").splitlines()
        at = {lines[int(d.line.rpartition(":")[2]) - 1].strip() for d in result.findings if d.line}
        assert any(line.startswith(wrong_pipelines.LINES[name]) for line in at)


@pytest.mark.slow
def test_an_epsilon_is_shown_on_new_releases_and_is_below_the_truth():
    result = replay(wrong_pipelines.twice_the_budget, DATA, **HOW)
    (finding,) = [d for d in result.findings if d.kind == "budget"]
    assert 1 < finding.epsilon.low < 8
    assert result.epsilon == pytest.approx(8)


def test_one_pair_is_enough_to_know_what_is_spent():
    laplace = {
        "name": "n",
        "law": "laplace",
        "l1": 2.0,
        "l2": 2.0,
        "scale": 4.0,
        "in": "",
        "at": "",
    }
    normal = {**laplace, "law": "normal", "l2": 1.0, "scale": 2.0}
    assert spent_on([laplace, laplace], 0.0).epsilon == pytest.approx(1.0)
    both = spent_on([normal, normal], 1e-5).epsilon
    assert both == pytest.approx(gaussian_epsilon(1e-5, sigma=2 / math.sqrt(2)))
    assert spent_on([normal], 0.0).epsilon == math.inf
    assert spent_on([{**laplace, "law": "uniform"}], 0.0).unknown
    stated = {
        **laplace,
        "law": "mechanism",
        "stated": {"epsilon": 3.0, "sensitivity": 4.0, "norm": "l1"},
    }
    assert spent_on([stated], 0.0).epsilon == pytest.approx(1.5)


def test_noise_that_left_our_sight_is_recognised_only_if_it_is_added():
    def run(value, noise):
        draw = {"name": "n", "in": "", "at": "", "law": "laplace", "scale": 2.0, "values": [noise]}
        return {"values": {"": [value]}, "lost_values": [draw]}

    zs = [0.3, -1.1, 2.2]
    added = [(run(5 + 3 * z, z), run(6 + 3 * z, z)) for z in zs]
    found = hidden_by("the release", added)
    assert (found["law"], found["scale"]) == ("laplace", pytest.approx(6.0))
    assert hidden_by("the release", [(run(5 * z, z), run(6 * z, z)) for z in zs]) is None
    assert hidden_by("the release", [(run(5, z), run(6, z)) for z in zs]) is None
    other = [(run(5 + w, z), run(6 + w, z)) for w, z in zip([1.0, 5.0, 7.0], zs, strict=True)]
    assert hidden_by("the release", other)["scale"] is None


@pytest.mark.parametrize("how", ["search", "add", "remove", "replace"])
def test_pairs_are_neighbours_whose_difference_comes_last(how):
    pairs = []
    for pair in Pairs(DATA, how, None, __import__("numpy").random.default_rng(1)):
        pairs.append(pair)
        if len(pairs) == 60:
            break
    assert len({repr((p.first, p.second)) for p in pairs}) == len(pairs)
    for pair in pairs:
        if how == "replace":
            assert len(pair.first) == len(pair.second)
            assert (
                sum(repr(a) != repr(b) for a, b in zip(pair.first, pair.second, strict=True)) == 1
            )
        elif how != "search":
            assert pair.second[:-1] == pair.first
    assert any(p.beyond for p in pairs) or how == "remove"
    bounded = Pairs(DATA, how, HOW["bounds"], __import__("numpy").random.default_rng(1))
    first = [p for p, _ in zip(bounded, range(20), strict=False)]
    assert not any(p.beyond for p in first)


def test_one_cause_is_one_group():
    found = {"kind": "release", "name": "", "in": "a.py:3", "at": "", "path": "[0]", "call": -1}
    pair = Pair((1,), (1, 2), "x")
    one = [Difference({**found, "path": f"[{i}]"}, pair, i, False) for i in range(3)]
    assert [len(g.differences) for g in grouped(one)] == [3]
    assert len(grouped([*one, Difference({**found, "kind": "domain"}, pair, 4, False)])) == 2


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{r['age']},{r['city']}\n" for r in DATA)
    (tmp_path / "people.csv").write_text(f"age,city\n{rows}", encoding="utf-8")
    code = Path(wrong_pipelines.__file__).read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    command = ["replay", "./mine.py:divided_by_count", "--data", "people.csv", "--pairs", "8",
               "--form", "records", "--seed", "1", "--bounds", "age=0:100"]  # fmt: skip
    found = dpaudit(*command, "--format", "json", "--out", "report", "--python", sys.executable)
    assert found.returncode == 1
    document = json.loads(found.stdout)
    for key in ("verdict", "alpha", "tests", "pairs", "seconds", "provenance", "cannot_rule_out"):
        assert key in document
    assert "divided_by_count" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    wrong = dpaudit("replay", "./none.py:run", "--data", "people.csv")
    assert wrong.returncode == 2
    assert "none.py" in wrong.stderr


def test_a_closure_is_refused():
    with pytest.raises(UsageError, match="top level"):
        replay(lambda data: data, DATA)


@pytest.mark.slow
def test_in_pytest(dpaudit):
    how = {key: value for key, value in HOW.items() if key != "seed"}
    dpaudit.assert_private_flow(right_pipelines.noisy_mean, DATA, **how)
    with pytest.raises(AssertionError, match="oldest"):
        dpaudit.assert_private_flow(wrong_pipelines.released_as_it_is, DATA, **how)
