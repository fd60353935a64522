"""``dpsgd-training``: its attackers on small runs, and the table of several runs."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from msgspec import convert

from dpaudit.errors import SpecError, UnknownNameError
from dpaudit.experiments import audit_cell as audit
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.spec_file import load_spec
from dpaudit.noise.key import PancakeKey
from dpaudit.randomness import KeyedStream
from dpaudit.studies import dpsgd_training as training
from dpaudit.studies.dpsgd_training import ATTACKERS, Watcher

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
    arm = table_of(arm)
    return Cell(
        "dpsgd-training", {"grid": {"arm": arm, **GRID, **grid}, "seed": "1", "trials": trials}
    )


@pytest.fixture(scope="module")
def rows():
    """One small run of each arm; the audit, which has tests of its own, is left out."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            audit, "audit_sampler", lambda *a, **o: SimpleNamespace(verdict="no-finding", tests=())
        )
        cells = [cell(arm) for arm in ("gaussian", "pancake", "pancake + rotation")]
        return {
            c.written["grid"]["arm"]: {
                **c.written["grid"],
                "trials": 64,
                **training.measure(c, None),
            }
            for c in cells
        }


@pytest.fixture(scope="module")
def table(rows):
    return {(row["arm"], row["attacker"]): row for row in training.gather(list(rows.values()))}


def test_what_everybody_sees_is_the_same(rows):
    assert len({row["epsilon_reported"] for row in rows.values()}) == 1
    assert all(2.9 < row["epsilon_reported"] <= 3 for row in rows.values())
    assert len({tuple(row["member"]) for row in rows.values()}) == 1
    assert all(row["correct"] > 0.4 * row["tested"] for row in rows.values())


def test_the_key_names_the_record_behind_pancakes_and_nowhere_else(table):
    for attacker in (KEYED, NEAREST):
        assert table["pancake", attacker]["right"]["low"] > 0.9
        for arm in ("gaussian", "pancake + rotation"):
            assert (
                table[arm, attacker]["right"]["low"] < 0.5 < table[arm, attacker]["right"]["high"]
            )


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


def test_the_low_bits_tell_any_noise_that_is_added_once_in_floating_point(rows, table):
    for arm in ("gaussian", "pancake"):
        row = rows[arm]
        assert row["sums_equal"] == row["pairs"] > 50
        assert row["infeasible_true"] == 0 < row["infeasible_false"]
        assert table[arm, BITS]["right"]["low"] > 0.9


def test_the_low_bits_tell_nothing_of_what_was_added_on_a_lattice(table):
    assert (
        table["pancake + rotation", BITS]["right"]["low"]
        < 0.5
        < table["pancake + rotation", BITS]["right"]["high"]
    )


def test_the_epsilon_shown_is_below_the_claim_for_honest_noise(table):
    assert table["gaussian", KEYED]["epsilon_shown"] <= 3
    assert table["pancake", KEYED]["epsilon_shown"] > table["pancake", PLAIN]["epsilon_shown"]
    assert "epsilon_shown" not in table["gaussian", BITS]


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


def test_several_runs_are_counted_together(rows):
    first = rows["pancake"]
    second = {
        **first,
        "run": 2,
        "correct": first["correct"] + 10,
        "verdict": "finding",
        "found_by": ["moments"],
    }
    joined = {row["attacker"]: row for row in training.gather([first, second])}
    row = joined[KEYED]
    assert (row["runs"], row["pairs"], row["canaries"]) == (2, 2 * first["pairs"], 128)
    assert row["accuracy"]["value"] == pytest.approx(
        (2 * first["correct"] + 10) / (2 * first["tested"])
    )
    assert row["accuracy"]["low"] < first["correct"] / first["tested"] < row["accuracy"]["high"]
    assert (row["audit"], row["found_by"]) == ("finding in 1 of 2", "moments")
    assert row["right"]["value"] == first["named"][KEYED] / first["pairs"]
    assert row["epsilon_shown"] > training.gather([first])[0]["epsilon_shown"]  # twice the canaries
    assert "scores" not in row
    assert row["roc_wrong"][0] == row["roc_real"][0] == [0, 0]


def test_the_summary_says_it_all(table):
    said = training.summary(list(table.values()))
    assert said.count("reported, audit: finding in 0 of 1") == 3
    assert "pancake + rotation: accuracy" in said
    assert training.summary([]) == ""


@pytest.mark.slow
def test_a_run_repeats_itself(rows, monkeypatch):
    monkeypatch.setattr(
        audit, "audit_sampler", lambda *a, **o: SimpleNamespace(verdict="no-finding", tests=())
    )
    again = training.measure(cell("pancake"), None)
    assert again == {name: rows["pancake"][name] for name in again}


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
    arm.audited(sigma=0.7, samples=1000, seed="s")
    assert seen["sampler"].startswith("pancake:")
    assert (seen["mode"], seen["dim"], seen["path"].exists()) == (0o600, 512, False)
    assert seen["claim"] == f"gaussian:sigma={arm.defence.scale(0.7)!r}"
    assert seen["mitigation"] == "smoothing:dim=512"
    assert (
        arm.defence.tau
        == an_arm("pancake + smoothing", dim=512).defence.tau
        != an_arm("pancake + smoothing", dim=64).defence.tau
    )


@pytest.mark.slow
def test_the_audit_is_the_real_one():
    found = an_arm("pancake + rotation").audited(sigma=0.7, samples=20_000, seed="s")
    assert (found.verdict, found.dims) == ("no-finding", (512,))


@pytest.mark.parametrize(
    ("grid", "error", "says"),
    [
        ({"arm": "pancakes"}, UnknownNameError, "pancakes"),
        ({"arm": "pancake + rotations"}, UnknownNameError, "rotations"),
        ({"epoch": 3}, SpecError, "epoch=3: not known; did you mean 'epochs'"),
        ({"model": "none"}, SpecError, "model=none"),
        ({"trials": 63}, SpecError, "trials=63: .*at least 64"),
    ],
)
def test_bad_settings(grid, error, says):
    with pytest.raises(error, match=says):
        training.measure(cell(**{"arm": "gaussian", **grid}), None)


def test_missing_settings():
    settings = cell("gaussian").settings
    grid = {k: v for k, v in settings["grid"].items() if k != "beta"}
    with pytest.raises(SpecError, match="'beta' is missing"):
        training.measure(Cell("dpsgd-training", {**settings, "grid": grid}), None)


def test_the_spec():
    spec = load_spec("dpsgd-training")
    cells = spec.cells()
    assert len(cells) == 12
    for c in cells:
        recipe = c.grid(training.TrainingGrid).recipe
        assert (recipe.model, recipe.epsilon, recipe.delta) == ("cnn", 3.0, 1e-5)
