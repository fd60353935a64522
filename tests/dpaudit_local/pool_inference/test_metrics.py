"""Precision against null rate, its area and interval, calibration, and the map of behaviour."""

import itertools
import json
import math

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit_local.pool_inference.metrics import NULL_RATES, Outcome


def outcome(confidence, correct, *, seed=0):
    random, n = np.random.default_rng(seed), len(confidence)
    behaviour = 1 - random.random(n), 1 - 0.8 * random.random(n)
    return Outcome(np.asarray(confidence, float), np.asarray(correct, bool), *behaviour, 5)


def made(n, *, seed, levels=None):
    """Calibrated confidences in [1/5, 1]; with ``levels``, of so many values only."""
    random = np.random.default_rng(seed)
    confidence = 0.2 + 0.8 * random.random(n) ** 2
    if levels:
        confidence = np.round(confidence * levels) / levels
    return outcome(confidence, random.random(n) < confidence, seed=seed)


def area_by_hand(confidence, correct, *, tries, seed):
    """Mean over random orders among equals of the running precision, by sorting and dividing."""
    random, found = np.random.default_rng(seed), []
    for _ in range(tries):
        order = np.lexsort((random.random(len(confidence)), -confidence))
        found.append(np.mean([correct[order][: j + 1].mean() for j in range(len(order))]))
    return np.mean(found), np.std(found) / math.sqrt(tries)


def test_area_of_a_game_done_by_hand():
    four = outcome([0.9, 0.8, 0.7, 0.6], [True, False, True, True])
    assert four.exact_auc_pn() == pytest.approx((1 + 1 / 2 + 2 / 3 + 3 / 4) / 4)
    assert four.precision_at([0, 0.25, 0.5, 0.75]).tolist() == pytest.approx(
        [3 / 4, 2 / 3, 1 / 2, 1]
    )
    assert np.isnan(four.precision_at([0.8, 1.0])).all()
    assert four.curve()[-1] == [1.0, 1.0]


def test_curve_is_the_authors_sum():
    """Accuracy of the int((1 − null)·N) most confident at each null rate, by the trapezium rule.

    Where nobody is left the last one is repeated.
    """
    game = made(1000, seed=1)
    order = np.argsort(-game.confidence)
    accuracy = [game.correct[order][: round((1 - null) * 1000)].mean() for null in NULL_RATES[:-1]]
    accuracy.append(accuracy[-1])
    assert game.auc_pn() == pytest.approx(
        sum((a + b) / 200 for a, b in itertools.pairwise(accuracy))
    )
    assert [y for _, y in game.curve()] == pytest.approx(accuracy)


@pytest.mark.slow
def test_equals_are_averaged_over_their_order():
    game = made(60, seed=3, levels=6)
    value, error = area_by_hand(game.confidence, game.correct, tries=800, seed=4)
    assert abs(game.exact_auc_pn() - value) < 4 * error
    permuted = np.random.default_rng(5).permutation(60)
    again = outcome(game.confidence[permuted], game.correct[permuted])
    assert again.exact_auc_pn() == pytest.approx(game.exact_auc_pn(), rel=1e-12)
    assert again.curve() == [pytest.approx(pair) for pair in game.curve()]
    assert again.standard_error() == pytest.approx(game.standard_error(), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("levels", [None, 8])
def test_standard_error_is_the_bootstraps(levels):
    game = made(2000, seed=6, levels=levels)
    random, found = np.random.default_rng(7), []
    for _ in range(600):
        drawn = random.integers(0, 2000, 2000)
        found.append(outcome(game.confidence[drawn], game.correct[drawn]).auc_pn())
    # of 600: 3 % is one standard error
    assert game.standard_error() == pytest.approx(np.std(found), rel=0.12)


def test_interval_covers_the_area_of_all_users():
    truth = made(400_000, seed=8).exact_auc_pn()
    areas = [made(1000, seed=100 + i).area() for i in range(200)]
    assert sum(a["low"] <= truth <= a["high"] for a in areas) >= 179  # P(fewer | 95 %) = 5e-4


def test_calibration():
    game = made(50_000, seed=9)
    bins = game.calibration()
    assert sum(b["users"] for b in bins) == 50_000
    assert sum(b["low"] <= b["confidence"] <= b["high"] for b in bins) >= len(bins) - 3
    assert game.calibration_error() < 0.012  # √(20/50,000) = 0.02 bounds what chance makes of it
    assert outcome(np.minimum(1, game.confidence + 0.2), game.correct).calibration_error() > 0.15


def test_behaviour_map_counts_each_user_where_they_are():
    gamma, delta = np.array([0.05, 0.05, 1.0, 0.95, 0.31]), np.array([0.21, 0.27, 1.0, 0.99, 0.85])
    game = Outcome(np.full(5, 0.5), np.array([True, False, True, True, False]), gamma, delta, 5)
    cells = {(round(g, 3), round(d, 3)): p for g, d, p in game.behaviour_map()}
    assert cells == {(0.05, 0.24): 0.5, (0.95, 0.96): 1.0, (0.35, 0.88): 0.0}


def test_all_of_it_is_ready_for_json():
    found = json.loads(json.dumps(made(500, seed=10).to_dict(), allow_nan=False))
    assert len(found["curve"]) == 101
    assert found["auc_pn"]["low"] < found["auc_pn"]["value"] < found["auc_pn"]["high"]
    one = outcome([0.4], [True]).to_dict()
    assert one["auc_pn"]["value"] == pytest.approx(1)
    assert one["precision_top_tenth"] is None


@pytest.mark.parametrize(
    ("confidence", "correct"), [([], []), ([0.5, 0.5], [True]), ([1.5], [True]), ([np.nan], [True])]
)
def test_no_outcome(confidence, correct):
    with pytest.raises(UsageError):
        outcome(confidence, correct)
