"""Least squares and rounding against slow oracles: all active sets, and all ways to round."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from dpaudit.hosts.topdown.estimation import Answers, estimate
from dpaudit.hosts.topdown.rounding import controlled_rounding

GROUPS = np.array([[1, 0], [1, 0], [0, 1]], dtype=float)
ALL = np.ones((3, 1))


def objective(x, answers):
    return sum(a.weight * np.square(x @ a.matrix - a.values).sum() for a in answers)


def oracle(answers, parent, totals):
    """The least objective over all active sets, each solved as an equality-constrained problem."""
    n, cells = answers[0].values.shape[0], answers[0].matrix.shape[0]
    size = n * cells
    rows = [np.kron(np.eye(n), a.matrix.T) * np.sqrt(a.weight) for a in answers]
    target = [np.sqrt(a.weight) * a.values.ravel() for a in answers]
    design, right = np.concatenate(rows), np.concatenate(target)
    equal, value = [np.zeros((0, size))], [np.zeros(0)]
    if parent is not None:
        equal.append(np.kron(np.ones((1, n)), np.eye(cells)))
        value.append(parent)
    if totals is not None:
        equal.append(np.kron(np.eye(n), np.ones((1, cells))))
        value.append(totals)
    equal, value = np.concatenate(equal), np.concatenate(value)
    best = None
    for zeros in (z for k in range(size) for z in combinations(range(size), k)):
        held = np.concatenate([equal, np.eye(size)[list(zeros)]])
        want = np.concatenate([value, np.zeros(len(zeros))])
        kkt = np.block([[2 * design.T @ design, held.T], [held, np.zeros((len(held), len(held)))]])
        x = np.linalg.lstsq(kkt, np.concatenate([2 * design.T @ right, want]), rcond=None)[0][:size]
        if np.abs(held @ x - want).max(initial=0) < 1e-8 and x.min() > -1e-9:
            found = x.reshape(n, cells)
            if best is None or objective(found, answers) < objective(best, answers):
                best = found
    return best


@pytest.mark.parametrize("held", ["nothing", "parent", "totals", "both"])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_best_of_all_active_sets(held, seed):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 4, (2, 3)).astype(float)
    answers = [
        Answers(matrix=m, values=true @ m + rng.normal(0, 3, (2, m.shape[1])), weight=w)
        for m, w in ((np.eye(3), 1.0), (GROUPS, 0.3), (ALL, 2.0))
    ]
    parent = true.sum(0) if held in ("parent", "both") else None
    totals = true.sum(1) if held in ("totals", "both") else None
    found = estimate(answers, parent=parent, totals=totals)
    wanted = oracle(answers, parent, totals)
    assert found == pytest.approx(wanted, abs=1e-4)
    if parent is not None:
        assert found.sum(0) == pytest.approx(parent, abs=1e-9)
    if totals is not None:
        assert found.sum(1) == pytest.approx(totals, abs=1e-9)


def test_some_of_these_problems_have_active_zeros():
    rng = np.random.default_rng(0)
    answer = Answers(matrix=np.eye(3), values=rng.normal(0, 3, (2, 3)), weight=1.0)
    found = estimate([answer])
    assert (answer.values < 0).any()
    assert found == pytest.approx(np.maximum(answer.values, 0), abs=1e-5)


def test_only_the_ratio_of_weights_matters():
    rng = np.random.default_rng(1)
    values = rng.normal(5, 3, (2, 3)), rng.normal(15, 3, (2, 1))

    def found(factor):
        return estimate(
            [
                Answers(matrix=m, values=v, weight=w * factor)
                for m, v, w in zip((np.eye(3), ALL), values, (1.0, 4.0), strict=True)
            ]
        )

    assert found(1e-6) == pytest.approx(found(1.0), abs=1e-5)


def rounded_oracle(values, part, parent):
    """The least distance over all ways to round down or up that keep all sums."""
    best = None
    for ups in product((0, 1), repeat=values.size):
        y = np.floor(values) + np.reshape(ups, values.shape)
        sums, real = (z @ np.eye(part.max() + 1)[part] for z in (y, values))
        if (np.abs(sums - real) > 1 - 1e-9).any() or (
            parent is not None and (y.sum(0) != parent).any()
        ):
            continue
        distance = np.abs(y - values).sum()
        best = distance if best is None else min(best, distance)
    return best


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("with_parent", [True, False])
def test_it_is_the_nearest_of_all_controlled_roundings(seed, with_parent):
    rng = np.random.default_rng(seed)
    values = rng.uniform(0, 5, (3, 4))
    part = np.array([0, 0, 1, 1])
    parent = None
    if with_parent:
        parent = np.rint(values.sum(0)).astype(np.int64)
        values *= parent / values.sum(0)
    found = controlled_rounding(values, parts=[part, np.zeros(4, dtype=np.int64)], parent=parent)
    assert found.dtype == np.int64
    assert (np.abs(found - values) < 1).all()
    sums = np.eye(2)[part]
    assert (np.abs(found @ sums - values @ sums) < 1).all()
    assert (np.abs(found.sum(1) - values.sum(1)) < 1).all()
    if parent is not None:
        assert (found.sum(0) == parent).all()
    in_groups = rounded_oracle(values, part, parent)
    assert np.abs(found - values).sum() >= in_groups - 1e-9
    only_groups = controlled_rounding(values, parts=[part], parent=parent)
    assert np.abs(only_groups - values).sum() == pytest.approx(in_groups, abs=1e-6)


def test_whole_numbers_and_whole_sums_stay():
    values = np.array([[1.0, 2.5, 2.5], [3.0, 0.2, 0.8]])
    found = controlled_rounding(values, parts=[np.zeros(3, dtype=np.int64)])
    assert found[:, 0].tolist() == [1, 3]
    assert found.sum(1).tolist() == [6, 4]


def test_sums_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError, match="no controlled rounding"):
        controlled_rounding(np.full((2, 2), 0.5), parent=np.array([5, 1]))
