"""Batches against Poisson sampling: planted samplers, honest ones, refusals."""

import numpy as np
import pytest
import scipy.stats

from dpaudit.audit.training_loops.loader import audit_loader
from dpaudit.errors import UsageError

N, RATE, EPOCHS = 200, 0.1, 12
WEIGHTED = np.where(np.arange(N) < 180, 1.0, 5.0)
"""As torch's WeightedRandomSampler draws a rare class (Opacus issue 813)."""


def poisson(rng, *, rate=RATE, weights=None):
    chance = rate if weights is None else rate * weights
    return [np.flatnonzero(rng.random(N) < chance) for _ in range(EPOCHS * 10)]


def shuffled(rng):
    return [batch for _ in range(EPOCHS) for batch in rng.permutation(N).reshape(10, 20)]


def found(batches):
    result = audit_loader(batches, records=N, rate=RATE, seed=1)
    return {test.name for test in result.tests if test.finding}


def test_what_shuffling_shows():
    assert {"batch sizes", "successive batches", "inclusion"} <= found(
        shuffled(np.random.default_rng(1))
    )


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("rate", lambda rng: poisson(rng, rate=0.12)),
        (
            "inclusion",
            lambda rng: poisson(rng, weights=np.where(np.arange(N) % 4 == 0, 1.9, 0.7)),
        ),
        ("batches an epoch apart", lambda rng: poisson(rng)[:10] * EPOCHS),
        (
            "batch sizes",
            lambda rng: [rng.choice(N, 20, replace=False) for _ in range(EPOCHS * 10)],
        ),
        (
            "inclusion",
            lambda rng: [rng.choice(N, 20, p=WEIGHTED / WEIGHTED.sum()) for _ in range(120)],
        ),
        ("records twice", lambda rng: [rng.integers(0, N, 20) for _ in range(EPOCHS * 10)]),
        (
            "neighbours in the data",
            lambda rng: [
                (np.flatnonzero(rng.random(N // 2) < RATE)[:, None] * 2 + [0, 1]).ravel()
                for _ in range(EPOCHS * 10)
            ],
        ),
    ],
)
def test_planted_flaws_are_found_by_their_test(name, make):
    assert name in found(make(np.random.default_rng(2)))


@pytest.mark.slow
def test_poisson_sampling_is_rarely_a_finding():
    wrong = sum(
        audit_loader(
            poisson(np.random.default_rng(i)), records=N, rate=RATE, alpha=0.1, seed=i
        ).verdict
        == "finding"
        for i in range(60)
    )
    assert scipy.stats.binom.sf(wrong - 1, 60, 0.1) > 1e-3


def test_a_torch_loader():
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.arange(N))
    loader = torch.utils.data.DataLoader(data, batch_size=20, shuffle=True)
    result = audit_loader(
        (batch for _ in range(4) for batch in loader), records=N, rate=RATE, seed=1
    )
    assert result.batches == 40
    assert str(result).startswith("Finding: the batches are no Poisson samples at rate 0.1: ")


@pytest.mark.parametrize(
    ("batches", "options", "says"),
    [
        ([[1, 2]] * 5, {}, "batches=5"),
        ([[1, 2]] * 30, {"rate": 1.5}, "rate=1.5"),
        ([[1, 2]] * 30, {"alpha": 0}, "alpha=0"),
        ([[1, 2]] * 30, {"records": 3}, "records=3"),
        ([[1, N]] * 30, {}, "whole numbers in 0…199"),
        ([[0.5, 1]] * 30, {}, "whole numbers"),
    ],
)
def test_refusals(batches, options, says):
    with pytest.raises(UsageError, match=says):
        audit_loader(batches, **{"records": N, "rate": RATE, **options})
