"""Signs and transforms: orthogonal, right for Gaussian noise, and read after one round."""

import numpy as np
import pytest
import scipy
import scipy.stats
import torch
from sources_of_trouble import Fixed, Sparse

from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.stats import clopper_pearson
from dpaudit_mitigations.rotation.fresh import Rotation
from dpaudit_mitigations.rotation.structured import StructuredRotation


@pytest.mark.parametrize("transform", ["dct", "hadamard"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_it_is_one_orthogonal_map(transform, rounds, stream):
    d, m = 32, StructuredRotation(rounds=rounds, transform=transform)
    zero = torch.zeros(1, d, dtype=torch.float64)
    columns = [
        m.release(zero, Fixed(torch.eye(d, dtype=torch.float64)[[j]]), stream=stream)[0]
        for j in range(d)
    ]
    matrix = torch.stack(columns, dim=1)
    assert torch.allclose(matrix @ matrix.T, torch.eye(d, dtype=torch.float64), atol=1e-5)
    v = torch.linspace(-1, 2, d, dtype=torch.float64)[None]
    assert torch.allclose(m.release(zero, Fixed(v), stream=stream), v @ matrix.T, atol=1e-5)


def test_one_round_is_what_scipy_says(stream):
    v = torch.linspace(1, 2, 64, dtype=torch.float64)[None]
    for transform, matrix in (
        ("hadamard", scipy.linalg.hadamard(64) / 8),
        ("dct", scipy.fft.dct(np.eye(64), axis=0, norm="ortho")),
    ):
        noise = StructuredRotation(rounds=1, transform=transform).release(
            torch.zeros_like(v), Fixed(v), stream=stream
        )
        undone = np.linalg.solve(matrix, noise[0].numpy())
        signs = np.sign(undone)
        assert np.allclose(undone, signs * v[0].numpy(), atol=1e-5)
        assert 12 < (signs > 0).sum() < 52


@pytest.mark.parametrize("d", [1, 7, 100_003, 1 << 17])
def test_norms_are_kept(d, stream):
    for dtype, tolerance in ((torch.float64, 1e-7), (torch.float32, 1e-6)):
        v = torch.randn(2, d, dtype=dtype, generator=torch.Generator().manual_seed(1))
        for transform in ("dct", "hadamard") if d & (d - 1) == 0 else ("dct",):
            w = StructuredRotation(transform=transform).release(
                torch.zeros_like(v), Fixed(v), stream=stream
            )
            ratio = torch.linalg.vector_norm(w.double(), dim=1) / torch.linalg.vector_norm(
                v.double(), dim=1
            )
            assert float((ratio - 1).abs().max()) < tolerance


def test_gaussian_noise_stays_gaussian(stream):
    noise = StructuredRotation().release(
        torch.zeros(1000, 50, dtype=torch.float64), Gaussian(), stream=stream
    )
    assert scipy.stats.kstest(noise.numpy().ravel(), "norm").pvalue > 1e-3
    assert scipy.stats.kstest((noise**2).sum(1).numpy(), "chi2", args=(50,)).pvalue > 1e-3


def magnitudes(mitigation, stream):
    """How many different ones a vector with one coordinate is turned into, of 256."""
    source = Fixed(torch.eye(256, dtype=torch.float64)[[3]] * 16)
    noise = mitigation.release(torch.zeros(1, 256, dtype=torch.float64), source, stream=stream)
    return len(torch.unique(noise.abs().round(decimals=4)))


def test_hadamard_rounds_map_a_sparse_vector_to_few_magnitudes(stream):
    """One round: all equal. Two, three: multiples of 1/8, 1/128. A Haar rotation: all different."""
    found = [
        magnitudes(StructuredRotation(rounds=r, transform="hadamard"), stream) for r in (1, 2, 3)
    ]
    assert found[0] == 1
    assert found[1] < 30
    assert found[2] < 60
    assert magnitudes(Rotation(), stream) > 240


def sparse_success(mitigation, stream, score, *, trials=2000, d=64):
    """How often the reader of sparse noise is right; ``score`` is high for the source's noise."""
    query = torch.zeros(trials, 2, d, dtype=torch.float64)
    query[:, 1, 0] = 0.04
    truth = torch.arange(trials) % 2
    y = mitigation.release(query[torch.arange(trials), truth], Sparse(), stream=stream)
    return int((score((y[:, None] - query).numpy()).argmax(1) == truth.numpy()).sum())


def sparse_under_dct(left):
    undone = np.abs(scipy.fft.idct(left, norm="ortho"))
    return undone.max(-1) / np.sqrt((undone**2).sum(-1))


def sparse_under_hadamard(left):
    undone = np.abs(left @ (scipy.linalg.hadamard(64) / 8))
    return undone.max(-1) / np.sqrt((undone**2).sum(-1))


def on_the_grid(left):
    """√d·e_j after r Hadamard rounds has coordinates in 2·d^−((r−1)/2)·Z; here for r = 3."""
    steps = left * (64 / 2)
    return -np.abs(steps - np.rint(steps)).max(-1)


@pytest.mark.parametrize(
    ("rounds", "transform", "reader"),
    [
        (1, "dct", sparse_under_dct),
        (1, "hadamard", sparse_under_hadamard),
        (3, "hadamard", on_the_grid),
    ],
)
def test_a_source_made_for_it_is_read_with_certainty_and_not_behind_a_haar_rotation(
    rounds, transform, reader, stream
):
    broken = StructuredRotation(rounds=rounds, transform=transform)
    assert sparse_success(broken, stream, reader) == 2000
    interval = clopper_pearson(
        sparse_success(Rotation(), stream, reader), 2000, confidence=1 - 0.05 / 3
    )
    assert interval.low <= 0.5 <= interval.high


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rounds": 0}, "rounds=0"),
        ({"rounds": 2.0}, r"rounds=2\.0"),
        ({"rounds": True}, "rounds=True"),
        ({"transform": "dft"}, "dft"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(UsageError, match=says):
        StructuredRotation(**options)


def test_hadamard_takes_powers_of_two(stream):
    with pytest.raises(UsageError, match="d=12"):
        StructuredRotation(transform="hadamard").release(
            torch.zeros(1, 12), Gaussian(), stream=stream
        )
