import math

import pytest

from dpaudit.errors import SpecError
from dpaudit.experiments import load_spec
from dpaudit.experiments.arm import build_arm
from dpaudit.experiments.measures import defences, measure

SPEC = """
name = "t"
seed = 3
epsilon = 0.5
delta = 1e-10
trials = 600
measure = "defences"
[[host]]
name = "histogram"
table = "uniform"
bins = 24
[key]
beta = 1e-3
gamma = "2sqrtd"
[[source]]
name = "SOURCE"
[[mitigation]]
MITIGATION
[[attack]]
name = "nearest-peak"
[[attack]]
name = "likelihood-ratio"
[[attack]]
name = "which-bin"
[[attack]]
name = "recovered-direction"
seconds = 20
"""


def outcome(tmp_path, source, mitigation):
    path = tmp_path / "s.toml"
    path.write_text(SPEC.replace("SOURCE", source).replace("MITIGATION", mitigation))
    (cell,) = load_spec(str(path)).cells()
    return measure(cell, build_arm(cell.settings, cell=cell.id))


def shares(found):
    return {a["attack"]: a["success"] for a in found["attacks"]}


def test_the_backdoor_is_read_by_key_holders_and_by_who_finds_the_key(tmp_path):
    found = outcome(tmp_path, "pancake", 'name = "none"')
    by = shares(found)
    assert by["nearest-peak"]["low"] > 0.95
    assert by["likelihood-ratio"]["low"] > 0.95
    assert by["which-bin"]["low"] > 0.7
    assert found["epsilon_holder"].low > 1000
    if pytest.importorskip("fpylll"):
        assert by["recovered-direction"]["low"] > 0.95


def test_rotation_leaves_all_of_them_guessing(tmp_path):
    found = outcome(tmp_path, "pancake", 'name = "rotation"')
    for attack in found["attacks"]:
        assert attack["success"]["low"] < attack["chance"] + 0.02, attack
    assert found["error"] == pytest.approx(1, abs=0.02)
    assert found["trusts"]


def test_the_key_holder_knows_the_smoothing(tmp_path):
    """At a τ that leaves something, only who widens the pancake's peaks reads all of it: a slow oracle's success."""
    found = outcome(tmp_path, "pancake", 'name = "smoothing"\ntau = 0.02')
    by = shares(found)
    assert by["likelihood-ratio"]["low"] > 0.6
    assert by["likelihood-ratio"]["value"] >= by["nearest-peak"]["value"] - 0.01
    assert found["error"] == pytest.approx(math.hypot(1, 0.02), abs=0.02)


def test_rows_and_what_they_say(tmp_path):
    row = {**outcome(tmp_path, "pancake", 'name = "none"'), "source": "pancake", "mitigation": "none"}
    rows = defences.gather([row])
    assert [r["attack"] for r in rows] == ["nearest-peak", "likelihood-ratio", "which-bin", "recovered-direction"]
    assert sum(r["strongest"] is not None for r in rows) == 1
    assert [r["trusts"] == row["trusts"] for r in rows] == [True, False, False, False]
    assert all(r["beats_chance"] for r in rows)
    assert "pancake + none to" in defences.summary(rows)
    beaten_by_none = [{**r, "beats_chance": False} for r in rows]
    assert "At chance against every attack: pancake + none." in defences.summary(beaten_by_none)


def test_an_attack_that_scores_no_candidates_is_refused(tmp_path):
    text = SPEC.replace("SOURCE", "pancake").replace("MITIGATION", 'name = "none"')
    path = tmp_path / "s.toml"
    path.write_text(text + '[[attack]]\nname = "timing"\n')
    (cell,) = load_spec(str(path)).cells()
    with pytest.raises(SpecError, match="attack=timing"):
        measure(cell, build_arm(cell.settings, cell=cell.id))
