"""Projections to the simplex: the optimality conditions, and the paper's way for comparison."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpaudit.errors import UsageError
from dpaudit_attacks.pool_inference.popularity import average_projections, project

vectors = hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-50, 50))


@given(vectors)
def test_optimality_conditions(values):
    """Karush, Kuhn and Tucker: p ≥ 0, Σp = 1; some θ has p = v − θ where p > 0, else v ≤ θ."""
    p = project(values)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1, abs=1e-12)
    theta = (values - p)[p > 0]
    assert np.ptp(theta) < 1e-9
    assert (values[p == 0] <= theta.mean() + 1e-9).all()


@given(vectors)
def test_nearer_than_any_other_point(values):
    rng = np.random.default_rng(0)
    own = np.linalg.norm(values - project(values))
    for other in rng.dirichlet(np.full(len(values), 0.3), 20):
        assert own <= np.linalg.norm(values - other) + 1e-9
    assert own <= np.linalg.norm(values - average_projections(values)) + 1e-9


@given(vectors)
def test_averaged_projections_end_in_the_simplex(values):
    p = average_projections(values)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1, abs=1e-12)


def test_a_point_of_the_simplex_stays():
    p = np.random.default_rng(1).dirichlet(np.ones(30))
    assert project(p) == pytest.approx(p, abs=1e-15)
    assert average_projections(p) == pytest.approx(p, abs=1e-12)


def test_values_beside_which_1_is_lost():
    assert project(np.array([1e17, 0.0, 1.0])).tolist() == [1, 0, 0]
    assert project(np.array([1e17, 1e17])).tolist() == [0.5, 0.5]


def test_averaged_projections_is_not_the_nearest_point():
    values = np.array([-1.5, -1.5, -0.5])
    assert project(values) == pytest.approx([0, 0, 1])
    assert average_projections(values) == pytest.approx([1 / 6, 1 / 6, 2 / 3], abs=1e-5)


@pytest.mark.parametrize("values", [[], [np.nan], [np.inf, 0.0], [[1.0]]])
@pytest.mark.parametrize("way", [project, average_projections])
def test_what_is_refused(values, way):
    with pytest.raises(UsageError, match="finite numbers"):
        way(np.array(values))


def test_no_steps():
    with pytest.raises(UsageError, match="steps=0"):
        average_projections(np.ones(2), steps=0)
