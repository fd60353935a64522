"""All attackers against all defences, and what honest noise itself reveals."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.errors import SpecError
from dpaudit.experiments import load_spec
from dpaudit.experiments.arm import build_arm
from dpaudit.experiments.measure import measure_of
from dpaudit.stats import clopper_pearson
from dpaudit_studies import defences
from dpaudit_studies.defences import best_bin, best_of_two

SPEC = """
name = "t"
seed = 3
epsilon = 0.5
delta = 1e-10
trials = 600
measure = "defences"
host = [{ name = "histogram", table = "uniform", bins = 24 }]
key = { beta = 1e-3, gamma = "2sqrtd" }
source = [{ name = "SOURCE" }]
mitigation = [{ MITIGATION }]
attack = [
  { name = "nearest-peak" }, { name = "likelihood-ratio" }, { name = "which-bin" },
  { name = "recovered-direction", seconds = 20 },
]
"""


RECOVERED = '{ name = "recovered-direction", seconds = 20 },'


def cells(tmp_path, source, mitigation, *changes):
    text = SPEC.replace("SOURCE", source).replace("MITIGATION", mitigation)
    for old, new in changes:
        text = text.replace(old, new)
    path = tmp_path / "s.toml"
    path.write_text(text)
    return load_spec(str(path)).cells()


def outcome(tmp_path, source, mitigation, *changes):
    (cell,) = cells(tmp_path, source, mitigation, *changes)
    return measure_of(cell.kind).run(cell, build_arm(cell.settings, cell=cell.id))


def shares(found):
    return {a["attack"]: a["success"] for a in found["attacks"]}


@pytest.mark.slow
def test_the_backdoor_is_read_by_key_holders_and_by_who_finds_the_key(tmp_path):
    found = outcome(tmp_path, "pancake", 'name = "none"')
    by = shares(found)
    assert by["nearest-peak"]["low"] > 0.95
    assert by["likelihood-ratio"]["low"] > 0.95
    assert by["which-bin"]["low"] > 0.7
    assert found["epsilon_holder"].low > 1000
    rows = defences.gather([{**found, "source": "pancake", "mitigation": "none"}])
    assert [r["trusts"] == found["trusts"] for r in rows] == [True, False, False, False]
    assert all(r["beats_honest"] for r in rows)
    if pytest.importorskip("fpylll"):
        assert by["recovered-direction"]["low"] > 0.95


@pytest.mark.slow
def test_rotation_leaves_all_of_them_guessing(tmp_path):
    found = outcome(tmp_path, "pancake", 'name = "rotation"')
    for attack in found["attacks"]:
        assert attack["success"]["low"] < attack["honest"] + 0.02, attack
        assert attack["p"] > 1e-3
    assert found["error"] == pytest.approx(1, abs=0.02)
    assert found["trusts"]


@pytest.mark.slow
def test_the_key_holder_knows_the_smoothing(tmp_path):
    """At a small τ an attacker with widened peaks reads all that is left: a slow oracle says so."""
    found = outcome(tmp_path, "pancake", 'name = "smoothing", tau = 0.02')
    by = shares(found)
    assert by["likelihood-ratio"]["low"] > 0.6
    assert by["likelihood-ratio"]["value"] >= by["nearest-peak"]["value"] - 0.01
    assert found["error"] == pytest.approx(math.hypot(1, 0.02), abs=0.02)


def made_up(right, rounds, *, honest=0.5, chance=0.5, name="a"):
    score = defences._Score(right=right, rounds=rounds, honest=honest * rounds)
    return {"attack": name, "chance": chance, **score.outcome}


def table_of(*attacks):
    return {"source": "pancake", "mitigation": "m", "trusts": "nobody", "attacks": list(attacks)}


def test_a_table_of_coins_is_not_beaten_by_its_luckiest_row():
    """Of 150 fair coins some four beat a half at 95 %; the flags hold for the table as a whole."""
    rng = np.random.default_rng(3)
    rows = defences.gather([table_of(made_up(int(k), 2000)) for k in rng.binomial(2000, 0.5, 150)])
    assert sum(r["success"]["low"] > 0.5 for r in rows) > 1
    assert not any(r["beats_honest"] for r in rows)
    assert "behind: nothing." in defences.summary(rows)
    assert "has to win 54 % of 2,000 rounds" in defences.summary(rows)
    real = defences.gather([table_of(made_up(1000, 2000))] * 149 + [table_of(made_up(1090, 2000))])
    assert [r["beats_honest"] for r in real] == [False] * 149 + [True]
    # what ε itself allows is no backdoor
    allowed = defences.gather([table_of(made_up(1400, 2000, honest=0.7))])
    assert allowed[0]["success"]["low"] > allowed[0]["chance"]
    assert not allowed[0]["beats_honest"]


@pytest.mark.slow
def test_unequal_rounds_never_look_like_more():
    """Hoeffding 1956: unequal rounds exceed a high count less often than rounds of their mean."""
    rng = np.random.default_rng(4)
    each = np.where(np.arange(400) < 200, 0.95, 0.51)
    right = (rng.random((5000, 400)) < each).sum(1)
    p = [made_up(int(k), 400, honest=each.mean())["p"] for k in right]
    for level in (0.2, 0.05, 0.01):
        assert np.mean(np.array(p) <= level) < level


@pytest.mark.slow
def test_the_strongest_attack_is_chosen_with_its_interval():
    """Best of 8 coin attacks: its own interval misses 0 far more often than the joint one."""
    rng = np.random.default_rng(5)
    joint = alone = 0
    for _ in range(400):
        attacks = [
            made_up(int(k), 500, name=str(i)) for i, k in enumerate(rng.binomial(500, 0.5, 8))
        ]
        rows = defences.gather([table_of(*attacks)])
        (best,) = [r for r in rows if r["strongest"] is not None]
        assert best["strongest"]["value"] == pytest.approx(2 * best["success"]["value"] - 1)
        joint += not best["strongest"]["low"] <= 0 <= best["strongest"]["high"]
        alone += best["success"]["low"] > 0.5
    assert joint <= 20
    assert alone > 40
    bins = table_of(made_up(510, 1000), made_up(200, 1000, honest=0.05, chance=1 / 32, name="bins"))
    best = [r["attack"] for r in defences.gather([bins]) if r["strongest"] is not None]
    assert best == ["bins"]


def plainly(tmp_path, monkeypatch, source, mitigation):
    """At ε = 8, where honest noise reveals much; without the mitigation's proof, which is slow."""
    (cell,) = cells(tmp_path, source, mitigation, ("epsilon = 0.5", "epsilon = 8"),
                    ("trials = 600", "trials = 3000"), (RECOVERED, ""))  # fmt: skip
    arm = build_arm(cell.settings, cell=cell.id)
    for name in ("epsilon", "epsilon_after"):
        monkeypatch.setattr(type(arm.mitigation), name, lambda *_, **__: None, raising=False)
    return measure_of(cell.kind).run(cell, arm)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "mitigation"),
    [
        ("gaussian", 'name = "none"'),
        ("pancake", 'name = "rotation"'),
        ("pancake", 'name = "structured-rotation"'),
        ("pancake", 'name = "smoothing", ratio = 1.5'),
        ("pancake", 'name = "rounding", peaks = 2'),
    ],
)
def test_the_best_attackers_win_what_honest_noise_allows(tmp_path, monkeypatch, source, mitigation):
    """Without a fitting key, or with wide peaks, they do as well as on the Gaussian mechanism."""
    found = {a["attack"]: a for a in plainly(tmp_path, monkeypatch, source, mitigation)["attacks"]}
    for name in ("likelihood-ratio", "which-bin"):
        attack = found[name]
        right = round(attack["success"]["value"] * attack["rounds"])
        allowed = clopper_pearson(right, attack["rounds"], confidence=0.999)
        assert attack["honest"] > attack["chance"] + 0.1
        assert allowed.low <= attack["honest"] + 0.005
        assert allowed.high >= attack["honest"] - 0.02  # smoothing and rounding add a little noise
        assert attack["p"] > 1e-4


