"""The torch correction, the compiled one, and Gaussian conditioning written out agree."""

import math

import numpy as np
import pytest
import torch

from dpaudit.noise.pancake import Pancake
from dpaudit.noise.pancake_cuda import condition_
from dpaudit.numeric import BLOCK
from dpaudit.numeric.kernels import fill_normal, fill_pancake

SEVERAL = 3 * BLOCK + 17


def both(source, n, stream, dtype):
    """The same normals corrected by the compiled loop and by torch, and the normals."""
    d, shares = source.dim, source.shares(n, stream=stream)
    inverse = source.block_inverse(0, d)
    plain, fused = np.empty((n, d), dtype), np.empty((n, d), dtype)
    fill_normal(plain, sigma=source.sigma, stream=stream)
    w = source.key.vectors
    fill_pancake(fused, sigma=source.sigma, stream=stream, w=w, shares=shares, inverse=inverse)
    torched = condition_(torch.from_numpy(plain.copy()), w, shares=shares, inverse=inverse).numpy()
    return fused, torched, plain, shares


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(
    ("d", "n"), [(16, 300), (BLOCK, 3), (BLOCK + 1, 3), (BLOCK + 2, 3), (SEVERAL, 2), (SEVERAL, 70)]
)
def test_both_corrections_agree_but_for_rounding(make_key, stream, d, n, k):
    """70 rows go block by block, 2 rows in one step; BLOCK + 1 and + 2 end below rank k."""
    source = Pancake(key=make_key(dim=d, directions=k), sigma=3.0)
    fused, torched, plain, _ = both(source, n, stream, np.float64)
    assert np.abs(fused - torched).max() < 1e-10 * 3.0
    assert np.abs(fused - plain).max() > 1e-3  # there was something to correct
    if (d, n) in ((16, 300), (BLOCK + 1, 3), (SEVERAL, 2)):
        fused, torched, _, _ = both(source, n, stream, np.float32)
        largest = np.abs(fused).max()
        assert np.abs(fused - torched).max() < (k + 2) * 2.0**-24 * largest * 1.5
        assert np.sqrt(((fused - torched) ** 2).mean()) < (k + 2) * 2.5e-8 * 3.0


@pytest.mark.parametrize("k", [1, 3])
def test_the_correction_is_the_conditional_law_written_out(make_key, stream, k):
    """d = 40: g + Wᵀ(WWᵀ)⁻¹(R − Wg), solved densely; orthogonally to the key nothing moves."""
    source = Pancake(key=make_key(dim=40, directions=k), sigma=3.0)
    fused, torched, g, shares = both(source, 50, stream, np.float64)
    w = source.key.vectors.astype(np.float64)
    expected = g + (w.T @ np.linalg.solve(w @ w.T, (shares[:, 0] - g @ w.T).T)).T
    basis = source.key.basis
    for v in (fused, torched):
        assert v == pytest.approx(expected, abs=1e-12)
        assert v @ w.T == pytest.approx(shares[:, 0], abs=1e-9 * 4096)
        assert v - v @ basis.T @ basis == pytest.approx(g - g @ basis.T @ basis, abs=1e-12)


def test_a_block_of_one_coordinate_is_its_share(make_key, stream):
    source = Pancake(key=make_key(dim=BLOCK + 1, directions=3), sigma=3.0)
    fused, torched, _, shares = both(source, 5, stream, np.float64)
    w = source.key.vectors[:, -1].astype(np.float64)
    assert (w != 0).all()
    for j in range(3):
        assert fused[:, -1] == pytest.approx(shares[:, 1, j] / w[j], rel=1e-6, abs=1e-9)
    assert torched[:, -1] == pytest.approx(fused[:, -1], rel=1e-12)


def test_work_in_place_and_the_same_tensor_back(make_key, stream):
    source = Pancake(key=make_key(dim=16))
    noise = torch.ones(2, 16, dtype=torch.float64)
    options = {"shares": source.shares(2, stream=stream), "inverse": source.block_inverse(0, 16)}
    assert condition_(noise, source.key.vectors, **options) is noise
    assert not torch.equal(noise, torch.ones_like(noise))


def test_the_float64_comparison_sees_a_float32_inner_product(make_key, stream):
    """The same correction with ⟨g,w⟩ in float32 is off by more than the tolerance above."""
    source = Pancake(key=make_key(dim=BLOCK), sigma=3.0)
    fused, _, g, shares = both(source, 20, stream, np.float64)
    w = source.key.direction
    inner = (g.astype(np.float32) @ w.astype(np.float32)).astype(np.float64)
    norm = math.sqrt((source.key.vectors[0].astype(np.float64) ** 2).sum())
    wrong = g + np.outer(shares[:, 0, 0] / norm - inner, w)
    assert np.abs(wrong - fused).max() > 10 * 1e-10 * 3.0
