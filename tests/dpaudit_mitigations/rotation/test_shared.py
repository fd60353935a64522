"""One rotation for all rows: geometry kept, law of a whole matrix, what only it reveals."""

import numpy as np
import pytest
import scipy.stats
import torch
from sources_of_trouble import Fixed, Repeated

from dpaudit_mitigations.rotation.dense import DenseRotation
from dpaudit_mitigations.rotation.fresh import Rotation
from dpaudit_mitigations.rotation.shared import SharedRotation, triangle


def turned(rows, mitigation, stream):
    return mitigation.release(torch.zeros_like(rows), Fixed(rows), stream=stream)


def rows(n, d, dtype=torch.float64, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("randomness", ["stream", "csprng"])
def test_distances_and_angles_are_kept_to_a_millionth(dtype, randomness, stream):
    v = rows(6, 300_000, dtype)
    v[1] *= 30
    v[2] = v[0] + 0.01 * v[2]  # near: 1 % of the length apart
    v[3] = v[4] - 2 * v[5]  # dependent
    w = turned(v, SharedRotation(randomness=randomness), stream)
    assert w.dtype == dtype
    for before, after in (
        (torch.cdist(v.double(), v.double()), torch.cdist(w.double(), w.double())),
    ):
        off = ~torch.eye(6, dtype=torch.bool)
        assert float((after / before - 1)[off].abs().max()) < 1e-6
    length = torch.linalg.vector_norm(v.double(), dim=1)
    angles = [(x.double() @ x.double().T) / torch.outer(length, length) for x in (v, w)]
    assert float((angles[0] - angles[1]).abs().max()) < 1e-6
    # and they are somewhere else
    assert float((v.double() * w.double()).sum(1).abs().div(length**2).max()) < 0.02


def test_zero_repeated_and_nearly_equal_rows(stream):
    v = rows(5, 2000)
    v[1], v[3], v[4] = 0, v[0], v[0]
    v[4, 7] += 1e-3
    w = turned(v, SharedRotation(), stream)
    assert not w[1].any()
    assert float((w[0] - w[3]).abs().max()) < 1e-6
    # the lattice: 2^-24·√2000
    assert float(torch.linalg.vector_norm(w[4] - w[0])) == pytest.approx(1e-3, rel=1e-3)
    assert not turned(torch.zeros(4, 3, dtype=torch.float64), SharedRotation(), stream).any()


@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 9), (9, 9), (12, 5), (40, 1)])
def test_more_rows_than_dimensions(n, d, stream):
    v = rows(n, d)
    w = turned(v, SharedRotation(), stream)
    assert torch.allclose(w @ w.T, v @ v.T, atol=1e-5)
    assert d == 1 or not torch.allclose(w, v, atol=0.01)


def test_chunks_of_coordinates_make_one_triangle(monkeypatch):
    v = rows(4, 1000)
    whole = triangle(v)
    monkeypatch.setattr("dpaudit_mitigations.rotation.shared._VALUES", 256)
    assert torch.allclose(triangle(v), whole, atol=1e-11)
    assert torch.allclose(whole.T @ whole, v @ v.T, rtol=1e-12)
    assert bool((whole.diagonal() >= 0).all())


V = np.array([[3.0, 0, 0, 0], [2, 1, 0, 0], [0, 1, 1, 2]])


def features(mitigation, stream, times=1200):
    """From many calls on V: one coordinate, a product across rows, one across rows and columns."""
    v = torch.from_numpy(V)
    w = torch.stack([turned(v, mitigation, stream.child(i)) for i in range(times)]).numpy()
    return {
        "coordinate": w[:, 0, 0],
        "across rows": w[:, 0, 1] * w[:, 1, 1],
        "across both": w[:, 0, 0] * w[:, 1, 1] - w[:, 0, 1] * w[:, 1, 0],
        "largest": np.abs(w).max((1, 2)),
    }


def test_the_law_is_that_of_a_dense_rotation_of_all_rows(stream):
    ours = features(SharedRotation(), stream.child("ours"))
    oracle = features(DenseRotation(shared=True), stream.child("oracle"))
    for name in ours:
        assert scipy.stats.ks_2samp(ours[name], oracle[name]).pvalue > 1e-3, name
    fresh = features(Rotation(), stream.child("fresh"))
    assert scipy.stats.ks_2samp(fresh["coordinate"], oracle["coordinate"]).pvalue > 1e-3
    assert scipy.stats.ks_2samp(fresh["across rows"], oracle["across rows"]).pvalue < 1e-6
    each = features(DenseRotation(), stream.child("each"))
    for name in fresh:
        assert scipy.stats.ks_2samp(fresh[name], each[name]).pvalue > 1e-3, name


def test_two_releases_under_one_rotation_give_away_what_fresh_ones_hide(stream):
    """A source that says the same twice: y₁ − y₂ is q₁ − q₂, whatever the rotation is."""
    query = torch.zeros(2, 500, dtype=torch.float64)
    query[1, 137] = 1.0
    seen = SharedRotation().release(query, Repeated(), stream=stream)
    assert torch.allclose(seen[1] - seen[0], query[1], atol=1e-6)
    hidden = Rotation().release(query, Repeated(), stream=stream)
    assert float((hidden[1] - hidden[0]).std()) > 1
