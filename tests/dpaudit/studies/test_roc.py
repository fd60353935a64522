"""Areas, hits and curves against counting by hand."""

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.studies.roc import area, curve, hits_at, mean_interval


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
    scores = [*range(200), 150.5, 197.5, 198.5]
    member = [False] * 200 + [True] * 3
    assert hits_at(scores, member, alarms=0.01)["value"] == pytest.approx(
        2 / 3
    )  # above 197, so that 198 and 199 are alarms
    assert hits_at(scores, member, alarms=0.0)["value"] == 0
    assert hits_at(scores, member, alarms=0.5)["value"] == 1


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


def test_one_sided_scores_and_single_runs_are_refused():
    for call in (area, curve):
        with pytest.raises(UsageError, match="members"):
            call([1.0, 2.0], [True, True])
    with pytest.raises(UsageError, match="alarms=1"):
        hits_at([1.0, 2.0], [True, False], alarms=1)
    with pytest.raises(UsageError, match="runs=1"):
        mean_interval([0.5])
