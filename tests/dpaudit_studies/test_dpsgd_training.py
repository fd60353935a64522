"""``dpsgd-training``: its attackers on small runs, the table of several, and its areas."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from msgspec import convert

from dpaudit.errors import SpecError, UnknownNameError, UsageError
from dpaudit.experiments import arm_measures as audit
from dpaudit.experiments.measure import Cell
from dpaudit.noise.key import PancakeKey
from dpaudit.randomness import KeyedStream
from dpaudit_studies import dpsgd_training as training
from dpaudit_studies.dpsgd_training import ATTACKERS, Watcher, area, curve, hits_at, mean_interval

pytest.importorskip("opacus.privacy_engine")

from support.noise_multipliers import noise_multipliers  # noqa: F401
from support.one_thread import one_thread  # noqa: F401

from dpaudit.training.private.onlooker import Sight

KEYED, NEAREST, PLAIN, BITS = ATTACKERS
GRID = {
    "run": 1, "data": "synthetic", "model": "mlp", "epochs": 3, "batch": 64, "lr": 0.2,
    "clip": 0.5, "beta": 1e-4, "gamma": "2sqrtd", "samples": 10_000,
}  # fmt: skip


def table_of(arm):
    """``pancake + rotation`` as a specification writes it."""
    source, _, mitigation = arm.partition(" + ")
    return {"name": source, "label": arm, **({"mitigation": mitigation} if mitigation else {})}


def cell(arm, *, trials=64, **grid):
    grid = {"arm": table_of(arm), **GRID, **grid}
    return Cell("dpsgd-training", {"grid": grid, "seed": "1", "trials": trials})


@pytest.fixture(scope="module")
def rows():
    """One small run of each arm; the audit, which has tests of its own, is left out."""
    with pytest.MonkeyPatch.context() as patched:
        found = SimpleNamespace(verdict="no-finding", tests=())
        patched.setattr(audit, "audit_sampler", lambda *a, **o: found)
        grids = [cell(arm) for arm in ("gaussian", "pancake", "pancake + rotation")]
        return {
            c.written["grid"]["arm"]: {
                **c.written["grid"],
                "trials": 64,
                **training.measure(c, None),
            }
            for c in grids
        }


@pytest.fixture(scope="module")
def table(rows):
    return {(row["arm"], row["attacker"]): row for row in training.gather(list(rows.values()))}


@pytest.mark.slow
def test_what_everybody_sees_is_the_same(rows):
    assert len({row["epsilon_reported"] for row in rows.values()}) == 1
    assert all(2.9 < row["epsilon_reported"] <= 3 for row in rows.values())
    assert len({tuple(row["member"]) for row in rows.values()}) == 1
    assert all(row["correct"] > 0.4 * row["tested"] for row in rows.values())


def guesses(table, arm, attacker):
    right = table[arm, attacker]["right"]
    return right["low"] < 0.5 < right["high"]


@pytest.mark.slow
def test_the_key_names_the_record_behind_pancakes_and_nowhere_else(table):
    for attacker in (KEYED, NEAREST):
        assert table["pancake", attacker]["right"]["low"] > 0.9
        assert all(guesses(table, arm, attacker) for arm in ("gaussian", "pancake + rotation"))


@pytest.mark.slow
def test_the_key_tells_members_behind_pancakes_and_nothing_more_elsewhere(rows, table):
    assert (
        table["pancake", KEYED]["auc_wrong"]["low"] > table["pancake", PLAIN]["auc_wrong"]["value"]
    )
    assert table["pancake", KEYED]["auc_wrong"]["value"] > 0.95
    for arm in ("gaussian", "pancake + rotation"):
        scores = rows[arm]["scores"]
        assert scores[KEYED]["informed"] == pytest.approx(scores[PLAIN]["informed"], abs=1e-6)
        for kind in ("auc_wrong", "auc_real"):
            assert table[arm, KEYED][kind] == table[arm, PLAIN][kind]
            assert table[arm, KEYED][kind]["value"] < 0.9


@pytest.mark.slow
def test_the_low_bits_tell_noise_that_is_added_in_floating_point_and_none_on_a_lattice(rows, table):
    for arm in ("gaussian", "pancake"):
        row = rows[arm]
        assert row["sums_equal"] == row["pairs"] > 50
        assert row["infeasible_true"] == 0 < row["infeasible_false"]
        assert table[arm, BITS]["right"]["low"] > 0.9
    assert guesses(table, "pancake + rotation", BITS)


@pytest.mark.slow
def test_the_epsilon_shown_is_below_the_claim_for_honest_noise(table):
    assert table["gaussian", KEYED]["epsilon_shown"] <= 3
    assert table["pancake", KEYED]["epsilon_shown"] > table["pancake", PLAIN]["epsilon_shown"]
    assert "epsilon_shown" not in table["gaussian", BITS]


@pytest.mark.slow
def test_the_epsilon_shown_is_made_of_blind_scores_alone(rows, table):
    first = rows["pancake"]
    told = {
        name: {**s, "informed": [2.0 * m - 1 for m in first["member"]]}
        for name, s in first["scores"].items()
    }
    row = training.gather([{**first, "scores": told}])[0]
    assert row["auc_wrong"]["value"] == row["auc_real"]["value"] == 1
    assert row["epsilon_shown"] == table["pancake", KEYED]["epsilon_shown"]


def test_blind_scores_know_the_release_and_the_other_records_and_no_coin():
    """One release and one sum of the others, three explanations of the rest: one score."""
    stream, key = KeyedStream.from_seed("blind"), PancakeKey.new(dim=64, beta=0.1, secret=bytes(32))
    rng = stream.numpy()
    noisy, others = (torch.from_numpy(rng.standard_normal(64)) for _ in range(2))
    gradients = torch.from_numpy(rng.standard_normal((5, 64)) / 8)
    blind, informed = [], []
    for inside in ([], [2], [0, 4]):
        present = torch.zeros(5, dtype=torch.bool)
        present[inside] = True
        watcher = Watcher(key=key, rate=0.1, canaries=5, stream=stream)
        query = others + gradients[present].sum(0)
        watcher(Sight(0, 1.0, query, noisy, gradients, present, pair=None, truth=0))
        blind.append(watcher.scores("blind", keyed=True))
        informed.append(watcher.scores("informed", keyed=True))
    assert blind[0] == pytest.approx(blind[1], abs=1e-6)
    assert blind[0] == pytest.approx(blind[2], abs=1e-6)
    assert max(abs(a - b) for a, b in zip(informed[0], informed[2], strict=True)) > 0.01


@pytest.mark.slow
def test_several_runs_are_counted_together(rows):
    first = rows["pancake"]
    other = {"run": 2, "correct": first["correct"] + 10}
    second = {**first, **other, "verdict": "finding", "found_by": ["moments"]}
    row = {row["attacker"]: row for row in training.gather([first, second])}[KEYED]
    assert (row["runs"], row["pairs"], row["canaries"]) == (2, 2 * first["pairs"], 128)
    accuracy, alone = row["accuracy"], first["correct"] / first["tested"]
    assert accuracy["value"] == pytest.approx(alone + 5 / first["tested"])
    assert accuracy["low"] < alone < accuracy["high"]
    assert (row["audit"], row["found_by"]) == ("finding in 1 of 2", "moments")
    assert row["right"]["value"] == first["named"][KEYED] / first["pairs"]
    assert row["epsilon_shown"] > training.gather([first])[0]["epsilon_shown"]  # twice the canaries
    assert row["roc_wrong"][0] == row["roc_real"][0] == [0, 0]


def an_arm(text, *, dim=512):
    key = PancakeKey.new(dim=dim, beta=1e-4, secret=KeyedStream.from_seed(3).bytes(32))
    return training._Arm(convert(table_of(text), training.Noise), key=key)


def test_the_audit_gets_a_name_and_a_claim_and_the_source_a_private_key_file(monkeypatch):
    seen = {}

    def audited(sampler, **options):
        path = Path(sampler.partition("key=")[2])
        seen.update(options, sampler=sampler, mode=os.stat(path).st_mode & 0o777, path=path)

    monkeypatch.setattr(audit, "audit_sampler", audited)
    arm = an_arm("pancake + smoothing")
    arm.audit(sigma=0.7, samples=1000, seed="s")
    assert seen["sampler"].startswith("pancake:")
    assert (seen["mode"], seen["dim"], seen["path"].exists()) == (0o600, 512, False)
    assert seen["claim"] == f"gaussian:sigma={arm.defence.scale(0.7)!r}"
    assert seen["mitigation"] == "smoothing:dim=512"
    taus = [an_arm("pancake + smoothing", dim=d).defence.tau for d in (512, 64)]
    assert arm.defence.tau == taus[0] != taus[1]


@pytest.mark.slow
def test_the_audit_is_the_real_one():
    found = an_arm("pancake + rotation").audit(sigma=0.7, samples=20_000, seed="s")
    assert (found.verdict, found.dims) == ("no-finding", (512,))


@pytest.mark.parametrize(
    ("grid", "error", "says"),
    [
        ({"arm": "pancakes"}, UnknownNameError, "pancakes"),
        ({"arm": "pancake + rotations"}, UnknownNameError, "rotations"),
        ({"epoch": 3}, SpecError, "epoch=3"),
        ({"model": "none"}, SpecError, "model=none"),
        ({"trials": 63}, SpecError, "trials=63"),
    ],
)
def test_bad_settings(grid, error, says):
    with pytest.raises(error, match=says):
        training.measure(cell(**{"arm": "gaussian", **grid}), None)


def cloud(n=40):
    rng = KeyedStream.from_seed("roc").numpy()
    member = rng.integers(0, 2, n) == 1
    return np.round(rng.standard_normal(n) + member, 1), member  # rounded: with ties


def test_area_counts_pairs_with_ties_for_a_half():
    scores, member = cloud()
    pairs = [(a > b) + (a == b) / 2 for a in scores[member] for b in scores[~member]]
    found = area(scores, member)
    assert found["value"] == pytest.approx(np.mean(pairs))
    assert found["low"] < found["value"] < found["high"]


def test_area_of_the_separable_is_one_with_an_interval_of_as_many_pairs():
    found = area([3, 4, 5, 1, 2], [True, True, True, False, False])
    assert found["value"] == found["high"] == 1
    assert found["low"] == pytest.approx(0.025**0.5)  # Clopper and Pearson for 2 of 2
    assert area([1, 1, 1, 1], [True, False, True, False])["value"] == 0.5


def test_the_interval_of_the_area_covers():
    rng = KeyedStream.from_seed("coverage").numpy()
    missed = 0
    for _ in range(400):
        member = np.arange(60) < 25
        found = area(rng.standard_normal(60) + member, member)
        missed += not found["low"] <= 0.7602 <= found["high"]  # Φ(1/√2)
    assert missed <= 20


def test_hits_lie_above_all_but_a_share_of_the_others():
    """At 1 % above 197, so that 198 and 199 are alarms."""
    scores, member = [*range(200), 150.5, 197.5, 198.5], [False] * 200 + [True] * 3
    for alarms, hits in ((0.01, 2 / 3), (0.0, 0), (0.5, 1)):
        assert hits_at(scores, member, alarms=alarms)["value"] == pytest.approx(hits)


def test_the_curve_s_corners_span_its_area():
    scores, member = cloud()
    points = curve(scores, member)
    assert points[0] == [0, 0]
    assert points[-1] == [1, 1]
    x, y = np.array(points).T
    assert np.trapezoid(y, x) == pytest.approx(area(scores, member)["value"])
    for threshold in scores:
        at = [(scores[~member] >= threshold).mean(), (scores[member] >= threshold).mean()]
        assert np.interp(at[0], x, y) >= at[1] - 1e-12 or at[0] in x


def test_an_interval_over_runs_is_student_s():
    found = mean_interval([0.94, 0.95, 0.96])
    assert found["value"] == pytest.approx(0.95)
    assert found["high"] - found["value"] == pytest.approx(4.302653 * 0.01 / 3**0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        *((lambda f=f: f([1.0, 2.0], [True, True]), "members") for f in (area, curve)),
        (lambda: hits_at([1.0, 2.0], [True, False], alarms=1), "alarms=1"),
        (lambda: mean_interval([0.5]), "runs=1"),
    ],
)
def test_one_sided_scores_and_single_runs_are_refused(call, says):
    with pytest.raises(UsageError, match=says):
        call()