@pytest.mark.slow
def test_one_rotation_for_a_whole_call_is_found_in_it(tmp_path):
    """An attacker who knows some queries of a call finds the turned direction without a key."""
    pytest.importorskip("fpylll")
    by = shares(outcome(tmp_path, "pancake", 'name = "shared-rotation"'))
    assert by["recovered-direction"]["low"] > 0.95
    assert by["nearest-peak"]["low"] < 0.55


def test_an_attack_that_scores_no_candidates_is_refused(tmp_path):
    timing = ('name = "which-bin"', 'name = "timing"')
    with pytest.raises(SpecError, match="attack=timing"):
        outcome(tmp_path, "pancake", 'name = "none"', timing)


def test_two_candidates():
    rng = np.random.default_rng(1)
    pairs = torch.from_numpy(rng.standard_normal((3, 2, 5)))
    got = best_of_two(pairs, sigma=1.5)
    for pair, wanted in zip(pairs.numpy(), got.tolist(), strict=True):
        truth = rng.integers(0, 2, 200_000)
        y = pair[truth] + 1.5 * rng.standard_normal((200_000, 5))
        near = [((y - q) ** 2).sum(1) for q in pair]
        assert ((near[1] < near[0]) == truth).mean() == pytest.approx(wanted, abs=0.004)


@pytest.mark.parametrize("sigma", [0.3, 2.0, 30.0])
def test_two_equal_bins_are_two_candidates(sigma):
    counts = torch.tensor([5.0, 5.0, 0.0])
    assert best_bin(counts, sigma=sigma) == pytest.approx(
        scipy.stats.norm.cdf(math.sqrt(0.5) / sigma), rel=1e-9
    )


@pytest.mark.parametrize(
    ("counts", "sigma"), [((50, 30, 15, 5), 1.0), ((3, 3, 3, 3, 3), 0.5), ((90, 9, 1), 3.0)]
)
def test_more_bins_by_simulation(counts, sigma):
    rng = np.random.default_rng(2)
    share = np.array(counts) / sum(counts)
    truth = rng.choice(len(share), 400_000, p=share)
    r = sigma * rng.standard_normal((400_000, len(share)))
    r[np.arange(400_000), truth] -= 1
    guess = (np.log(share) - r / sigma**2).argmax(1)
    got = best_bin(torch.tensor(counts, dtype=torch.float64), sigma=sigma)
    assert (guess == truth).mean() == pytest.approx(got, abs=0.003)
    assert got >= share.max() - 1e-9


@pytest.mark.slow
def test_many_bins_behind_much_noise_are_a_guess():
    counts = torch.full((5000,), 7.0)
    assert best_bin(counts, sigma=50.0) == pytest.approx(1 / 5000, rel=0.1)
    assert best_bin(counts, sigma=0.05) == pytest.approx(1.0, abs=1e-12)
